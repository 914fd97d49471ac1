"""Approvals as they are kept, turned into what people and callers are told of them."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, cast

import orjson

from toolgate.errors import Denied, Pending
from toolgate.gates.approval.approvers import Terms
from toolgate.gates.approval.request import Approval, ApprovalRequest, State
from toolgate.model import NANO, Actor, Tier
from toolgate.store.approvals import ApprovalRow

ASK_ANEW = "Call again without `approval` to ask anew."


def hash_of(canonical: bytes) -> str:
    return sha256(canonical).hexdigest()


def canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def asked_by(row: ApprovalRow) -> Actor:
    return Actor(row.tenant_id, row.persona_id, row.user_id, tuple(orjson.loads(row.scopes)))


def state_of(row: ApprovalRow, at: datetime) -> State:
    if row.state in ("waiting", "approved") and at >= row.expires_at:
        return "expired"
    return cast(State, row.state)


def request_of(row: ApprovalRow, terms: Terms, shown: bytes | None = None) -> ApprovalRequest:
    """The question: with the arguments as an approver is shown them, or else as they are on record."""
    return ApprovalRequest(
        id=row.id,
        call_id=row.call_id,
        actor=asked_by(row),
        session=row.session_id,
        workspace=row.workspace,
        door=row.door,
        tool=row.tool_name,
        tool_version=row.tool_version,
        description=row.description,
        tier=cast(Tier, row.tier),
        destructive=row.destructive,
        reason=row.reason,
        arguments=orjson.loads(row.arguments if shown is None else shown),
        complete=row.complete if shown is None else hash_of(shown) == row.args_hash,
        on_record=shown is None,
        quorum=terms.quorum,
        approvers=None if terms.approvers is None else tuple(sorted(terms.approvers)),
        estimate_usd=row.estimate / NANO,
        confidence=row.confidence,
        expected_ms=row.expected_ms,
        created_at=row.created_at,
        expires_at=row.expires_at,
        outer_call=row.outer_call,
        outer_tool=row.outer_tool,
    )


def approval_of(
    row: ApprovalRow, at: datetime, terms: Terms, shown: bytes | None = None, agreed: Sequence[str] = ()
) -> Approval:
    return Approval(
        request=request_of(row, terms, shown),
        state=state_of(row, at),
        answered_by=row.answered_by,
        answered_through=row.answered_through,
        answer_reason=row.answer_reason,
        edited=None if row.edited is None else orjson.loads(row.edited),
        used_by=row.used_by,
        answered_at=row.answered_at,
        used_at=row.used_at,
        idempotency_key=row.idempotency_key,
        agreed=tuple(agreed),
    )


def pending(row: ApprovalRow, at: datetime) -> Pending:
    """A call that goes on when somebody has answered. It is read by whoever called, most often a model: so it says where a
    person can answer, and never by which command."""
    if at >= row.expires_at:
        advice = f"It was not run: it expired before anybody answered. {ASK_ANEW}"
    elif row.state != "waiting":
        advice = "It was not run, but it is approved by now: make the same call again."
    else:
        advice = (
            f"A person can answer until {row.expires_at:%Y-%m-%d %H:%M:%S %Z}, where Toolgate runs or in a client that may "
            "approve. Wait for that, then make the same call again, unchanged."
        )
    needs = f"{row.tool_name} needs a person's approval: {row.reason}."
    details = {"tier": row.tier, "reason": row.reason, "approval": row.id, "expires_at": row.expires_at.isoformat()}
    if row.outer_call is not None:
        needs = f"{row.outer_tool} waits for an approval of a call inside it: {needs}"
        advice = f"{advice} What {row.outer_tool} did before is kept, and not done again."
        details |= {"outer_tool": row.outer_tool or "", "outer_call": row.outer_call}
    return Pending(
        "APPROVAL_REQUIRED",
        needs,
        kind="approval",
        id=row.id,
        suggestion=advice,
        details=details,
        reason=row.reason,
    )


def void(row: ApprovalRow, why: str, advice: str = ASK_ANEW) -> Denied:
    """An approval that is not for this call, or no longer good for any."""
    return Denied("PERMISSION_DENIED", f"Approval {row.id} {why}.", suggestion=advice, details={"approval": row.id})


def changed_meanwhile(tool: str) -> Denied:
    """A tool that is no longer what the person who said yes was shown."""
    return Denied(
        "PERMISSION_DENIED", f"{tool} has changed while a person was asked about it; nothing was run.", suggestion=ASK_ANEW
    )


def rejected(row: ApprovalRow) -> Denied:
    because = f": {row.answer_reason}" if row.answer_reason else "."
    return Denied(
        "USER_CANCELLED",
        f"{row.tool_name} was rejected by {row.answered_by}{because}",
        details={"approval": row.id},
        reason=f"rejected by {row.answered_by} ({row.id}){because}",
    )
