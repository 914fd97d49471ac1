"""Goes on with tasks whose process has died, in whichever process on the same database takes them first.

The call enters the pipeline from the top, with the approval that it waited for or the idempotency key that it came with, so
that policy, credential and definition are looked at again. Where it had begun and may have had its effect, it is not made
again: the task ends, and says so.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from toolgate.errors import CODES, KeyRefused, ToolgateError
from toolgate.mcp.server.identity import Credential, RecallCredential, actor_id
from toolgate.mcp.server.results import INTERNAL_ERROR, INVALID_PARAMS, JsonObject, ProtocolError
from toolgate.mcp.server.task_call import Task
from toolgate.mcp.server.task_records import TaskRequest
from toolgate.mcp.server.tool_calls import ClientCalls
from toolgate.model import Entry

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.store.mcp_tasks import McpTaskRow

ResumeCall = Callable[[Task, TaskRequest], Coroutine[Any, Any, JsonObject]]
MAX_RUNS = 5
"""Processes that try a task: one that ends its process each time is not tried for ever."""
FIND_OUT = "Find out whether it had its effect before you call again."

logger = logging.getLogger("toolgate.mcp")


class TaskRecovery:
    def __init__(self, app: "App", calls: ClientCalls, recall: RecallCredential, resume: ResumeCall) -> None:
        self._app = app
        self._records = app.mcp_tasks
        self._calls = calls
        self._recall = recall
        self._resume = resume
        self._reported: set[str] = set()
        """Tasks with a fault that is in the log."""

    async def claim(self) -> list[tuple[Task, Awaitable[JsonObject]]]:
        """Takes the tasks that can go on here, each with what goes on with it; ends those that can't go on anywhere."""
        taken: list[tuple[Task, Awaitable[JsonObject]]] = []
        for row in await self._records.orphans():
            try:
                found = await self._take(row)
            except Exception:  # one task must not keep the others from going on
                if row.id not in self._reported:
                    logger.exception("a task of %s cannot go on", row.tool_name)
                self._reported.add(row.id)
                continue
            if found is not None:
                logger.info("a task of %s goes on: the process that ran it has ended", row.tool_name)
                taken.append((found[0], self._resume(*found)))
        return taken

    async def _take(self, row: "McpTaskRow") -> tuple[Task, TaskRequest] | None:
        try:
            who = await self._recall(row.credential)
        except KeyRefused as error:
            await self._records.fail(row, _error("PERMISSION_DENIED", f"The task cannot go on: {error.message}", None))
            return None
        if who is None or actor_id(who.actor) != row.actor:
            return None  # of another door
        request = await self._records.request_of(row)
        if request is None or row.runs >= MAX_RUNS:
            await self._records.fail(row, _unknown(row.tool_name))
            return None
        entry = self._calls.entry(row.tool_name, who)
        if entry is None or not self._calls.is_here(request):
            return None  # another process may have the tool, or work in that folder
        if not await self._may_go_on(row, request, entry, who):
            await self._records.fail(row, _unknown(row.tool_name))
            return None
        if not await self._records.claim(row):
            return None
        return Task.taken_over(row, who, self._records, request), request

    async def _may_go_on(self, row: "McpTaskRow", request: TaskRequest, entry: Entry, who: Credential) -> bool:
        """True if the call has had no effect, or whatever it did is not done again."""
        if request.key is not None:
            return True  # which tells what became of it
        if row.approval_id is not None:
            try:
                return await self._app.approvals.is_usable(row.approval_id, who.actor.tenant)
            except ToolgateError:
                return False
        return only_reads(entry)


def only_reads(entry: Entry) -> bool:
    """True of a tool that changes nothing, also not by calling others, and costs nothing."""
    if entry.riskiest.tier != "read_only" or entry.priced or entry.free_calls is not None:
        return False
    if entry.kind == "local":
        return entry.implementation.context_parameter is None and entry.implementation.instance is None
    return entry.kind == "mcp"


def gone_with_its_process(entry: Entry | None) -> ProtocolError:
    """Answers a client that continues a call whose process has died while it was held."""
    words = "The call that this answers ended with the process that held it; call again"
    if entry is not None and only_reads(entry):
        return ProtocolError(INVALID_PARAMS, f"{words}. It only read, so nothing was changed.")
    told = {"code": "OUTCOME_UNKNOWN", "retryable": False, "suggestion": FIND_OUT}
    return ProtocolError(INVALID_PARAMS, f"{words}, but it may have had its effect. {FIND_OUT}", told)


def _unknown(tool: str) -> JsonObject:
    words = f"The process that ran {tool} ended before the call did; it may have had its effect, and was not run again."
    return _error("OUTCOME_UNKNOWN", words, FIND_OUT)


def _error(code: str, message: str, suggestion: str | None) -> JsonObject:
    told = {"code": code, "retryable": CODES[code].retryable, "suggestion": suggestion}
    data = {name: value for name, value in told.items() if value is not None}
    return {"code": INTERNAL_ERROR, "message": message, "data": data}
