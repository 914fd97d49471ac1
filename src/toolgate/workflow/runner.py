"""The runner of tools that are workflows."""

from typing import Any

from toolgate.errors import CallError, Failed
from toolgate.model import Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.workflow.client import N8nClient, WorkflowRequest, idempotency_key
from toolgate.workflow.source import Webhook


class WorkflowRunner:
    """Runs tools of kind workflow."""

    def __init__(self, client: N8nClient) -> None:
        self._client = client

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:
        """Starts the workflow and gives its answer. The id of its execution in n8n goes into the call's record."""
        webhook = entry.implementation
        if not isinstance(webhook, Webhook):
            raise Failed("UNKNOWN_TOOL_TYPE", f"{entry.name} is to be run by n8n, but no workflow is declared for it.")
        call = ctx.call
        request = WorkflowRequest(
            webhook.path, arguments, call.request_id or call.id, idempotency_key(call), call.actor.user, ctx.session
        )
        try:
            answer = await self._client.invoke(request, ctx.credential, ctx.time_limit)
        except CallError as error:
            note_execution(ctx, (error.details or {}).get("execution_id"))
            if error.code == "INVOCATION_ERROR":
                ctx.unsure = True
            raise
        note_execution(ctx, answer.execution_id)
        return answer.output

    async def close(self) -> list[str]:
        return []


def note_execution(ctx: InvokeContext, execution_id: str | None) -> None:
    """Puts the id of an execution in n8n into the call's record and the outcome's metrics."""
    if execution_id is not None:
        ctx.used(f"n8n:execution:{execution_id}")
        ctx.log(f"n8n execution {execution_id}")
