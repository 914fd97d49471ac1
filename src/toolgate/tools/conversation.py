"""`response`, `notify_user`, `canvas_append`, `behaviour_adjustment`: what an agent says to its user, shows them, and keeps
in mind for its next turn."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.model import Capability, ErrorCase, Example, RateLimit
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool

if TYPE_CHECKING:
    pass

ResponseText = Annotated[str, Field(min_length=1, max_length=100_000, json_schema_extra={"x-path": False})]
Message = Annotated[str, Field(min_length=1, max_length=4_000)]
SessionName = Annotated[str, Field(min_length=1, max_length=256, json_schema_extra={"x-path": False})]
Pane = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w .-]+$")]
BlockContent = Annotated[Any, Field(json_schema_extra={"x-path": False, "x-command": False})]
Adjustment = Annotated[str, Field(min_length=1, max_length=500)]


class TurnEnd(TypedDict):
    """The answer to the user, which ends the turn."""

    text: str
    end_turn: Literal[True]


class Notified(TypedDict):
    """The notification, and the channels that took it and did not."""

    notification_id: str
    delivered: list[str]
    failed: list[str]


class Appended(TypedDict):
    """The place of a block on the canvas, from 1."""

    session_id: str
    pane: str
    block: int


class CurrentBehaviour(TypedDict):
    """All adjustments that hold now."""

    adjustments: list[str]


@tool(
    tier="read_only",
    category="service",
    tags=["agent"],
    capabilities=[Capability(action="respond", description="End the turn with an answer")],
    examples=[Example(name="Answer", arguments={"text": "It is done."}, output={"text": "It is done.", "end_turn": True})],
)
async def response(text: ResponseText) -> TurnEnd:
    """Send the final response to the user; it ends the turn.

    Args:
        text: The answer.
    """
    return {"text": text, "end_turn": True}


@tool(
    tier="write",
    category="service",
    tags=["agent", "notifications"],
    timeout=330,
    rate_limit=RateLimit(per_minute=20, per_hour=200),
    capabilities=[Capability(action="notify", description="Send a message to the user's channels")],
    errors=[ErrorCase("INVALID_INPUT", when="The message is empty.", advice="Say something.")],
    examples=[Example(name="Tell the user", arguments={"message": "The report is ready."})],
)
async def notify_user(ctx: InvokeContext, message: Message) -> Notified:
    """Send a notification to the user: it is kept for them and sent to their channels. Not for the answer of this turn.

    Args:
        message: What to tell.
    """
    from toolgate.conversation.notifications import Notifications

    notifications: Notifications = ctx.get(Notifications)
    id, sent = await notifications.send(ctx.actor, message, ctx.id, ctx.injected)
    return {"notification_id": id, "delivered": list(sent.delivered), "failed": list(sent.failed)}


@tool(
    tier="write",
    category="service",
    tags=["executor", "canvas"],
    capabilities=[Capability(action="append", description="Append to the canvas of a session")],
    errors=[
        ErrorCase(
            "INVALID_INPUT",
            when="No session is named, another session than the call's is, or block or canvas are too large.",
            advice="Leave session_id out, or append less at once.",
        )
    ],
    examples=[
        Example(
            name="A heading",
            arguments={"session_id": "demo", "content": "# Findings"},
        )
    ],
)
async def canvas_append(
    ctx: InvokeContext, content: BlockContent, session_id: SessionName | None = None, pane: Pane = "default"
) -> Appended:
    """Append a block (text or JSON) to the canvas that the user sees beside the conversation.

    Args:
        content: The block.
        session_id: The session; without it, the call's own.
        pane: The part of the canvas.
    """
    from toolgate.conversation.canvas import Canvas

    canvas: Canvas = ctx.get(Canvas)
    session = _session(ctx, session_id)
    number = await canvas.append(ctx.actor, session, pane, content, ctx.injected)
    return {"session_id": session, "pane": pane, "block": number}


def _session(ctx: InvokeContext, named: str | None) -> str:
    """The session of a call. A call that belongs to one does not reach the others of its user: what was read in one
    conversation could be made to appear in another."""
    session = ctx.session or named
    if session is None:
        raise InvalidInput("The call belongs to no session.", suggestion="Name one in session_id.")
    if named not in (None, session):
        raise InvalidInput("session_id names another session than the one of this call.", suggestion="Leave it out.")
    return session


@tool(
    tier="write",
    category="service",
    tags=["agent"],
    capabilities=[Capability(action="adjust", description="Change the prompt of this persona", requires_confirmation=True)],
    errors=[
        ErrorCase(
            "INVALID_INPUT",
            when="The adjustment is empty, or the persona has as many as it may have.",
            advice="Have the operator remove one (`toolgate behaviours remove`).",
        )
    ],
    examples=[
        Example(
            name="A habit",
            arguments={"adjustment": "Answer in German."},
        )
    ],
)
async def behaviour_adjustment(ctx: InvokeContext, adjustment: Adjustment) -> CurrentBehaviour:
    """Adjust your behaviour from the next turn on, for everybody who uses this persona. Gives all adjustments that hold.

    Args:
        adjustment: One instruction.
    """
    from toolgate.conversation.behaviours import BehaviourAdjustments

    behaviours: BehaviourAdjustments = ctx.get(BehaviourAdjustments)
    return {"adjustments": await behaviours.add(ctx.actor, adjustment, ctx.id, ctx.injected)}
