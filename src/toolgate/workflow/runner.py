"""The runner of tools that are workflows: waits for their answer, or starts them and leaves the rest to their callback."""

from typing import Any

from toolgate.errors import CallError, Failed, ToolError
from toolgate.model import Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.workflow.client import N8nClient, WorkflowRequest, idempotency_key
from toolgate.workflow.invocations import Invocations
from toolgate.workflow.source import Webhook

CALLBACK_PATH = "/webhooks/workflows/"
UNCLEAR = frozenset({"TIMEOUT", "INVOCATION_ERROR"})
"""Codes of a start that n8n may have taken: the callback will tell, or the end of its time."""


class WorkflowRunner:
    """Runs tools of kind workflow."""

    def __init__(self, client: N8nClient, invocations: Invocations, callback_url: str | None) -> None:
        self._client = client
        self._invocations = invocations
        self._callback_url = callback_url

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:
        """Starts the workflow and gives its answer; of one that is not waited for, the id of its invocation. The id of its
        execution in n8n goes into the call's record."""
        webhook = entry.implementation
        if not isinstance(webhook, Webhook):
            raise Failed("UNKNOWN_TOOL_TYPE", f"{entry.name} is to be run by n8n, but no workflow is declared for it.")
        call = ctx.call
        request = WorkflowRequest(
            webhook.path, arguments, call.request_id or call.id, idempotency_key(call), call.actor.user, ctx.session
        )
        if webhook.runs_async:
            return await self._start(ctx, entry, webhook, request)
        try:
            answer = await self._client.invoke(request, ctx.credential, ctx.time_limit)
        except CallError as error:
            _note_execution(ctx, (error.details or {}).get("execution_id"))
            if error.code == "INVOCATION_ERROR":
                ctx.unsure = True
            raise
        _note_execution(ctx, answer.execution_id)
        return answer.output

    async def _start(self, ctx: InvokeContext, entry: Entry, webhook: Webhook, request: WorkflowRequest) -> dict[str, Any]:
        if self._callback_url is None:
            raise Failed("INVOCATION_ERROR", "The workflow reports its end by a callback, but n8n.callback_url is not set.")
        row, is_new = await self._invocations.begin(ctx.call, entry.name, webhook.limit_seconds, ctx.injected)
        ctx.log(f"workflow invocation {row.id}")
        if not is_new:
            return {"invocationId": row.id, "status": row.state}
        key = await self._invocations.keys.of(row.id)
        ctx.injected = (*ctx.injected, key)  # n8n's words may repeat it: who has it can report the end
        callback = {"invocationId": row.id, "url": f"{self._callback_url}{CALLBACK_PATH}{row.id}", "key": key}
        try:
            execution_id = await self._client.start(request._replace(callback=callback), ctx.credential, ctx.time_limit)
        except (CallError, ToolError) as error:
            if error.code not in UNCLEAR or not error.charged:
                await self._invocations.note_not_started(row, error.code, error.message)
                raise
            ctx.log(f"n8n did not confirm the start: {error.message}", "warn")
            execution_id = None
        if execution_id is not None:
            _note_execution(ctx, execution_id)
            await self._invocations.note_execution(row, execution_id)
        return {"invocationId": row.id, "status": "running"}

    async def close(self) -> list[str]:
        return []


def _note_execution(ctx: InvokeContext, execution_id: str | None) -> None:
    """Puts the id of an execution in n8n into the call's record and the outcome's metrics."""
    if execution_id is not None:
        ctx.used(f"n8n:execution:{execution_id}")
        ctx.log(f"n8n execution {execution_id}")
