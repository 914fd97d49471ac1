"""OpenAI's chat completions, which most servers speak: with fields left out, null, or of another kind than documented."""

from collections.abc import Sequence
from typing import Any, ClassVar

import orjson

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
from toolgate.settings.model import BASE_URLS, ModelChoice

DONE = b"[DONE]"
ERROR = "Error: "


class OpenAIChat:
    """`POST {base_url}/chat/completions`."""

    path = "/chat/completions"
    endings: ClassVar[dict[str, Ending]] = {"length": "truncated", "content_filter": "refused"}

    def headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def body(self, choice: ModelChoice, asked: ModelRequest) -> dict[str, Any]:
        # OpenAI's own models refuse max_tokens; most other servers know no other name.
        is_openai = choice.address == BASE_URLS["openai"]
        limit = "max_completion_tokens" if is_openai or "max_tokens" in asked.lacking else "max_tokens"
        body: dict[str, Any] = {
            "model": choice.name,
            "messages": [_message(message) for message in asked.messages],
            limit: asked.max_tokens,
        }
        if asked.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in asked.tools
            ]
        if asked.streamed:
            body["stream"] = True
            if "stream_options" not in asked.lacking:
                body["stream_options"] = {"include_usage": True}
        return body if choice.temperature is None else {**body, "temperature": choice.temperature}

    def read(self, answer: Any, asked: ModelRequest) -> Completion:
        choices = field(answer, "choices", list)
        if not choices:
            raise Malformed("choices is empty")
        message = field(choices[0], "message", dict)
        text, refusal = _text(message.get("content")), message.get("refusal")
        requests = tool_requests(_wanted(message))
        ending = self.endings.get(str(choices[0].get("finish_reason")), "tool_use" if requests else "complete")
        if isinstance(refusal, str) and refusal:
            text, ending = text or refusal, "refused"
        read, written = self.usage(answer, asked, text + "".join(str(request.arguments) for request in requests))
        return Completion(text=text, requests=requests, ending=ending, input_tokens=read, output_tokens=written)

    def usage(self, answer: Any, asked: ModelRequest, written: str) -> tuple[int, int]:
        usage = answer.get("usage") if isinstance(answer, dict) else None
        return counted(usage, "prompt_tokens", asked.text), counted(usage, "completion_tokens", written)

    def collector(self) -> Collector:
        return ChatCollector()

    def unknown_fields(self, words: str) -> frozenset[str]:
        found = {"stream_options"} if "stream_options" in words else set()
        if "max_completion_tokens" in words and "max_tokens" in words:
            found.add("max_tokens")
        return frozenset(found)


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        # The dialect has no field that says so.
        marked = message.is_error and not message.text.lower().startswith(ERROR.strip().lower())
        text = f"{ERROR}{message.text}" if marked else message.text
        return {"role": "tool", "tool_call_id": message.request_id or "", "content": text}
    sent: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.requests:
        sent["tool_calls"] = [
            {
                "id": request.id,
                "type": "function",
                "function": {"name": request.name, "arguments": orjson.dumps(sent_arguments(request)).decode()},
            }
            for request in message.requests
        ]
    return sent


def _text(content: Any) -> str:
    """The text of a message: some servers send it in parts, among others that are no text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise Malformed("content is no text")
    return "".join(part["text"] for part in content if isinstance(part.get("text"), str))


def _wanted(message: dict[str, Any]) -> Sequence[tuple[Any, Any, Any]]:
    calls = message.get("tool_calls")
    old = message.get("function_call")
    if not calls and isinstance(old, dict):  # as it was before tools, and still is at some servers
        return [(None, old.get("name"), old.get("arguments"))]
    if calls is not None and not isinstance(calls, list):
        raise Malformed("tool_calls is no list")
    found = []
    for call in calls or ():
        function = field(call, "function", dict)
        found.append((call.get("id"), function.get("name"), function.get("arguments")))
    return found


class ChatCollector:
    """Chunks of a chat completion."""

    def __init__(self) -> None:
        self.is_over = self.is_closed = False
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}
        self._finish: Any = None
        self._usage: Any = None

    def take(self, event: SseEvent) -> str:
        if event.data.strip() == DONE:
            self.is_over = self.is_closed = True
            return ""
        if not event.data.strip():
            return ""
        data = event_data(event)
        if not isinstance(data, dict):
            raise Malformed("an event of the stream is no object")
        if data.get("error"):
            code = data["error"].get("code") if isinstance(data["error"], dict) else None
            raise ErrorEvent(code if type(code) is int and 400 <= code <= 599 else 500, data)
        self._usage = data.get("usage") or self._usage
        choices = data.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return ""
        return self._choice(choices[0])

    def _choice(self, choice: dict[str, Any]) -> str:
        if choice.get("finish_reason"):
            self._finish = choice["finish_reason"]
            self.is_over = True
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return ""
        if isinstance(delta.get("refusal"), str):
            self._refusal.append(delta["refusal"])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._call(call)
        text = _text(delta.get("content"))
        self._text.append(text)
        return text

    def _call(self, delta: Any) -> None:
        """A piece of a tool call. Its index says which, or its id; servers send one, both, none, or the same for all."""
        if not isinstance(delta, dict):
            raise Malformed("a tool call is no object")
        function = delta.get("function")
        part = function if isinstance(function, dict) else {}
        index, id, name = delta.get("index"), delta.get("id"), part.get("name")
        call = self._by_index.get(index) if type(index) is int else (self._calls[-1] if self._calls and not id else None)
        is_another = call is not None and id and name and call["id"] and call["id"] != id
        if call is None or is_another:
            call = {"id": None, "name": None, "object": None, "pieces": []}
            self._calls.append(call)
            if type(index) is int:
                self._by_index[index] = call
        call["id"] = call["id"] or id
        call["name"] = call["name"] or name
        given = part.get("arguments")
        if isinstance(given, str):
            call["pieces"].append(given)
        elif given is not None:
            call["object"] = given

    def answer(self) -> Any:
        calls = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": call["object"] or "".join(call["pieces"])}}
            for call in self._calls
        ]
        message = {"content": "".join(self._text), "refusal": "".join(self._refusal), "tool_calls": calls}
        return {"choices": [{"message": message, "finish_reason": self._finish}], "usage": self._usage}
