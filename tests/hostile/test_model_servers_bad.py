"""Model servers that are hostile, broken or confused: the call ends within its limits, with an error that says what is
wrong, and the process takes no harm."""

import asyncio
import json
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Said, site
from tests.model_servers import KEY, Reply, Talk, events, modelled, streamed
from tests.services import records
from toolgate import App
from toolgate.llm.completion import Conversations, ErrorEvent, Malformed, Message, ModelRequest
from toolgate.llm.dialects import DIALECTS
from toolgate.model import Outcome
from toolgate.network.sse import EventTooLong, SseParser

pytestmark = pytest.mark.requirement("AGENT-1")
TURN = {"conversation": "talk", "messages": [{"role": "user", "text": "And now?"}]}
BOTH = pytest.mark.parametrize("dialect", ["openai", "anthropic"])
LIMITED = {"timeout": 5, "idle_timeout": 1, "max_tokens": 1000, "retries": 2}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


async def ask(app: App, talk: Talk | None = None) -> Outcome:
    app.provide(Conversations, talk or Talk())
    async with asyncio.timeout(60):
        return await app.invoke("ask_model", TURN, internal=True)


async def endless(part: bytes) -> AsyncIterator[bytes]:
    while True:
        yield part


def chunk(text: str) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"' + text.encode() + b'"}}]}\n\n'


ENDLESS = {
    "text": chunk("x" * 1000),
    "single characters": chunk("x") * 50,
    "comments": b": keep waiting\n\n" * 100,
    "empty events": b"data:\n\n" * 100,
    "one line": b"data: " + b"x" * 60_000,
    "one event of many lines": b"data: x\n" * 8_000,
    "blank lines": b"\n" * 60_000,
    "pings": b'data: {"type":"ping"}\n\n' * 100,
}


@BOTH
@pytest.mark.parametrize("part", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.sample(6)
async def test_a_stream_without_end_is_cut_off(dialect: str, part: bytes) -> None:
    async with modelled(dialect, streamed(endless(part)), model=LIMITED) as (app, server):
        began = time.monotonic()
        outcome = await ask(app)
        assert outcome.error is not None
        assert outcome.error.code in ("INVOCATION_ERROR", "OUTPUT_INVALID", "TIMEOUT")
        assert time.monotonic() - began < 20
        assert len(server.asked) == 1


async def test_others_are_served_while_a_stream_without_end_comes() -> None:
    async with modelled("openai", streamed(endless(chunk("x") * 50)), model=LIMITED) as (app, _):
        asking = asyncio.ensure_future(ask(app))
        longest = 0.0
        while not asking.done():
            began = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - began)
        assert longest < 1
        assert (await asking).error is not None


async def test_an_answer_of_100_megabytes_is_not_taken_into_memory() -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()

    tracemalloc.start()
    try:
        async with modelled("openai", Said(raw=flood), model=LIMITED) as (app, _):
            for talk in (Talk(streams=False), Talk()):
                outcome = await ask(app, talk)
                assert outcome.error is not None
                assert "longer than" in outcome.error.message
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


async def test_a_small_body_that_decompresses_to_any_size_is_not() -> None:
    squeezed = zlib.compress(b"x" * 200_000_000, 9)
    async with modelled("openai", Said(200, squeezed, {"content-encoding": "deflate"}), model=LIMITED) as (app, _):
        for talk in (Talk(streams=False), Talk()):
            assert (await ask(app, talk)).error is not None


async def test_a_slow_drip_ends_with_the_time_for_an_answer() -> None:
    parts = [bytes([byte]) for byte in b"".join(events("openai", Reply("word " * 50)))]
    model = {**LIMITED, "timeout": 1}
    async with modelled("openai", streamed(parts, pause=0.05), model=model) as (app, _):
        outcome = await ask(app)
        assert outcome.error is not None
        assert outcome.error.code == "TIMEOUT"
        assert "within 1 s" in outcome.error.message


GARBAGE = [
    b"data: {\n\n", b"data: [1, 2]\n\n", b'data: "text"\n\n', b"data: null\n\n", b"data: \xff\xfe\n\n",
    b"event: error\ndata: x\n\n",
    b'data: {"choices":[{"delta":{"tool_calls":["x"]}}]}\n\n', b'data: {"choices":[{"delta":{"content":5}}]}\n\n',
    b'data: {"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}\n\n',
    b'data: {"type":"content_block_start","index":"x"}\n\n', b"<html>hello</html>", b"", b"\x00\x01\x02",
    b"data: " + b"[" * 10_000 + b"\n\n",
    b'data: {"error": "boom"}\n\n', b'data: {"type":"error"}\n\n',
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.sample(12)
async def test_garbage_in_a_stream_is_an_error_in_words(dialect: str, garbage: bytes) -> None:
    async with modelled(dialect, streamed([garbage]), model={**LIMITED, "retries": 0}) as (app, _):
        outcome = await ask(app)
        assert outcome.error is not None
        assert outcome.error.code in ("OUTPUT_INVALID", "CONNECTION_ERROR"), outcome
        assert len(outcome.error.message) < 1000


@BOTH
@pytest.mark.parametrize("streams", [False, True])
async def test_the_page_of_another_service_is_told_as_such(dialect: str, streams: bool) -> None:
    page = Said(200, "<html>Please sign in.</html>", {"content-type": "text/html\t; x=1"})
    async with modelled(dialect, page) as (app, _):
        outcome = await ask(app, *((Talk(),) if streams else ()))
    assert outcome.error is not None and outcome.error.retryable is False, outcome
    assert "text/html" in outcome.error.message or "JSON" in outcome.error.message
    assert "closed the connection" not in outcome.error.message


async def test_text_that_is_no_utf8_is_shown_as_far_as_it_is() -> None:
    parts = [b'data: {"choices":[{"delta":{"content":"caf\xe9"},"finish_reason":"stop"}]}\n\n']
    async with modelled("openai", streamed(parts), model=LIMITED) as (app, _):
        assert (await ask(app)).output["text"] == "caf�"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.sample(4)
async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere(status: int, streams: bool) -> None:
    async def elsewhere(_asked: Any) -> Said:
        return Said(200, {})

    async with site(elsewhere) as other:
        said = Said(status, b"", {"location": f"{other.url}/v1/chat/completions"})
        async with modelled("openai", said, model=LIMITED) as (app, server):
            outcome = await ask(app, Talk(streams=streams))
            assert outcome.error is not None
            assert outcome.error.code == "CONNECTION_ERROR"
            assert len(server.asked) == 1
        assert other.connections == 0


@BOTH
async def test_a_model_that_wants_a_thousand_tools_is_refused(dialect: str) -> None:
    if dialect == "openai":
        calls = [{"index": number, "function": {"name": "x", "arguments": "{}"}} for number in range(1000)]
        sent: list[Any] = [{"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "stop"}]}]
    else:
        block = {"type": "tool_use", "name": "x", "input": {}}
        sent = [{"type": "content_block_start", "index": number, "content_block": block} for number in range(1000)]
        sent.append({"type": "message_stop"})
    parts = [f"data: {json.dumps(one)}\n\n".encode() for one in sent]
    async with modelled(dialect, streamed(parts), model=LIMITED) as (app, _):
        outcome = await ask(app)
        assert outcome.error is not None
        assert "more than 256 tools" in outcome.error.message


async def test_a_server_cannot_write_into_errors_what_would_harm_a_terminal_or_a_log() -> None:
    words = f"\x1b[2J\x1b]0;owned\x07 {KEY} " + "x" * 100_000
    async with modelled("openai", Said(500, {"error": {"message": words}}), model={"retries": 0}) as (app, _):
        outcome = await ask(app)
        log = await records(app)
    assert outcome.error is not None
    assert "\x1b" not in outcome.error.message
    assert len(outcome.error.message) < 1000
    assert KEY not in f"{outcome.error}{log}"


# -- whatever comes


NAMES = [
    "choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "index", "id", "finish_reason",
    "usage", "error", "type", "text", "partial_json", "content_block", "stop_reason", "refusal", "input",
]  # fmt: skip
KINDS = [
    "message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "text_delta",
    "input_json_delta", "tool_use", "text", "error", "ping",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 600) | st.text(max_size=4) | st.sampled_from(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)
INDEX, TEXT = st.integers(0, 2), st.text(max_size=4)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "thinking"]), "text": TEXT | st.none(), "name": TEXT}
)
DELTA = st.fixed_dictionaries(
    {"type": st.sampled_from(["text_delta", "input_json_delta", "x"]), "text": TEXT, "partial_json": TEXT}
)
CALL = st.fixed_dictionaries(
    {
        "index": INDEX | st.none(),
        "id": TEXT | st.none(),
        "function": st.fixed_dictionaries({"name": TEXT, "arguments": TEXT}),
    }
)
CHOICE = st.fixed_dictionaries(
    {
        "delta": st.fixed_dictionaries({"content": TEXT | st.none(), "tool_calls": st.lists(CALL, max_size=2) | st.none()}),
        "finish_reason": st.none() | st.sampled_from(["stop", "length"]),
    }
)
LIKELY = (
    st.fixed_dictionaries({"type": st.just("content_block_start"), "index": INDEX, "content_block": BLOCK})
    | st.fixed_dictionaries({"type": st.just("content_block_delta"), "index": INDEX, "delta": DELTA})
    | st.fixed_dictionaries({"type": st.just("x"), "choices": st.lists(CHOICE, min_size=1, max_size=1)})
)
"""Events of both dialects, nearly as they should be."""
PIECES = st.lists(LIKELY, max_size=12) | st.lists(JSON | LIKELY | st.binary(max_size=30), max_size=12)


@given(dialect=st.sampled_from(["openai", "anthropic"]), pieces=PIECES, step=st.integers(1, 40))
def test_whatever_is_streamed_is_an_answer_or_one_of_three_errors(dialect: str, pieces: list[Any], step: int) -> None:
    content = b"".join(
        b"data: " + (piece if isinstance(piece, bytes) else json.dumps(piece).encode()) + b"\n\n" for piece in pieces
    )
    collector, parser = DIALECTS[dialect].collector(), SseParser(1_000)
    asked, text = ModelRequest([Message("user", "u")]), ""
    try:
        for at in range(0, len(content), step):
            for event in parser.feed(content[at : at + step]):
                text += collector.take(event)
        completion = DIALECTS[dialect].read(collector.answer(), asked)
    except (Malformed, ErrorEvent, EventTooLong):
        assert all(count >= 0 for count in DIALECTS[dialect].usage(collector.answer(), asked, ""))
    else:
        assert completion.ending == "refused" or completion.text == text
        assert completion.tokens >= 0
        assert all(isinstance(request.id, str) and isinstance(request.name, str) for request in completion.requests)
