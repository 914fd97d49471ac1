"""What an MCP server offers can be called once somebody accepted it, and no longer when it has changed."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.mcp_upstream import Upstream, tool
from tests.patience import until
from toolgate import Answer, App, ApprovalRequest, Hook, InvokeContext
from toolgate.errors import Denied
from toolgate.mcp import definitions as table
from toolgate.mcp.review import PendingDefinition
from toolgate.model import Actor
from toolgate.store import audit_log, learning
from toolgate.store.learning import LimitRow

pytestmark = pytest.mark.requirement("MCP-5")
SECONDS = 30.0


def app_with(tmp_path: Path, database: str, upstream: Upstream, **more: Any) -> App:
    settings = {"plain": upstream.settings(**more)}
    return App.open(home=tmp_path / "home", database_url=database, servers=settings, entry_points=False)


async def until_waiting(app: App, *names: str) -> list[PendingDefinition]:
    async with asyncio.timeout(SECONDS):
        while True:
            found = await app.servers.quarantined()
            if sorted(one.name for one in found) == sorted(names):
                return found
            await asyncio.sleep(0.01)


async def notes(app: App, action: str) -> list[dict[str, Any]]:
    await app.flush()
    rows = await app.parts.store.read(audit_log.latest(1000))
    return [orjson.loads(row[-2]) | {"tool": row[5]} for row in rows if row[2] == action]


async def test_a_tool_never_seen_before_waits_until_it_is_accepted(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream) as app:
        (waiting,) = await until_waiting(app, "mcp_plain_say")
        assert waiting.is_new
        assert "  Says something." in waiting.diff()
        outcome = await app.invoke("mcp_plain_say", {"text": "a"})
        assert outcome.error is not None
        assert outcome.error.code == "TOOL_NOT_FOUND"
        assert "mcp_plain_say" not in {one.name for one in await app.tools.list()}
        assert await app.servers.accept([waiting]) == [waiting]
        assert (await app.invoke("mcp_plain_say", {"text": "a"})).ok
        assert "mcp_plain_say" in {one.name for one in await app.tools.list()}
        assert await app.servers.quarantined() == []


async def test_what_was_accepted_is_there_before_the_server_is_started(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
    async with app_with(tmp_path, database, upstream) as app:
        assert "mcp_plain_say" in {one.name for one in await app.tools.list()}
        assert [standing.state for standing in app.parts.servers_engine.statuses()] == ["idle"]
        assert (await app.invoke("mcp_plain_say", {"text": "a"})).ok
        assert [standing.state for standing in app.parts.servers_engine.statuses()] == ["up"]


@pytest.mark.parametrize(
    "changed",
    [
        tool("say", "Says something else."),
        tool("say", title="Speak"),
        tool("say", annotations={"readOnlyHint": True}),
        tool("say", outputSchema={"type": "string"}),
        {**tool("say"), "inputSchema": {"type": "object", "properties": {"text": {"type": "integer"}}}},
    ],
    ids=["description", "title", "annotations", "output", "input"],
)
async def test_a_changed_definition_can_no_longer_be_called(tmp_path: Path, changed: dict[str, Any]) -> None:
    upstream = Upstream(tmp_path, tool("say"), tool("other"))
    async with app_with(tmp_path, "memory://", upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say", "mcp_plain_other"))
        assert (await app.invoke("mcp_plain_say", {})).ok
        upstream.offer(changed, tool("other"))
        (waiting,) = await until_waiting(app, "mcp_plain_say")
        assert not waiting.is_new
        assert any(line.lstrip().startswith("+") for line in waiting.diff())
        outcome = await app.invoke("mcp_plain_say", {})
        assert outcome.error is not None
        assert outcome.error.code == "TOOL_NOT_FOUND"
        assert (await app.invoke("mcp_plain_other", {})).ok
        await app.servers.accept([waiting])
        assert (await app.invoke("mcp_plain_say", {})).ok


async def test_a_change_while_the_server_was_down_is_found_before_the_next_call(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, "memory://", upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
        first = await app.invoke("mcp_plain_say", {})
        os.kill(orjson.loads(first.output)["pid"], signal.SIGKILL)
        upstream.offer(tool("say", "Now it deletes your files.", annotations={"destructiveHint": True}))
        await until(lambda: app.parts.servers_engine.statuses()[0].state != "up")
        outcome = await app.invoke("mcp_plain_say", {})
        assert outcome.error is not None
        assert outcome.error.code == "TOOL_NOT_FOUND", outcome
        assert [one.is_new for one in await app.servers.quarantined()] == [False]


async def test_what_is_again_as_it_was_accepted_needs_no_new_acceptance(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, "memory://", upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
        upstream.offer(tool("say", "Something else."))
        await until_waiting(app, "mcp_plain_say")
        upstream.offer(tool("say"))
        await until_waiting(app)
        assert (await app.invoke("mcp_plain_say", {})).ok


async def test_a_tool_that_is_gone_is_not_there_and_comes_back_as_it_was(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"), tool("other"))
    async with app_with(tmp_path, database, upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say", "mcp_plain_other"))
        upstream.offer(tool("other"))
        compared = await app.servers.refresh("plain")
        assert compared.gone in ((("tools/call", "say"),), ())  # the server may have told by itself already
        assert (await app.invoke("mcp_plain_say", {})).error is not None
        states = {pin.tool: pin.state for pin in await app.parts.store.read(table.pins("plain"))}
        assert states == {"say": "gone", "other": "accepted"}
        upstream.offer(tool("say"), tool("other"))
        await app.servers.refresh("plain")
        assert (await app.invoke("mcp_plain_say", {})).ok


async def test_only_the_very_definition_that_was_shown_is_accepted(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream) as app:
        shown = await until_waiting(app, "mcp_plain_say")
        upstream.offer(tool("say", "Changed between the look and the yes."))
        await app.servers.refresh("plain")
        assert await app.servers.accept(shown) == []
        assert (await app.invoke("mcp_plain_say", {})).error is not None
        assert len(await app.servers.quarantined()) == 1


async def test_a_server_whose_first_seen_tools_are_trusted(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream, trust_first_seen=True) as app:
        await app.servers.refresh("plain")
        assert (await app.invoke("mcp_plain_say", {})).ok
        upstream.offer(tool("say", "Changed."), tool("more"))
        await app.servers.refresh("plain")
        assert [one.name for one in await app.servers.quarantined()] == ["mcp_plain_say"]
        assert (await app.invoke("mcp_plain_more", {})).ok
        assert (await app.invoke("mcp_plain_say", {})).error is not None


async def test_another_program_under_the_same_name_was_never_accepted(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
    other = Upstream(tmp_path, tool("say"), name="another")
    async with app_with(tmp_path, database, other) as app:
        (waiting,) = await until_waiting(app, "mcp_plain_say")
        assert waiting.is_new
        assert (await app.invoke("mcp_plain_say", {})).error is not None


async def test_settings_of_a_tool_change_without_a_new_acceptance(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
    async with app_with(tmp_path, database, upstream, tools={"say": {"name": "speak", "cost": "0.5"}}) as app:
        assert (await app.invoke("speak", {})).metrics.cost_usd == 0.5
        assert (await app.invoke("mcp_plain_say", {})).error is not None


async def test_an_acceptance_holds_at_once_in_other_processes(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream) as app, app_with(tmp_path, database, upstream) as other:
        await other.servers.accept(await until_waiting(other, "mcp_plain_say"))
        async with asyncio.timeout(SECONDS):
            while not (await app.invoke("mcp_plain_say", {})).ok:
                await asyncio.sleep(0.02)
        upstream.offer(tool("say", "Changed."))
        await other.servers.refresh("plain")
        await app.refresh()
        assert (await app.invoke("mcp_plain_say", {})).error is not None


async def test_what_is_decided_and_found_is_on_record(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"), tool("other"))
    async with app_with(tmp_path, database, upstream) as app:
        waiting = await until_waiting(app, "mcp_plain_say", "mcp_plain_other")
        await app.servers.accept(waiting)
        upstream.offer(tool("say", "Changed."))
        await app.servers.refresh("plain")
        (first,) = await notes(app, "mcp.tools_quarantined")
        assert first["tools"] == ["say", "other"]
        accepted = await notes(app, "mcp.tool_accepted")
        assert {(note["tool"], note["hash"]) for note in accepted} == {(one.name, one.hash) for one in waiting}
        (changed,) = await notes(app, "mcp.tool_quarantined")
        assert (changed["tool"], changed["server"]) == ("mcp_plain_say", "plain")
        (gone,) = await notes(app, "mcp.tools_gone")
        assert gone["tools"] == ["other"]


async def test_somebody_who_may_not_add_tools_may_not_accept_them(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, "memory://", upstream) as app:
        waiting = await until_waiting(app, "mcp_plain_say")
        with pytest.raises(Denied, match="not permitted"):
            await app.servers.accept(waiting, actor=Actor("acme", "clerk", "ann"))
        await app.policy.allow_adding_tools("admin")
        assert await app.servers.accept(waiting, actor=Actor("acme", "admin", "ann")) == waiting
        (note,) = await notes(app, "mcp.tool_accepted")
        assert note["user"] == "ann", note


async def test_a_server_that_floods_with_changes_is_compared_to_the_end(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, "memory://", upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
        for number in range(30):
            upstream.offer(tool("say", f"Version {number}."))
            await asyncio.sleep(0.01)
        async with asyncio.timeout(SECONDS):
            while [one.found["description"] for one in await app.servers.quarantined()] != ["Version 29."]:
                await asyncio.sleep(0.02)


@pytest.mark.matrix("takes thousands of tools")
async def test_a_server_with_many_tools_that_keeps_saying_that_they_change_is_asked_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, asked = [tool(f"tool_{number}") for number in range(1_000)], 0
    upstream = Upstream(tmp_path, *tools)
    async with app_with(tmp_path, "memory://", upstream) as app:
        await app.servers.refresh("plain")
        server = app.parts.servers_engine["plain"]
        listed = server.listed

        async def counted(*of: Any, **more: Any) -> list[dict[str, Any]]:
            nonlocal asked
            asked += 1
            return await listed(*of, **more)

        monkeypatch.setattr(server, "listed", counted)
        for number in range(60):
            upstream.offer(*tools, changed=number)
            await asyncio.sleep(0.025)
        assert asked <= 3
        upstream.offer(tool("other"))
        await until_waiting(app, "mcp_plain_other")


@pytest.mark.matrix("takes thousands of tools")
async def test_calls_are_not_held_up_while_many_tools_are_taken(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, *(tool(f"tool_{number}") for number in range(2_000)))
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()  # of this thread alone: a busy machine does not count
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    async with app_with(tmp_path, "memory://", upstream) as app:
        await app.servers.refresh("plain")
        waiting = await app.servers.quarantined()
        ticking = asyncio.create_task(tick())
        assert len(await app.servers.accept(waiting)) == 2_000
        ticking.cancel()
        assert (await app.invoke("mcp_plain_tool_1999", {})).ok
    assert longest < 0.4


async def test_processes_that_list_and_accept_at_once_agree(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, *(tool(f"tool_{number}") for number in range(20)))
    async with app_with(tmp_path, database, upstream) as one, app_with(tmp_path, database, upstream) as two:
        await asyncio.gather(*(app.servers.refresh("plain") for app in (one, two, one)))
        shown, also_shown = await one.servers.quarantined(), await two.servers.quarantined()
        assert len(shown) == 20
        assert shown == also_shown
        accepted = await asyncio.gather(one.servers.accept(shown), two.servers.accept(shown))
        names = [waiting.name for taken in accepted for waiting in taken]
        assert sorted(names) == sorted(waiting.name for waiting in shown), "each was accepted once"
        for app in (one, two):
            await app.refresh()
            assert (await app.invoke("mcp_plain_tool_7", {})).ok


async def test_why_a_tool_is_not_there_is_in_the_log_alone(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, "memory://", upstream) as app:
        await until_waiting(app, "mcp_plain_say")
        outcome, missing = await app.invoke("mcp_plain_say", {}), await app.invoke("mcp_plain_sax", {})
        assert outcome.error is not None and missing.error is not None
        assert outcome.error.message.replace("say", "sax") == missing.error.message
        (end,) = [note for note in await notes(app, "end") if note["tool"] == "mcp_plain_say"]
        assert "waits to be accepted" in json.dumps(end)


@pytest.mark.requirement("TIER-7")
@pytest.mark.parametrize("becomes", ["not the accepted one", "another program", "removed"])
async def test_a_yes_is_not_for_what_took_the_tools_place_while_a_person_thought(tmp_path: Path, becomes: str) -> None:
    first, second = Upstream(tmp_path, tool("say")), Upstream(tmp_path, tool("say"), name="second")
    settings = {"tier": "external_api", "trust_first_seen": True}

    async def thinks(_: ApprovalRequest) -> Answer:
        if becomes == "removed":
            await app.servers.remove("plain")
        elif becomes == "another program":
            await app.servers.add("plain", second.settings(**settings), replace=True)
            await app.servers.refresh("plain")
        else:
            first.offer(tool("say", "Deletes something."))
            await app.servers.refresh("plain")
            await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
        return Answer("approve")

    async with App.open(home=tmp_path / "home", database_url="memory://", entry_points=False) as app:
        await app.servers.add("plain", first.settings(**settings))
        await app.servers.refresh("plain")
        app.approvals.add_approver(thinks)
        outcome = await app.invoke("mcp_plain_say", {"text": "a"})
        assert outcome.error is not None, outcome
        if becomes == "removed":
            assert outcome.error.code == "TOOL_NOT_FOUND"
        else:
            assert outcome.error.code == "PERMISSION_DENIED"
            assert "mcp_plain_say has changed while a person was asked about it" in outcome.error.message


@pytest.mark.requirement("TIER-7")
async def test_what_is_accepted_while_a_call_waits_for_room_is_not_what_it_was_let_through_for(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path, tool("say"))

    class Room(Hook):
        async def will_execute(self, _: InvokeContext) -> None:
            upstream.offer(tool("say", "Deletes something."))
            await app.servers.refresh("plain")
            await app.servers.accept(await until_waiting(app, "speak"))

    async with app_with(tmp_path, "memory://", upstream, tools={"say": {"name": "speak"}}) as app:
        await app.servers.accept(await until_waiting(app, "speak"))
        app.add_hook(Room())
        outcome = await app.invoke("speak", {"text": "a"})
        assert outcome.error is not None, outcome
        missing = (await app.invoke("speek", {})).error
        assert missing is not None
        assert outcome.error.code == missing.code
        assert outcome.error.message == missing.message.replace("speek", "speak"), "not the server's own name for it"


@pytest.mark.requirement("AUD-4", "MCP-5")
async def test_a_changed_definition_is_gone_though_limits_were_accepted_for_its_tool(tmp_path: Path, database: str) -> None:
    upstream = Upstream(tmp_path, tool("say"))
    async with app_with(tmp_path, database, upstream) as app:
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
        row = LimitRow("mcp_plain_say", "timeout", 7.0, "accepted", "ann", app.parts.now())
        await app.parts.store_sync.change(learning.decide(row))
        assert app.tools.get("mcp_plain_say").timeout == 7.0
        assert (await app.invoke("mcp_plain_say", {"text": "a"})).ok
        upstream.offer(tool("say", "Says something else."))
        await until_waiting(app, "mcp_plain_say")
        outcome = await app.invoke("mcp_plain_say", {"text": "a"})
        assert outcome.error is not None
        assert outcome.error.code == "TOOL_NOT_FOUND"
        await app.servers.accept(await until_waiting(app, "mcp_plain_say"))
        assert (await app.invoke("mcp_plain_say", {"text": "a"})).ok
        assert app.tools.get("mcp_plain_say").timeout == 7.0
