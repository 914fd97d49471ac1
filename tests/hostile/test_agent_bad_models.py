"""Models that misbehave, and their servers: each run ends with a clear reason, costs no more than it may, loses nothing, and
can be gone on with."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.agents import DIALECTS, SOON, agency, calls, did, of_kind, run, said, told
from tests.loopback import Asked, Said
from tests.model_servers import KEY, Reply, Wanted, model_server, model_settings, streamed
from tests.services import never
from toolgate.agent.run import RunLimits
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("AGENT-1")]
dialects = pytest.mark.parametrize("dialect", DIALECTS)
TOO_LONG = {
    "openai": Said(400, {"error": {"message": "too many tokens", "code": "context_length_exceeded"}}),
    "anthropic": Said(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}),
}


@dialects
async def test_a_model_that_says_nothing_is_told_so_and_stopped_after_a_few_times(tmp_path: Path, dialect: str) -> None:
    async with agency(tmp_path, dialect, Reply("")) as (app, server):
        result, events = await run(app)
        assert result.status == "failed" and "3 replies in a row that were empty" in (result.reason or "")
        assert len(server.asked) == 3
        assert "Your reply was empty" in said(server.asked[1])[-1] and len(of_kind(events, "notice")) == 2
        assert of_kind(events, "notice")[0]["text"].startswith("The model was told about its reply: ")
    async with agency(tmp_path, dialect, Reply(""), Reply("  \n"), Reply("Now.")) as (app, _):
        assert (await run(app))[0].text == "Now."


async def test_a_model_whose_arguments_can_never_be_read_is_stopped(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", calls(("post", '{"text": '))) as (app, server):
        result, _ = await run(app)
        assert result.status == "failed" and "could not be read" in (result.reason or "")
        assert len(server.asked) == 3 and did(tmp_path) == []


async def test_replies_in_the_style_json_that_cannot_be_read_are_told_and_stopped(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", Reply('{"tool_name": "post", "tool_args": {"text": ')) as (app, server):
        result, _ = await run(app, style="json")
        assert result.status == "failed" and "could not be read" in (result.reason or "") and did(tmp_path) == []
        assert "nothing was run" in said(server.asked[1])[-1]


@dialects
async def test_a_model_that_repeats_itself_in_a_circle_is_stopped(tmp_path: Path, dialect: str) -> None:
    turns = [calls(("add", {"a": 1, "b": 1})), calls(("post", {"text": "x"}))] * 9
    async with agency(tmp_path, dialect, *turns) as (app, _):
        result, events = await run(app)
        assert result.status == "failed" and "repeats itself: add was called 3 times" in (result.reason or "")
        assert of_kind(events, "result")[-1]["error"]["message"].startswith("Nothing was run: add was called 3 times")
        assert did(tmp_path) == ["add 1 1", "post x"] * 3


async def test_a_run_that_repeated_itself_can_be_resumed_and_the_model_knows_why_it_was_stopped(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", *[calls(("add", {"a": 1, "b": 1}))] * 4, Reply("I see.")) as (app, server):
        first, _ = await run(app)
        assert first.status == "failed"
        await app.agents.resume(first.id)
        assert (await app.agents.wait(first.id, SOON)).text == "I see."
        assert "Nothing was run" in told(server.asked[-1], "openai")[-1] and len(did(tmp_path)) == 3


@dialects
async def test_a_flood_of_calls_in_one_turn_is_cut_and_the_model_is_told(tmp_path: Path, dialect: str) -> None:
    flood = Reply(None, [Wanted("add", {"a": at, "b": 0}, f"c{at}") for at in range(200)])
    async with agency(tmp_path, dialect, flood, Reply("Sorry.")) as (app, server):
        assert (await run(app))[0].ok
        assert len(did(tmp_path)) == 16
        results = told(server.asked[1], dialect)
        assert len(results) == 200 and "No more than 16 tools" in results[-1]


async def test_calls_with_the_same_id_or_odd_names_are_each_answered(tmp_path: Path) -> None:
    odd = Reply(None, [Wanted("add", {"a": 1, "b": 1}, "same"), Wanted("add", {"a": 2, "b": 2}, "same"),
                       Wanted("x\n\x1b[31m" * 50, {}, "c3"), Wanted("", {}, "c4"), Wanted("add", "[1]", "c5")])  # fmt: skip
    async with agency(tmp_path, "openai", odd, Reply("Well.")) as (app, server):
        assert (await run(app))[0].ok
        assert sorted(did(tmp_path)) == ["add 1 1", "add 2 2"]
        assert len(told(server.asked[1], "openai")) == 5


ODD_ARGUMENTS = [
    '{"a": 123456789012345678901234567890, "b": 1}',
    '{"a": 1e400, "b": 1}',
    '{"a": NaN, "b": 1}',
    '{"a": ' + "[" * 900 + "]" * 900 + ', "b": 1}',
    '{"a": "\\ud800", "b": "\\u0000"}',
    '{"a": 1, "a": 2, "b": {"__proto__": {}}}',
    "null",
    "[]",
    '"x"',
    "",
]


@pytest.mark.parametrize("text", ODD_ARGUMENTS)
@pytest.mark.parametrize("style", ["native", "json"])
async def test_arguments_that_no_tool_could_take_are_told_as_such(tmp_path: Path, style: Any, text: str) -> None:
    """Whatever they are, the model is told, and the run goes on."""
    spoken = Reply('{"tool_name": "add", "tool_args": ' + (text or "''") + "}")
    first = spoken if style == "json" else Reply(None, [Wanted("add", text, "c1")])
    async with agency(tmp_path, "openai", first, Reply("Well.")) as (app, server):
        result, _ = await run(app, style=style)
        assert (result.status, result.text) == ("done", "Well."), result
        assert len(server.asked) == 2 and did(tmp_path) == []
        assert [one.kind for one in (await app.agents.show(result.id)).messages][3] in ("tool", "notice")


@dialects
@pytest.mark.parametrize("status", [429, 500, 529])
async def test_a_server_that_fails_ends_the_run_which_can_be_resumed(tmp_path: Path, dialect: str, status: int) -> None:
    bad = Said(status, {"error": {"message": "overloaded"}}, {"retry-after": "0"})
    answers = (calls(("post", {"text": "x"})), bad, Reply("Done."))
    async with agency(tmp_path, dialect, *answers) as (app, _):
        first, _ = await run(app)
        assert first.status == "failed" and ": overloaded. Try again" in (first.reason or "") and did(tmp_path) == ["post x"]
        assert await app.grants.list() == []
        await app.agents.resume(first.id)
        assert (await app.agents.wait(first.id, SOON)).text == "Done."
        assert did(tmp_path) == ["post x"]


async def test_the_client_retries_by_itself_before_a_run_ends(tmp_path: Path) -> None:
    busy = Said(429, {"error": {"message": "slow down"}}, {"retry-after": "0"})
    async with agency(tmp_path, "openai", busy, Reply("Done."), model={"retries": 2}) as (app, server):
        assert (await run(app))[0].text == "Done." and len(server.asked) == 2


@dialects
async def test_a_stream_that_breaks_off_in_the_middle_ends_the_run_and_is_asked_again_on_resume(
    tmp_path: Path, dialect: str
) -> None:
    cut = Reply("One two three four five six seven eight nine ten", cut=4)
    half = Reply(None, [Wanted("post", {"text": "a long text that is cut off"})], cut=4)
    async with agency(tmp_path, dialect, cut, half, Reply("Whole.")) as (app, server):
        first, events = await run(app)
        assert first.status == "failed" and "CONNECTION_ERROR" in (first.reason or "")
        assert of_kind(events, "text")  # what came was shown
        await app.agents.resume(first.id)
        again = await app.agents.wait(first.id, SOON)
        assert again.status == "failed" and did(tmp_path) == []  # half a call is none
        await app.agents.resume(first.id)
        assert (await app.agents.wait(first.id, SOON)).text == "Whole."
        kinds = [one.kind for one in (await app.agents.show(first.id)).messages]
        assert kinds == ["system", "user", "assistant"] and len(server.asked) == 3


@dialects
async def test_a_stream_of_garbage_ends_the_run(tmp_path: Path, dialect: str) -> None:
    garbage = [b"data: {not json\n\n", b"\xff\xfe\x00", b"event: x\ndata: []\n\n"]
    async with agency(tmp_path, dialect, lambda _asked: streamed(garbage), Reply("Whole.")) as (app, _):
        first, _ = await run(app)
        assert first.status == "failed" and "The model could not be asked" in (first.reason or "")


@dialects
async def test_a_conversation_that_is_too_long_is_shortened_oldest_results_first_never_the_users_words(
    tmp_path: Path, dialect: str
) -> None:
    asked: list[int] = []

    def limited(reply: Reply) -> Any:
        def answer(request: Asked) -> Said:
            asked.append(len(request.body))
            body = json.dumps(request.json["messages"])
            return TOO_LONG[dialect] if len(body) > 30_000 else _said(dialect, reply, request)

        return answer

    answers = [limited(calls(("long", {"size": 9_000 + at}))) for at in range(5)]
    answers = [one for answer in answers for one in (answer, answer)]  # the second for when the first was refused
    answers.append(limited(Reply("Done.")))
    words = "My own words. " + "word " * 200
    async with agency(tmp_path, dialect, *answers, agent={"same_call": 50}) as (app, server):
        result, events = await run(app, words)
        assert result.status == "done", result
        last = server.asked[-1]
        assert said(last)[0] == words
        results = told(last, dialect)
        assert "characters left out here" in results[0] and len(results[0]) < 400
        assert "characters left out" not in results[-1]
        assert any("older results of tools were shortened" in one["text"] for one in of_kind(events, "notice"))


async def test_what_cannot_be_shortened_ends_the_run_with_that_reason(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", TOO_LONG["openai"]) as (app, server):
        result, _ = await run(app, "word " * 100)
        assert result.status == "failed" and "too long for the model" in (result.reason or "") and len(server.asked) == 1


async def test_a_context_that_the_settings_limit_is_never_sent_longer(tmp_path: Path) -> None:
    turns = [calls(("long", {"size": 9_000 + at})) for at in range(6)]
    async with agency(tmp_path, "openai", *turns, Reply("Done."), agent={"context_tokens": 14_000}) as (app, server):
        assert (await run(app))[0].ok
        assert len(json.dumps(server.asked[-1].json["messages"])) < 40_000
        assert "characters left out here" in told(server.asked[-1], "openai")[0]


@dialects
async def test_a_refusal_and_an_answer_that_is_cut_are_told_as_such(tmp_path: Path, dialect: str) -> None:
    refusal, cut = ("content_filter", "length") if dialect == "openai" else ("refusal", "max_tokens")
    async with agency(tmp_path, dialect, Reply("I won't.", ending=refusal)) as (app, _):
        result, _ = await run(app)
        assert result.status == "failed" and "declined" in (result.reason or "")
    async with agency(tmp_path, dialect, Reply("Once upon a", ending=cut)) as (app, _):
        result, _ = await run(app)
        assert (result.status, result.text) == ("done", "Once upon a") and "model.max_tokens" in (result.reason or "")


async def test_a_model_that_never_answers_ends_with_the_time_of_the_run(tmp_path: Path) -> None:
    async with agency(tmp_path, "openai", never) as (app, _):
        result, _ = await run(app, limits=RunLimits(seconds=0.2))
        assert result.status == "failed" and "limit of time" in (result.reason or ""), result


ECHOES: dict[str, Any] = {
    "an error": Said(500, {"error": {"message": f"bad key {KEY}"}}),
    "a refusal of the key": Said(401, {"error": {"message": f"bad key {KEY}"}}),
    "an answer": Reply(f"Your key is {KEY}."),
    "arguments": Reply(None, [Wanted("echo", {"text": KEY})]),
    "a name of a tool": Reply(None, [Wanted(f"send_{KEY}", {KEY: 1})]),
}


@dialects
@pytest.mark.parametrize("where", ECHOES)
async def test_a_server_that_writes_its_key_back_does_not_have_it_shown(
    monkeypatch: pytest.MonkeyPatch, dialect: str, where: str
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)
    async with (
        model_server(dialect, ECHOES[where], Reply("Well.")) as server,
        memory_app(model=model_settings(dialect, server)) as app,
    ):
        result, events = await run(app)
        seen = f"{result} {events} {await app.agents.show(result.id)} {await app.agents.list()}"
    assert KEY in str(server.asked[0].headers)  # it was told
    assert KEY not in seen and "[REDACTED]" in seen


async def test_a_model_that_claims_huge_use_costs_no_more_than_one_turn_beyond_the_limit(tmp_path: Path) -> None:
    """A server's count is believed, so it can overdraw once; then the run is over."""
    greedy = Reply(None, [Wanted("add", {"a": 1, "b": 1})], read=900_000, written=10)
    async with agency(tmp_path, "openai", greedy, model={"input_price": 1, "output_price": 1}) as (app, server):
        result, _ = await run(app, limits=RunLimits(cost_usd=Decimal("0.5")))
        assert result.status == "failed" and len(server.asked) == 1
        assert "0.5" in (result.reason or "")


def _said(dialect: str, reply: Reply, request: Asked) -> Said:
    from tests.model_servers import _answering

    return _answering(dialect, reply)(request)
