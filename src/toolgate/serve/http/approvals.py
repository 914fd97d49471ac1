"""/v1/approvals: calls that wait for a person, and answers to them."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from toolgate.gates.approval.request import MOST_USES, Answer, Approval, GrantScope, GrantTerms, Listed, State, Verdict
from toolgate.model import LOCAL, Actor, Outcome, Tier
from toolgate.serve.http.budgets import BudgetBalance, balance_of
from toolgate.serve.http.endpoint import ROLE_NAMES, ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Dollars, Name, Reason, tenant_of, user_of
from toolgate.serve.problems import HttpProblem
from toolgate.store.approvals import WaitingQuestions

resource = Resource("approvals")

DOOR = "http"


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
    answered_by: str | None
    answer_reason: str | None
    answered_at: datetime | None


class FileChange(ApiView, frozen=True):
    """The differences that a call would make in one file, as that is now."""

    path: str
    lines: list[str]
    """Each begins with `+` (new), `-` (goes), a space (stays), `@` (so many lines stay and are not shown) or a backslash
    (the file has no line end at its end). What looks like a secret in the present file is masked."""
    added: int
    removed: int
    cut: int
    """The number of lines that are left out, because there are too many."""
    is_new: bool
    note: str | None
    """Something that the lines do not say: why there are none, for one."""


class TypedMessage(ApiView, frozen=True):
    """The beginning of a message that the user of a call typed in its session."""

    text: str
    """Secrets in it are masked."""
    said_at: datetime
    is_cut: bool
    """True if it went on."""


class OriginView(ApiView, frozen=True):
    """A value of an argument that stands in the output of an earlier call of the session."""

    argument: str
    value: str
    call: str
    tool: str
    ended_at: datetime


class OriginsView(ApiView, frozen=True):
    """The values of arguments that earlier calls of the session have given out, as far as their outputs are kept."""

    found: list[OriginView]
    calls: int
    """The number of calls that were looked at: the latest of the session that succeeded, at most 20."""
    outputs: int
    """The number of those whose output is kept (setting audit.details)."""


class PastAnswer(ApiView, frozen=True):
    """An answer to an earlier call of the same tool."""

    id: str
    state: State
    asked_by: AskedBy
    answered_by: str | None
    answered_through: str | None
    answer_reason: str | None
    answered_at: datetime | None


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
    why_not: str | None
    """The reason why whoever reads this may not approve it."""
    changes: list[FileChange]
    """The files that a call of the built-in file tools would change; only for somebody who may approve it."""
    user_messages: list[TypedMessage]
    """The last messages that the user typed in the session before the call, oldest first; only for somebody who may approve
    it, while it waits."""
    origins: OriginsView
    """The places where values of the arguments stood before; only for somebody who may approve it."""
    history: list[PastAnswer]
    """The last five answers to calls of the same tool in the tenant, newest first; of a caller, to its own calls."""
    budgets: list[BudgetBalance]
    """The budgets that would count it, for whoever may read budgets."""
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

    state: Listed | None = None
    """Without it: in whichever state; over: in any but waiting."""
    tool: Name | None = None
    user: Name | None = None
    """Asked for by this user; others than one's own only for those who may see them."""
    newest: bool = False
    """True: the newest first, and not the oldest."""


class GrantBounds(ApiModel, frozen=True):
    """Bounds of a grant: for whom, how long, up to which sum, and how often."""

    scope: GrantScope
    seconds: Annotated[float, msgspec.Meta(gt=0, le=31_622_400)]
    cap_usd: Dollars | None = None
    """The dollars that may be spent under it."""
    max_uses: Annotated[int, msgspec.Meta(ge=1, le=MOST_USES)] | None = None
    """The calls that it covers; null: any number."""


class GrantWish(GrantBounds, frozen=True):
    """A grant that comes with an approval: the same tool runs unasked for a while."""

    same_arguments: bool = False
    """True: only with the arguments that are approved."""


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


def terms_of(request: ApiRequest, wish: GrantBounds, *, same_arguments: bool = False) -> GrantTerms:
    """Gives the terms of a grant that a request asks for. Grants of the user `local` are taken for those of the person at
    this machine, which cover their own calls too: so only an operator gives them from elsewhere."""
    if request.sender.user == LOCAL.user and not request.credential.may("operate"):
        raise HttpProblem(403, f"Grants of the user {LOCAL.user} are given at the machine itself, or by an operator.")
    cap = None if wish.cap_usd is None else Decimal(wish.cap_usd)
    return GrantTerms(wish.scope, wish.seconds, cap, wish.max_uses, same_arguments)


def _asked_by(actor: Actor) -> AskedBy:
    return AskedBy(tenant=actor.tenant, persona=actor.persona, user=actor.user)


def _summary(approval: Approval) -> ApprovalSummary:
    asked = approval.request
    return ApprovalSummary(
        id=asked.id, state=approval.state, call_id=asked.call_id, tool=asked.tool, tier=asked.tier,
        asked_by=_asked_by(asked.actor), arguments=asked.arguments, reason=asked.reason, estimate_usd=asked.estimate_usd,
        created_at=asked.created_at, expires_at=asked.expires_at, answered_by=approval.answered_by,
        answer_reason=approval.answer_reason, answered_at=approval.answered_at,
    )  # fmt: skip


def _past(approval: Approval) -> PastAnswer:
    same = ("state", "answered_by", "answered_through", "answer_reason", "answered_at")
    asked = approval.request
    return PastAnswer(id=asked.id, asked_by=_asked_by(asked.actor), **{name: getattr(approval, name) for name in same})


def _detail(approval: Approval, *, why_not: str | None, **around: Any) -> ApprovalDetail:
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
        user_messages=[TypedMessage(**msgspec.structs.asdict(one)) for one in asked.user_messages],
        may_answer=why_not is None and approval.state == "waiting",
        why_not=why_not,
        text=asked.text(),
        **around,
    )


async def _seen(request: ApiRequest, id: str) -> ApprovalDetail:
    """The approval as its reader may see it: in full only for somebody whose yes would count."""
    tenant = tenant_of(request)
    facet = request.app.approvals
    approval = await facet.on_record(id, tenant, user_of(request))
    why_not = facet.why_not(approval.request, request.sender, DOOR)
    if not request.credential.may("answer"):
        why_not = f"answers need the role {ROLE_NAMES['answer']}"
    if why_not is None:
        approval = await facet.get(id, tenant)
    asked = approval.request
    return _detail(
        approval,
        why_not=why_not,
        changes=[
            FileChange(**msgspec.structs.asdict(one))
            for one in (await facet.changes(asked, request.sender, DOOR) if why_not is None else ())
        ],
        origins=msgspec.convert(msgspec.to_builtins(await facet.origins(asked, request.sender, DOOR)), OriginsView),
        history=[_past(one) for one in await facet.last_answers(asked, user=user_of(request))],
        budgets=await _budgets(request, approval),
    )


async def _budgets(request: ApiRequest, approval: Approval) -> list[BudgetBalance]:
    """The budgets that the call counts against: to whom /v1/budgets shows them."""
    asked = approval.request
    if not request.credential.may("read") or approval.state != "waiting":
        return []
    found = [balance_of(one) for one in await request.app.budgets.counting(asked.tool, asked.arguments, asked.actor)]
    return [one for one in found if request.credential.may("operate") or one.tenant == asked.actor.tenant]


@resource.get("/v1/approvals", permission="own")
async def list_approvals(request: ApiRequest, query: ApprovalsQuery) -> Page[ApprovalSummary]:
    """List calls that wait for a person, or waited, oldest first. A caller sees its own."""
    after = position_of(request, query)
    found = await request.app.approvals.list(
        state=query.state, actor=request.sender, tool=query.tool, user=user_of(request, query.user),
        limit=query.limit + 1, after=None if after is None else after[0], all_tenants=request.all_tenants,
        newest=query.newest,
    )  # fmt: skip
    return page_of(request, query, [_summary(one) for one in found], lambda one: (one.id,))


async def waiting_approvals(request: ApiRequest) -> WaitingQuestions:
    """Counts the calls that wait for a person, of those that `list_approvals` lists."""
    return await request.app.approvals.waiting(tenant_of(request), user=user_of(request))


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
    terms = None if body.grant is None else terms_of(request, body.grant, same_arguments=body.grant.same_arguments)
    given = Answer(body.verdict, body.reason, body.arguments, terms)
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
