"""`context.llm` of custom tools: a question to the model is a call of ask_model, governed like every other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Site
from tests.model_servers import KEY, Reply, model_server, model_settings
from tests.services import failed, records
from toolgate import Actor, App
from toolgate.gates.approval.request import ApprovalRequest
from toolgate.sandbox.completions import completion_request
from toolgate.sandbox.worker_protocol import Refusal

pytestmark = pytest.mark.requirement("SBX-1")
TOOL = """\
name: summarize
description: Summarize a text.
schema: {{type: object, properties: {{text: {{type: string}}}}}}
runtime: {runtime}
permissions: {{riskLevel: low}}
code: |
{code}
"""
CODE = {
    "python": """
def execute(args, context):
    if context.llm is None:
        return "no model"
    answer = context.llm.complete("Summarize: " + args["text"], system="Be brief.", max_tokens=50)
    return {"summary": answer.text, "ending": answer.ending, "model": answer["model"], "tokens": answer.tokens}
""",
    "typescript": """
export async function execute(args: any, context: any) {
  if (!context.llm) return "no model";
  const answer = await context.llm.complete("Summarize: " + args.text, {system: "Be brief.", maxTokens: 50});
  return {summary: answer.text, ending: answer.ending, model: answer.model, tokens: answer.tokens};
}
""",
    "node": """
module.exports.execute = async (args, context) => {
  if (!context.llm) return "no model";
  const messages = [{role: "system", content: "Be brief."}, {role: "user", content: "Summarize: " + args.text}];
  const answer = await context.llm.complete({messages, maxTokens: 50});
  return {summary: answer.text, ending: answer.ending, model: answer.model, tokens: answer.tokens};
};
""",
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


@asynccontextmanager
async def tool_app(
    home: Path, code: str, *replies: Any, runtime: str = "python", **settings: Any
) -> AsyncIterator[tuple[App, Site]]:
    """An App with the custom tool `summarize` and a model on loopback."""
    (home / "tools").mkdir(parents=True)
    indented = "".join(f"  {line}\n" for line in code.strip("\n").split("\n"))
    (home / "tools" / "summarize.yml").write_text(TOOL.format(runtime=runtime, code=indented))
    async with model_server("openai", *replies) as server:
        model = model_settings("openai", server, **settings.pop("model", {}))
        async with App.open(home=home, model=model, **settings) as app:
            yield app, server


@pytest.mark.parametrize("runtime", ["python", "typescript", "node"])
async def test_the_code_of_a_tool_asks_the_model(tmp_path: Path, runtime: str) -> None:
    async with tool_app(tmp_path, CODE[runtime], Reply("It is short."), runtime=runtime) as (app, server):
        app.approvals.add_approver(lambda _request: True)
        outcome = await app.invoke("summarize", {"text": "a long text"})
    assert outcome.output == {"summary": "It is short.", "ending": "complete", "model": "m-1", "tokens": 29}, outcome
    asked = server.asked[0].json
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Summarize: a long text"},
    ]
    assert asked["max_tokens"] == 50
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("runtime", ["python", "typescript"])
async def test_without_a_model_there_is_no_llm(tmp_path: Path, runtime: str) -> None:
    model = {"tenants": {"guests": {"name": None}}}
    async with tool_app(tmp_path, CODE[runtime], Reply("x"), runtime=runtime, model=model) as (app, server):
        app.approvals.add_approver(lambda _request: True)
        outcome = await app.invoke("summarize", {"text": "x"}, actor=Actor(tenant="guests", user="u-1"))
        assert outcome.output == "no model", outcome
        assert server.asked == []


async def test_a_person_is_asked_about_the_text_and_the_tool_goes_on_after_the_answer(tmp_path: Path) -> None:
    async with tool_app(tmp_path, CODE["python"], Reply("done")) as (app, server):
        outcome = await app.invoke("summarize", {"text": "secret plans"})
        assert outcome.pending is not None, outcome
        waiting = await app.approvals.get(outcome.pending.id, "default")
        assert server.asked == []
        assert waiting.request.tool == "ask_model"
        shown = str(waiting.request.arguments)
        assert "Summarize: secret plans" in shown
        assert "the tool summarize" in shown
        await app.approvals.answer(outcome.pending.id, True)
        resumed = await app.approvals.resume(outcome.pending.id)
        assert resumed.output["summary"] == "done", resumed
        assert len(server.asked) == 1


async def test_a_rejected_question_is_an_error_of_the_code(tmp_path: Path) -> None:
    code = """
def execute(args, context):
    try:
        return context.llm.complete(args["text"]).text
    except ToolError as error:
        return error.code
"""
    async with tool_app(tmp_path, code, Reply("x")) as (app, server):

        def agree(request: ApprovalRequest) -> bool:
            return request.tool != "ask_model"

        app.approvals.add_approver(agree)
        assert (await app.invoke("summarize", {"text": "x"})).output == "USER_CANCELLED"
        assert server.asked == []


async def test_its_money_and_records_are_those_of_a_call(tmp_path: Path) -> None:
    model = {"input_price": 100, "output_price": 100}
    async with tool_app(tmp_path, CODE["python"], Reply("x", read=1000, written=500), model=model) as (app, _):
        app.approvals.add_approver(lambda _request: True)
        assert (await app.invoke("summarize", {"text": "x"})).ok
        costs = {line.name: line.nano for line in await app.budgets.costs("tool")}
        assert costs["ask_model"] == 150_000_000
        log = await records(app)
    assert "Summarize: x" in log
    assert KEY not in log


async def test_what_exceeds_the_budget_is_not_asked(tmp_path: Path) -> None:
    code = """
def execute(args, context):
    try:
        context.llm.complete("x")
    except ToolError as error:
        return error.code
"""
    settings: dict[str, Any] = {"model": {"output_price": 1000}, "budgets": {"external_api_daily": "0.01"}}
    async with tool_app(tmp_path, code, Reply("x"), **settings) as (app, server):
        app.approvals.add_approver(lambda _request: True)
        assert (await app.invoke("summarize", {})).output == "BUDGET_EXCEEDED"
        assert server.asked == []


async def test_a_long_answer_reaches_the_code_whole(tmp_path: Path) -> None:
    code = "def execute(args, context):\n    return len(context.llm.complete('x').text)\n"
    async with tool_app(tmp_path, code, Reply("word " * 20_000)) as (app, _):
        app.approvals.add_approver(lambda _request: True)
        assert (await app.invoke("summarize", {})).output == 100_000


async def test_code_cannot_call_ask_model_as_a_tool(tmp_path: Path) -> None:
    async with tool_app(tmp_path, CODE["python"], Reply("x")) as (app, server):
        app.approvals.add_approver(lambda _request: True)
        program = 'return tools.call("ask_model", {"messages": [{"role": "user", "text": "x"}]})'
        outcome = await app.invoke("run_program", {"language": "python", "code": program})
        assert "no tool named 'ask_model'" in failed(outcome, "SANDBOX_ERROR").message
        assert server.asked == []


@pytest.mark.parametrize(
    ("asked", "options", "words"),
    [
        (None, None, "nothing to ask"),
        (5, None, "no list"),
        ({}, None, "nothing to ask"),
        ([], None, "nothing to ask"),
        ({"prompt": 5}, None, "no text"),
        ("x", {"temperature": 0}, "no option 'temperature'"),
        ("x", {"tools": []}, "no option 'tools'"),
        ([{"role": "tool", "content": "x"}], None, "no role"),
        ([{"role": "user", "content": [{"type": "image"}]}], None, "no text"),
        ("x", {"system": ["y"]}, "no text"),
    ],
)
def test_what_cannot_be_asked_is_told(asked: Any, options: Any, words: str) -> None:
    with pytest.raises(Refusal, match=words) as refused:
        completion_request(asked, options)
    assert refused.value.code == "INVALID_INPUT"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["prompt", "messages", "role", "content", "system", "maxTokens"]), inner)
    ),
    max_leaves=10,
)


@given(asked=JSON, options=JSON)
def test_whatever_code_asks_is_a_question_or_a_refusal(asked: Any, options: Any) -> None:
    try:
        made = completion_request(asked, options)
    except Refusal as refused:
        assert refused.code == "INVALID_INPUT"
    else:
        assert all(isinstance(message["text"], str) for message in made["messages"])
