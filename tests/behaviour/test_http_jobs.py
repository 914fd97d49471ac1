"""/v1/jobs and /v1/schedules: work in the background, for those who may see and change it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.http_people import BOB, People, people, same
from toolgate import App, tool
from toolgate.errors import InvalidInput
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("DOOR-1"), pytest.mark.asyncio(loop_scope="module")]


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a < 0:
        raise InvalidInput("The first number is below zero.")
    return a + b


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.register(add)
        yield app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_people(app: App) -> AsyncIterator[People]:
    async with people(app) as found:
        yield found


async def queued(who: Any, a: int = 1, **more: Any) -> str:
    body = {"arguments": {"a": a, "b": 2}, "mode": "async", "delay": 1_000, **more}
    answer = await who.post("/v1/tools/add/invoke", body)
    assert answer.status == 202, answer.body
    return str(answer.json["pending"]["id"])


async def test_jobs_are_listed_page_by_page_to_those_who_may_see_them(all_people: People) -> None:
    mine = [await queued(all_people.ann, priority=number % 3) for number in range(5)]
    others = [await queued(all_people.bob) for _ in range(3)]
    eves = await queued(all_people.eve)
    assert [one["id"] for one in await all_people.ann.all("/v1/jobs", limit=2)] == mine[::-1]
    assert [one["id"] for one in await all_people.bob.all("/v1/jobs")] == others[::-1]
    for role in ("viewer", "approver", "admin", "operator"):
        found = await all_people.of[role].all("/v1/jobs", limit=3, state="queued")
        assert [one["id"] for one in found] == [*others[::-1], *mine[::-1]]
    assert [one["id"] for one in await all_people.eve.all("/v1/jobs")] == [eves]
    everybody = await all_people.of["operator"].all("/v1/jobs", tenant="*", limit=4)
    assert {one["tenant"] for one in everybody} == {"acme", "other"}
    assert await all_people.ann.all("/v1/jobs", state="done") == []
    assert await all_people.ann.all("/v1/jobs", type="none") == []
    for query in ({"state": "lost"}, {"type": ""}, {"limit": 0}):
        assert (await all_people.ann.get("/v1/jobs", **query)).status == 422


async def test_a_job_is_waited_for(all_people: People) -> None:
    id = await queued(all_people.ann, delay=0)
    found = (await all_people.ann.get(f"/v1/jobs/{id}", wait=50)).json
    assert (found["state"], found["result"]["output"]) == ("done", 3)
    assert (await all_people.ann.get(f"/v1/jobs/{id}")).json["state"] == "done"
    later = await queued(all_people.ann)
    assert (await all_people.ann.get(f"/v1/jobs/{later}", wait=0.05)).json["state"] == "queued"
    assert (await all_people.ann.get(f"/v1/jobs/{later}", wait=61)).status == 422


async def test_jobs_are_cancelled_and_retried_by_those_who_may(all_people: People) -> None:
    id = await queued(all_people.bob)
    missing = await all_people.ann.post("/v1/jobs/nothing/cancel")
    assert missing.status == 404
    for verb in ("cancel", "retry"):
        for stranger in (all_people.ann, all_people.eve):
            refused = await stranger.post(f"/v1/jobs/{id}/{verb}")
            assert refused.status == 404
            assert refused.json["detail"].replace(id, "nothing") == missing.json["detail"]
        for role in ("viewer", "approver"):
            assert (await all_people.of[role].post(f"/v1/jobs/{id}/{verb}")).status == 403
    assert (await all_people.bob.post(f"/v1/jobs/{id}/retry")).status == 409
    assert (await all_people.of["admin"].post(f"/v1/jobs/{id}/cancel")).json["state"] == "cancelled"
    assert (await all_people.bob.post(f"/v1/jobs/{id}/retry")).json["state"] == "queued"
    assert (await all_people.bob.get(f"/v1/jobs/{id}", wait=50)).json["state"] == "done"
    assert (await all_people.bob.post(f"/v1/jobs/{id}/cancel")).status == 409


@pytest.mark.requirement("JOB-1")
async def test_a_cron_line_is_explained_before_it_is_used(all_people: People) -> None:
    told = (await all_people.ann.get("/v1/cron", cron="30 8 * * MON-FRI", timezone="Europe/Berlin")).json
    assert (told["cron"], told["timezone"], len(told["times"])) == ("30 8 * * MON-FRI", "Europe/Berlin", 5)
    assert told["times"] == sorted(told["times"])
    assert len((await all_people.ann.get("/v1/cron", cron="@daily", count=2)).json["times"]) == 2
    for query in ("?cron=every+day", "?cron=0+0+31+2+*", "?cron=@daily&timezone=Mars/Base", ""):
        assert (await all_people.ann.get(f"/v1/cron{query}")).status == 422


@pytest.mark.requirement("JOB-1")
async def test_jobs_are_counted_for_those_who_may_read(all_people: People) -> None:
    assert (await all_people.ann.get("/v1/jobs/counts")).status == 403
    listed = await all_people.of["viewer"].all("/v1/jobs")
    counted = (await all_people.of["viewer"].get("/v1/jobs/counts")).json
    assert sum(counted.values()) == len(listed) > 0
    everybody = (await all_people.of["operator"].get("/v1/jobs/counts", tenant="*")).json
    assert sum(everybody.values()) > sum(counted.values())


NIGHTLY = {"cron": "0 3 * * *", "tool": "add", "arguments": {"a": 1, "b": 2}}


@pytest.mark.requirement("JOB-1")
async def test_schedules_are_made_looked_at_and_changed(all_people: People) -> None:
    made = await all_people.ann.post("/v1/schedules", {**NIGHTLY, "name": "nightly", "timezone": "Europe/Berlin"})
    assert made.status == 201, made.body
    path = f"/v1/schedules/{made.json['id']}"
    assert (made.json["state"], made.json["user"], made.json["timezone"]) == ("active", "ann", "Europe/Berlin")
    assert (await all_people.ann.get(path)).json == made.json
    assert (await all_people.of["viewer"].get(path)).json == made.json
    assert (await all_people.ann.post("/v1/schedules", {**NIGHTLY, "name": "nightly"})).status == 409
    missing = await all_people.ann.get("/v1/schedules/nothing")
    assert missing.status == 404
    for stranger in (all_people.bob, all_people.eve):
        for answer in (await stranger.get(path), await stranger.delete(path), await stranger.post(f"{path}/run")):
            assert answer.status == 404
            assert answer.json["detail"].replace(made.json["id"], "nothing") == missing.json["detail"]
    assert (await all_people.of["viewer"].delete(path)).status == 403
    assert (await all_people.ann.post(f"{path}/pause")).json["state"] == "paused"
    assert (await all_people.ann.post(f"{path}/pause")).status == 409
    assert (await all_people.of["admin"].post(f"{path}/resume")).json["state"] == "active"
    run = await all_people.ann.post(f"{path}/run")
    assert (run.status, run.json["schedule"]) == (202, made.json["id"])
    assert (await all_people.ann.get(f"/v1/jobs/{run.json['id']}", wait=50)).json["state"] == "done"
    assert (await all_people.ann.delete(path)).status == 204
    assert (await all_people.ann.get(path)).status == 404


@pytest.mark.requirement("JOB-1")
async def test_schedules_are_listed_page_by_page(all_people: People) -> None:
    ids = [(await all_people.bob.post("/v1/schedules", {**NIGHTLY, "name": f"n{one}"})).json["id"] for one in range(5)]
    assert [one["id"] for one in await all_people.bob.all("/v1/schedules", limit=2)] == ids
    assert [one["id"] for one in await all_people.of["viewer"].all("/v1/schedules", limit=3)] == ids
    assert await all_people.ann.all("/v1/schedules") == []
    assert await all_people.eve.all("/v1/schedules") == []


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"cron": "every day"}, 422),
        ({"cron": "* * * * *", "timezone": "Nowhere/Else"}, 422),
        ({"tool": "nothing"}, 404),
        ({"arguments": {"a": "x"}}, 422),
        ({"arguments": []}, 422),
        ({"max_runs": 0}, 422),
        ({"until": "2026-01-01T00:00:00"}, 422),
        ({"until": "2020-01-01T00:00:00Z"}, 422),
        ({"until": "9999-12-31T23:59:59-12:00"}, 422),
        ({"until": "0001-01-01T00:00:00+12:00"}, 422),
        ({"payload": {}}, 422),
    ],
)
async def test_wrong_schedules_are_refused(all_people: People, change: dict[str, Any], status: int) -> None:
    answer = await all_people.ann.post("/v1/schedules", {**NIGHTLY, **change})
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert await all_people.ann.all("/v1/schedules") == []


async def test_jobs_of_others_look_missing(all_people: People) -> None:
    id = await queued(all_people.bob)
    assert BOB.user == (await all_people.of["viewer"].get(f"/v1/jobs/{id}")).json["user"]
    one, other = await all_people.ann.get(f"/v1/jobs/{id}"), await all_people.eve.get(f"/v1/jobs/{id}", wait=30)
    assert one.status == 404
    assert same(one, other)
