"""Questions about calls inside a call, through MCP: asked of the client's person in both eras, else pending and the same
call goes on; from another process on the same database too."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.nesting import BOSS, Bench, approve, left
from tests.mcp_clients import ERAS, Person, connected, key_for, meta, text_of
from tests.serving import META, Site, serving
from toolgate import Actor, App

pytestmark = pytest.mark.requirement("TIER-9", "TIER-6", "MCP-4")

EACH_ERA = pytest.mark.parametrize("era", ERAS)
ADA = Actor("acme", "analyst", "ada")
ABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
STEPS = [["note", "one"], ["risky", "two"], ["risky", "three"], ["note", "four"]]
ONCE = {"note one": 1, "risky two": 1, "risky three": 1, "note four": 1}
PROGRAM = """
    const first = await tools.note({text: 'one'});
    const both = await Promise.all([tools.risky({text: 'two'}), tools.risky({text: 'three'})]);
    return [first, ...both, await tools.note({text: 'four'})];
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "did.txt")


@asynccontextmanager
async def served(bench: Bench, database: str, **settings: Any) -> AsyncIterator[tuple[App, Site]]:
    home = bench.file.parent / "home"
    opened = App.open(os.devnull, database_url=database, home=home, entry_points=False, **settings)
    async with opened as app, serving(bench.move_into(app)) as site:
        yield app, site


@EACH_ERA
@pytest.mark.parametrize("tool", ["follow", "guarded", "together", "run_program"])
async def test_the_client_s_person_is_asked_about_each_inner_call(tmp_path: Path, bench: Bench, era: str, tool: str) -> None:
    person = Person(approve=True)
    arguments = {"code": PROGRAM} if tool == "run_program" else {"steps": STEPS}
    async with served(bench, f"sqlite:///{tmp_path / 'a.db'}") as (app, site):
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, era, elicitation_callback=person) as client:
            result = await client.call_tool(tool, arguments)
        assert not result.is_error, text_of(result)
        inner = [shown for shown in person.shown if f"asked by {tool} (call" in shown]
        assert len(inner) == 2 and all("risky" in shown for shown in inner)
        assert len(person.shown) - len(inner) == (tool in ("guarded", "run_program"))
        assert bench.effects == ONCE and await left(app) == 0


@EACH_ERA
async def test_what_the_person_refuses_the_program_is_told(tmp_path: Path, bench: Bench, era: str) -> None:
    async with served(bench, f"sqlite:///{tmp_path / 'a.db'}") as (app, site):
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, era, elicitation_callback=Person("decline")) as client:
            result = await client.call_tool("follow", {"steps": STEPS})
        assert "USER_CANCELLED" in text_of(result) and not result.is_error
        assert bench.effects == {"note one": 1, "note four": 1}


@EACH_ERA
async def test_who_can_t_be_asked_waits_and_the_same_call_goes_on_elsewhere(database: str, bench: Bench, era: str) -> None:
    """A restart after each question; the client repeats its call, or names the approval."""
    ids: list[str] = []
    for time in range(3):
        async with served(bench, database) as (app, site):
            async with connected(site, await key_for(app, ADA), era) as client:
                said = {"toolgate/session": "s"}  # a client of the handshake era has another one each time it connects
                named = {**said, "toolgate/approval": ids[-1]} if time == 2 else said
                result = await client.call_tool("follow", {"steps": STEPS}, meta=meta(named))
                if time == 2:
                    assert not result.is_error, text_of(result)
                    break
                assert result.structured_content is not None and result.structured_content["status"] == "pending"
                again = await client.call_tool("follow", {"steps": STEPS}, meta=meta(said))
                assert again.structured_content is not None
                assert again.structured_content["approval"] == result.structured_content["approval"]
            ids.append(result.structured_content["approval"])
            await approve(app, ids[-1], BOSS)
    assert bench.effects == ONCE and len(set(ids)) == 2


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_another_process_goes_on_with_the_state_that_the_client_brings(database: str, bench: Bench) -> None:
    async with served(bench, database) as (app, _):
        key = await key_for(app, ADA, may_approve=True)
    params: dict[str, Any] = {"name": "guarded", "arguments": {"steps": STEPS}}
    for _ in range(3):
        async with served(bench, database) as (_, site):
            result = (await site.mcp("tools/call", params, key=key, meta=ABLE)).json["result"]
            assert result["resultType"] == "input_required", result
            ticked = {"action": "accept", "content": {"approve": True}}
            answers = dict.fromkeys(result["inputRequests"], ticked)
            params = {**params, "inputResponses": answers, "requestState": result["requestState"]}
    async with served(bench, database) as (app, site):
        stranger = await key_for(app, Actor("acme", "analyst", "eve"), may_approve=True)
        assert "error" in (await site.mcp("tools/call", params, key=stranger, meta=ABLE)).json
        result = (await site.mcp("tools/call", params, key=key, meta=ABLE)).json["result"]
        assert result["resultType"] == "complete" and not result.get("isError"), result
        again = (await site.mcp("tools/call", params, key=key, meta=ABLE)).json["result"]
        assert again["isError"] is True
    assert bench.effects == ONCE
