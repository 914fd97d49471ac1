"""OpenAI Agents SDK: tools for an `Agent`.

A call that needs a person interrupts the run (`result.interruptions`). Whatever was answered, approve the interruption and
run the agent with the state: the call is then made again, and Toolgate says what a person answered.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from toolgate.adapters.calls import HostCalls, ToolForModels, approval_of, text_of
from toolgate.adapters.requirement import framework
from toolgate.model import Actor, Outcome

with framework("The OpenAI Agents SDK", "openai-agents"):
    from agents import FunctionTool, RunContextWrapper, ToolApprovalItem
    from agents.tool_context import ToolContext

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.client import AsyncClient

HOST = "openai-agents"


async def tools(app: "App | AsyncClient", *, actor: Actor | None = None, session: str | None = None) -> list[FunctionTool]:
    """Gives the tools that an actor may see as function tools of the SDK.

    A call that waits for a person interrupts the run. Errors are told to the model as text; nothing that a call does is
    raised into the run.

    Args:
        app: An open App, or an `AsyncClient` of a server.
        actor: Who calls; without it, the person at this machine. With a client, its key says who.
        session: The session that the calls belong to.
    """
    calls = HostCalls(app, actor, session)
    return [_tool(calls, one) for one in await calls.tools()]


async def approvals(
    app: "App | AsyncClient",
    interruptions: Iterable[ToolApprovalItem],
    *,
    actor: Actor | None = None,
    session: str | None = None,
) -> dict[str, str]:
    """Gives the approvals that the interruptions of a run wait for, by the id of the tool call. Actor and session are those
    that the tools were made with. An interruption that is not here waits for nobody: the SDK has every call whose arguments
    are no JSON object approved, and Toolgate refuses it then."""
    calls = HostCalls(app, actor, session)
    found = {}
    for item in interruptions:
        if item.call_id is not None and item.tool_name is not None:
            id = calls.id_of(item.tool_name, _parsed(item.arguments), HOST, item.call_id)
            if (waiting := await calls.waiting(item.tool_name, id)) is not None:
                found[item.call_id] = waiting.approval
    return found


def _tool(calls: HostCalls, tool: ToolForModels) -> FunctionTool:
    name = tool.name
    made: dict[str, Outcome] = {}
    """Calls that did not wait after all: a person had agreed to the very same call before. By more than the model's id for
    the call: two runs at once may have the same."""

    async def needs_approval(_: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        """Puts the question on record. A call that asks nobody is made later, after the guardrails of the SDK."""
        if not await calls.asks(name, arguments):
            return False
        id = calls.id_of(name, arguments, HOST, call_id)
        outcome = await calls.call(name, arguments, id)
        if approval_of(outcome) is not None:
            return True
        made[id] = outcome
        return False

    async def call(ctx: ToolContext[Any], arguments: str) -> str:
        call_id = ctx.tool_call_id
        id = calls.id_of(name, _parsed(arguments), HOST, call_id)
        if id in made:
            return text_of(made.pop(id))
        waiting = await calls.waiting(name, id) if ctx.is_tool_approved(name, call_id) else None
        return text_of(await calls.call(name, arguments.strip() or "{}", id, waiting))

    return FunctionTool(
        name=name,
        description=tool.description,
        params_json_schema=tool.schema,
        on_invoke_tool=call,
        strict_json_schema=False,  # Toolgate checks arguments itself; optional ones stay optional
        needs_approval=needs_approval,
    )


def _parsed(arguments: str | None) -> Any:
    """The arguments as `needs_approval` is given them; as they are if they are no JSON, which it is never given."""
    try:
        return json.loads(arguments or "")
    except ValueError:
        return arguments
