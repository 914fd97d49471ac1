"""Approvals as they are kept, turned into what people and callers are told of them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple, cast

import orjson

from toolgate.errors import Denied, Failed, Pending, plural
from toolgate.gates.approval.approvers import Approvers, Terms
from toolgate.gates.approval.request import Approval, ApprovalRequest, Grant, State, new_id
from toolgate.model import MASK, NANO, Actor, Call, Entry, Tier, UserMessage, bound_fingerprint, reach_words
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.usage import Estimate, dollars
from toolgate.store import approvals
from toolgate.store.approvals import ApprovalRow, AskedTooOften
from toolgate.store.database import Store
from toolgate.store.grants import GrantRow

ASK_AGAIN = "Call again without `approval` to ask again."


class ApprovalRoom(NamedTuple):
    """The things that all parts of this room work with."""

    store: Store
    approvers: Approvers
    note: Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]
    """Puts an act on record: what was done, by whom, to which tool, and how."""
    workspace: Callable[[Call], str]
    """Names the folder that a call works in (`ApprovalRequest.workspace`), whether it is there yet or not."""
    policy_hash: Callable[[], str]
    clock: Callable[[], datetime]
    user_messages: Callable[[Call], Awaitable[tuple[UserMessage, ...]]]
    """Gives the last messages that the user of a call typed in its session."""


async def find_row(store: Store, id: str, tenant: str | None) -> ApprovalRow | None:
    """The question of this id. What can't be one is not worth asking the store for."""
    is_id = isinstance(id, str) and id.startswith("ap_") and id.isascii() and id.isprintable()
    return await store.read(approvals.get(id, tenant)) if is_id else None


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


def request_of(
    row: ApprovalRow, terms: Terms, shown: bytes | None = None, messages: tuple[UserMessage, ...] = ()
) -> ApprovalRequest:
    """The question: with the arguments and the user's messages as an approver is shown them, or else as it is on record."""
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
        user_messages=messages,
    )


def approval_of(
    row: ApprovalRow,
    at: datetime,
    terms: Terms,
    shown: bytes | None = None,
    agreed: Sequence[str] = (),
    messages: tuple[UserMessage, ...] = (),
) -> Approval:
    return Approval(
        request=request_of(row, terms, shown, messages),
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
        connection=row.connection_id,
    )


def pending(row: ApprovalRow, at: datetime) -> Pending:
    """A call that goes on when somebody has answered. It is read by whoever called, most often a model: so it says where a
    person can answer, and never by which command."""
    if at >= row.expires_at:
        advice = f"It was not run: it expired before anybody answered. {ASK_AGAIN}"
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
        details |= {"tool": row.tool_name, "outer_tool": row.outer_tool or "", "outer_call": row.outer_call}
    return Pending(
        "APPROVAL_REQUIRED",
        needs,
        kind="approval",
        id=row.id,
        suggestion=advice,
        details=details,
        reason=row.reason,
    )


def void(row: ApprovalRow, why: str, advice: str = ASK_AGAIN) -> Denied:
    """An approval that is not for this call, or no longer good for any."""
    return Denied("PERMISSION_DENIED", f"Approval {row.id} {why}.", suggestion=advice, details={"approval": row.id})


def rejected(row: ApprovalRow) -> Denied:
    because = f": {row.answer_reason}" if row.answer_reason else "."
    return Denied(
        "USER_CANCELLED",
        f"{row.tool_name} was rejected by {row.answered_by}{because}",
        details={"approval": row.id},
        reason=f"rejected by {row.answered_by} ({row.id}){because}",
    )


class Agreement(NamedTuple):
    """That a person agreed to a call."""

    words: str
    """By whom, through which door and when, for the record."""
    edited: bytes | None = None
    """The arguments that are to run, where they are not those that were asked about."""


def covered_by(grant: GrantRow) -> str:
    """For the record: the grant that lets a call run unasked."""
    return f"covered by grant {grant.id} of {grant.granted_by} until {grant.expires_at:%Y-%m-%d %H:%M:%S %Z}"


def outer_of(ctx: InvokeContext) -> tuple[str | None, str | None]:
    """The outer call as it was first made, and its tool, of a call inside one, or of one that goes on."""
    if ctx.step is None or ctx.node is None:
        return None, None
    return ctx.node.tree.id, ctx.node.tree.tool


def command_hosts(ctx: InvokeContext, entry: Entry) -> tuple[str, ...]:
    """The hosts that this call may reach by its arguments, besides those that every call of the tool may."""
    return tuple(host for host in ctx.hosts if host not in entry.hosts)


def shown_fingerprint(ctx: InvokeContext, entry: Entry) -> str:
    """What the answer is bound to. A yes to a call without a network, or a grant, is none to one with hosts."""
    return bound_fingerprint(entry.fingerprint, command_hosts(ctx, entry))


def shown_reason(ctx: InvokeContext, entry: Entry) -> str:
    return (entry.asks or "it was asked for") + reach_words(command_hosts(ctx, entry))


def drafted(
    ctx: InvokeContext, entry: Entry, workspace: str, policy_hash: str, at: datetime, lasts: timedelta
) -> ApprovalRow:
    """The question about a call, as it would be put on record now."""
    call, tool = ctx.call, entry.tool
    outer_call, outer_tool = outer_of(ctx)
    return ApprovalRow(
        id=new_id("ap"),
        call_id=call.id,
        tenant_id=call.actor.tenant,
        persona_id=call.actor.persona,
        user_id=call.actor.user,
        scopes=orjson.dumps(call.actor.scopes).decode(),
        session_id=call.session,
        workspace=workspace,
        door=call.door,
        tool_name=entry.name,
        tool_version=tool.version,
        fingerprint=shown_fingerprint(ctx, entry),
        policy_hash=policy_hash,
        tier=entry.tier,
        destructive=entry.destructive,
        reason="; ".join(part for part in (shown_reason(ctx, entry), _bill(entry, ctx.estimate.free_left)) if part),
        description=tool.description,
        args_hash=hash_of(ctx.canonical),
        arguments=ctx.recorded.decode(),
        complete=ctx.recorded == ctx.canonical,
        idempotency_key=call.idempotency_key,
        estimate=ctx.estimate.nano,
        confidence=ctx.estimate.confidence,
        expected_ms=ctx.estimate.expected_ms,
        created_at=at,
        expires_at=at + lasts,
        outer_call=outer_call,
        outer_tool=outer_tool,
        connection_id=call.connection,
        on_behalf_of=_above(call),
        run_id=call.run,
    )


def _above(call: Call) -> str | None:
    return orjson.dumps([actor.persona for actor in call.on_behalf_of]).decode() if call.on_behalf_of else None


def _bill(entry: Entry, free_left: int | None) -> str:
    """How many free calls are left, and where the bill is: whoever agrees should know."""
    cost = entry.tool.cost
    parts = [f"bill: {cost.billing_url}"] if cost.billing_url else []
    if free_left is not None:
        billed = "" if free_left else ": it is billed"
        parts.insert(0, f"{free_left} of {cost.free_tier_limit} free calls of this {cost.free_tier_period} left{billed}")
    return "; ".join(parts)


def exhausted(grant: Grant, expected: Estimate) -> str:
    """Says why a grant that is for the call does not cover it."""
    if grant.is_used_up:
        return f"grant {grant.id} is used up: it was for {plural(grant.max_uses or 0, 'call')}"
    spent, cap = round(grant.spent_usd * NANO), round((grant.cap_usd or 0) * NANO)
    return (
        f"the cap of grant {grant.id} is exhausted: {dollars(spent)} of {dollars(cap)} are spent, and the call may cost "
        f"{dollars(expected.nano)}"
    )


def asked_too_often(draft: ApprovalRow, bound: AskedTooOften) -> Denied:
    whose = "this user" if bound.setting == "questions_per_hour" else "this tenant"
    return Denied(
        "RATE_LIMITED",
        f"{draft.tool_name} needs a person's approval, but {bound.limit} questions of {whose} were put to people within an "
        "hour; this one was not put to anybody.",
        suggestion="Wait, and ask for less. An operator can grant the tool, or raise the setting "
        f"approvals.{bound.setting}.",
        details={"retry_after": round(bound.seconds, 1)},
    )


def too_many_questions(draft: ApprovalRow) -> Failed:
    return Failed(
        "CAPACITY_EXCEEDED",
        f"{draft.tool_name} needs a person's approval, but {approvals.MAX_WAITING_QUESTIONS} questions of this user wait "
        "for an answer already; this one was not put to anybody.",
        suggestion="Wait until a person has answered those, or until they expire.",
    )


def is_whole(row: ApprovalRow) -> bool:
    """True if the arguments that are to run are all on record, nothing masked."""
    return row.complete or (row.edited is not None and MASK not in row.edited)
