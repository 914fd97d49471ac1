"""Runs tools of MCP servers: a call becomes a request, and the response an output.

An output is as plain as it can be: text as text, structured content as its value, and anything else (images, links, several
parts) as MCP's list of content. `parts` recovers that list, for the MCP server of Toolgate.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import orjson

from toolgate.errors import CallError, Failed, Pending, shortened, timed_out
from toolgate.mcp.client.errors import ConnectionLost, ErrorResponse, InputRequired
from toolgate.mcp.client.model import Target
from toolgate.mcp.sampling_requests import SamplingCaller, Withdraw, is_sampling
from toolgate.model import Actor, Caller, Entry, Validator
from toolgate.pipeline.context import InvokeContext
from toolgate.tasks import finish

if TYPE_CHECKING:
    from toolgate.mcp.catalog import McpTools
    from toolgate.mcp.endpoints import McpEndpoints

MAX_INPUT_ROUNDS = 10
MAX_TOOL_ERROR_CHARS = 4_000
CONTENT_TYPES = frozenset({"text", "image", "audio", "resource", "resource_link"})
TEXT_FIELDS = frozenset({"type", "text"})
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 5.0
"""Between two polls of a task, whatever its server wishes."""
CANCEL_SECONDS = 5.0
MAX_TASK_ID_CHARS = 1_024

NO_CALLER_TO_ASK = Failed(
    "MCP_ERROR",
    "The tool's server needs input from the caller, which this door cannot ask for.",
    suggestion="Call it from an MCP client with the capability elicitation.",
)
ServerRequest = Callable[..., Awaitable[Mapping[str, Any]]]
"""`McpTools.request`."""


class McpRunner:
    def __init__(
        self, servers: "McpTools", endpoints: "McpEndpoints", has_model: Callable[[Actor], bool], withdraw: Withdraw
    ) -> None:
        """`endpoints`: the servers of tools that tenants registered. `has_model`: tells whether there is a language model
        for an actor."""
        self._servers = servers
        self._endpoints = endpoints
        self._has_model = has_model
        self._withdraw = withdraw

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:
        """Sends the request, within the timeout of the call; when that is over the server is told to stop."""
        try:
            async with asyncio.timeout(ctx.time_limit) as time:
                return result(await self._asked(ctx, entry, arguments))
        except TimeoutError:
            if not time.expired():
                raise
            raise timed_out(ctx.time_limit) from None
        except ConnectionLost as error:
            if entry.tier == "read_only":  # it had no effect, so it may be asked again
                raise Failed("CONNECTION_ERROR", error.message) from error
            raise

    async def _asked(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Mapping[str, Any]:
        """Asks the server; where it may ask the model in turn, a question to a person can stop it (`ctx.running`)."""
        target: Target = entry.implementation
        limits = self._servers_of(entry).sampling_limits(target.server)
        if limits is None or not self._has_model(ctx.actor):
            return await self._ask(ctx, entry, arguments, ctx.call.caller)
        sampling = SamplingCaller(ctx.call.caller, ctx, target.server, limits, self._withdraw)
        return await ctx.running(self._ask(ctx, entry, arguments, cast("Caller", sampling)))

    async def _ask(
        self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any], way_back: Caller | None
    ) -> Mapping[str, Any]:
        target: Target = entry.implementation
        caller = None if way_back is None else cast("Caller", _AuditedCaller(way_back, ctx))
        params, servers = _params(target, arguments), self._servers_of(entry)
        if ctx.injected:
            servers.mask_secrets(target.server, ctx.injected)
        if caller is not None and caller.input_responses is not None:
            params |= _answers(caller.input_responses, caller.request_state)
        for _ in range(MAX_INPUT_ROUNDS):
            try:
                answer = await servers.request(
                    target.server, target.method, params, caller=caller, seconds=ctx.time_limit, entry=entry
                )
                if answer.get("resultType") == "task":
                    return await _follow(servers.request, target.server, answer, caller)
                return answer
            except InputRequired as more:
                if caller is None:
                    raise NO_CALLER_TO_ASK from None
                is_ours = isinstance(way_back, SamplingCaller) and is_sampling(more.requests)
                if caller.can_come_again and not is_ours:
                    caller.remind(more.state, more.requests)
                    ctx.log(f"its server asks the caller: {', '.join(map(_method, more.requests.values()))}")
                    words = "The tool needs input before it continues."
                    raise Pending(message=words, kind="input", id=ctx.id, details={"inputRequests": more.requests}) from None
                params |= _answers(await _ask_caller(caller, more.requests), more.state)
        raise Failed("MCP_ERROR", f"The tool's server asked for input {MAX_INPUT_ROUNDS} times without completing.")

    def _servers_of(self, entry: Entry) -> "McpTools | McpEndpoints":
        return self._endpoints if entry.tool.mcp is not None else self._servers

    async def close(self) -> list[str]:
        return [*await self._endpoints.close(), *await self._servers.close()]


class _AuditedCaller:
    """A caller whose answers leave a trace in the call's record: the request of the server, and whether it was answered."""

    def __init__(self, caller: Caller, ctx: InvokeContext) -> None:
        self._caller = caller
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = await self._caller.ask(method, params)
        except CallError:
            self._ctx.log(f"its server asked the caller: {method:.60}; there was no answer")
            raise
        self._ctx.log(f"its server asked the caller: {method:.60}; it was answered")
        return answer


def _method(asked: Any) -> str:
    return str(asked.get("method"))[:60] if isinstance(asked, Mapping) else "?"


def _params(target: Target, arguments: dict[str, Any]) -> dict[str, Any]:
    if target.method == "resources/read":
        return {"uri": arguments["uri"]}
    if target.method == "prompts/get":
        return {"name": arguments["name"], "arguments": arguments.get("arguments") or {}}
    if target.method == "completion/complete":
        return dict(arguments)
    return {"name": target.name, "arguments": arguments}


def _answers(responses: Mapping[str, Any], state: str | None) -> dict[str, Any]:
    return {"inputResponses": dict(responses), **({"requestState": state} if state is not None else {})}


def result(answer: Mapping[str, Any]) -> Any:
    """The output of a call from the response. Raises the error that it stands for."""
    content = answer.get("content")
    if not isinstance(content, list):  # of resources/read and prompts/get: given as it is
        return {name: value for name, value in answer.items() if name not in ("_meta", "resultType", "ttlMs", "cacheScope")}
    if answer.get("isError") is True:
        raise _failure(content)
    structured = answer.get("structuredContent")
    alone = content[0].get("text") if len(content) == 1 and is_plain(content[0]) else None
    if "structuredContent" not in answer:
        return alone if alone is not None else {"content": content}
    if not content or (alone is not None and says(alone, structured)):
        return structured
    return {"content": content, "structuredContent": structured}


def _failure(content: list[Any]) -> CallError:
    words = "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return Failed("MCP_ERROR", shortened(words, MAX_TOOL_ERROR_CHARS) or "The tool failed without a message.")


def is_plain(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == TEXT_FIELDS and part["type"] == "text" and isinstance(part["text"], str)


def says(text: str, value: Any) -> bool:
    """True if a text is just the value as JSON."""
    try:
        return bool(orjson.loads(text) == value)
    except orjson.JSONDecodeError:
        return False


def parts(output: Any) -> list[dict[str, Any]] | None:
    """The content list of an output; None if it is any other value."""
    if not isinstance(output, dict) or not output.keys() <= {"content", "structuredContent"}:
        return None
    content = output.get("content")
    if not isinstance(content, list) or not all(
        isinstance(one, dict) and one.get("type") in CONTENT_TYPES for one in content
    ):
        return None
    return content


# -- tasks of servers


async def _follow(ask: ServerRequest, server: str, task: Mapping[str, Any], caller: Caller | None) -> Mapping[str, Any]:
    """Follows a server's task (extension io.modelcontextprotocol/tasks) until it has ended; gives its result, as if the tool
    had answered at once. That happens inside the call, so that its timeout, the check of its output and its end record hold
    for the task's result, and a cancelled call cancels the task."""
    id = task.get("taskId")
    if not isinstance(id, str) or not 0 < len(id) <= MAX_TASK_ID_CHARS:
        raise Failed("MCP_ERROR", "The tool's server began a task without a valid id.")
    if caller is not None:
        caller.goes_on()  # it need not wait
    named = {"taskId": id}
    try:
        while (ended := _ended(task)) is None:
            questions = task.get("inputRequests")
            if task.get("status") == "input_required" and isinstance(questions, Mapping) and questions:
                if caller is None:
                    raise NO_CALLER_TO_ASK
                answers = await _ask_caller(caller, questions)
                await ask(server, "tasks/update", {**named, "inputResponses": answers}, caller=caller)
            else:
                await asyncio.sleep(_pause(task))
            task = await ask(server, "tasks/get", named, caller=caller)
        return ended
    except asyncio.CancelledError:
        await _cancel_task(ask, server, named, caller)
        raise
    except CallError as error:
        if not isinstance(error, ErrorResponse | ConnectionLost):  # the server's own; after any other it still works on it
            await _cancel_task(ask, server, named, caller)
        raise


def _ended(task: Mapping[str, Any]) -> Mapping[str, Any] | None:
    status, result = task.get("status"), task.get("result")
    if status == "completed":
        if not isinstance(result, Mapping):
            raise Failed("MCP_ERROR", "The tool's server completed the task without a result.")
        return result
    if status == "failed":
        error = task.get("error")
        told = error if isinstance(error, Mapping) else {}
        number, words = told.get("code"), told.get("message")
        raise ErrorResponse(
            number if isinstance(number, int) else -32603,
            shortened(words, 4_000) if isinstance(words, str) else "The task failed.",
            told.get("data"),
        )
    if status == "cancelled":
        raise Failed("MCP_ERROR", "The tool's server cancelled the task.")
    if status not in ("working", "input_required"):
        raise Failed("MCP_ERROR", "The tool's server returned an unknown task status.")
    return None


def _pause(task: Mapping[str, Any]) -> float:
    wished = task.get("pollIntervalMs")
    seconds = wished / 1000 if isinstance(wished, int | float) and not isinstance(wished, bool) else MIN_POLL_SECONDS
    return min(max(seconds, MIN_POLL_SECONDS), MAX_POLL_SECONDS)


async def _ask_caller(caller: Caller, questions: Mapping[str, Any]) -> dict[str, Any]:
    """Puts all questions of a server to the caller at once, who may answer them in any order."""
    given = await asyncio.gather(*(_ask_one(caller, asked) for asked in questions.values()))
    return dict(zip(questions, given, strict=True))


async def _ask_one(caller: Caller, asked: Any) -> Mapping[str, Any]:
    if not isinstance(asked, Mapping) or not isinstance(asked.get("method"), str):
        raise Failed("MCP_ERROR", "The tool's server sent an input request without a method.")
    params = asked.get("params")
    return await caller.ask(asked["method"], params if isinstance(params, Mapping) else {})


async def _cancel_task(ask: ServerRequest, server: str, named: Mapping[str, Any], caller: Caller | None) -> None:
    """Cancels the task at its server, even if we are cancelled meanwhile."""

    async def tell() -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CANCEL_SECONDS):
                await ask(server, "tasks/cancel", named, caller=caller)

    with contextlib.suppress(asyncio.CancelledError):
        await finish(tell())


# -- validation


class StructuredOutputValidator:
    """The compiled schema of an output that is the value itself, or has it in `structuredContent` beside other parts."""

    def __init__(self, check: Validator) -> None:
        self._check: Any = check

    def is_valid(self, output: Any, /) -> bool:
        return bool(self._check.is_valid(output["structuredContent"] if _has_parts(output) else output))

    def iter_errors(self, output: Any, /) -> Iterator[Any]:
        if not _has_parts(output):
            return iter(self._check.iter_errors(output))
        return map(NestedError, self._check.iter_errors(output["structuredContent"]))

    def validate(self, output: Any, /) -> None:
        if not _has_parts(output):
            self._check.validate(output)
            return
        try:
            self._check.validate(output["structuredContent"])
        except ValueError as error:
            raise NestedError(error) from None


class NestedError(ValueError):
    """An error of the structured part, located in the whole output."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.instance_path = ["structuredContent", *error.instance_path]
        self.schema_path = error.schema_path
        self.kind = _NestedErrorKind(error.kind)


class _NestedErrorKind:
    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @property
    def context(self) -> list[list[NestedError]]:
        return [[NestedError(error) for error in branch] for branch in self._kind.context]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


def _has_parts(output: Any) -> bool:
    return (
        isinstance(output, dict)
        and output.keys() == {"content", "structuredContent"}
        and isinstance(output["content"], list)
    )
