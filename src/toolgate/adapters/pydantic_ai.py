"""Pydantic AI: tools for an `Agent`.

A call that needs a person ends the run with `DeferredToolRequests`. Run the agent again with its messages and with
`DeferredToolResults(approvals={CALL_ID: True})`: the call is then made again, and Toolgate says what a person answered.
"""

from typing import TYPE_CHECKING, Any

from toolgate.adapters.calls import HostCalls, ToolForModels, approval_of, text_of
from toolgate.adapters.requirement import framework
from toolgate.model import Actor

with framework("Pydantic AI", "pydantic-ai-slim"):
    from pydantic_ai import ApprovalRequired, ModelRetry, RunContext, Tool, ToolReturn

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.client import AsyncClient

WRONG_ARGUMENTS = frozenset({"VALIDATION_ERROR", "INVALID_INPUT"})
"""Codes of errors that a model can correct by other arguments."""


async def tools(app: "App | AsyncClient", *, actor: Actor | None = None, session: str | None = None) -> list[Tool[Any]]:
    """Gives the tools that an actor may see as tools of Pydantic AI.

    A call that waits for a person raises `ApprovalRequired`, so that the agent needs `DeferredToolRequests` among its output
    types; the `metadata` of the request name the approval. Arguments that do not fit are a `ModelRetry` while the tool's
    retries last. Every other error is told as text.

    Args:
        app: An open App, or an `AsyncClient` of a server.
        actor: Who calls; without it, the person at this machine. With a client, its key says who.
        session: The session that the calls belong to.
    """
    calls = HostCalls(app, actor, session)
    return [_tool(calls, one) for one in await calls.tools()]


def _tool(calls: HostCalls, tool: ToolForModels) -> "Tool[Any]":
    async def call(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        id = calls.id_of(tool.name, arguments, "pydantic-ai", ctx.conversation_id, ctx.tool_call_id)
        waiting = await calls.waiting(tool.name, id) if ctx.tool_call_approved else None
        outcome = await calls.call(tool.name, arguments, id, waiting)
        if (approval := approval_of(outcome)) is not None:
            raise ApprovalRequired(metadata={"approval": approval})
        if outcome.error is not None and outcome.error.code in WRONG_ARGUMENTS and not ctx.last_attempt:
            raise ModelRetry(text_of(outcome))
        return ToolReturn(return_value=text_of(outcome), metadata=outcome.to_dict())

    return Tool.from_schema(call, tool.name, tool.description, tool.schema, takes_ctx=True)
