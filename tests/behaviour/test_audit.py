"""The audit log: what it holds, and that it can't be changed unseen."""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from toolgate import Actor, App, InvalidInput, tool
from toolgate.store import audit_log

ADA = Actor(tenant="acme", persona="analyst", user="ada")


@tool(tier="read_only", version="2.1.0")
async def look(where: str) -> str:
    """Look."""
    return where


@tool(tier="write")
async def put(what: int) -> int:
    """Put."""
    if what < 0:
        raise InvalidInput("not less than nothing")
    return what


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    url = None if request.param == "sqlite" else request.getfixturevalue("postgres_database")
    async with App.open(home=tmp_path / "home", database_url=url) as opened:
        opened.register(look)
        opened.register(put)
        yield opened


async def rows_of(app: App) -> list[dict[str, Any]]:
    await app.flush()
    names = ("seq", "at", "kind", "call_id", "tenant", "tool", "status", "body", "hash")
    rows = [dict(zip(names, row, strict=True)) for row in await app.parts.store.read(audit_log.latest(1000))]
    return [row | {"body": json.loads(row["body"])} for row in rows]


@pytest.mark.requirement("AUD-1")
async def test_a_call_leaves_a_start_and_an_end(app: App) -> None:
    before = time.time_ns() // 1000
    outcome = await app.invoke("look", {"where": "there"}, actor=ADA, session="s-1")
    start, end = await rows_of(app)
    assert [start["kind"], end["kind"]] == ["start", "end"]
    for row in (start, end):
        assert (row["call_id"], row["tenant"], row["tool"]) == (outcome.id, "acme", "look")
        assert row["body"]["persona"] == "analyst"
        assert row["body"]["user"] == "ada"
        assert row["body"]["session"] == "s-1"
        assert before <= row["at"] <= time.time_ns() // 1000
    assert start["body"]["arguments"] == {"where": "there"}
    assert (start["body"]["version"], start["body"]["tier"]) == ("2.1.0", "read_only")
    assert len(start["body"]["args_hash"]) == 64
    assert start["body"]["args_hash"] == end["body"]["args_hash"]
    assert start["body"]["decision"] == "look is enabled; tier read_only runs unasked"
    assert (end["status"], end["body"]["attempts"], end["body"]["cost_usd"]) == ("success", 1, 0.0)
    assert end["body"]["duration_ms"] > 0


@pytest.mark.requirement("AUD-1")
async def test_denials_errors_and_waiting_calls_are_recorded_with_their_reason(app: App) -> None:
    @tool(tier="execute")
    async def shell() -> None:
        """Would run code."""

    app.register(shell)
    await app.tools.set_enabled("look", False, tenant="acme")
    await app.invoke("look", {"where": "x"}, actor=ADA)
    await app.invoke("nothing", {"a": 1})
    await app.invoke("put", {"what": "x"})
    await app.invoke("put", {"what": -1})
    await app.invoke("shell")
    ends = [row for row in await rows_of(app) if row["kind"] == "end"]
    assert [(row["tool"], row["status"], row["body"]["code"]) for row in ends] == [
        ("look", "failure", "TOOL_NOT_FOUND"),
        ("nothing", "failure", "TOOL_NOT_FOUND"),
        ("put", "failure", "VALIDATION_ERROR"),
        ("put", "failure", "INVALID_INPUT"),
        ("shell", "pending", "APPROVAL_REQUIRED"),
    ]
    assert ends[0]["body"]["decision"] == "look is disabled for tenant acme"
    assert ends[1]["body"]["decision"] == "no such tool"
    assert ends[4]["body"]["pending"]["kind"] == "approval"
    starts = [row for row in await rows_of(app) if row["kind"] == "start"]
    assert [row["tool"] for row in starts] == ["put"]


@pytest.mark.requirement("AUD-1")
async def test_what_an_operator_does_is_recorded(app: App) -> None:
    await app.tools.set_enabled("look", False, persona="intern", reason="too young", actor=ADA)
    (row,) = await rows_of(app)
    assert (row["kind"], row["tool"], row["status"]) == ("tool.disabled", "look", "done")
    assert row["body"]["for_persona"] == "intern"
    assert row["body"]["reason"] == "too young"
    assert row["body"]["user"] == "ada"


@pytest.mark.requirement("AUD-3")
async def test_the_start_of_a_write_is_on_disk_before_its_effect_and_its_end_before_the_outcome(app: App) -> None:
    seen: list[list[str]] = []

    @tool(tier="write")
    async def effect() -> None:
        """Looks at the log as it runs, through a connection of its own."""
        seen.append([row[2] for row in await app.parts.store.read(audit_log.latest(10, tool="effect"))])

    app.register(effect)
    await app.invoke("effect")
    seen.append([row[2] for row in await app.parts.store.read(audit_log.latest(10, tool="effect"))])
    assert seen == [["start"], ["start", "end"]]


@pytest.mark.requirement("AUD-3")
async def test_a_read_is_on_disk_soon_without_anybody_waiting_for_it(app: App) -> None:
    await app.invoke("look", {"where": "x"})
    async with asyncio.timeout(30):
        while len(await app.parts.store.read(audit_log.latest(10))) < 2:
            await asyncio.sleep(0.01)
    assert [row[2] for row in await app.parts.store.read(audit_log.latest(10))] == ["start", "end"]


async def change(app: App, tmp_path: Path, sql: str) -> None:
    """Tamper with the log as an intruder would: straight in the database."""
    await app.flush()
    url = app.settings.database
    if url.startswith("sqlite"):
        with sqlite3.connect(tmp_path / "home" / "toolgate.db") as connection:
            connection.execute(sql)
        connection.close()
    else:
        intruder = await asyncpg.connect(url)
        await intruder.execute(sql)
        await intruder.close()


TAMPERING = {
    "a changed status": ("UPDATE audit_log SET status = 'failure' WHERE seq = 6", "row 6"),
    "a changed body": ("UPDATE audit_log SET body = replace(body, 'ada', 'bob') WHERE seq = 3", "row 3"),
    "a changed time": ("UPDATE audit_log SET at = at + 1 WHERE seq = 9", "row 9"),
    "a removed row": ("DELETE FROM audit_log WHERE seq = 5", "row 5 is missing"),
    "removed rows": ("DELETE FROM audit_log WHERE seq IN (2, 3, 4)", "row 2 to 4 is missing"),
    "a removed beginning": ("DELETE FROM audit_log WHERE seq = 1", "row 1 is missing"),
    "a cut tail": ("DELETE FROM audit_log WHERE seq > 15", "the tail is cut: the log ends at 15, but row 20"),
    "an emptied log": ("DELETE FROM audit_log", "the tail is cut: the log ends at 0, but row 20"),
    "a rewritten last row": ("UPDATE audit_log SET body = '{}' WHERE seq = 20", "row 20"),
}


@pytest.mark.requirement("AUD-2")
@pytest.mark.parametrize("how", TAMPERING)
@pytest.mark.sample(4)
async def test_tampering_is_found(app: App, tmp_path: Path, how: str) -> None:
    sql, expected = TAMPERING[how]
    for number in range(10):
        await app.invoke("put", {"what": number}, actor=ADA)
    verdict = await app.audit.verify()
    assert (verdict.ok, verdict.rows, verdict.warnings) == (True, 20, [])
    await change(app, tmp_path, sql)
    verdict = await app.audit.verify()
    assert not verdict.ok
    assert expected in verdict.faults[0]


@pytest.mark.requirement("AUD-2")
async def test_a_cut_tail_stays_visible_after_the_log_has_grown_again(app: App, tmp_path: Path) -> None:
    for number in range(10):
        await app.invoke("put", {"what": number})
    await change(app, tmp_path, "DELETE FROM audit_log WHERE seq > 15")
    for number in range(10):
        await app.invoke("put", {"what": number})
    verdict = await app.audit.verify()
    assert not verdict.ok
    assert "another hash than the one noted outside" in verdict.faults[0]


@pytest.mark.requirement("AUD-2")
async def test_without_a_noted_head_verification_warns(app: App, tmp_path: Path) -> None:
    await app.invoke("put", {"what": 1})
    (tmp_path / "home" / "audit.head").unlink()
    verdict = await app.audit.verify()
    assert verdict.ok
    assert "a cut tail cannot be seen" in verdict.warnings[0]


@pytest.mark.requirement("AUD-3", "PIPE-6")
async def test_no_effect_without_a_log(tmp_path: Path) -> None:
    """The database goes away in mid-flight: calls that must be recorded are refused, nothing crashes."""
    effects: list[int] = []

    @tool(tier="write")
    async def count() -> None:
        """Has an effect."""
        effects.append(1)

    async with App.open(home=tmp_path / "home") as app:
        app.register(count)
        assert (await app.invoke("count")).ok
        with sqlite3.connect(tmp_path / "home" / "toolgate.db") as connection:
            connection.execute("ALTER TABLE audit_log RENAME TO hidden")
        refused = await app.invoke("count")
        assert refused.error is not None
        assert "cannot be written, so the call was not run" in refused.error.message
        assert effects == [1]
        connection.execute("ALTER TABLE hidden RENAME TO audit_log")
        connection.close()
        assert (await app.invoke("count")).ok
        assert effects == [1, 1]


@pytest.mark.requirement("AUD-2", "AUD-3")
async def test_a_head_that_can_not_be_noted_costs_no_record_and_writes_none_twice(app: App, tmp_path: Path) -> None:
    await app.invoke("put", {"what": 1})
    head = tmp_path / "home" / "audit.head"
    head.unlink()
    head.mkdir()
    for number in range(5):
        assert (await app.invoke("put", {"what": number})).ok
        assert (await app.invoke("look", {"where": "there"})).ok
    head.rmdir()
    assert (await app.invoke("put", {"what": 2})).ok
    rows = await rows_of(app)
    assert len(rows) == len({(row["call_id"], row["kind"]) for row in rows}) == 24
    assert (await app.audit.verify()).ok


@pytest.mark.requirement("AUD-1")
async def test_every_way_to_switch_is_recorded_as_what_it_was_and_by_whom(app: App) -> None:
    await app.tools.set_enabled("look", True, tenant="acme", actor=ADA)
    await app.tools.set_enabled("look", None, tenant="acme", actor=ADA)
    await app.tools.set_flags([("acme", "look", False)], actor=ADA)
    await app.policy.allow_adding_tools("builder", actor=ADA)
    rows = await rows_of(app)
    assert [row["kind"] for row in rows] == ["tool.enabled", "tool.flag_removed", "tenant.flags", "persona.permissions"]
    assert {(row["body"]["persona"], row["body"]["user"]) for row in rows} == {("analyst", "ada")}
    assert rows[2]["body"]["flags"] == [["look", False]]
    assert rows[3]["body"]["for_persona"] == "builder"


@pytest.mark.requirement("AUD-2")
async def test_an_empty_log_is_whole_and_warns_of_nothing(app: App) -> None:
    verdict = await app.audit.verify()
    assert (verdict.ok, verdict.rows, verdict.warnings) == (True, 0, [])


@pytest.mark.requirement("AUD-1")
async def test_calls_are_found_by_request_id_without_a_walk_through_the_log(tmp_path: Path) -> None:
    async with App.open(home=tmp_path) as app:
        await app.invoke("echo", {"text": "x"}, request_id="req-1")
        assert len(await app.audit.of_request("req-1")) == 1
    with contextlib.closing(sqlite3.connect(tmp_path / "toolgate.db")) as connection:
        for tenant in (None, "default"):
            sql, values = next(audit_log.of_request("req-1", tenant))
            plan = [row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict(values))]
            assert [step for step in plan if "audit_log_request" in step], plan
            assert not [step for step in plan if step.startswith("SCAN")], plan
