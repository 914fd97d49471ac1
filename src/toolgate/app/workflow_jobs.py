"""The handler of jobs of type execute_workflow: calls a tool that is a workflow, and waits until it has reported its end.

The call is made as every call from a job is, through the pipeline and with an idempotency key, so a job that is run again
comes upon the invocation that it started. A job that waits holds no worker: it is put back, and looked at again later.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from toolgate.errors import not_found
from toolgate.jobs.handlers import JobContext
from toolgate.jobs.runner import JobFailed, RetryJob
from toolgate.model import Entry
from toolgate.model.outcome import ErrorInfo
from toolgate.workflow.invocations import COMPLETED, Invocation
from toolgate.workflow.source import Webhook

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

TYPE = "execute_workflow"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "workflow": {"type": "string", "maxLength": 64},
        "input": {"type": "object"},
        "session": {"type": ["string", "null"], "maxLength": 256},
    },
    "required": ["workflow", "input"],
    "additionalProperties": False,
}
WAIT_SECONDS = 2.0
"""The time for which a job waits before it is put back."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
PAUSE_SHARE = 0.2
"""The pause before the next look, as a part of the time that it has taken so far."""


class ExecuteWorkflow:
    """The handler."""

    def __init__(self, parts: "Parts", call: Callable[[JobContext], Awaitable[Any]]) -> None:
        """`call` calls the tool that the payload names."""
        self._parts = parts
        self._call = call

    async def __call__(self, ctx: JobContext) -> Any:
        workflow = ctx.payload["workflow"]
        entry = self._parts.catalog.find(workflow, ctx.actor.tenant)
        if entry is None or not isinstance(entry.implementation, Webhook):
            raise not_found(workflow)
        session = ctx.payload.get("session")
        ctx.payload = {"tool": workflow, "arguments": ctx.payload["input"], "session": session, "door": "job"}
        outcome = await self._call(ctx)
        if not entry.implementation.runs_async:
            details = {"status": "success", "job": ctx.id, "call": outcome["id"]}
            await self._parts.events.record(COMPLETED, ctx.actor, workflow, details)
            return {"status": "success", "output": outcome["output"]}
        found = await self._parts.invocations.wait(outcome["output"]["invocationId"], ctx.actor, WAIT_SECONDS)
        return self._result(entry, found)

    def _result(self, entry: Entry, found: Invocation | None) -> dict[str, Any]:
        """The output that a workflow reported. Raises what has the job tried again, now or later, or fail."""
        if found is None:
            raise JobFailed(ErrorInfo("OUTCOME_UNKNOWN", "The invocation of the workflow is no longer on record."))
        if not found.is_over:
            waits = ErrorInfo("APPROVAL_REQUIRED", f"Waiting for the workflow to report its end ({found.id}).", True)
            raise RetryJob(waits, after=self._pause(found), counts=False)
        if found.state == "success":
            return {"status": "success", "output": found.output, "invocationId": found.id}
        told = found.error or {}
        error = ErrorInfo(str(told.get("code", "N8N_ERROR")), str(told.get("message", "The workflow failed.")))
        if entry.retry is not None and error.code in entry.retry.codes:
            raise RetryJob(error)
        raise JobFailed(error, {"status": found.state, "invocationId": found.id})

    def _pause(self, found: Invocation) -> float:
        taken = (self._parts.now() - datetime.fromisoformat(found.created_at)).total_seconds()
        return min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, taken * PAUSE_SHARE))
