"""How the fixture's tools are written: once, for every way in which a tool can ask its caller something.

A tool is a function that takes a turn and gives a result, or asks (`Ask`), or says that the rest takes long (`Later`). It
keeps nothing between turns: when it asked, it is called again with the answers. Asking then is a request on an old
connection, an input_required result on a new one, and a state of the task where the client knows tasks.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

TASKS = "io.modelcontextprotocol/tasks"

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class Ask:
    """What a tool wants to know, and what it wants to be reminded of when it is told."""

    requests: Mapping[str, Json]
    state: str | None = None


@dataclass(frozen=True)
class Turn:
    """One turn of a call."""

    ctx: Context
    arguments: Mapping[str, Any]
    answers: Mapping[str, Any]
    state: str | None

    @property
    def capabilities(self) -> Json:
        """What the client says it can be asked for."""
        return capabilities(self.ctx)

    def said(self, name: str) -> Json | None:
        """What was answered, if it was."""
        answer = self.answers.get(name)
        return answer if isinstance(answer, dict) else None


@dataclass(frozen=True)
class Later:
    """The rest of a call, which takes long: a task where the client knows tasks."""

    work: "Play"


Play = Callable[[Turn], Awaitable[Json | Ask | Later]]


def text(words: str) -> Json:
    """A result that is one text."""
    return {"content": [{"type": "text", "text": words}]}


def failure(words: str) -> Json:
    """A result that says what went wrong."""
    return text(words) | {"isError": True}


def form(message: str, properties: Json, required: list[str] | None = None) -> Json:
    """A request for what a person fills in."""
    schema = {"type": "object", "properties": properties, "required": list(properties) if required is None else required}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, tokens: int = 100) -> Json:
    """A request for what the client's model says."""
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


ROOTS: Json = {"method": "roots/list", "params": {}}


def capabilities(ctx: Context) -> Json:
    found = ctx.session.client_capabilities
    return {} if found is None else found.model_dump(by_alias=True, exclude_none=True)


def knows_tasks(ctx: Context) -> bool:
    return is_modern(ctx) and TASKS in capabilities(ctx).get("extensions", {})


def is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def missing(required: Json) -> MCPError:
    """The client did not say that it can do what this needs."""
    words = "The client does not say that it can do what this needs."
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, words, {"requiredCapabilities": required})


async def play(work: Play, turn: Turn) -> Json | Ask:
    """The turn of a call that is no task: what takes long is waited for."""
    done = await work(turn)
    while isinstance(done, Later):
        done = await done.work(turn)
    return done


async def converse(work: Play, turn: Turn) -> Json:
    """A whole call on a connection where the server may ask for itself."""
    done = await play(work, turn)
    while isinstance(done, Ask):
        answers = {name: await _put(turn.ctx, request) for name, request in done.requests.items()}
        turn = replace(turn, answers=answers, state=done.state)
        done = await play(work, turn)
    return done


async def _put(ctx: Context, request: Json) -> Json:
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer: types.Result
    match request["method"]:
        case "elicitation/create":
            elicit = types.ElicitRequest.model_validate(request)
            answer = await ctx.session.send_request(elicit, types.ElicitResult, metadata=related)
        case "sampling/createMessage":
            message = types.CreateMessageRequest.model_validate(request)
            answer = await ctx.session.send_request(message, types.CreateMessageResult, metadata=related)
        case _:
            answer = await ctx.session.send_request(types.ListRootsRequest(), types.ListRootsResult, metadata=related)
    return answer.model_dump(by_alias=True, exclude_none=True, mode="json")
