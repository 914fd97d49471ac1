"""Language models' servers on loopback, in both dialects, streamed or whole as they are asked: they answer what a test
says, one reply after another (the last is repeated), and note what they were asked (`site.asked`).

A `Reply` says what the model answers, whatever the dialect. A `Said`, or a function of the request, says it down to the
bytes, for servers that err.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.loopback import Asked, Said, Site, site
from tests.services import Answer, hang_up, scripted
from toolgate import Actor, App
from toolgate.errors import InvalidInput
from toolgate.llm.completion import Completion, Message, ToolDefinition
from toolgate.testing import memory_app

KEY = "test-key-4fT9xQ2mL7"
PATHS = {"openai": "/v1", "anthropic": ""}
"""What stands before the dialect's own path."""
PIECE_CHARS = 7
"""Characters of an answer that are streamed at once."""


@dataclass(frozen=True)
class Wanted:
    """A tool that the model wants called. Arguments that are text are sent as they are, valid or not."""

    name: str
    arguments: dict[str, Any] | str
    id: str | None = "call_1"

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """One answer of a model."""

    text: str | None = None
    calls: Sequence[Wanted] = ()
    ending: str | None = None
    """As the dialect spells it; None: what fits the rest."""
    read: int = 19
    written: int = 10
    cut: int | None = None
    """Streamed: the connection breaks after so many events."""
    pause: float = 0.0
    """Streamed: seconds between two events."""


def openai(text: str | None, *, finish: str | None = None, read: int = 19, written: int = 10, **message: Any) -> Said:
    """A chat completion, as OpenAI documents it."""
    return Said(
        body={
            "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
            "object": "chat.completion",
            "created": 1741569952,
            "model": "gpt-5.1-2026-08-07",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None, "annotations": [], **message},
                    "logprobs": None,
                    "finish_reason": finish or "stop",
                }
            ],
            "usage": _openai_usage(read, written),
            "service_tier": "default",
        }
    )


def anthropic(*blocks: dict[str, Any], stop: str | None = None, read: int = 19, written: int = 10, **usage: int) -> Said:
    """A message, as Anthropic documents it."""
    return Said(
        body={
            "id": "msg_013Zva2CMHLNnjNjtJKqJ2EF",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-6",
            "content": list(blocks),
            "stop_reason": stop or "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": read, "output_tokens": written, **usage},
        }
    )


def spoken(dialect: str, text: str) -> Said:
    """An answer of one text."""
    return openai(text) if dialect == "openai" else anthropic({"type": "text", "text": text})


# -- replies in either dialect


def _openai_usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def whole(dialect: str, reply: Reply) -> Said:
    """A reply as one JSON document."""
    if dialect == "openai":
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call in reply.calls
        ]
        more = {"tool_calls": calls} if calls else {}
        finish = reply.ending or ("tool_calls" if calls else "stop")
        return openai(reply.text, finish=finish, read=reply.read, written=reply.written, **more)
    blocks: list[dict[str, Any]] = [] if reply.text is None else [{"type": "text", "text": reply.text}]
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in reply.calls]
    stop = reply.ending or ("tool_use" if reply.calls else "end_turn")
    return anthropic(*blocks, stop=stop, read=reply.read, written=reply.written)


def events(dialect: str, reply: Reply, *, with_usage: bool = True) -> list[bytes]:
    """A reply as server-sent events."""
    return list(_openai_events(reply, with_usage) if dialect == "openai" else _anthropic_events(reply))


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS))


def _openai_events(reply: Reply, with_usage: bool) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1741569952, "model": "gpt-5.1"}
        return b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(reply.text or ""):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        named = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [named]})
        for piece in _pieces(call.text):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, reply.ending or ("tool_calls" if reply.calls else "stop"))
    if with_usage:
        yield chunk(None, usage=_openai_usage(reply.read, reply.written))
    yield b"data: [DONE]\n\n"


def _anthropic_events(reply: Reply) -> Iterator[bytes]:
    def event(kind: str, **data: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()

    begun = anthropic(read=reply.read, written=1).body
    assert isinstance(begun, dict)
    yield event("message_start", message={**begun, "stop_reason": None})
    yield event("ping")
    blocks: list[tuple[dict[str, Any], str, str, str]] = []
    if reply.text is not None:
        blocks.append(({"type": "text", "text": ""}, "text_delta", "text", reply.text))
    for call in reply.calls:
        begin: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        blocks.append((begin, "input_json_delta", "partial_json", call.text))
    for index, (begin, kind, field, text) in enumerate(blocks):
        yield event("content_block_start", index=index, content_block=begin)
        for piece in _pieces(text):
            yield event("content_block_delta", index=index, delta={"type": kind, field: piece})
        yield event("content_block_stop", index=index)
    stop = reply.ending or ("tool_use" if reply.calls else "end_turn")
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": reply.written})
    yield event("message_stop")


def streamed(
    parts: Sequence[bytes] | AsyncIterator[bytes], *, pause: float = 0.0, cut: int | None = None, ends: bool = True
) -> Said:
    """An answer that comes in parts. `cut`: the connection breaks after so many of them. `ends` False: it stays open."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        sent = 0
        async for part in _one_by_one(parts):
            if cut is not None and sent == cut:
                await writer.drain()
                await hang_up(writer)
                return
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
            sent += 1
            if pause:
                await asyncio.sleep(pause)
        if not ends:
            await asyncio.get_running_loop().create_future()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return Said(raw=write)


async def _one_by_one(parts: Sequence[bytes] | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(parts, AsyncIterator):
        async for part in parts:
            yield part
    else:
        for part in parts:
            yield part


def _answering(dialect: str, reply: Reply) -> Callable[[Asked], Said]:
    def answer(asked: Asked) -> Said:
        body = asked.json
        if not body.get("stream"):
            return whole(dialect, reply)
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return streamed(events(dialect, reply, with_usage=with_usage), pause=reply.pause, cut=reply.cut)

    return answer


# -- servers


def model_settings(dialect: str, server: Site, **more: Any) -> dict[str, Any]:
    """The setting `model` for a server. A refused request is not repeated, unless the test says so."""
    return {"provider": dialect, "name": "m-1", "base_url": f"{server.url}{PATHS[dialect]}", "retries": 0, **more}


@asynccontextmanager
async def model_server(dialect: str, *answers: Reply | Answer) -> AsyncIterator[Site]:
    """A model's server that gives these answers, one after another."""
    made = [_answering(dialect, answer) if isinstance(answer, Reply) else answer for answer in answers]
    async with site(scripted(made)) as server:
        yield server


class Talk:
    """One conversation of a user, in memory: the port `Conversations`. Notes what was streamed and what was answered."""

    def __init__(
        self, *history: Message, tools: Sequence[ToolDefinition] = (), streams: bool = True, user: str = "local"
    ) -> None:
        self.messages, self.tools, self._streams, self._user = list(history), tools, streams, user
        self.streamed: list[str] = []
        self.answers: list[tuple[int, Completion]] = []

    def _check(self, conversation: str, actor: Actor) -> None:
        if conversation != "talk" or actor.user != self._user:
            raise InvalidInput("There is no such conversation.")

    async def history(self, conversation: str, turn: int, actor: Actor) -> Sequence[Message]:  # noqa: ARG002 - all there is
        self._check(conversation, actor)
        return self.messages

    async def definitions(self, conversation: str, actor: Actor) -> Sequence[ToolDefinition]:
        self._check(conversation, actor)
        return self.tools

    def sink(self, conversation: str, actor: Actor) -> Callable[[str], None] | None:
        self._check(conversation, actor)
        return self.streamed.append if self._streams else None

    async def keep(self, conversation: str, turn: int, answer: Completion, actor: Actor, sent: Sequence[Message]) -> None:
        self._check(conversation, actor)
        assert sent
        self.answers.append((turn, answer))


@asynccontextmanager
async def modelled(
    dialect: str, *answers: Reply | Answer, model: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[App, Site]]:
    """An App whose model is on loopback, and everybody agrees to every call."""
    async with (
        model_server(dialect, *answers) as server,
        memory_app(model=model_settings(dialect, server, **(model or {})), **settings) as app,
    ):
        app.approvals.add_approver(lambda _request: True)
        yield app, server
