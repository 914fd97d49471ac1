"""/approvals, /answered: the calls that wait for a person or waited, and one of them as a person must see it."""

from typing import Any, Literal

import msgspec

from toolgate.errors import CallError, ToolgateError
from toolgate.gates.approval.request import MOST_USES
from toolgate.model import Outcome
from toolgate.serve.console.approval_view import (
    LASTS,
    asked_of,
    edited_arguments,
    fields_of,
    first_field,
    plainly,
    scopes_of,
    telling,
)
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.http.approvals import (
    ApprovalAnswer,
    ApprovalDetail,
    ApprovalsQuery,
    GrantWish,
    answer_approval,
    get_approval,
    list_approvals,
)
from toolgate.serve.http.handler import converted
from toolgate.serve.http.invocations import CallDetail, CallSummary, get_invocation
from toolgate.serve.http.pages import PageQuery
from toolgate.serve.http.reach import Name
from toolgate.serve.problems import HttpProblem, problem_of

pages = Pages("approvals")

MAX_REASON_CHARS = 1_000
Form = Literal["edit", "grant", "reject"]
FORMS: dict[str, Form] = {"edit": "edit", "grant": "grant", "reject": "reject"}
WRONG_GRANT = {
    "scope": "Choose one of them.",
    "same_arguments": "Choose one of them.",
    "seconds": "Choose one of them.",
    "max_uses": f"A whole number from 1 to {MOST_USES:,}.",
    "cap_usd": "Dollars, such as 12.50.",
}
"""Of each field of a grant, the words for a wrong value."""


class InboxQuery(PageQuery, frozen=True):
    """Filters of what waits."""

    tool: Name | None = None
    user: Name | None = None


class ApprovalQuery(InboxQuery, frozen=True):
    """One call among those that wait, and the form that is open."""

    do: Form | None = None
    whole: Literal["yes"] | None = None


@pages.get("/approvals", permission="own", twin="/v1/approvals?state=waiting")
async def inbox(request: PageRequest, query: InboxQuery) -> View:
    """The calls that wait, oldest first, and beside them the first."""
    found = await _waiting(request, query)
    values = {**found, "asked": None, "telling": telling}
    if found["found"]:
        values |= await _values(request, await get_approval(request, found["found"][0].id))
    values["is_chosen"] = False
    return View(template="approvals.html", title="Approvals", values=values, listed=found["found"])


@pages.get("/approvals/{id}", permission="own", twin="/v1/approvals/{id}")
async def approval(request: PageRequest, id: str, query: ApprovalQuery) -> View:
    """One call that waits, beside the others."""
    return await _shown(request, id, query)


class AnsweredQuery(ApprovalsQuery, frozen=True):
    """Filters of what no longer waits."""

    newest: bool = True


@pages.get("/answered", permission="own", twin="/v1/approvals?state=over&newest=true")
async def answered(request: PageRequest, query: AnsweredQuery) -> View:
    """The calls that no longer wait, newest first."""
    found = await list_approvals(request, query if query.state else msgspec.structs.replace(query, state="over"))
    values = {"found": found.items, "next": found.next, "telling": telling}
    return View(template="answered.html", title="Answered", values=values, listed=found.items)


async def _waiting(request: PageRequest, query: InboxQuery) -> dict[str, Any]:
    wanted = ApprovalsQuery(state="waiting", tool=query.tool, user=query.user, limit=query.limit, cursor=query.cursor)
    found = await list_approvals(request, wanted)
    return {"found": found.items, "next": found.next, "query": query}


async def _shown(
    request: PageRequest, id: str, query: ApprovalQuery, typed: Typed = NOTHING_TYPED, status: int = 200, **more: Any
) -> View:
    asked = await get_approval(request, id)
    values = {
        **await _waiting(request, InboxQuery(tool=query.tool, user=query.user)), "telling": telling, "plainly": plainly,
        "typed": typed,
        **await _values(request, asked, query.do, whole=query.whole == "yes"), **more,
    }  # fmt: skip
    return View(template="approvals.html", title=f"{asked.tool}: {asked.state}", values=values, status=status)


async def _values(
    request: PageRequest, asked: ApprovalDetail, do: Form | None = None, *, whole: bool = False
) -> dict[str, Any]:
    """All that the template needs of one call. A form that may not be used is not shown."""
    seen = asked_of(asked, whole=whole)
    may_change = asked.may_answer and asked.quorum == 1 and not seen.is_cut
    offered = {
        "edit": may_change,
        "grant": may_change and not asked.destructive,
        "reject": asked.may_answer,
    }
    return {
        "asked": asked, "seen": seen, "do": do if do and offered[do] else None, "offered": offered, "is_chosen": True,
        "fields": fields_of(asked.arguments) if do == "edit" else [], "scopes": scopes_of(asked), "lasts": LASTS,
        "first_field": first_field(asked.arguments),
        "call": await _call(request, asked.used_by), "outcome": None, "late": None,
        "tenant": asked.asked_by.tenant if request.all_tenants else request.carried.get("tenant"),
    }  # fmt: skip


async def _call(request: PageRequest, id: str | None) -> CallSummary | None:
    """The call that used an approval, if it is over and the reader may see it."""
    if id is None:
        return None
    try:
        found: CallDetail = await get_invocation(request, id)
    except HttpProblem:
        return None
    return found.call


# -- answers


@pages.post("/approvals/{id}", permission="answer")
async def answer(request: PageRequest, id: str) -> View | Go:
    """Approves it, approves an edit or a grant of it, or rejects it."""
    verdict = request.typed("verdict")
    query = ApprovalQuery(do=FORMS.get(verdict), whole="yes" if request.typed("seen") == "whole" else None)
    if verdict not in ("approve", *FORMS):
        raise HttpProblem(422, "The answer is approve, edit, grant or reject.")
    asked = await get_approval(request, id)
    body, faults = _answer(request, asked, verdict, whole=query.whole == "yes")
    if body is None:
        return await _shown(request, id, query, request.typed_form(faults), 422)
    try:
        given = await answer_approval(request, id, body)
    except ToolgateError as error:
        return await _refused(request, id, query, error)
    if given.outcome is not None and given.approval.used_by is None:
        return await _shown(request, id, ApprovalQuery(), outcome=_not_run(given.outcome))
    done = "approved-run" if given.outcome is not None else "agreed" if given.approval.state == "waiting" else "approved"
    return Go(f"/approvals/{id}", done="rejected" if verdict == "reject" else done)


def _answer(
    request: PageRequest, asked: ApprovalDetail, verdict: str, *, whole: bool
) -> tuple[ApprovalAnswer | None, dict[str, str]]:
    """The answer that a form gives, or what is wrong with it, by field."""
    reason, run = request.typed("reason") or None, bool(request.typed("run"))
    if len(reason or "") > MAX_REASON_CHARS:
        return None, {"reason": f"At most {MAX_REASON_CHARS:,} characters."}
    if verdict == "reject":
        return ApprovalAnswer(verdict="reject", reason=reason), {}
    if asked.may_answer and asked_of(asked, whole=whole).is_cut:
        return None, {"": "Nothing was approved: not all that will run was shown. Open all of it first."}
    if verdict == "approve":
        return ApprovalAnswer(verdict="approve", reason=reason, run=run), {}
    if verdict == "edit":
        arguments, faults = edited_arguments(asked.arguments, request.form)
        if not faults and arguments == asked.arguments:
            faults = {"": "Nothing was changed. Change something, or go back and approve it as it is."}
        if faults:
            return None, faults
        return ApprovalAnswer(verdict="edit", arguments=arguments, reason=reason, run=run), {}
    grant, faults = _grant(request)
    return None if grant is None else ApprovalAnswer(verdict="approve", reason=reason, run=run, grant=grant), faults


def _grant(request: PageRequest) -> tuple[GrantWish | None, dict[str, str]]:
    """The grant that a form asks for, or what is wrong with it, by field."""
    wish = {name: request.typed(name).strip() for name in WRONG_GRANT}
    wish = {name: value for name, value in wish.items() if value or name not in ("max_uses", "cap_usd")}
    faults: dict[str, str] = {}
    for name, value in wish.items():
        try:
            converted({"scope": "user", "seconds": "60", name: value}, GrantWish)
        except HttpProblem:
            faults[name] = WRONG_GRANT[name]
    return (None if faults else msgspec.convert(wish, GrantWish, strict=False)), faults


async def _refused(request: PageRequest, id: str, query: ApprovalQuery, error: ToolgateError) -> View:
    """The page once more, after an answer that did not count: who answered first, or what is wrong beside its field."""
    problem = error if isinstance(error, HttpProblem) else problem_of(error)
    if problem is None or problem.status == 404:
        raise error
    if problem.status == 409:
        return await _shown(request, id, ApprovalQuery(), status=409, late=problem.message)
    faults: dict[str, str] = {}
    if isinstance(error.__cause__, CallError):
        named = {field.name: field.key for field in fields_of((await get_approval(request, id)).arguments)}
        for fault in (error.__cause__.details or {}).get("errors", ()):
            faults.setdefault(named.get(str(fault["path"]).split(".")[0].split("[")[0], ""), fault["message"])
    if query.do == "grant" and "price" in problem.message:
        faults["cap_usd"] = f"{problem.message} {problem.suggestion or ''}"
    faults = faults or {"": f"{problem.message} {problem.suggestion or ''}"}
    return await _shown(request, id, query, request.typed_form(faults), problem.status)


def _not_run(outcome: Outcome) -> str:
    """The reason why a call that was approved did not use the approval."""
    if outcome.error is None:
        return "The call was not made yet."
    return f"{outcome.error.message} {outcome.error.suggestion or ''}"
