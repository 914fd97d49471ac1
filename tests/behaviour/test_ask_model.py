"""`ask_model`: one turn of a model as a governed call, in both dialects, whole and streamed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.loopback import Said, Site
from tests.model_servers import (
    KEY,
    Reply,
    Talk,
    Wanted,
    events,
    model_server,
    model_settings,
    modelled,
    openai,
    streamed,
)
from tests.services import failed, records
from toolgate import Actor, App
from toolgate.gates.approval.request import ApprovalRequest
from toolgate.llm.completion import Conversations, Message, ToolDefinition, ToolRequest
from toolgate.model import Outcome
from toolgate.testing import ScriptedApprover, memory_app

pytestmark = pytest.mark.requirement("AGENT-1")
BOTH = pytest.mark.parametrize("dialect", ["openai", "anthropic"])
WEATHER = ToolDefinition("weather", "The weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
QUESTION = {"messages": [{"role": "user", "text": "Is 91 prime?"}]}
TURN = {"conversation": "talk", "turn": 3, "messages": [{"role": "user", "text": "And now?"}], "tools": ["weather"]}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


async def ask(app: App, arguments: Any = None, **more: Any) -> Outcome:
    return await app.invoke("ask_model", arguments or QUESTION, internal=True, **more)


@asynccontextmanager
async def talking(dialect: str, talk: Talk, *answers: Any, **settings: Any) -> AsyncIterator[tuple[App, Site]]:
    async with modelled(dialect, *answers, **settings) as (app, server):
        app.provide(Conversations, talk)
        yield app, server


# -- a turn


@BOTH
async def test_without_a_conversation_the_messages_are_the_whole(dialect: str) -> None:
    async with modelled(dialect, Reply("7 * 13.")) as (app, server):
        outcome = await ask(app, {**QUESTION, "max_tokens": 100})
    assert outcome.output == {
        "text": "7 * 13.",
        "requests": [],
        "ending": "complete",
        "model": "m-1",
        "tokens": 29,
        "inputTokens": 19,
        "outputTokens": 10,
        "durationMs": outcome.output["durationMs"],
    }
    (asked,) = server.asked
    assert asked.json["messages"] == [{"role": "user", "content": "Is 91 prime?"}]
    assert asked.json["max_tokens"] == 100
    assert "stream" not in asked.json
    assert "tools" not in asked.json


HISTORY = (
    Message("system", "Be brief."),
    Message("user", "Weather in Rome and Oslo?"),
    Message(
        "assistant",
        "I look.",
        (ToolRequest("a", "weather", {"city": "Rome"}), ToolRequest("b", "weather", None, '{"city": Oslo')),
    ),
    Message("tool", "sunny", request_id="a"),
    Message("tool", "The arguments are no JSON.", request_id="b", is_error=True),
)


async def test_openai_is_sent_the_conversation_as_it_documents() -> None:
    async with talking("openai", Talk(*HISTORY, tools=[WEATHER], streams=False), Reply("Well.")) as (app, server):
        assert (await ask(app, TURN)).ok
    body = server.asked[0].json
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Rome and Oslo?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
                {
                    "id": "b",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"malformed_arguments":"{\\"city\\": Oslo"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: The arguments are no JSON."},
        {"role": "user", "content": "And now?"},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "weather", "description": WEATHER.description, "parameters": WEATHER.parameters},
        }
    ]


async def test_anthropic_is_sent_the_conversation_as_it_documents() -> None:
    async with talking("anthropic", Talk(*HISTORY, tools=[WEATHER], streams=False), Reply("Well.")) as (app, server):
        assert (await ask(app, TURN)).ok
    body = server.asked[0].json
    assert body["system"] == "Be brief."
    assert body["messages"] == [
        {"role": "user", "content": "Weather in Rome and Oslo?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "b", "name": "weather", "input": {"malformed_arguments": '{"city": Oslo'}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "b", "content": "The arguments are no JSON.", "is_error": True},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    assert body["tools"] == [{"name": "weather", "description": WEATHER.description, "input_schema": WEATHER.parameters}]


async def test_anthropic_gets_no_empty_text_and_results_before_words() -> None:
    history = [
        Message("user", " "),
        Message("assistant", "", (ToolRequest("a", "weather", {}), ToolRequest("b", "weather", {}))),
        Message("tool", "", request_id="a"),
        Message("user", "wait"),
        Message("tool", "late", request_id="b"),
    ]
    async with talking("anthropic", Talk(*history, tools=[WEATHER], streams=False), Reply("x")) as (app, server):
        assert (await ask(app, TURN)).ok
    first, second, third = server.asked[0].json["messages"]
    assert first["content"] == "(empty)"
    assert [block["type"] for block in second["content"]] == ["tool_use", "tool_use"]
    assert [block["type"] for block in third["content"]] == ["tool_result", "tool_result", "text", "text"]
    assert third["content"][0]["content"] == "(empty)"


CALLS = (Wanted("weather", {"city": "Rome"}, "c1"), Wanted("weather", {"city": "Oslo", "deep": [{"x": None}]}, "c2"))


@BOTH
@pytest.mark.parametrize("streams", [False, True])
async def test_several_tools_are_wanted_in_one_turn(dialect: str, streams: bool) -> None:
    talk = Talk(tools=[WEATHER], streams=streams)
    async with talking(dialect, talk, Reply("I look at both.", CALLS, read=50, written=40)) as (app, server):
        outcome = await ask(app, TURN)
    assert outcome.output["ending"] == "tool_use"
    assert outcome.output["text"] == "I look at both."
    assert outcome.output["requests"] == [
        {"id": "c1", "name": "weather", "arguments": {"city": "Rome"}},
        {"id": "c2", "name": "weather", "arguments": {"city": "Oslo", "deep": [{"x": None}]}},
    ]
    assert outcome.output["tokens"] == 90
    ((turn, kept),) = talk.answers
    assert (turn, kept.text, [request.id for request in kept.requests]) == (3, "I look at both.", ["c1", "c2"])
    assert bool(server.asked[0].json.get("stream")) is streams
    assert "".join(talk.streamed) == ("I look at both." if streams else "")
    assert len(talk.streamed) != 1


@BOTH
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "arguments", ['{"city": Rome}', "[1]", '"Rome"', "null", '{"a":' * 300 + "1" + "}" * 300, '{"city": "Rome"']
)
@pytest.mark.sample(6)
async def test_arguments_that_are_none_are_kept_as_they_came(dialect: str, streams: bool, arguments: str) -> None:
    talk = Talk(tools=[WEATHER], streams=streams)
    async with talking(dialect, talk, Reply(None, [Wanted("weather", arguments)])) as (app, _):
        outcome = await ask(app, TURN)
    assert outcome.output["requests"] == [{"id": "call_1", "name": "weather", "arguments": None, "text": arguments}]
    assert talk.answers[0][1].requests[0].text == arguments


@pytest.mark.parametrize("arguments", ["", " ", "{}"])
async def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    async with talking("openai", Talk(tools=[WEATHER]), Reply(None, [Wanted("weather", arguments)])) as (app, _):
        assert (await ask(app, TURN)).output["requests"][0]["arguments"] == {}


ENDINGS = [
    ("openai", "length", "truncated"), ("openai", "content_filter", "refused"), ("openai", "stop", "complete"),
    ("openai", "eos", "complete"), ("anthropic", "max_tokens", "truncated"), ("anthropic", "refusal", "refused"),
    ("anthropic", "model_context_window_exceeded", "truncated"), ("anthropic", "pause_turn", "complete"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "said", "ending"), ENDINGS)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.sample(8)
async def test_the_ending_is_told(dialect: str, said: str, ending: str, streams: bool) -> None:
    async with talking(dialect, Talk(streams=streams), Reply("so far", ending=said)) as (app, _):
        outcome = await ask(app, {**TURN, "tools": []})
    assert (outcome.output["ending"], outcome.output["text"]) == (ending, "so far")
    assert outcome.metrics.cost_usd > 0


async def test_words_of_a_refusal_are_the_text() -> None:
    async with modelled("openai", openai(None, refusal="I can't help with that.")) as (app, _):
        outcome = await ask(app)
    assert (outcome.output["ending"], outcome.output["text"]) == ("refused", "I can't help with that.")


# -- servers that differ


def chat(*deltas: Any, finish: Any = "stop", **more: Any) -> list[bytes]:
    """Chunks of a chat completion that have only what is said."""
    chunks: list[Any] = [{"choices": [{"delta": delta}]} for delta in deltas]
    return [
        f"data: {json.dumps(one)}\n\n".encode()
        for one in (*chunks, {"choices": [{"delta": {}, "finish_reason": finish}], **more})
    ]


def call(name: str | None = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "function": {"name": name, "arguments": arguments}}]}


ROME = '{"city": "Rome"}'
ROMES = chat(call("weather", ROME, index=0))
NULLS = chat({"content": None, "tool_calls": None, "role": None}, call("weather", ROME, index=None, id=None))
LAST = b'data: {"choices":[{"finish_reason":"stop","delta":{}}]}'
STREAMS = {
    "no index and no id": chat(call("weather", '{"city":'), call(None, ' "Rome"}')),
    "no index, an id for each": chat(call("weather", ROME, id="x"), finish="tool_calls"),
    "a null in every place": NULLS,
    "an object in place of text": chat(call("weather", {"city": "Rome"}, index=0)),
    "indexes that begin with 1": chat(call("weather", '{"city"', index=1, id="x"), call(None, ': "Rome"}', index=1)),
    "usage null": [*chat(call("weather", ROME, index=0), usage=None), b"data: [DONE]\n\n"],
    "a chunk without choices": [b'data: {"id":"x"}\n\n', b'data: {"choices":null}\n\n', *ROMES],
    "comments and other fields": [b": OPENROUTER PROCESSING\n\n", b"retry: 5\n\n", *ROMES],
    "lines that end in CRLF": [part.replace(b"\n", b"\r\n") for part in ROMES],
    "no blank line at the end": [*ROMES[:-1], LAST],
    "one byte at a time": [bytes([byte]) for part in ROMES for byte in part],
}


@pytest.mark.parametrize("parts", STREAMS.values(), ids=STREAMS)
async def test_streams_of_servers_that_are_not_openai_are_understood(parts: list[bytes]) -> None:
    async with talking("openai", Talk(tools=[WEATHER]), streamed(parts)) as (app, _):
        outcome = await ask(app, TURN)
    assert outcome.ok, outcome
    (request,) = outcome.output["requests"]
    assert (request["name"], request["arguments"]) == ("weather", {"city": "Rome"})
    assert request["id"]
    assert outcome.output["tokens"] > 0


async def test_two_calls_with_one_index_are_two() -> None:
    parts = chat(call("weather", '{"city": "Rome"}', index=0, id="a"), call("weather", '{"city": "Oslo"}', index=0, id="b"))
    async with talking("openai", Talk(tools=[WEATHER]), streamed(parts)) as (app, _):
        requests = (await ask(app, TURN)).output["requests"]
    assert [(request["id"], request["arguments"]["city"]) for request in requests] == [("a", "Rome"), ("b", "Oslo")]


ANSWERS: list[dict[str, Any]] = [
    {"tool_calls": [{"function": {"name": "weather", "arguments": ROME}}]},
    {"content": None, "tool_calls": [{"id": "", "function": {"name": "weather", "arguments": {"city": "Rome"}}}]},
    {"content": "", "function_call": {"name": "weather", "arguments": ROME}},
    {"content": [{"type": "thinking", "thinking": []}], **call("weather", ROME, id="x")},
]


@pytest.mark.parametrize("message", ANSWERS)
async def test_answers_of_servers_that_are_not_openai_are_understood(message: dict[str, Any]) -> None:
    said = Said(body={"choices": [{"message": message}], "usage": None})
    async with talking("openai", Talk(tools=[WEATHER], streams=False), said) as (app, _):
        outcome = await ask(app, TURN)
    assert outcome.output["requests"][0]["arguments"] == {"city": "Rome"}
    assert outcome.output["requests"][0]["id"]
    assert outcome.output["ending"] == "tool_use"


async def test_ids_that_are_the_same_or_missing_become_different_ones() -> None:
    calls = [Wanted("weather", {}, "x"), Wanted("weather", {}, "x"), Wanted("weather", {}, None)]
    async with talking("openai", Talk(tools=[WEATHER]), Reply(None, calls)) as (app, _):
        ids = [request["id"] for request in (await ask(app, TURN)).output["requests"]]
    assert ids[0] == "x"
    assert len(set(ids)) == 3


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
async def test_a_server_that_does_not_stream_is_read_whole(content_type: str) -> None:
    said = openai("all at once")
    talk = Talk()
    async with talking("openai", talk, Said(200, json.dumps(said.body).encode(), {"content-type": content_type})) as (
        app,
        _,
    ):
        assert (await ask(app, {**TURN, "tools": []})).output["text"] == "all at once"
    assert talk.streamed == ["all at once"]


async def test_fields_that_a_server_refuses_are_left_out_from_then_on() -> None:
    def strict(asked: Any) -> Said:
        body = asked.json
        for field, words in (("stream_options", "Extra inputs are not permitted: stream_options"),):
            if field in body:
                return Said(422, {"error": {"message": words}})
        if "max_tokens" in body:
            return Said(400, {"error": {"message": "'max_tokens' is not supported: use 'max_completion_tokens'."}})
        return streamed(events("openai", Reply("ok"), with_usage=False))

    async with talking("openai", Talk(), strict) as (app, server):
        assert (await ask(app, {**TURN, "tools": []})).output["text"] == "ok"
        assert len(server.asked) == 3
        assert (await ask(app, {**TURN, "tools": []})).ok
        assert len(server.asked) == 4
    assert server.asked[-1].json["max_completion_tokens"] == 8000


# -- as a call


async def test_no_list_shows_it_and_nobody_reaches_it_by_name() -> None:
    async with modelled("openai", Reply("x")) as (app, server):
        assert "ask_model" not in [tool.name for tool in await app.tools.list()]
        assert "ask_model" not in str(await app.tools.export("openai"))
        assert "ask_model" not in await app.tools.typed("python")
        assert await app.tools.visible("ask_model", Actor()) is None
        assert "ask_model" not in str(await app.tools.search("ask the language model"))
        for door in ("python", "cli", "http", "mcp"):
            failed(await app.invoke("ask_model", QUESTION, door=door), "TOOL_NOT_FOUND")
        assert (await app.invoke("ask_model", {"nonsense": 1})).error == (await app.invoke("ask_model", QUESTION)).error
        assert server.asked == []


async def test_a_schedule_or_a_job_cannot_be_one_of_it() -> None:
    async with modelled("openai", Reply("x")) as (app, server):
        failed(await app.enqueue("ask_model", QUESTION), "TOOL_NOT_FOUND")
        task = json.dumps({"tool": "ask_model", "arguments": QUESTION})
        outcome = await app.invoke("scheduler", {"operation": "add", "task": task, "schedule": "in 1 hour"})
        assert outcome.error is not None
        assert server.asked == []


async def test_flags_and_explain_work_for_it() -> None:
    async with modelled("openai", Reply("x")) as (app, server):
        told = await app.explain("ask_model", QUESTION)
        assert told.verdict == "ask"
        assert told.estimate is not None
        assert told.estimate.tokens is not None
        assert 8_000 < told.estimate.tokens < 8_050
        await app.tools.disable("ask_model")
        failed(await ask(app), "TOOL_NOT_FOUND")
        assert (await app.explain("ask_model", QUESTION)).verdict == "deny"
        assert server.asked == []


async def test_a_person_sees_what_newly_goes_out() -> None:
    seen: list[Any] = []
    async with model_server("openai", Reply("x")) as server, memory_app(model=model_settings("openai", server)) as app:
        app.provide(Conversations, Talk(*HISTORY, tools=[WEATHER]))

        def refuse(request: ApprovalRequest) -> bool:
            seen.append(request.arguments)
            return False

        app.approvals.add_approver(refuse)
        failed(await ask(app, TURN), "USER_CANCELLED")
        assert server.asked == []
    assert "And now?" in str(seen[0])
    assert "Rome" not in str(seen[0])


async def test_without_a_model_or_conversation_nobody_is_asked() -> None:
    async with memory_app() as app:
        approver = ScriptedApprover()
        app.approvals.add_approver(approver)
        failed(await ask(app), "MISSING_AUTH")
        assert approver.asked == 0
    async with modelled("openai", Reply("x")) as (app, server):
        failed(await ask(app, TURN), "INVALID_INPUT")  # nothing is bound that would know of conversations
        app.provide(Conversations, Talk(user="ann"))
        failed(await ask(app, TURN), "INVALID_INPUT")
        failed(await ask(app, {**TURN, "conversation": "other"}, actor=Actor(user="ann")), "INVALID_INPUT")
        failed(await ask(app, {**TURN, "tools": ["weather"]}, actor=Actor(user="ann")), "INVALID_INPUT")
        failed(await ask(app, {**QUESTION, "tools": ["weather"]}), "INVALID_INPUT")
        assert (await app.explain("ask_model", TURN)).estimate is not None
        assert server.asked == []


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "text": "x"},
        {"role": "user", "text": "x", "request_id": "a"},
        {"role": "user", "text": "x", "requests": [{"id": "a", "name": "n", "arguments": {}}]},
    ],
)
async def test_messages_that_make_no_sense_are_refused(message: dict[str, Any]) -> None:
    async with modelled("openai", Reply("x")) as (app, server):
        failed(await ask(app, {"messages": [message]}), "INVALID_INPUT")
        assert server.asked == []


# -- money


async def test_its_price_is_estimated_with_all_that_the_conversation_holds() -> None:
    history = [Message("user", "lorem ipsum dolor " * 4_000)]
    model = {"input_price": 100, "output_price": 0}
    async with talking("openai", Talk(*history, tools=[WEATHER]), Reply("x"), model=model) as (app, _):
        told = await app.explain("ask_model", TURN)
        assert told.estimate is not None
        assert told.estimate.cost_usd == pytest.approx(1.6, rel=0.3)
    budgets = {"external_api_daily": "0.5"}
    async with talking("openai", Talk(*history), Reply("x"), model=model, budgets=budgets) as (app, server):
        failed(await ask(app, {**TURN, "tools": []}), "BUDGET_EXCEEDED")
        assert server.asked == []


async def test_a_shorter_answer_needs_less_of_the_budget() -> None:
    model, budgets = {"output_price": 100, "input_price": 0}, {"external_api_daily": "0.1"}
    async with modelled("openai", Reply("x", written=500), model=model, budgets=budgets) as (app, server):
        failed(await ask(app), "BUDGET_EXCEEDED")
        assert server.asked == []
        outcome = await ask(app, {**QUESTION, "max_tokens": 900})
        assert outcome.metrics.cost_usd == pytest.approx(0.05)
        failed(await ask(app, {**QUESTION, "max_tokens": 900}), "BUDGET_EXCEEDED")


@BOTH
@pytest.mark.parametrize("streams", [False, True])
async def test_the_real_usage_is_what_is_paid(dialect: str, streams: bool) -> None:
    model = {"input_price": 3, "output_price": 15}
    async with talking(dialect, Talk(streams=streams), Reply("x", read=1000, written=200), model=model) as (app, _):
        outcome = await ask(app, {**TURN, "tools": []})
    assert outcome.metrics.cost_usd == pytest.approx(1000 * 3e-6 + 200 * 15e-6, abs=1e-9)
    assert outcome.metrics.tokens_used == 1200


async def test_an_answer_that_cannot_be_used_is_paid_by_its_usage() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 500}
    model = {"input_price": 100, "output_price": 100}
    async with modelled("openai", Said(body={"choices": [], "usage": usage}), model=model) as (app, _):
        outcome = await ask(app)
    failed(outcome, "OUTPUT_INVALID")
    assert outcome.metrics.cost_usd == pytest.approx(0.15)


@pytest.mark.parametrize("usage", [{"prompt_tokens": -5, "completion_tokens": -5}, {"prompt_tokens": "x"}, [1], "x", None])
async def test_usage_that_makes_no_sense_is_counted_by_characters(usage: Any) -> None:
    parts = chat({"content": "four" * 10}, usage=usage)
    async with talking("openai", Talk(), streamed(parts)) as (app, _):
        outcome = await ask(app, {**TURN, "tools": []})
    assert outcome.output["outputTokens"] == 10
    assert outcome.output["inputTokens"] > 0


# -- secrets, and text that is not to be harmed


async def test_a_secret_is_never_filled_into_what_a_model_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_BANK", "s3cr3t-bank-value")
    text = "Write {{secret:BANK}} where the key is needed, or {{ secret:MODEL_API_KEY }}."
    use = {"BANK": [{"tool": "ask_model", "tenant": "default"}]}
    async with modelled("openai", Reply("ok"), secrets={"use": use}) as (app, server):
        assert (await ask(app, {"messages": [{"role": "user", "text": text}]})).ok
        body = server.asked[0].body.decode()
    assert "{{secret:BANK}}" in body
    assert "s3cr3t-bank-value" not in body


@pytest.mark.parametrize("streams", [False, True])
async def test_requests_are_kept_as_the_model_wrote_them(streams: bool) -> None:
    arguments = {
        "path": "a.env",
        "content": "password=hunter2-hunter2\nAWS=AKIAIOSFODNN7EXAMPLE",
        "api_key": "sk_live_abcdefghijklmnop",
    }
    talk = Talk(tools=[WEATHER], streams=streams)
    async with talking("openai", talk, Reply("AKIAIOSFODNN7EXAMPLE", [Wanted("weather", arguments)])) as (app, _):
        outcome = await ask(app, TURN)
        log = await records(app)
    ((_, kept),) = talk.answers
    assert kept.text == "AKIAIOSFODNN7EXAMPLE"
    assert kept.requests[0].arguments == arguments
    assert "AKIAIOSFODNN7EXAMPLE" not in str(outcome.output)  # which is masked like every output
    assert "hunter2-hunter2" not in log


async def test_long_answers_are_kept_whole() -> None:
    calls = [Wanted("weather", {"text": "y" * 30_000}, f"c{number}") for number in range(150)]
    talk = Talk(tools=[WEATHER], streams=False)
    async with talking("openai", talk, Reply("word " * 20_000, calls)) as (app, _):
        outcome = await ask(app, TURN)
    assert outcome.artifact is not None  # shown to whoever looks at the call, it is cut
    ((_, kept),) = talk.answers
    assert len(kept.text) == 100_000
    assert len(kept.requests) == 150
    assert all(len((request.arguments or {})["text"]) == 30_000 for request in kept.requests)


@BOTH
@pytest.mark.parametrize("streams", [False, True])
async def test_the_key_of_the_server_is_masked_wherever_it_writes_it(dialect: str, streams: bool) -> None:
    talk = Talk(tools=[WEATHER], streams=streams)
    reply = Reply(f"You sent {KEY} to me", [Wanted("weather", {"city": KEY})])
    async with talking(dialect, talk, reply) as (app, _):
        outcome = await ask(app, TURN)
        log = await records(app)
    told = f"{''.join(talk.streamed)} {talk.answers} {outcome.output} {log}"
    assert KEY not in told
    assert "You sent " in talk.answers[0][1].text
    if streams:
        assert "".join(talk.streamed).endswith(" to me")


async def test_a_reader_that_fails_does_not_lose_the_answer() -> None:
    class Broken(Talk):
        def sink(self, conversation: str, actor: Actor) -> Any:
            self._check(conversation, actor)

            def fail(_text: str) -> None:
                raise BrokenPipeError("the terminal is gone")

            return fail

    talk = Broken()
    async with talking("openai", talk, Reply("all of it")) as (app, _):
        assert (await ask(app, {**TURN, "tools": []})).output["text"] == "all of it"
        assert "the terminal is gone" in await records(app)
    assert talk.answers[0][1].text == "all of it"


async def test_a_caller_that_goes_away_is_charged_for_what_came() -> None:
    model = {"input_price": 1000, "output_price": 1000}
    talk = Talk()
    async with talking("openai", talk, Reply("word " * 500, pause=0.02), model=model) as (app, server):
        asking = asyncio.ensure_future(ask(app, {**TURN, "tools": []}))
        async with asyncio.timeout(20):
            while len(talk.streamed) < 3:
                await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (line,) = [one for one in await app.budgets.costs("tool") if one.name == "ask_model"]
        assert 0 < line.nano < 1_000_000_000  # and not the 8 dollars that it might have cost
        async with asyncio.timeout(20):
            while server.open:
                await asyncio.sleep(0.01)
