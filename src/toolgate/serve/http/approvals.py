"""/v1/approvals: calls that wait for a person, and answers to them."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from toolgate.gates.approval.request import Answer, Approval, GrantScope, GrantTerms, State, Verdict
from toolgate.model import LOCAL, Actor, Outcome, Tier
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Name, Reason, tenant_of, user_of
from toolgate.serve.problems import HttpProblem

resource = Resource("approvals")

DOOR = "http"
Dollars = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,10}(\.[0-9]{1,9})?$", description="Dollars, such as 12.50.")]


class AskedBy(ApiView, frozen=True):
    """Who made a call."""

    tenant: str
    persona: str | None
    user: str


class ApprovalSummary(ApiView, frozen=True):
    """A call that waits for a person, or waited, in a list."""

    id: str
    state: State
    call_id: str
    tool: str
    tier: Tier
    asked_by: AskedBy
    arguments: dict[str, Any]
    """As records hold them: what looks like a secret is masked."""
    reason: str
    """The reason why a person is asked."""
    estimate_usd: float
    created_at: datetime
    expires_at: datetime


class ApprovalDetail(ApiView, frozen=True):
    """A call that waits for a person, with everything that will run and where, and what became of it."""

    id: str
    state: State
    call_id: str
    tool: str
    tool_version: str
    description: str
    tier: Tier
    destructive: bool
    """True: it is asked about each time, and no grant covers it."""
    asked_by: AskedBy
    session: str | None
    door: str
    workspace: str
    """The folder that the call works in."""
    reason: str
    """The reason why a person is asked."""
    arguments: dict[str, Any]
    """For somebody who may approve it: all of them, but for secrets that Toolgate holds. For others, and once it is
    answered: as records hold them."""
    complete: bool
    """True if nothing of the arguments is masked."""
    text: str
    """All that a person should know before saying yes, as plain text; whatever could mislead is written out."""
    estimate_usd: float
    confidence: str
    expected_ms: int | None
    outer_call: str | None
    """The call from inside which it was asked for."""
    outer_tool: str | None
    quorum: int
    """The number of persons who must agree."""
    approvers: list[str] | None
    """Those who may answer; null: anybody with the role."""
    agreed: list[str]
    """Those who have agreed so far, where several must."""
    may_answer: bool
    """True if whoever reads this may approve it."""
    answered_by: str | None
    answered_through: str | None
    answer_reason: str | None
    edited: dict[str, Any] | None
    """The arguments that were approved in place of those that were asked about."""
    used_by: str | None
    """The call that used the approval."""
    created_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    used_at: datetime | None


class ApprovalsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    state: State | None = None
    """Without it: in whichever state."""
    tool: Name | None = None
    user: Name | None = None
    """Asked for by this user; others than one's own only for those who may see them."""


class GrantWish(ApiModel, frozen=True):
    """A grant that comes with an approval: the same tool runs unasked for a while."""

    scope: GrantScope
    seconds: Annotated[float, msgspec.Meta(gt=0, le=31_622_400)]
    cap_usd: Dollars | None = None
    """The dollars that may be spent under it."""


class ApprovalAnswer(ApiModel, frozen=True):
    """An answer to a call that waits."""

    verdict: Verdict
    arguments: dict[str, Any] | None = None
    """With verdict edit: the arguments that are to run instead."""
    reason: Reason | None = None
    grant: GrantWish | None = None
    run: bool = False
    """True: the call is made now, as the actor who asked for it, and its outcome is answered."""


class AnsweredApproval(ApiView, frozen=True):
    """An approval after an answer; with `run`, the outcome of the call."""

    approval: ApprovalDetail
    outcome: Outcome | None = None
    """Null: the call was not made, because nobody asked for that or others must agree as well."""


def terms_of(request: ApiRequest, wish: GrantWish | None) -> GrantTerms | None:
    """Gives the terms of a grant that a request asks for. Grants of the user `local` are taken for those of the person at
    this machine, which cover their own calls too: so only an operator gives them from elsewhere."""
    if wish is None:
        return None
    if request.sender.user == LOCAL.user and not request.credential.may("operate"):
        raise HttpProblem(403, f"Grants of the user {LOCAL.user} are given at the machine itself, or by an operator.")
    return GrantTerms(wish.scope, wish.seconds, None if wish.cap_usd is None else Decimal(wish.cap_usd))


def _asked_by(actor: Actor) -> AskedBy:
    return AskedBy(tenant=actor.tenant, persona=actor.persona, user=actor.user)


def _summary(approval: Approval) -> ApprovalSummary:
    asked = approval.request
    return ApprovalSummary(
        id=asked.id, state=approval.state, call_id=asked.call_id, tool=asked.tool, tier=asked.tier,
        asked_by=_asked_by(asked.actor), arguments=asked.arguments, reason=asked.reason, estimate_usd=asked.estimate_usd,
        created_at=asked.created_at, expires_at=asked.expires_at,
    )  # fmt: skip


def _detail(approval: Approval, *, may_answer: bool) -> ApprovalDetail:
    asked = approval.request
    same = (
        "id", "call_id", "tool", "tool_version", "description", "tier", "destructive", "session", "door", "workspace",
        "reason", "arguments", "complete", "estimate_usd", "confidence", "expected_ms", "outer_call", "outer_tool", "quorum",
        "created_at", "expires_at",
    )  # fmt: skip
    became = (
        "state", "answered_by", "answered_through", "answer_reason", "edited", "used_by", "answered_at", "used_at",
    )  # fmt: skip
    return ApprovalDetail(
        **{name: getattr(asked, name) for name in same},
        **{name: getattr(approval, name) for name in became},
        asked_by=_asked_by(asked.actor),
        approvers=None if asked.approvers is None else list(asked.approvers),
        agreed=list(approval.agreed),
        may_answer=may_answer and approval.state == "waiting",
        text=asked.text(),
    )


async def _seen(request: ApiRequest, id: str) -> ApprovalDetail:
    """The approval as its reader may see it: in full only for somebody whose yes would count."""
    tenant = tenant_of(request)
    approval = await request.app.approvals.on_record(id, tenant, user_of(request))
    may_answer = request.credential.may("answer") and request.app.approvals.may_answer(
        approval.request, request.sender, DOOR
    )
    if may_answer:
        approval = await request.app.approvals.get(id, tenant)
    return _detail(approval, may_answer=may_answer)


@resource.get("/v1/approvals", permission="own")
async def list_approvals(request: ApiRequest, query: ApprovalsQuery) -> Page[ApprovalSummary]:
    """List calls that wait for a person, or waited, oldest first. A caller sees its own."""
    after = position_of(request, query)
    found = await request.app.approvals.list(
        state=query.state, actor=request.sender, tool=query.tool, user=user_of(request, query.user),
        limit=query.limit + 1, after=None if after is None else after[0], all_tenants=request.all_tenants,
    )  # fmt: skip
    return page_of(request, query, [_summary(one) for one in found], lambda one: (one.id,))


@resource.get("/v1/approvals/{id}", permission="own")
async def get_approval(request: ApiRequest, id: str) -> ApprovalDetail:
    """Get a call that waits for a person, with everything that will run. That of somebody else looks missing to a caller."""
    return await _seen(request, id)


@resource.post("/v1/approvals/{id}", permission="answer", problems=(409, 412))
async def answer_approval(request: ApiRequest, id: str, body: ApprovalAnswer) -> AnsweredApproval:
    """Approve, edit or reject a call. Nobody approves what they asked for themselves, unless a setting allows it.

    The caller makes the call again, or resumes it; with `run` it is made now, as the actor who asked for it.
    """
    actor = request.actor
    given = Answer(body.verdict, body.reason, body.arguments, terms_of(request, body.grant))
    approval = await request.app.approvals.answer(id, given, actor=actor, through=DOOR)
    outcome = None
    if body.run and approval.state == "approved":
        outcome = await request.app.approvals.resume(id, actor=approval.request.actor)
    return AnsweredApproval(approval=await _seen(request, id), outcome=outcome)


@resource.post("/v1/approvals/{id}/resume", permission="call", problems=(409,))
async def resume_approval(request: ApiRequest, id: str) -> AnsweredApproval:
    """Make a call of one's own that was approved. Its outcome is answered."""
    actor = request.actor
    approval = await request.app.approvals.on_record(id, actor.tenant, actor.user)
    asked = approval.request.actor
    if asked.persona != actor.persona or not {*asked.scopes} <= {*actor.scopes}:
        raise HttpProblem(403, "The call was made with another persona, or with scopes that your credential does not have.")
    if approval.state in ("waiting", "expired"):
        words = "waits for an answer" if approval.state == "waiting" else "expired before it was used"
        raise HttpProblem(409, f"The approval {words}, so the call cannot be made.")
    outcome = await request.app.approvals.resume(id, actor=asked)
    return AnsweredApproval(approval=await _seen(request, id), outcome=outcome)
