"""Anthropic's messages."""

from collections.abc import Sequence
from typing import Any, ClassVar

from toolgate.llm.completion import (
    Collector,
    Completion,
    Ending,
    ErrorEvent,
    Malformed,
    Message,
    ModelRequest,
    counted,
    event_data,
    field,
    sent_arguments,
    tool_requests,
)
from toolgate.network.sse import SseEvent
from toolgate.settings.model import ModelChoice

ANTHROPIC_VERSION = "2023-06-01"
EMPTY = "(empty)"
"""In place of a text without a visible character, which the server refuses."""
STATUS_OF = {"rate_limit_error": 429, "overloaded_error": 529, "invalid_request_error": 400, "request_too_large": 413}
CACHE_COUNTS = ("cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicMessages:
    """`POST {base_url}/v1/messages`."""

    path = "/v1/messages"
    endings: ClassVar[dict[str, Ending]] = {
        "max_tokens": "truncated",
        "model_context_window_exceeded": "truncated",
        "refusal": "refused",
    }

    def headers(self, key: str | None) -> dict[str, str]:
        version = {"anthropic-version": ANTHROPIC_VERSION}
        return version if key is None else {"x-api-key": key, **version}

    def body(self, choice: ModelChoice, asked: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"model": choice.name, "max_tokens": asked.max_tokens, "messages": _turns(asked.messages)}
        system = "\n\n".join(message.text for message in asked.messages if message.role == "system")
        if system:
            body["system"] = system
        if asked.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in asked.tools
            ]
        if asked.streamed:
            body["stream"] = True
        return body if choice.temperature is None else {**body, "temperature": choice.temperature}

    def read(self, answer: Any, asked: ModelRequest) -> Completion:
        blocks = [block for block in field(answer, "content", list) if isinstance(block, dict)]
        text = "".join(field(block, "text", str) for block in blocks if block.get("type") == "text")
        wanted = [block for block in blocks if block.get("type") == "tool_use"]
        requests = tool_requests((block.get("id"), block.get("name"), block.get("input")) for block in wanted)
        ending = self.endings.get(str(answer.get("stop_reason")), "tool_use" if requests else "complete")
        read, written = self.usage(answer, asked, text + "".join(str(request.arguments) for request in requests))
        return Completion(text=text, requests=requests, ending=ending, input_tokens=read, output_tokens=written)

    def usage(self, answer: Any, asked: ModelRequest, written: str) -> tuple[int, int]:
        usage = answer.get("usage") if isinstance(answer, dict) else None
        read = counted(usage, "input_tokens", asked.text)
        if isinstance(usage, dict):  # what went through the cache is counted apart
            read += sum(counted(usage, name, "") for name in CACHE_COUNTS)
        return read, counted(usage, "output_tokens", written)

    def collector(self) -> Collector:
        return MessageCollector()

    def unknown_fields(self, words: str) -> frozenset[str]:  # noqa: ARG002 - one server speaks it, and knows them all
        return frozenset()


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as turns of user and assistant. All results of one turn's tools stand in the next, before any text."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if role == "user" and turns and turns[-1]["role"] == "user" and isinstance(turns[-1]["content"], list):
            _join(turns[-1]["content"], message)
        elif message.role == "tool":
            turns.append({"role": role, "content": [_result(message)]})
        elif message.requests:
            spoken = [{"type": "text", "text": message.text}] if message.text.strip() else []
            turns.append({"role": role, "content": [*spoken, *map(_tool_use, message.requests)]})
        else:
            turns.append({"role": role, "content": message.text if message.text.strip() else EMPTY})
    return turns


def _join(content: list[dict[str, Any]], message: Message) -> None:
    if message.role == "tool":
        at = next((at for at, block in enumerate(content) if block["type"] != "tool_result"), len(content))
        content.insert(at, _result(message))
    elif message.text.strip():
        content.append({"type": "text", "text": message.text})


def _result(message: Message) -> dict[str, Any]:
    text = message.text if message.text.strip() else EMPTY
    block = {"type": "tool_result", "tool_use_id": message.request_id or "", "content": text}
    return {**block, "is_error": True} if message.is_error else block


def _tool_use(request: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": request.id, "name": request.name, "input": sent_arguments(request)}


class MessageCollector:
    """Events of a message."""

    def __init__(self) -> None:
        self.is_over = self.is_closed = False
        self._blocks: list[tuple[dict[str, Any], list[str]]] = []
        """Each with the pieces of its text or its input."""
        self._open: dict[int, tuple[dict[str, Any], list[str]]] = {}
        self._stop: Any = None
        self._usage: dict[str, Any] = {}

    def take(self, event: SseEvent) -> str:
        if not event.data.strip():
            return ""
        data = event_data(event)
        kind = data.get("type") if isinstance(data, dict) else None
        match kind:
            case "error":
                error = data.get("error")
                named = error.get("type") if isinstance(error, dict) else None
                raise ErrorEvent(STATUS_OF.get(str(named), 500), data)
            case "message_start":
                message = data.get("message")
                self._count(message.get("usage") if isinstance(message, dict) else None)
            case "content_block_start":
                return self._begin(field(data, "index", int), field(data, "content_block", dict))
            case "content_block_delta":
                return self._delta(field(data, "index", int), field(data, "delta", dict))
            case "message_delta":
                self._count(data.get("usage"))
                delta = data.get("delta")
                if isinstance(delta, dict) and delta.get("stop_reason"):
                    self._stop, self.is_over = delta["stop_reason"], True
            case "message_stop":
                self.is_over = self.is_closed = True
            case None:
                raise Malformed("an event of the stream says no type")
        return ""

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: count for name, count in usage.items() if count is not None}

    def _begin(self, index: int, block: dict[str, Any]) -> str:
        text = block.get("text") if block.get("type") == "text" else None
        parts = [text] if isinstance(text, str) else []
        self._open[index] = block, parts
        self._blocks.append(self._open[index])
        return "".join(parts)

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        if index not in self._open:
            raise Malformed("a part of the stream belongs to nothing that has begun")
        block, parts = self._open[index]
        match block.get("type"), delta.get("type"):
            case "text", "text_delta":
                parts.append(field(delta, "text", str))
                return parts[-1]
            case "tool_use", "input_json_delta":
                parts.append(field(delta, "partial_json", str))
        return ""

    def answer(self) -> Any:
        blocks = [self._whole(block, "".join(parts)) for block, parts in self._blocks]
        return {"content": blocks, "stop_reason": self._stop, "usage": self._usage}

    @staticmethod
    def _whole(block: dict[str, Any], text: str) -> dict[str, Any]:
        if block.get("type") == "tool_use":
            return {**block, "input": text or block.get("input")}
        return {**block, "text": text} if block.get("type") == "text" else block
