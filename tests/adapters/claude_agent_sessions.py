"""Sessions of the Claude Agent SDK, with the tools of Toolgate. Claude Code itself runs, the program that the SDK brings;
the model that it talks to is scripted, on loopback."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from tests.adapters.bank import (
    ANN,
    BOB,
    BOSS,
    CLERKS_TOOLS,
    EVE,
    ODD,
    SECONDS,
    answer,
    last_call,
    opened,
    reached,
    waiting,
)
from tests.adapters.scripted_models import ScriptedModel, Turn, scripted
from toolgate import Answer, App
from toolgate.adapters import claude_agent
from toolgate.client import AsyncClient

PAY = ("toolu_1", "mcp__toolgate__pay", {"to": "bob", "amount": 10})
BALANCE = ("toolu_0", "mcp__toolgate__balance", {"account": "main"})


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Claude Code is to find no settings, no credential and no address of whoever runs the tests."""
    for name in list(os.environ):
        if name.upper().startswith(("ANTHROPIC", "CLAUDE", "AWS_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


class Clerk:
    """Somebody's sessions with a model."""

    def __init__(self, model: ScriptedModel, folder: Path, door: App | AsyncClient, **who: Any) -> None:
        self._model, self._folder, self._door, self._who = model, folder, door, who

    async def options(self, **terms: Any) -> ClaudeAgentOptions:
        env = {
            "ANTHROPIC_BASE_URL": self._model.url, "ANTHROPIC_API_KEY": "none-is-needed", "HOME": str(self._folder),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip
        governed = await claude_agent.options(self._door, **self._who)
        return ClaudeAgentOptions(
            **governed, tools=[], strict_mcp_config=True, setting_sources=[], cwd=self._folder, env=env, **terms
        )

    async def say(self, text: str | None, **terms: Any) -> ResultMessage:
        """Has the model answer, or a session go on that is resumed; gives how it ended."""
        async with asyncio.timeout(SECONDS), ClaudeSDKClient(await self.options(**terms)) as client:
            if text is not None:
                await client.query(text)
            ended = [message async for message in client.receive_response()][-1]
        assert isinstance(ended, ResultMessage)
        return ended

    async def resume(self, paused: ResultMessage) -> ResultMessage:
        """With tools that were made anew, as another process would."""
        return await self.say(None, resume=paused.session_id)

    async def approval(self, paused: ResultMessage) -> str | None:
        return await claude_agent.approval(self._door, paused, **self._who)


@pytest.mark.parametrize("how", ["app", "client"])
async def test_an_approval_defers_the_call_and_the_session_is_resumed(how: str, tmp_path: Path) -> None:
    turns: tuple[Turn, ...] = ([BALANCE], [PAY], "Done.")
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who), scripted(*turns) as model:
        clerk = Clerk(model, tmp_path, door, **who)
        paused = await clerk.say("Pay bob 10.")
        assert paused.deferred_tool_use is not None
        approval = await clerk.approval(paused)
        assert await waiting(app) == [approval]
        assert model.told() == [("toolu_0", '{"account":"main","euros":1200}')]

        early = await clerk.resume(paused)  # nobody has answered yet: the same question, and no second one
        assert early.deferred_tool_use is not None
        assert await waiting(app) == [approval]
        assert bank.paid == []

        assert approval is not None
        await answer(app, approval)
        done = await clerk.resume(early)
        assert done.result == "Done."
        assert model.told()[-1][1].startswith("paid 10.00 to bob")
        assert bank.paid == [("bob", 10)]


async def test_a_rejection_reaches_the_model_with_its_reason(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), scripted([PAY], "A pity.") as model:
        clerk = Clerk(model, tmp_path, app, actor=ANN)
        paused = await clerk.say("Pay bob 10.")
        await answer(app, (await waiting(app))[0], Answer("reject", "not on a Friday"))
        assert (await clerk.resume(paused)).result == "A pity."
        assert model.told()[0][1].startswith("USER_CANCELLED: pay was rejected by boss: not on a Friday")
        assert bank.paid == []
        assert await waiting(app) == []


async def test_a_call_that_the_approver_ran_is_not_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), scripted([PAY], "Done.") as model:
        clerk = Clerk(model, tmp_path, app, actor=ANN)
        paused = await clerk.say("Pay bob 10.")
        (approval,) = await waiting(app)
        await answer(app, approval)
        assert (await app.approvals.resume(approval, actor=BOSS)).ok
        await clerk.resume(paused)
        assert model.told()[0][1].startswith("paid 10.00 to bob")
        assert bank.paid == [("bob", 10)]


async def test_of_two_calls_that_wait_one_is_deferred_and_the_model_is_told_of_the_other(tmp_path: Path) -> None:
    second = ("toolu_2", "mcp__toolgate__pay", {"to": "eve", "amount": 2})
    again = ("toolu_3", "mcp__toolgate__pay", {"to": "eve", "amount": 2})
    async with opened(tmp_path) as (app, bank), scripted([PAY, second], [again], "Done.") as model:
        clerk = Clerk(model, tmp_path, app, actor=ANN)
        paused = await clerk.say("Pay both.")
        approvals = await waiting(app)
        assert len(approvals) == 2
        for id in approvals:
            await answer(app, id)
        assert (await clerk.resume(paused)).result == "Done."
        told = dict(model.told())
        assert "APPROVAL_REQUIRED" in told["toolu_2"]
        assert told["toolu_3"].startswith("paid 2.00 to eve")
        assert sorted(bank.paid) == [("bob", 10), ("eve", 2)]


async def test_what_goes_wrong_is_told_to_the_model(tmp_path: Path) -> None:
    calls = [
        ("revoked", "mcp__toolgate__deposit", {"amount": 1}),
        ("wrong", "mcp__toolgate__balance", {"acount": "main"}),
        ("late", "mcp__toolgate__slow", {}),
        ("odd", "mcp__toolgate__odd", ODD),
    ]
    async with opened(tmp_path) as (app, bank), scripted(calls, "ok") as model:
        options = await Clerk(model, tmp_path, app, actor=ANN).options()
        await app.tools.disable("deposit", tenant="acme")  # after it was listed
        async with asyncio.timeout(SECONDS), ClaudeSDKClient(options) as client:
            await client.query("Do this and that.")
            assert [message async for message in client.receive_response()]
        told = dict(model.told())
        assert "deposit" in told["revoked"] and bank.deposits == []
        assert "account" in told["wrong"]
        assert told["late"].startswith("TIMEOUT: The tool did not finish within 0.2 s.")
        assert told["odd"].startswith("a b c d e")


async def test_actors_in_one_process_have_their_own_tools(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _):
        for actor, expected in ((ANN, CLERKS_TOOLS), (BOB, {"balance"}), (EVE, set[str]())):
            found = await claude_agent.options(app, actor=actor)
            assert set(found["allowed_tools"]) == {f"mcp__toolgate__{name}" for name in expected}
        async with scripted([BALANCE], "ok") as model:
            await Clerk(model, tmp_path, app, actor=BOB).say("How much is there?")
            assert "mcp__toolgate__balance" in model.tools() and "mcp__toolgate__pay" not in model.tools()
            assert (await last_call(app)).user == "bob"


async def test_a_session_that_is_interrupted_cancels_its_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), scripted([("t", "mcp__toolgate__audit", {})], "ok") as model:
        options = await Clerk(model, tmp_path, app, actor=ANN).options()
        async with asyncio.timeout(SECONDS), ClaudeSDKClient(options) as client:
            await client.query("Wait.")
            await bank.begun.wait()
            await client.interrupt()
            assert [message async for message in client.receive_response()]
        await asyncio.wait_for(bank.cancelled.wait(), SECONDS)
        assert (await last_call(app)).code == "CANCELLED"
