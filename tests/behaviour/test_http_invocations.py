"""/v1/invocations: calls as the log has them, for those who may see them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.http_people import ANN, BOB, EVE, People, people, same
from toolgate import Actor, App, InvokeContext, tool
from toolgate.store import log_pages
from toolgate.store.log_pages import CallFilter
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("AUD-1"), pytest.mark.asyncio(loop_scope="module")]


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="read_only")
async def outer(ctx: InvokeContext, a: int) -> Any:
    """Add through another tool."""
    return (await ctx.call_tool("add", {"a": a, "b": 1})).output


@tool(tier="external_api")
async def pay(amount: int) -> int:
    """Pay somebody."""
    return amount


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        for one in (add, outer, pay):
            app.register(one)
        for actor in (ANN, BOB, EVE):
            for number in range(12):
                await app.invoke("add", {"a": number, "b": 1}, actor=actor, session="s-1" if number % 2 else None)
            await app.invoke("add", {"a": "password=hunter2", "b": 1}, actor=actor)
        analyst = Actor("acme", "analyst", "ann")
        await app.invoke("outer", {"a": 1}, actor=analyst, request_id="req-ann")
        await app.invoke("pay", {"amount": 1}, actor=analyst)
        yield app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_people(app: App) -> AsyncIterator[People]:
    async with people(app) as found:
        yield found


async def test_callers_see_their_own_calls_and_readers_the_tenants(all_people: People) -> None:
    own = await all_people.ann.all("/v1/invocations", limit=5)
    assert {(one["tenant"], one["user"]) for one in own} == {("acme", "ann")}
    assert len(own) == 16
    assert [one["ended_at"] for one in own] == sorted((one["ended_at"] for one in own), reverse=True)
    assert len(await all_people.bob.all("/v1/invocations")) == 13
    assert await all_people.ann.all("/v1/invocations", user="bob") == []
    for role in ("viewer", "approver", "admin", "operator"):
        assert len(await all_people.of[role].all("/v1/invocations", limit=7)) == 29
    assert len(await all_people.of["viewer"].all("/v1/invocations", user="bob")) == 13
    assert len(await all_people.eve.all("/v1/invocations")) == 13
    assert len(await all_people.of["operator"].all("/v1/invocations", tenant="*")) == 42
    assert len(await all_people.of["operator"].all("/v1/invocations", tenant="other")) == 13


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"tool": "add"}, 27),
        ({"tool": "none"}, 0),
        ({"status": "success"}, 26),
        ({"status": "failure"}, 2),
        ({"status": "pending"}, 1),
        ({"code": "VALIDATION_ERROR"}, 2),
        ({"code": "APPROVAL_REQUIRED", "tool": "pay"}, 1),
        ({"persona": "analyst"}, 3),
        ({"session": "s-1"}, 12),
        ({"session": "s-1", "user": "bob"}, 6),
        ({"session": "%"}, 0),
        ({"request_id": "req-ann", "tool": "outer"}, 1),
        ({"parent": "nothing"}, 0),
        ({"since": "1970-01-02T00:00:00+12:00", "until": "2999-12-30T23:59:59-12:00"}, 29),
        ({"since": (datetime.now(UTC) - timedelta(days=1)).isoformat()}, 29),
        ({"since": (datetime.now(UTC) + timedelta(days=1)).isoformat()}, 0),
        ({"until": (datetime.now(UTC) - timedelta(days=1)).isoformat()}, 0),
        ({"until": (datetime.now(UTC) + timedelta(days=1)).isoformat(), "user": "bob"}, 13),
    ],
)
async def test_filters(all_people: People, query: dict[str, str], count: int) -> None:
    found = await all_people.of["viewer"].all("/v1/invocations", limit=4, **query)
    assert len(found) == len({one["id"] for one in found}) == count


async def test_a_call_with_all_that_is_on_record(all_people: People) -> None:
    [outermost] = await all_people.ann.all("/v1/invocations", tool="outer")
    found = (await all_people.ann.get(f"/v1/invocations/{outermost['id']}")).json
    assert (found["arguments"], found["tier"], found["persona"], found["is_over"]) == (
        {"a": 1},
        "read_only",
        "analyst",
        True,
    )
    assert [one["kind"] for one in found["records"]] == ["start", "end"]
    assert [(one["tool"], one["parent"]) for one in found["children"]] == [("add", outermost["id"])]
    assert found["call"] == outermost
    assert found["can_be_undone"] is False
    assert outermost["request_id"] == "req-ann"
    [waiting] = await all_people.ann.all("/v1/invocations", tool="pay")
    assert waiting["pending"]["kind"] == "approval"
    assert [one["id"] for one in await all_people.ann.all("/v1/invocations", parent=outermost["id"])] == [
        found["children"][0]["id"]
    ]


@pytest.mark.requirement("IO-2")
async def test_secrets_are_masked(app: App, all_people: People) -> None:
    outcome = await app.invoke("echo", {"text": "Authorization: Bearer sk-live-0123456789abcdef0123456789"}, actor=ANN)
    answer = await all_people.ann.get(f"/v1/invocations/{outcome.id}")
    assert answer.status == 200
    assert b"0123456789abcdef" not in answer.body


async def test_calls_of_others_look_missing(all_people: People) -> None:
    [one, *_] = await all_people.bob.all("/v1/invocations")
    path = f"/v1/invocations/{one['id']}"
    assert (await all_people.bob.get(path)).status == 200
    for role in ("viewer", "approver", "admin", "operator"):
        assert (await all_people.of[role].get(path)).status == 200
    missing = await all_people.ann.get("/v1/invocations/01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert missing.status == 404
    for stranger in (all_people.ann, all_people.eve):
        assert same(await stranger.get(path), missing)
    assert same(await all_people.ann.get(path[:-4]), missing), "the beginning of an id is none"
    elsewhere = await all_people.of["operator"].get(path, tenant="other")
    assert elsewhere.status == 404


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"status": "started"}, 422),
        ({"since": "yesterday"}, 422),
        ({"since": "2026-01-01T00:00:00"}, 422),
        ({"tool": ""}, 422),
        ({"user": "x" * 300}, 422),
        ({"limit": 501}, 422),
        ({"seq": 1}, 422),
    ],
)
async def test_wrong_filters_are_refused(all_people: People, query: dict[str, Any], status: int) -> None:
    assert (await all_people.ann.get("/v1/invocations", **query)).status == status


async def test_a_page_that_finds_nothing_in_the_rows_it_may_look_at_goes_on(
    app: App, all_people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pages, "MAX_WALKED", 5)
    first = (await all_people.of["viewer"].get("/v1/invocations", session="none")).json
    assert first["items"] == []
    assert first["next"] is not None
    found = await all_people.of["viewer"].all("/v1/invocations", session="s-1", limit=3)
    assert len({one["id"] for one in found}) == 12
    page = await app.audit.calls(CallFilter(tenant="acme", session="s-1"), limit=100)
    assert len(page.rows) < 12
