"""Models on loopback: they say what a test has them say, over OpenAI's or Anthropic's API, and note what they were asked."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from tests.loopback import Asked, Said, site

Turn = str | list[tuple[str, str, Any]]
"""A text, or calls of tools: the id of each, the tool's name, its arguments as a value or as text."""


class ScriptedModel:
    """A model: what it says next, and the requests that it was sent."""

    def __init__(self, *turns: Turn) -> None:
        self.turns = list(turns)
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    def tools(self) -> list[str]:
        """The names of the tools that the last request offered."""
        return [one.get("function", one)["name"] for one in self.asked[-1].get("tools", ())]

    def told(self) -> list[tuple[str, str]]:
        """The results of tools in the last request: the id of the call, and the text."""
        found: list[tuple[str, str]] = []
        for message in self.asked[-1]["messages"]:
            if message["role"] == "tool":
                found.append((message["tool_call_id"], _text(message["content"])))
            elif isinstance(message["content"], list):
                blocks = [part for part in message["content"] if part.get("type") == "tool_result"]
                found += [(part["tool_use_id"], _text(part["content"])) for part in blocks]
        return found


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@asynccontextmanager
async def scripted(*turns: Turn) -> AsyncIterator[ScriptedModel]:
    """A server with one model, at `/v1/chat/completions` and at `/v1/messages`."""
    model = ScriptedModel(*turns)

    async def answer(asked: Asked) -> Said:
        if not asked.path.endswith(("/chat/completions", "/messages")):
            return Said(404, {"error": {"message": f"nothing is at {asked.path}"}})
        body = asked.json
        if asked.path.endswith("/messages"):
            if not body.get("tools"):  # a title, or the like, that Claude Code asks for by the way
                return _messages("Something.", body)
            model.asked.append(body)
            return _messages(model.turns.pop(0), body)
        model.asked.append(body)
        return Said(200, _completion(model.turns.pop(0)))

    async with site(answer) as server:
        model.url = server.url
        yield model


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given)


def _completion(turn: Turn) -> dict[str, Any]:
    """An answer as OpenAI documents it."""
    text, calls = (turn, []) if isinstance(turn, str) else (None, turn)
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": _arguments(given)}}
        for id, name, given in calls
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if made else "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    return {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [choice], "usage": usage}


def _messages(turn: Turn, body: dict[str, Any]) -> Said:
    """An answer as Anthropic documents it, streamed if that is asked for."""
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": turn}]
        if isinstance(turn, str)
        else [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in turn]
    )
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": blocks,
        "stop_reason": "end_turn" if isinstance(turn, str) else "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 5},
    }  # fmt: skip
    if not body.get("stream"):
        return Said(200, message)
    text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in _events(message))
    return Said(200, text, {"content-type": "text/event-stream"})


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"]}, "usage": message["usage"]}
    yield {"type": "message_stop"}
