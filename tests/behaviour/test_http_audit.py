"""/v1/audit and /v1/artifacts: the rows of the log, proofs of them, and outputs that were cut."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from tests.http_people import ANN, BOB, EVE, People, people, same
from toolgate import App, tool
from toolgate.gates.ledger.check_proof import check

pytestmark = [pytest.mark.requirement("AUD-2"), pytest.mark.asyncio(loop_scope="module")]


@tool(tier="read_only")
async def long_text(count: int) -> str:
    """Give a long text."""
    return "abc " * count


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    home = tmp_path_factory.mktemp("audit")
    overrides = {"home": home, "limits": {"output_string": 1_000}, "auto_load_custom_tools": False}
    async with App.open(None, **overrides) as app:
        app.register(long_text)
        for actor in (ANN, BOB, EVE):
            for _ in range(3):
                await app.invoke("long_text", {"count": 2}, actor=actor)
        await app.tools.disable("echo", tenant="acme", actor=ANN)
        yield app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_people(app: App) -> AsyncIterator[People]:
    async with people(app) as found:
        yield found


async def test_readers_see_the_rows_of_their_tenant(all_people: People) -> None:
    rows = await all_people.of["viewer"].all("/v1/audit", limit=4, tool="long_text")
    assert [one["kind"] for one in rows].count("end") == 6
    assert {one["tenant"] for one in rows} == {"acme"}
    assert [one["seq"] for one in rows] == sorted((one["seq"] for one in rows), reverse=True)
    assert all(len(one["hash"]) == 64 and one["body"]["user"] in ("ann", "bob") for one in rows)
    [act] = await all_people.of["admin"].all("/v1/audit", kind="tool.disabled", limit=2)
    user, path = act["body"]["user"], f"/v1/audit/rows/{act['seq']}"
    assert {one["body"]["user"] for one in await all_people.of["admin"].all("/v1/audit", user=user)} == {user}
    assert (await all_people.of["viewer"].get(path)).json == act
    assert (await all_people.eve.get(path)).status == 404
    for number in ("x", "0", "9" * 20):
        assert (await all_people.of["viewer"].get(f"/v1/audit/rows/{number}")).status == 404
    assert (act["tool"], act["status"]) == ("echo", "done")
    assert len(await all_people.of["viewer"].all("/v1/audit", status="success", tool="long_text")) == 6
    assert {one["tenant"] for one in await all_people.eve.all("/v1/audit")} == {"other"}
    tenants = {one["tenant"] for one in await all_people.of["operator"].all("/v1/audit", tenant="*")}
    assert {"acme", "other"} <= tenants


async def test_who_may_not_read_is_refused(all_people: People) -> None:
    for path in ("/v1/audit", "/v1/audit/head"):
        assert (await all_people.ann.get(path)).status == 403
    for path in ("/v1/audit/verify", "/v1/audit/export"):
        for role in ("viewer", "caller", "approver", "admin"):
            assert (await all_people.of[role].get(path)).status == 403
    for query in ("since=x", "kind=", "door=http", "cursor=e30"):
        assert (await all_people.of["viewer"].get(f"/v1/audit?{query}")).status in (400, 422)
    for after in (-1, 2**64):
        assert (await all_people.of["operator"].get("/v1/audit/export", after=after)).status == 422


async def test_the_log_is_verified_and_exported(all_people: People) -> None:
    operator = all_people.of["operator"]
    verdict = (await operator.get("/v1/audit/verify")).json
    assert (verdict["ok"], verdict["faults"]) == (True, [])
    head = (await all_people.of["viewer"].get("/v1/audit/head")).json
    assert head["end"]["seq"] >= verdict["rows"]
    answer = await operator.get("/v1/audit/export")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    rows = [orjson.loads(line) for line in answer.body.splitlines()]
    assert [one["seq"] for one in rows] == list(range(1, len(rows) + 1))
    assert rows[head["end"]["seq"] - 1]["hash"] == head["end"]["hash"]
    later = await operator.get("/v1/audit/export", after=len(rows) - 1)
    assert orjson.loads(later.body.splitlines()[0]) == rows[-1]


@pytest.mark.requirement("AUD-7")
async def test_a_call_is_proven_to_those_who_may_see_it(app: App, all_people: People) -> None:
    outcome = await app.invoke("long_text", {"count": 1}, actor=ANN)
    path = f"/v1/audit/prove/{outcome.id}"
    proof = await all_people.ann.get(path)
    assert proof.status == 200, proof.body
    assert {one["call_id"] for one in proof.json["records"]} == {outcome.id}
    assert check(proof.json, (await app.audit.key())["public_key"]) == []
    assert (await all_people.of["viewer"].get(path)).status == 200
    missing = await all_people.ann.get("/v1/audit/prove/nothing")
    assert missing.status == 404
    for stranger in (all_people.bob, all_people.eve):
        assert same(await stranger.get(path), missing)


async def test_a_row_that_somebody_spoiled_is_shown_as_it_is(app: App, all_people: People) -> None:
    outcome = await app.invoke("long_text", {"count": 1}, actor=BOB)
    await app.flush()
    file = Path(app.settings.home) / "toolgate.db"
    connection = sqlite3.connect(file)
    [(body,)] = connection.execute("SELECT body FROM audit_log WHERE call_id = ? AND kind = 'end'", (outcome.id,))
    spoil = "UPDATE audit_log SET body = ? WHERE call_id = ? AND kind = 'end'"
    with connection:
        connection.execute(spoil, ("no json", outcome.id))
    try:
        rows = await all_people.of["viewer"].all("/v1/audit", kind="end")
        assert [one["body"] for one in rows if one["call_id"] == outcome.id] == ["no json"]
        assert (await all_people.of["viewer"].get("/v1/invocations")).status == 200
        assert (await all_people.of["viewer"].get(f"/v1/invocations/{outcome.id}")).json["call"]["user"] == ""
        assert (await all_people.of["operator"].get("/v1/audit/verify")).json["ok"] is False
    finally:
        with connection:
            connection.execute(spoil, (body, outcome.id))
        connection.close()


@pytest.mark.requirement("IO-3")
async def test_an_output_that_was_cut_is_fetched_whole(app: App, all_people: People) -> None:
    outcome = await app.invoke("long_text", {"count": 5_000}, actor=ANN)
    assert outcome.artifact is not None
    path = f"/v1/artifacts/{outcome.artifact.id}"
    for one in (all_people.ann, all_people.of["viewer"], all_people.of["operator"]):
        answer = await one.get(path)
        assert (answer.status, len(answer.json)) == (200, 20_000)
        assert answer.headers["content-type"] == "application/json"
    missing = await all_people.ann.get("/v1/artifacts/nothing")
    assert missing.status == 404
    for stranger in (all_people.bob, all_people.eve):
        assert same(await stranger.get(path), missing)
    [listed] = [one for one in await all_people.ann.all("/v1/invocations") if one["id"] == outcome.id]
    assert listed["artifact"] == outcome.artifact.id
