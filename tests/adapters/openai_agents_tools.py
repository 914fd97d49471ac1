"""The OpenAI Agents SDK's runs, with the tools of Toolgate and a model over HTTP."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, Runner, RunState, set_tracing_disabled
from agents.result import RunResult

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
from toolgate.adapters import openai_agents

PAY = ("call-1", "pay", {"to": "bob", "amount": 10})


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Traces would be sent to OpenAI."""
    set_tracing_disabled(True)
    yield


def agent(model: ChatModel, tools: list[FunctionTool]) -> Agent[Any]:
    return Agent(name="clerk", model=OpenAIChatCompletionsModel(MODEL, model.openai), tools=list(tools))


async def run(agent: Agent[Any], given: Any) -> RunResult:
    async with asyncio.timeout(SECONDS):
        return await Runner.run(agent, given)


async def resume(agent: Agent[Any], result: RunResult) -> RunResult:
    """As another process would: with nothing but the state, as text."""
    state = await RunState.from_string(agent, result.to_state().to_string())
    for item in state.get_interruptions():
        state.approve(item)
    return await run(agent, state)


@pytest.mark.parametrize("how", ["app", "client"])
async def test_an_approval_interrupts_the_run_and_resumes_it(how: str, tmp_path: Path) -> None:
    turns = ([("call-0", "balance", {"account": "main"})], [PAY], "Done.")
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who), chatting(*turns) as model:
        clerk = agent(model, await openai_agents.tools(door, **who))
        paused = await run(clerk, "Pay bob 10.")
        (approval,) = await waiting(app)
        assert await openai_agents.approvals(door, paused.interruptions, **who) == {"call-1": approval}
        assert model.told() == [("call-0", '{"account":"main","euros":1200}')]
        assert bank.paid == []

        await answer(app, approval)
        done = await resume(clerk, paused)
        assert done.final_output == "Done."
        assert model.told()[-1] == ("call-1", "paid 10.00 to bob")
        assert bank.paid == [("bob", 10)]

        model.script.turns.append("Done again.")
        await resume(clerk, paused)  # a host that lost what came of it
        assert model.told()[-1] == ("call-1", "paid 10.00 to bob")
        assert bank.paid == [("bob", 10)]


async def test_a_rejection_reaches_the_model_with_its_reason(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "A pity.") as model:
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        paused = await run(clerk, "Pay bob 10.")
        await answer(app, (await waiting(app))[0], Answer("reject", "not on a Friday"))
        assert (await resume(clerk, paused)).final_output == "A pity."
        assert model.told() == [("call-1", "USER_CANCELLED: pay was rejected by boss: not on a Friday")]
        assert bank.paid == []
        assert await waiting(app) == []


async def test_a_run_that_is_resumed_too_early_is_told_that_the_call_waits(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "It waits.") as model:
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        await resume(clerk, await run(clerk, "Pay bob 10."))
        (approval,) = await waiting(app)
        assert approval in model.told()[0][1]
        assert bank.paid == []


async def test_it_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bank.db"
    async with chatting([PAY], "Done.") as model:
        async with opened(tmp_path, database_url=url) as (app, _):
            paused = await run(agent(model, await openai_agents.tools(app, actor=ANN)), "Pay bob 10.")
        async with opened(tmp_path, database_url=url) as (app, bank):
            await answer(app, (await waiting(app))[0])
            await resume(agent(model, await openai_agents.tools(app, actor=ANN)), paused)
            assert bank.paid == [("bob", 10)]


async def test_a_call_that_the_approver_ran_is_not_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "Done.") as model:
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        paused = await run(clerk, "Pay bob 10.")
        (approval,) = await waiting(app)
        await answer(app, approval)
        assert (await app.approvals.resume(approval, actor=BOSS)).ok
        await resume(clerk, paused)
        assert model.told() == [("call-1", "paid 10.00 to bob")]
        assert bank.paid == [("bob", 10)]


async def test_a_call_that_was_approved_before_it_is_made_again_runs_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], [("call-2", "pay", PAY[2])], "Done.") as model:
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        await run(clerk, "Pay bob 10.")
        await answer(app, (await waiting(app))[0])
        done = await run(clerk, "Pay bob 10.")  # the host has forgotten its run, and begins another
        assert done.final_output == "Done."
        assert model.told() == [("call-2", "paid 10.00 to bob")]
        assert bank.paid == [("bob", 10)]


async def test_an_id_that_a_model_uses_again_is_another_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "Done.", [PAY], "Done again.") as model:
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        for times in (1, 2):
            paused = await run(clerk, "Pay bob 10.")
            await answer(app, (await waiting(app))[0])
            await resume(clerk, paused)
            assert bank.paid == [("bob", 10)] * times


async def test_a_question_from_inside_a_call_is_told_and_the_call_made_again(tmp_path: Path) -> None:
    calls = [("c0", "payroll", {"names": ["bob"]})], "It waits.", [("c1", "payroll", {"names": ["bob"]})], "Done."
    async with opened(tmp_path) as (app, bank), chatting(*calls) as model:
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        waits = await run(clerk, "Pay all.")
        (approval,) = await waiting(app)
        assert approval in model.told()[0][1]
        await answer(app, approval)
        await run(clerk, [*waits.to_input_list(), {"role": "user", "content": "It is approved: go on."}])
        assert model.told()[-1] == ("c1", "paid 7.00 to bob")
        assert bank.paid == [("bob", 7)]


@pytest.mark.parametrize("wrong", [{"acount": "a"}, {"account": 7}], ids=["name", "type"])
async def test_the_model_mends_arguments_that_do_not_fit(wrong: Any, tmp_path: Path) -> None:
    turns = ([("c0", "balance", wrong)], [("c1", "balance", {"account": "a"})], "ok")
    async with opened(tmp_path) as (app, _), chatting(*turns) as model:
        await run(agent(model, await openai_agents.tools(app, actor=ANN)), "How much is there?")
        (_, first), (_, second) = model.told()
        assert first.startswith("VALIDATION_ERROR: ") and "account" in first
        assert second == '{"account":"a","euros":1200}'


@pytest.mark.parametrize("broken", ['{"account": ', "[]"])
async def test_arguments_that_are_no_object_interrupt_the_run_and_are_refused_then(broken: str, tmp_path: Path) -> None:
    turns = ([("c0", "balance", broken)], [("c1", "balance", {"account": "a"})], "ok")
    async with opened(tmp_path) as (app, _), chatting(*turns) as model:
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        paused = await run(clerk, "How much is there?")
        assert len(paused.interruptions) == 1  # the SDK's own rule
        assert await openai_agents.approvals(app, paused.interruptions, actor=ANN) == {}
        assert (await resume(clerk, paused)).final_output == "ok"
        assert model.told()[0][1].startswith("VALIDATION_ERROR: ")


async def test_actors_in_one_process_have_their_own_tools(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _):
        clerk, auditor, visitor = [await openai_agents.tools(app, actor=one) for one in (ANN, BOB, EVE)]
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
        clerk = agent(model, await openai_agents.tools(app, actor=ANN))
        await app.tools.disable("deposit", tenant="acme")  # after it was listed
        await run(clerk, "Do this and that.")
        told = dict(model.told())
        assert "deposit" in told["revoked"] and bank.deposits == []
        assert told["late"].startswith("TIMEOUT: The tool did not finish within 0.2 s.")
        assert len(told["long"]) < 200_000 and "toolgate://artifacts/" in told["long"]
        assert told["odd"] == "a b c d e"


async def test_a_run_that_is_cancelled_cancels_its_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([("call-1", "audit", {})]) as model:
        task = asyncio.create_task(run(agent(model, await openai_agents.tools(app, actor=ANN)), "Wait."))
        await asyncio.wait_for(bank.begun.wait(), SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(bank.cancelled.wait(), SECONDS)
        assert (await last_call(app)).code == "CANCELLED"
