"""Messages to a language model, its answer, and what a dialect has to translate between the two and a server."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import orjson

from toolgate.jsontext import MAX_JSON_DEPTH, holds_too_much, is_deeper
from toolgate.model import Actor, new_id
from toolgate.network.sse import SseEvent
from toolgate.settings.model import ModelChoice

CHARACTERS_A_TOKEN = 4
MAX_REQUESTS = 256
"""Tools that a model can ask for in one answer."""
MAX_REQUEST_ID_CHARS = 256
MAX_COUNTED_TOKENS = 1_000_000_000

Role = Literal["system", "user", "assistant", "tool"]
Ending = Literal["complete", "tool_use", "truncated", "refused"]


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool as a model is told of it. `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolRequest(msgspec.Struct, frozen=True):
    """A model's wish to have a tool called."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    """None: they could not be parsed, and `text` is what came."""
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation. Role `tool`: the result of the request with the id `request_id`."""

    role: Role
    text: str
    requests: tuple[ToolRequest, ...] = ()
    """Of role `assistant`: the tools that the model wanted called."""
    request_id: str | None = None
    is_error: bool = False


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a model. Its text and requests are data: they may hold whatever the model read."""

    text: str
    requests: tuple[ToolRequest, ...] = ()
    ending: Ending
    """truncated: it reached the limit of tokens. refused: the model or its server declined."""
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Conversations(Protocol):
    """The conversations that turns of `ask_model` continue. Found by the tool with `ctx.get(Conversations)`.

    Each method raises InvalidInput for a conversation that is not there, or is not the actor's.
    """

    async def history(self, conversation: str, turn: int, actor: Actor) -> Sequence[Message]:
        """All messages before those that are new in this turn, the system prompt first."""

    async def definitions(self, conversation: str, actor: Actor) -> Sequence[ToolDefinition]:
        """The tools that the model is told of in this conversation."""

    def sink(self, conversation: str, actor: Actor) -> Callable[[str], None] | None:
        """Takes the text of the answer as it is streamed; None: nobody reads along."""

    async def keep(self, conversation: str, turn: int, answer: Completion, actor: Actor, sent: Sequence[Message]) -> None:
        """Takes the answer of a turn as the model wrote it, before the call ends. What the call itself gives out, and its
        records keep, is masked like the output of every tool: a request to write a file with a password in it would be
        damaged there. So whoever continues the conversation reads the answer from here. `sent`: what was new in the turn, as
        the model was sent it. Whoever was asked, or a hook, may have changed it, and the next turns continue that."""


class Malformed(Exception):
    """An answer is not what the dialect says."""


class ErrorEvent(Exception):
    """The server says, in the middle of a stream, that it failed. `answer` is as the body of an error would be."""

    def __init__(self, status: int, answer: Any) -> None:
        super().__init__(f"status {status}")
        self.status, self.answer = status, answer


class ModelRequest(NamedTuple):
    """All that a model is asked with."""

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] = ()
    max_tokens: int = 0
    streamed: bool = False
    lacking: frozenset[str] = frozenset()
    """Fields of the request that the server has refused before."""

    @property
    def text(self) -> str:
        """The text that is sent, for an estimate of its tokens."""
        parts = [f"{tool.name} {tool.description} {_json(tool.parameters)}" for tool in self.tools]
        for message in self.messages:
            parts.append(message.text)
            parts += (f"{request.name} {request.text or _json(request.arguments)}" for request in message.requests)
        return "\n".join(parts)


class Collector(Protocol):
    """Puts a streamed answer together."""

    is_over: bool
    """True once the model has said why it ended; the usage may still come."""
    is_closed: bool
    """True once nothing more can come."""

    def take(self, event: SseEvent) -> str:
        """Gives the text that is new with an event. Raises Malformed, or ErrorEvent."""

    def answer(self) -> Any:
        """All that came so far, as an answer that is not streamed would have it."""


class Dialect(Protocol):
    """The form in which a server is asked and answers."""

    path: str
    """After the base URL."""

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, choice: ModelChoice, asked: ModelRequest) -> dict[str, Any]: ...

    def read(self, answer: Any, asked: ModelRequest) -> Completion:
        """The completion in an answer of status 200. Raises Malformed."""

    def usage(self, answer: Any, asked: ModelRequest, written: str) -> tuple[int, int]:
        """The tokens that an answer says were read and written; where it does not say so, an estimate."""

    def collector(self) -> Collector: ...

    def unknown_fields(self, words: str) -> frozenset[str]:
        """The fields of a request that a server does not know, going by the words with which it refuses it."""


def field(value: Any, name: str, kind: type) -> Any:
    """A field of an object that a server sent. Raises Malformed if it is not there, or of another kind."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise Malformed(f"{name} is missing or is no {kind.__name__}")
    return found


def counted(usage: Any, name: str, text: str) -> int:
    """The tokens that a server counted; where it counts none, an estimate of a text's. That a text has none is no count."""
    found = usage.get(name) if isinstance(usage, dict) else None
    if type(found) is int and bool(text) <= found <= MAX_COUNTED_TOKENS:
        return found
    return estimate_tokens(text)


def estimate_tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_A_TOKEN)


def tool_requests(wanted: Iterable[tuple[Any, Any, Any]]) -> tuple[ToolRequest, ...]:
    """Requests out of (id, name, arguments) as a server sent them: text or an object, with an id of its own or without."""
    found: list[ToolRequest] = []
    known: set[str] = set()
    for id, name, given in wanted:
        if len(found) == MAX_REQUESTS:
            raise Malformed(f"it asks for more than {MAX_REQUESTS} tools at once")
        own = id if isinstance(id, str) and 0 < len(id) <= MAX_REQUEST_ID_CHARS and id not in known else f"call_{new_id()}"
        known.add(own)
        found.append(ToolRequest(own, name if isinstance(name, str) else "", *_arguments(given)))
    return tuple(found)


def sent_arguments(request: ToolRequest) -> dict[str, Any]:
    """The arguments of an earlier request, for a server that is told of it. What could not be parsed would be refused."""
    return {"malformed_arguments": request.text} if request.arguments is None else request.arguments


def _arguments(given: Any) -> tuple[dict[str, Any] | None, str]:
    if isinstance(given, str):
        if not given.strip():
            return {}, ""
        content = given.encode("utf-8", "replace")
        if holds_too_much(content):
            return None, given
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            return None, given
        return (value, "") if isinstance(value, dict) and not is_deeper(value, MAX_JSON_DEPTH) else (None, given)
    if given is None:
        return {}, ""
    return (given, "") if isinstance(given, dict) else (None, _json(given))


def event_data(event: SseEvent) -> Any:
    """The JSON of an event. Raises Malformed."""
    content = event.data.decode("utf-8", "replace").encode()
    if holds_too_much(content):
        raise Malformed("an event holds more values than are read")
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise Malformed("an event of the stream is not valid JSON") from None
    if is_deeper(value, MAX_JSON_DEPTH):
        raise Malformed("an event is nested deeper than is read")
    return value


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
