"""LangChain's agents and LangGraph's graphs, with the tools of Toolgate and a model over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

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
from tests.adapters.chat_models import KEY, MODEL, ChatModel, chatting
from toolgate import Answer
from toolgate.adapters import langchain

THREAD = {"configurable": {"thread_id": "1"}}
PAY = ("call-1", "pay", {"to": "bob", "amount": 10})


def agent(model: ChatModel, tools: list[BaseTool], saver: InMemorySaver | None = None) -> Any:
    chat = ChatOpenAI(model=MODEL, base_url=model.base_url, api_key=KEY, max_retries=0, http_async_client=model.http)
    return create_agent(chat, tools=tools, checkpointer=saver or InMemorySaver())


def node_of(tools: list[BaseTool], saver: InMemorySaver) -> Any:
    """A graph of one node that makes all calls of a message side by side, and executes all of them anew when resumed."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "tools")
    return graph.compile(checkpointer=saver)


def calling(*calls: tuple[str, str, Any]) -> dict[str, Any]:
    made = [{"id": id, "name": name, "args": given, "type": "tool_call"} for id, name, given in calls]
    return {"messages": [AIMessage("", tool_calls=made)]}


def told(result: dict[str, Any]) -> dict[str, str]:
    return {one.tool_call_id: one.content for one in result["messages"] if one.type == "tool"}


async def say(agent: Any, text: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        return dict(await agent.ainvoke({"messages": [("user", text)]}, THREAD))


async def resume(agent: Any, value: Any = True) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        return dict(await agent.ainvoke(Command(resume=value), THREAD))


@pytest.mark.parametrize("how", ["app", "client"])
async def test_an_approval_interrupts_the_graph_and_resumes_it(how: str, tmp_path: Path) -> None:
    turns = ([("call-0", "balance", {"account": "main"})], [PAY], "Done.")
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who), chatting(*turns) as model:
        run = agent(model, await langchain.tools(door, **who))

        paused = await say(run, "Pay bob 10.")
        (interrupt,) = paused["__interrupt__"]
        assert interrupt.value == {"approval": (await waiting(app))[0], "tool": "pay", "arguments": PAY[2]}
        assert model.told() == [("call-0", '{"account":"main","euros":1200}')]
        assert bank.paid == []

        early = await resume(run)  # nobody has answered yet: the same question, and no second one
        assert [one.value for one in early["__interrupt__"]] == [interrupt.value]
        assert await waiting(app) == [interrupt.value["approval"]]

        await answer(app, interrupt.value["approval"])
        done = await resume(run)
        assert done["messages"][-1].content == "Done."
        assert model.told()[-1] == ("call-1", "paid 10.00 to bob")
        assert done["messages"][-2].artifact["status"] == "success"
        assert bank.paid == [("bob", 10)]


async def test_a_rejection_reaches_the_model_with_its_reason(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "A pity.") as model:
        run = agent(model, await langchain.tools(app, actor=ANN))
        paused = await say(run, "Pay bob 10.")
        await answer(app, paused["__interrupt__"][0].value["approval"], Answer("reject", "not on a Friday"))
        done = await resume(run)
        assert model.told() == [("call-1", "USER_CANCELLED: pay was rejected by boss: not on a Friday")]
        assert done["messages"][-2].status == "error"
        assert bank.paid == []
        assert await waiting(app) == []


async def test_it_goes_on_in_another_process(tmp_path: Path) -> None:
    url, saver = f"sqlite:///{tmp_path}/bank.db", InMemorySaver()
    async with chatting([PAY], "Done.") as model:
        async with opened(tmp_path, database_url=url) as (app, bank):
            paused = await say(agent(model, await langchain.tools(app, actor=ANN), saver), "Pay bob 10.")
        async with opened(tmp_path, database_url=url) as (app, bank):
            await answer(app, paused["__interrupt__"][0].value["approval"])
            done = await resume(agent(model, await langchain.tools(app, actor=ANN), saver))
            assert done["messages"][-1].content == "Done."
            assert bank.paid == [("bob", 10)]


async def test_a_node_that_is_executed_anew_has_no_effect_twice(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank):
        graph = node_of(await langchain.tools(app, actor=ANN), InMemorySaver())
        calls = calling(("a", "deposit", {"amount": 5}), PAY, ("b", "deposit", {"amount": 5}))
        paused = dict(await graph.ainvoke(calls, THREAD))
        assert bank.deposits == [5, 5]  # two calls are two calls, though they are the same
        await answer(app, paused["__interrupt__"][0].value["approval"])
        done = await resume(graph)
        assert told(done)["call-1"] == "paid 10.00 to bob"
        assert {told(done)["a"], told(done)["b"]} == {"deposit 1", "deposit 2"}
        assert bank.deposits == [5, 5]
        assert bank.paid == [("bob", 10)]


async def test_a_call_that_the_approver_ran_is_not_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([PAY], "Done.") as model:
        run = agent(model, await langchain.tools(app, actor=ANN))
        approval = (await say(run, "Pay bob 10."))["__interrupt__"][0].value["approval"]
        await answer(app, approval)
        assert (await app.approvals.resume(approval, actor=BOSS)).ok
        await resume(run)
        assert model.told() == [("call-1", "paid 10.00 to bob")]
        assert bank.paid == [("bob", 10)]


async def test_calls_that_wait_side_by_side_are_answered_one_by_one(tmp_path: Path) -> None:
    calls = [("call-1", "pay", {"to": "bob", "amount": 1}), ("call-2", "pay", {"to": "eve", "amount": 2})]
    async with opened(tmp_path) as (app, bank), chatting(calls, "Done.") as model:
        run = agent(model, await langchain.tools(app, actor=ANN))
        paused = await say(run, "Pay both.")
        by_name = {one.value["arguments"]["to"]: one for one in paused["__interrupt__"]}
        await answer(app, by_name["eve"].value["approval"])
        paused = await resume(run, {one.id: True for one in by_name.values()})
        assert [one.value["arguments"]["to"] for one in paused["__interrupt__"]] == ["bob"]
        await answer(app, by_name["bob"].value["approval"], Answer("reject", "he has enough"))
        await resume(run, {one.id: True for one in paused["__interrupt__"]})
        assert sorted(model.told()) == [
            ("call-1", "USER_CANCELLED: pay was rejected by boss: he has enough"),
            ("call-2", "paid 2.00 to eve"),
        ]
        assert bank.paid == [("eve", 2)]


async def test_questions_from_inside_a_call_pause_it_one_after_the_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([("c", "payroll", {"names": ["bob", "eve"]})], "Done.") as model:
        run = agent(model, await langchain.tools(app, actor=ANN))
        paused = await say(run, "Pay all.")
        for verdict in (True, Answer("reject", "she left")):
            await answer(app, paused["__interrupt__"][0].value["approval"], verdict)
            paused = await resume(run)
        assert model.told() == [("c", "paid 7.00 to bob, not paid")]
        assert bank.paid == [("bob", 7)]


async def test_the_model_mends_arguments_that_do_not_fit(tmp_path: Path) -> None:
    wrong = [("call-0", "balance", {"acount": "main"})]
    async with opened(tmp_path) as (app, _), chatting(wrong, [("call-1", "balance", {"account": "a"})], "ok") as model:
        await say(agent(model, await langchain.tools(app, actor=ANN)), "How much is there?")
        (_, first), (_, second) = model.told()
        assert first.startswith("VALIDATION_ERROR: ") and "acount" in first
        assert second == '{"account":"a","euros":1200}'


async def test_without_a_thread_the_model_is_told_that_a_call_waits(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank):
        (pay,) = [one for one in await langchain.tools(app, actor=ANN) if one.name == "pay"]
        said = await pay.ainvoke({"type": "tool_call", "id": "call-1", "name": "pay", "args": PAY[2]})
        assert said.status == "error"
        assert (await waiting(app))[0] in said.content
        assert bank.paid == []


async def test_actors_in_one_process_have_their_own_tools(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _):
        clerk, auditor, visitor = [await langchain.tools(app, actor=one) for one in (ANN, BOB, EVE)]
        assert [one.name for one in auditor] == ["balance"]
        assert {one.name for one in clerk} == CLERKS_TOOLS
        assert visitor == []
        for tools, actor in ((clerk, ANN), (auditor, BOB)):
            (balance,) = [one for one in tools if one.name == "balance"]
            await balance.ainvoke({"account": "main"})
            assert (await last_call(app)).user == actor.user
        async with chatting("There is nothing that I can do.") as model:
            await say(agent(model, visitor), "Pay bob 10.")
            assert model.tools() == []


async def test_what_goes_wrong_is_told_to_the_model(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank):
        tools = {one.name: one for one in await langchain.tools(app, actor=ANN)}
        await app.tools.disable("deposit", tenant="acme")  # after it was listed

        async def said(name: str, arguments: dict[str, Any]) -> Any:
            return await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})

        revoked = await said("deposit", {"amount": 1})
        assert revoked.status == "error" and bank.deposits == []
        late = await said("slow", {})
        assert late.content.startswith("TIMEOUT: The tool did not finish within 0.2 s.")
        long = await said("statement", {"lines": 100_000})
        assert long.status == "success" and len(long.content) < 200_000
        assert "toolgate://artifacts/" in long.content
        assert (await said("odd", ODD)).content == "a b c d e"


async def test_a_run_that_is_cancelled_cancels_its_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), chatting([("call-1", "audit", {})]) as model:
        task = asyncio.create_task(say(agent(model, await langchain.tools(app, actor=ANN)), "Wait."))
        await asyncio.wait_for(bank.begun.wait(), SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(bank.cancelled.wait(), SECONDS)
        assert (await last_call(app)).code == "CANCELLED"


async def test_the_synchronous_way_is_refused_with_words(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _):
        (balance,) = await langchain.tools(app, actor=BOB)
        with pytest.raises(NotImplementedError, match="ainvoke"):
            balance.invoke({"account": "main"})
