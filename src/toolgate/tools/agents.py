"""`call_subordinate`: something that another agent does for this one. `a2a_chat`: a message to an agent elsewhere over the
A2A protocol, and its answer."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import CallError, InvalidInput, ToolError
from toolgate.model import Capability, ErrorCase, Example
from toolgate.network.a2a import UNDER_WAY, A2aClient, AgentEndpoint, AgentReply, AgentState
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool

Text = Annotated[str, Field(max_length=100_000, json_schema_extra={"x-path": False, "x-command": False})]
Persona = Annotated[str, Field(max_length=256, json_schema_extra={"x-path": False, "x-command": False})]
Task = Annotated[str, Field(min_length=1, max_length=100_000, json_schema_extra={"x-path": False, "x-command": False})]
SUBORDINATE_SECONDS = 86_400.0
"""The time limit of call_subordinate: the setting agent.seconds, or what is left to the caller, decides."""
AgentUrl = Annotated[str, Field(min_length=1, max_length=2_000, json_schema_extra={"x-path": False})]


class SubordinateAnswer(TypedDict):
    """The result of the subordinate. `status` failed: `reason` says why, and there is no text."""

    agent: str
    status: str
    text: str | None
    reason: str | None
    run: str
    turns: int
    cost_usd: float


@tool(
    tier="write",
    category="service",
    timeout=SUBORDINATE_SECONDS,
    tags=["agent"],
    capabilities=[Capability(action="delegate", description="Have a subordinate agent do something")],
    errors=[
        ErrorCase("PERMISSION_DENIED", "the persona may not be called, or too many call each other", "do it yourself"),
        ErrorCase("MISSING_AUTH", "no language model is configured", "set model.name and its key"),
    ],
    examples=[
        Example(name="Delegate", arguments={"agent": "", "message": "Read notes.md and list what is still to be done."})
    ],
)
async def call_subordinate(ctx: InvokeContext, agent: Persona, message: Task) -> SubordinateAnswer:
    """Have a subordinate agent do something and answer. It knows only the message, and may do no more than you may.

    Args:
        agent: The persona of the subordinate; empty for your own.
        message: What it is to do, with all that it has to know.
    """
    from toolgate.agent.subordinates import Subordinates

    subordinates: Subordinates = ctx.get(Subordinates)
    result = await subordinates.call(ctx, agent, message)
    ctx.used(f"run:{result.id}")
    return {
        "agent": agent, "status": result.status, "text": result.text, "reason": result.reason, "run": result.id,
        "turns": result.turns, "cost_usd": result.cost_usd,
    }  # fmt: skip


class AgentAnswer(TypedDict):
    """What the agent said. To go on, send context_id; if the state is input_required or working, task_id too."""

    agent: str
    state: AgentState
    text: str
    context_id: str | None
    task_id: str | None


@tool(
    tier="external_api",
    category="service",
    timeout=310,
    tags=["agent", "a2a"],
    capabilities=[Capability(action="chat", description="Chat with another agent")],
    errors=[
        ErrorCase("SECURITY_VIOLATION", "the agent is private and not in `a2a.agents`, or leads elsewhere", "name it there"),
        ErrorCase("MISSING_AUTH", "the agent wants a credential", "give authorization"),
        ErrorCase("INVOCATION_ERROR", "the agent failed, rejected the task or does not speak A2A", "see the message"),
        ErrorCase("CONNECTION_ERROR", "the agent cannot be reached", "try again later"),
        ErrorCase("TIMEOUT", "the agent does not take the message in time", "try again later"),
    ],
    examples=[
        Example(name="Ask", arguments={"agent_url": "https://api.example.com/agent", "message": "What can you do?"})
    ],
)  # fmt: skip
async def a2a_chat(
    ctx: InvokeContext,
    agent_url: AgentUrl,
    message: Text,
    context_id: str = "",
    task_id: str = "",
    authorization: str = "",
    timeout: Annotated[float, Field(gt=0, le=300)] = 60,
) -> AgentAnswer:
    """Chat with an A2A agent.

    Args:
        agent_url: Where the agent is, or its name in the settings.
        message: Empty to wait for task_id.
        context_id: Of the conversation to go on with.
        task_id: Of a task that waits for input, or is working.
        authorization: "Bearer {{secret:NAME}}", if it wants one.
        timeout: Seconds to wait for the task; then its state is working.
    """
    if not message.strip() and not task_id:
        raise InvalidInput("There is nothing to say.", suggestion="Give message, or task_id to wait for.")
    client: A2aClient = ctx.get(A2aClient)
    headers = {"authorization": authorization} if authorization else {}
    agent = await client.find(agent_url, headers, ctx.actor.tenant, confidential=bool(headers or ctx.injected))
    ctx.used(agent.url)
    reply = AgentReply("", "working", context_id or None, task_id or None)
    if message.strip():
        reply = await client.send(agent, message, headers, context=context_id or None, task=task_id or None)
    if reply.state in UNDER_WAY and reply.task_id is not None:
        reply = await _waited(client, agent, reply, headers, min(timeout, ctx.time_limit - 5))
    _check(reply, agent.name)
    return {
        "agent": agent.name, "state": reply.state, "text": reply.text, "context_id": reply.context_id,
        "task_id": reply.task_id,
    }  # fmt: skip


async def _waited(
    client: A2aClient, agent: AgentEndpoint, reply: AgentReply, headers: dict[str, str], seconds: float
) -> AgentReply:
    """The reply that a task ends with. An error on the way names the task: it goes on, and can be waited for again."""
    assert reply.task_id is not None
    try:
        waited = await client.wait(agent, reply.task_id, headers, seconds)
    except (CallError, ToolError) as error:
        raise ToolError(
            error.message, code=error.code, retryable=True,
            suggestion="The task may go on: call again with this task_id and an empty message.",
            details={"task_id": reply.task_id, "context_id": reply.context_id},
        ) from None  # fmt: skip
    return waited._replace(context_id=waited.context_id or reply.context_id)


def _check(reply: AgentReply, agent: str) -> None:
    words = f": {reply.text[:500]}" if reply.text else "."
    if reply.state == "auth_required":
        raise ToolError(
            f"{agent} wants a credential{words}", code="MISSING_AUTH",
            suggestion='Give authorization, such as "Bearer {{secret:NAME}}".',
        )  # fmt: skip
    if reply.state in ("failed", "canceled", "rejected"):
        raise ToolError(f"The task of {agent} ended as {reply.state}{words}", details={"state": reply.state})
