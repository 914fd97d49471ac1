"""Approvals through MCP: asked of the client's person where that can be done, else pending with a way to go on."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.behaviour.asking import ADA, BOSS, Workshop
from tests.mcp_clients import ERAS, Person, connected, key_for, meta, text_of
from tests.serving import META, Site, serving
from toolgate import Actor, App
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-6", "MCP-4")

EACH_ERA = pytest.mark.parametrize("era", ERAS)
TASK = {"task": "tidy up"}
ABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@asynccontextmanager
async def workshop(**settings: Any) -> AsyncIterator[tuple[App, Site, Workshop]]:
    async with memory_app(**settings) as app:
        made = Workshop()
        made.move_into(app)
        async with serving(app) as site:
            yield app, site, made


@EACH_ERA
async def test_a_person_who_ticks_the_box_has_the_call_run_once(era: str) -> None:
    person = Person(approve=True, reason="it is tidy")
    async with workshop() as (app, site, made):
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, era, elicitation_callback=person) as client:
            assert text_of(await client.call_tool("run", TASK)) == "ran tidy up"
            assert [one["task"] for one in made.ran] == ["tidy up"]
            [shown] = person.shown
            assert "run" in shown and "tidy up" in shown and "execute" in shown and "acme/analyst/ada" in shown
            assert text_of(await client.call_tool("run", TASK)) == "ran tidy up"
            assert len(person.shown) == 2  # each run is asked about
        [first, _] = await app.approvals.list(state=None, actor=ADA)
        assert (first.state, first.answered_through, first.answer_reason) == ("used", "mcp", "it is tidy")


@EACH_ERA
@pytest.mark.parametrize(
    ("person", "code"),
    [
        (Person(approve=False), "USER_CANCELLED"),
        (Person("decline"), "USER_CANCELLED"),
        (Person("cancel"), "APPROVAL_REQUIRED"),
        (Person(), "APPROVAL_REQUIRED"),
        (Person(approve="yes"), "APPROVAL_REQUIRED"),
        (Person(approve=1), "APPROVAL_REQUIRED"),
        (Person(confirm=True), "APPROVAL_REQUIRED"),
    ],
)
@pytest.mark.sample(4)
async def test_anything_but_a_ticked_box_is_no_yes(era: str, person: Person, code: str) -> None:
    async with workshop() as (app, site, made):
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, era, elicitation_callback=person) as client:
            result = await client.call_tool("run", TASK)
        assert result.is_error and text_of(result).startswith(code)
        assert made.ran == []


@EACH_ERA
@pytest.mark.parametrize("may_approve", [True, False])
async def test_who_can_t_be_asked_gets_a_pending_result_and_the_same_call_goes_on(era: str, may_approve: bool) -> None:
    """A client that shows no forms, or a key whose holder may not answer for a person."""
    person = Person(approve=True)
    able = {} if may_approve else {"elicitation_callback": person}
    async with workshop() as (app, site, made):
        key = await key_for(app, ADA, may_approve=may_approve)
        async with connected(site, key, era, **able) as client:
            for _ in range(2):  # asking again asks no second question
                waiting = await client.call_tool("run", TASK)
                assert waiting.is_error and waiting.structured_content is not None
                assert waiting.structured_content["status"] == "pending"
                id = waiting.structured_content["approval"]
            assert len(await app.approvals.list(actor=ADA)) == 1 and made.ran == [] and person.shown == []
            await app.approvals.answer(id, True, actor=BOSS)
            assert text_of(await client.call_tool("run", {**TASK, "times": 2})).startswith("APPROVAL_REQUIRED")
            assert text_of(await client.call_tool("run", TASK)) == "ran tidy up"
            assert (await client.call_tool("run", TASK)).is_error  # it was for one call
        assert len(made.ran) == 1


@EACH_ERA
async def test_a_program_can_name_the_approval_that_it_waits_for(era: str) -> None:
    secret = {"task": "x", "password": "hunter2hunter2"}
    async with workshop() as (app, site, made):
        async with connected(site, await key_for(app, ADA), era) as client:
            waiting = await client.call_tool("run", secret)
            assert waiting.meta is not None
            id = waiting.meta["toolgate/approval"]
            named = {"toolgate/approval": id}
            again = await client.call_tool("run", secret, meta=meta(named))
            assert text_of(again).startswith("APPROVAL_REQUIRED")
            await app.approvals.answer(id, True, actor=BOSS)
            async with connected(site, await key_for(app, Actor("acme", "analyst", "eve")), era) as other:
                stolen = await other.call_tool("run", secret, meta=meta(named))
                assert stolen.is_error and made.ran == []
            assert (await client.call_tool("run", {"task": "y"}, meta=meta(named))).is_error
            assert not (await client.call_tool("run", secret, meta=meta(named))).is_error
        assert [one["task"] for one in made.ran] == ["x"]


async def test_a_person_who_does_not_answer_leaves_the_call_pending_and_is_not_waited_for() -> None:
    async def never(*_: Any) -> Any:
        await asyncio.sleep(3600)

    async with workshop(mcp={"approval_seconds": 0.2}) as (app, site, made):
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, "legacy", elicitation_callback=never) as client:
            assert text_of(await client.call_tool("run", TASK)).startswith("APPROVAL_REQUIRED")
        assert made.ran == []


async def test_an_answer_from_elsewhere_counts_while_the_client_still_asks() -> None:
    asked = asyncio.Event()

    async def never(*_: Any) -> Any:
        asked.set()
        await asyncio.sleep(3600)

    async with workshop() as (app, site, made):
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, "legacy", elicitation_callback=never) as client:
            calling = asyncio.create_task(client.call_tool("run", TASK))
            async with asyncio.timeout(30):
                await asked.wait()
                [waiting] = await app.approvals.list(actor=ADA)
                await app.approvals.answer(waiting.request.id, True, actor=BOSS)
                assert text_of(await calling) == "ran tidy up"
        assert len(made.ran) == 1


async def asked_for(site: Site, key: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The first round of a call that must be asked about."""
    answer = await site.mcp("tools/call", {"name": "run", "arguments": arguments}, key=key, meta=ABLE)
    result: dict[str, Any] = answer.json["result"]
    assert result["resultType"] == "input_required"
    return result


def answered(result: dict[str, Any], arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The second round: every form accepted and ticked."""
    ticked = {"action": "accept", "content": {"approve": True}}
    responses = {"inputResponses": dict.fromkeys(result["inputRequests"], ticked)}
    return {"name": "run", "arguments": arguments, **responses, "requestState": result["requestState"], **more}


async def test_a_state_is_good_for_its_own_actor_tool_and_arguments_only() -> None:
    async with workshop() as (app, site, made):
        key = await key_for(app, ADA, may_approve=True)
        result = await asked_for(site, key, TASK)
        others = [
            (await key_for(app, Actor("other", "analyst", "ada"), may_approve=True), answered(result, TASK)),
            (await key_for(app, Actor("acme", "analyst", "eve"), may_approve=True), answered(result, TASK)),
            (await key_for(app, Actor("acme", None, "ada"), may_approve=True), answered(result, TASK)),
            (key, answered(result, {"task": "burn it down"})),
            (key, answered(result, TASK, name="send")),
            (key, answered(result, TASK, requestState=result["requestState"][:-2] + "AA")),
            (key, answered(result, TASK, requestState="v1.x")),
        ]
        for other, params in others:
            told = (await site.mcp("tools/call", params, key=other, meta=ABLE)).json
            assert told["error"]["code"] == -32602, told
        assert made.ran == []
        assert (await site.mcp("tools/call", answered(result, TASK), key=key, meta=ABLE)).json["result"]["content"]
        again = (await site.mcp("tools/call", answered(result, TASK), key=key, meta=ABLE)).json["result"]
        assert again["isError"] is True  # a state that was used up runs nothing a second time
        assert len(made.ran) == 1


async def test_who_comes_back_without_an_answer_is_asked_again() -> None:
    async with workshop() as (app, site, made):
        key = await key_for(app, ADA, may_approve=True)
        result = await asked_for(site, key, TASK)
        other = {"inputResponses": {"other": {"action": "cancel"}}}
        params = {"name": "run", "arguments": TASK, "requestState": result["requestState"], **other}
        again = (await site.mcp("tools/call", params, key=key, meta=ABLE)).json
        assert again["result"]["resultType"] == "input_required" and made.ran == []


async def test_a_key_that_lost_the_right_to_approve_can_t_answer_with_an_old_state() -> None:
    async with workshop() as (app, site, made):
        able, unable = await key_for(app, ADA, may_approve=True), await key_for(app, ADA)
        result = await asked_for(site, able, TASK)
        told = (await site.mcp("tools/call", answered(result, TASK), key=unable, meta=ABLE)).json["result"]
        assert told["isError"] is True and made.ran == []


async def test_another_process_goes_on_with_what_one_began(database: str, tmp_path: Path) -> None:
    """Two Apps on one database are two replicas: the state that one sealed the other unseals."""
    made = Workshop()
    settings: dict[str, Any] = {
        "database_url": database,
        "home": tmp_path,
        "auto_load_custom_tools": False,
        "entry_points": False,
    }
    async with App.open(os.devnull, **settings) as first, App.open(os.devnull, **settings) as second:
        made.move_into(first)
        made.move_into(second)
        async with serving(first) as one, serving(second) as two:
            key = await key_for(first, ADA, may_approve=True)
            result = await asked_for(one, key, TASK)
            told = (await two.mcp("tools/call", answered(result, TASK), key=key, meta=ABLE)).json
            assert told["result"]["content"][0]["text"] == "ran tidy up", told
    assert len(made.ran) == 1


async def test_a_malformed_name_or_argument_is_refused_before_anybody_is_asked() -> None:
    person = Person(approve=True)
    async with workshop() as (app, site, made):
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, "2026-07-28", elicitation_callback=person) as client:
            assert (await client.call_tool("run", {"task": 7})).is_error
            with pytest.raises(MCPError):
                await client.call_tool("run\x00", TASK)
        assert person.shown == [] and made.ran == []
