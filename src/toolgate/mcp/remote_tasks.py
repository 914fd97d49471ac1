"""Follows a server's task (extension io.modelcontextprotocol/tasks) until it has ended.

That happens inside the call, so that its timeout, the check of its output and its end record hold for the task's result, and
a cancelled call cancels the task. The caller is told that it need not wait (`Caller.goes_on`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from toolgate.errors import CallError, Failed, shortened
from toolgate.mcp.client.errors import ConnectionLost, ErrorResponse
from toolgate.model import Caller
from toolgate.tasks import finish

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 5.0
"""Between two polls of a task, whatever its server wishes."""
CANCEL_SECONDS = 5.0
MAX_TASK_ID_CHARS = 1_024

NO_CALLER_TO_ASK = Failed(
    "MCP_ERROR",
    "The tool's server needs input from the caller, which this door can't ask for.",
    suggestion="Call it from an MCP client with the capability elicitation.",
)


class ServerRequest(Protocol):
    """`McpTools.request`."""

    def __call__(
        self, server: str, method: str, params: Mapping[str, Any], *, caller: Caller | None = None
    ) -> Awaitable[Mapping[str, Any]]: ...


async def follow(ask: ServerRequest, server: str, task: Mapping[str, Any], caller: Caller | None) -> Mapping[str, Any]:
    """The result of a task, as if the tool had answered at once."""
    id = task.get("taskId")
    if not isinstance(id, str) or not 0 < len(id) <= MAX_TASK_ID_CHARS:
        raise Failed("MCP_ERROR", "The tool's server began a task without a valid id.")
    if caller is not None:
        caller.goes_on()
    named = {"taskId": id}
    try:
        while (ended := _ended(task)) is None:
            questions = task.get("inputRequests")
            if task.get("status") == "input_required" and isinstance(questions, Mapping) and questions:
                if caller is None:
                    raise NO_CALLER_TO_ASK
                answers = await ask_caller(caller, questions)
                await ask(server, "tasks/update", {**named, "inputResponses": answers}, caller=caller)
            else:
                await asyncio.sleep(_pause(task))
            task = await ask(server, "tasks/get", named, caller=caller)
        return ended
    except asyncio.CancelledError:
        await _cancel(ask, server, named, caller)
        raise
    except CallError as error:
        if not isinstance(
            error, ErrorResponse | ConnectionLost
        ):  # those are the server's own; after any other it still works on it
            await _cancel(ask, server, named, caller)
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


async def ask_caller(caller: Caller, questions: Mapping[str, Any]) -> dict[str, Any]:
    """Puts all questions of a server to the caller at once, who may answer them in any order."""
    given = await asyncio.gather(*(_ask_one(caller, asked) for asked in questions.values()))
    return dict(zip(questions, given, strict=True))


async def _ask_one(caller: Caller, asked: Any) -> Mapping[str, Any]:
    if not isinstance(asked, Mapping) or not isinstance(asked.get("method"), str):
        raise Failed("MCP_ERROR", "The tool's server sent an input request without a method.")
    params = asked.get("params")
    return await caller.ask(asked["method"], params if isinstance(params, Mapping) else {})


async def _cancel(ask: ServerRequest, server: str, named: Mapping[str, Any], caller: Caller | None) -> None:
    """Cancels the task at its server, even if we are cancelled meanwhile."""

    async def tell() -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CANCEL_SECONDS):
                await ask(server, "tasks/cancel", named, caller=caller)

    with contextlib.suppress(asyncio.CancelledError):
        await finish(tell())
