"""Pydantic AI's agents, with the tools of Toolgate and a model over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, AgentRunResult, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

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
from tests.adapters.chat_models import MODEL, ChatModel, chatting
from toolgate import Answer
from toolgate.adapters import pydantic_ai

PAY = ("call-1", "pay", {"to": "bob", "amount": 10})


def agent(model: ChatModel, tools: list[Tool[Any]]) -> Agent[Any, Any]:
    chat = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=model.openai))
    return Agent(chat, tools=tools, output_type=[str, DeferredToolRequests])


async def run(agent: Agent[Any, Any], *given: Any, **terms: Any) -> AgentRunResult[Any]:
    async with asyncio.timeout(SECONDS):
        return await agent.run(*given, **terms)


def approval_of(result: AgentRunResult[Any]) -> str:
    """The one approval that a run waits for."""
    assert isinstance(result.output, DeferredToolRequests), result.output
    (about,) = result.output.metadata.values()
    return str(about["approval"])


async def resume(agent: Agent[Any, Any], result: AgentRunResult[Any]) -> AgentRunResult[Any]:
    """As another process would: with nothing but the messages, as JSON."""
    history = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
    go_on = DeferredToolResults(approvals={one.tool_call_id: True for one in result.output.approvals})
    return await run(agent, message_history=history, deferred_tool_results=go_on)


@pytest.mark.parametrize("how", ["app", "client"])
async def test_an_approval_ends_the_run_and_the_next_one_goes_on(how: str, tmp_path: Path) -> None:
    turns = ([("call-0", "balance", {"account": "main"})], [PAY], "Done.")
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who), chatting(*turns) as model:
        clerk = agent(model, await pydantic_ai.tools(door, **who))
        paused = await run(clerk, "Pay bob 10.")
        approval = approval_of(paused)
        assert await waiting(app) == [approval]
        assert model.told() == [("call-0", '{"account":"main","euros":1200}')]

        early = await resume(clerk, paused)  # nobody has answered yet: the same question, and no second one
        assert approval_of(early) == approval
        assert await waiting(app) == [approval]

        await answer(app, approval)
        done = await resume(clerk, paused)
        assert done.output == "Done."
        assert model.told()[-1] == ("call-1", "paid 10.00 to bob")
        assert bank.paid == [("bob", 10)]

        model.script.turns.append("Done again.")
        await resume(clerk, paused)  # a host that lost what came of it
        assert model.told()[-1] == ("call-1", "paid 10.00 to bob")
        assert bank.paid == [("bob", 10)]


async def test_a_rejection_reaches_the_model_with_its_reason(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "A pity.") as model:
        clerk = agent(model, await pydantic_ai.tools(app, actor=ANN))
        paused = await run(clerk, "Pay bob 10.")
        await answer(app, approval_of(paused), Answer("reject", "not on a Friday"))
        assert (await resume(clerk, paused)).output == "A pity."
        assert model.told() == [("call-1", "USER_CANCELLED: pay was rejected by boss: not on a Friday")]
        assert bank.paid == []
        assert await waiting(app) == []


async def test_it_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bank.db"
    async with chatting([PAY], "Done.") as model:
        async with opened(tmp_path, database_url=url) as (app, _):
            paused = await run(agent(model, await pydantic_ai.tools(app, actor=ANN)), "Pay bob 10.")
        async with opened(tmp_path, database_url=url) as (app, bank):
            await answer(app, approval_of(paused))
            await resume(agent(model, await pydantic_ai.tools(app, actor=ANN)), paused)
            assert bank.paid == [("bob", 10)]


async def test_a_call_that_the_approver_ran_is_not_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "Done.") as model:
        clerk = agent(model, await pydantic_ai.tools(app, actor=ANN))
        paused = await run(clerk, "Pay bob 10.")
        await answer(app, approval_of(paused))
        assert (await app.approvals.resume(approval_of(paused), actor=BOSS)).ok
        await resume(clerk, paused)
        assert model.told() == [("call-1", "paid 10.00 to bob")]
        assert bank.paid == [("bob", 10)]


async def test_an_id_that_a_model_uses_again_is_another_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "Done.", [PAY], "Done again.") as model:
        clerk = agent(model, await pydantic_ai.tools(app, actor=ANN))
        for times in (1, 2):
            paused = await run(clerk, "Pay bob 10.")
            await answer(app, approval_of(paused))
            await resume(clerk, paused)
            assert bank.paid == [("bob", 10)] * times


async def test_questions_from_inside_a_call_pause_it_one_after_the_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([("c", "payroll", {"names": ["bob", "eve"]})], "Done.") as model:
        clerk = agent(model, await pydantic_ai.tools(app, actor=ANN))
        paused = await run(clerk, "Pay all.")
        for verdict in (True, Answer("reject", "she left")):
            await answer(app, approval_of(paused), verdict)
            paused = await resume(clerk, paused)
        assert paused.output == "Done."
        assert model.told() == [("c", "paid 7.00 to bob, not paid")]
        assert bank.paid == [("bob", 7)]


@pytest.mark.parametrize("wrong", [{"acount": "a"}, {"account": 7}, '{"account": '], ids=["name", "type", "JSON"])
async def test_the_model_mends_arguments_that_do_not_fit(wrong: Any, tmp_path: Path) -> None:
    turns = ([("c0", "balance", wrong)], [("c1", "balance", {"account": "a"})], "ok")
    async with opened(tmp_path) as (app, _), chatting(*turns) as model:
        await run(agent(model, await pydantic_ai.tools(app, actor=ANN)), "How much is there?")
        (_, first), (_, second) = model.told()
        assert "account" in first
        assert second == '{"account":"a","euros":1200}'


async def test_a_model_that_never_mends_them_does_not_end_the_run(tmp_path: Path) -> None:
    wrong = [[(f"c{turn}", "balance", {"acount": "a"})] for turn in range(4)]
    async with opened(tmp_path) as (app, _), chatting(*wrong, "I give up.") as model:
        assert (await run(agent(model, await pydantic_ai.tools(app, actor=ANN)), "How much?")).output == "I give up."
        assert ["VALIDATION_ERROR: " in text and "acount" in text for _, text in model.told()] == [True] * 4


async def test_actors_in_one_process_have_their_own_tools(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _):
        clerk, auditor, visitor = [await pydantic_ai.tools(app, actor=one) for one in (ANN, BOB, EVE)]
        assert [one.name for one in auditor] == ["balance"]
        assert {one.name for one in clerk} == CLERKS_TOOLS
        assert visitor == []
        for tools, actor in ((clerk, ANN), (auditor, BOB)):
            async with chatting([("c", "balance", {"account": "main"})], "ok") as model:
                await run(agent(model, tools), "How much is there?")
                assert (await last_call(app)).user == actor.user
        async with chatting("There is nothing that I can do.") as model:
            await run(agent(model, visitor), "Pay bob 10.")
            assert model.tools() == []


async def test_what_goes_wrong_is_told_to_the_model(tmp_path: Path) -> None:
    calls = [
        ("revoked", "deposit", {"amount": 1}),
        ("late", "slow", {}),
        ("long", "statement", {"lines": 100_000}),
        ("odd", "odd", ODD),
    ]
    async with opened(tmp_path) as (app, bank), chatting(calls, "ok") as model:
        clerk = agent(model, await pydantic_ai.tools(app, actor=ANN))
        await app.tools.disable("deposit", tenant="acme")  # after it was listed
        await run(clerk, "Do this and that.")
        told = dict(model.told())
        assert "deposit" in told["revoked"] and bank.deposits == []
        assert told["late"].startswith("TIMEOUT: The tool did not finish within 0.2 s.")
        assert len(told["long"]) < 200_000 and "toolgate://artifacts/" in told["long"]
        assert told["odd"] == "a b c d e"


async def test_a_run_that_is_cancelled_cancels_its_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([("call-1", "audit", {})]) as model:
        task = asyncio.create_task(run(agent(model, await pydantic_ai.tools(app, actor=ANN)), "Wait."))
        await asyncio.wait_for(bank.begun.wait(), SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(bank.cancelled.wait(), SECONDS)
        assert (await last_call(app)).code == "CANCELLED"
