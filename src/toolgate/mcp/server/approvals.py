"""Approvals through the protocol: what the person at a client is shown, and what counts as their answer.

Only a form that was accepted, with its box ticked, is a yes. One that was declined, or accepted without it, is a no.
Anything else (dismissed, no answer, nonsense) is neither: the call goes on waiting, for whoever answers elsewhere.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolgate.gates.approval.request import Answer, ApprovalError, ApprovalRequest
from toolgate.model import Actor

if TYPE_CHECKING:
    from toolgate.app.app import App

APPROVAL_QUESTION = "toolgate/approval"
"""The name of our question among those that a client is given to answer."""
APPROVAL_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Run this call, once.", "default": False},
        "reason": {"type": "string", "title": "Reason", "description": "For the record.", "maxLength": 1000},
    },
    "required": ["approve"],
}


def approval_form(request: ApprovalRequest) -> dict[str, Any]:
    """The form that a person is shown."""
    return {"mode": "form", "message": request.text(), "requestedSchema": APPROVAL_FORM}


def read_answer(response: Any) -> Answer | None:
    """What a client's answer to the form means; None if it is no answer."""
    if not isinstance(response, Mapping):
        return None
    content = response.get("content")
    filled = content if isinstance(content, Mapping) else {}
    given = filled.get("reason")
    reason = given if isinstance(given, str) else None
    if response.get("action") == "decline":
        return Answer("reject", reason)
    if response.get("action") == "accept" and isinstance(filled.get("approve"), bool):
        return Answer("approve" if filled["approve"] else "reject", reason)
    return None


async def take(app: "App", id: str, answer: Answer, actor: Actor) -> None:
    """Record an answer. If somebody else was quicker, theirs holds: the call that follows finds out."""
    try:
        await app.answer_approval(id, answer, actor=actor, through="mcp")
    except ApprovalError:
        return
