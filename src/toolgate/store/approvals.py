"""Questions to people, and their answers: approvals.

Every step from one state to the next is a single UPDATE that names the state it leaves, so of any number of callers in any
number of processes exactly one makes it.
"""

import json
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from toolgate.settings import ApprovalSettings
from toolgate.store import grants
from toolgate.store.database import Rows, Transaction, moment
from toolgate.store.grants import GrantQuery, GrantRow, instants
from toolgate.store.sql import column, insert, is_any, select, select_one, value

WINDOW = timedelta(hours=1)
MAX_WAITING_QUESTIONS = 200
"""Questions of one user that may wait at once: more than a person can answer is a caller gone wild."""
MAX_PRUNED_ROWS = 1_000
"""Rows that one transaction prunes."""


class ApprovalRow(NamedTuple):
    """A row of approvals: one question."""

    id: str
    call_id: str
    tenant_id: str
    persona_id: str | None
    user_id: str
    scopes: str
    session_id: str | None
    workspace: str
    door: str
    tool_name: str
    tool_version: str
    fingerprint: str
    policy_hash: str
    tier: str
    destructive: bool
    reason: str
    description: str
    args_hash: str
    arguments: str
    complete: bool
    idempotency_key: str | None
    estimate: int
    confidence: str
    expected_ms: int | None
    created_at: datetime
    expires_at: datetime
    state: str = "waiting"
    answered_by: str | None = None
    answered_through: str | None = None
    answer_reason: str | None = None
    edited: str | None = None
    edited_hash: str | None = None
    used_by: str | None = None
    answered_at: datetime | None = None
    used_at: datetime | None = None
    outer_call: str | None = None
    """The call from inside which it was asked for, and its tool: it is good there and nowhere else."""
    outer_tool: str | None = None
    connection_id: str | None = None
    """The session of the connection that the call came over."""
    on_behalf_of: str | None = None
    """JSON: the personas for whom a subordinate agent asks; None: none does."""
    run_id: str | None = None
    """The run of an agent whose turn it is about."""

    @property
    def personas(self) -> tuple[str | None, ...]:
        """All personas for which a grant must be there, if none is to be asked."""
        above: list[str | None] = [] if self.on_behalf_of is None else json.loads(self.on_behalf_of)
        return (self.persona_id, *above)


class AskedTooOften(Exception):
    """People were asked as much as they may be within an hour."""

    def __init__(self, seconds: float, limit: int, setting: str) -> None:
        super().__init__(seconds, limit, setting)
        self.seconds, self.limit, self.setting = seconds, limit, setting


class AnswerRow(NamedTuple):
    """A person's answer, as the columns have it."""

    state: str
    answered_by: str
    answered_through: str
    answer_reason: str | None = None
    edited: str | None = None
    edited_hash: str | None = None
    used_by: str | None = None
    """The call that uses it at once, where that call waited for the answer."""


def get(id: str, tenant: str | None) -> Transaction[ApprovalRow | None]:
    """One question: of a tenant, or whatever its tenant (None)."""
    return select_one(ApprovalRow, "approvals", f"WHERE id = :id AND {_owned(tenant)}", {"id": id, "tenant": tenant})


def used_by(call: str, tenant: str) -> Transaction[ApprovalRow | None]:
    """The approval that a call used; None: it used none."""
    where = "WHERE used_by = :call AND tenant_id = :tenant ORDER BY created_at DESC LIMIT 1"
    return select_one(ApprovalRow, "approvals", where, {"call": call, "tenant": tenant})


def _owned(tenant: str | None) -> str:
    return "TRUE" if tenant is None else "tenant_id = :tenant"


def covered_or_waiting(
    draft: ApprovalRow,
    busy: Collection[str],
    settings: ApprovalSettings,
    *,
    honours: Callable[[str], bool] | None,
    join: bool,
    may_ask: bool = True,
    sealed: str | None = None,
) -> Transaction[tuple[list[GrantRow], ApprovalRow | None, bool]]:
    """The approval that was given to this very call before, now used by it. Else the grants that cover the call, if one does
    for each of its personas, and whoever gave it may (`honours`; None: no grant may). Else its question:
    the one that waits already, if it may `join` that and nobody is being asked it right now (`busy`), or the draft, put on
    record with what only an approver may see (`sealed`); and whether it is new. None of them: too many questions wait
    already, or it may not be asked about. Raises AskedTooOften."""
    yield from forget_sealed(draft.created_at)
    given = yield from _same_question(draft, busy, "approved")
    if given is not None and (yield from use(given.id, given.tenant_id, draft.call_id, draft.created_at)):
        return [], given._replace(state="used", used_by=draft.call_id), False
    if honours is not None:
        covering = yield from grants.take_each(
            [
                GrantQuery(
                    draft.tenant_id, persona, draft.user_id, draft.session_id, draft.workspace, draft.tool_name,
                    draft.fingerprint, draft.args_hash, draft.estimate, draft.created_at, draft.run_id,
                )
                for persona in draft.personas
            ],
            honours,
        )  # fmt: skip
        if covering:
            return covering, draft, False
    if join and (waiting := (yield from _same_question(draft, busy, "waiting"))) is not None:
        return [], waiting, False
    if not may_ask or (yield from _count_waiting(draft)) >= MAX_WAITING_QUESTIONS:
        return [], None, False
    yield from _check_hour(draft, settings.questions_per_hour, "questions_per_hour", "AND user_id = :user")
    yield from _check_hour(draft, settings.tenant_questions_per_hour, "tenant_questions_per_hour", "")
    yield insert("approvals", draft._asdict())
    if sealed is not None:
        yield "UPDATE approvals SET sealed = :sealed WHERE id = :id", {"id": draft.id, "sealed": sealed}
    return [], draft, True


def forget_sealed(at: datetime) -> Transaction[None]:
    """Forgets what only approvers may see of questions that nobody can answer any more."""
    yield "UPDATE approvals SET sealed = NULL WHERE sealed IS NOT NULL AND expires_at <= :moment", {"moment": at}


def sealed(id: str) -> Transaction[str | None]:
    """Reads what only an approver may see of a question, encrypted; None: nothing, or no more."""
    return value("SELECT sealed FROM approvals WHERE id = :id AND state = 'waiting'", {"id": id})


def keep_user_words(id: str, sealed: str, at: datetime) -> Transaction[None]:
    """Keeps what the user of a call had typed when its question was put, encrypted, while that waits."""
    yield from forget_user_words(at)
    yield "UPDATE approvals SET user_words = :words WHERE id = :id AND state = 'waiting'", {"id": id, "words": sealed}


def forget_user_words(at: datetime) -> Transaction[None]:
    """Forgets what the users of calls typed whose questions nobody can answer any more."""
    yield "UPDATE approvals SET user_words = NULL WHERE user_words IS NOT NULL AND expires_at <= :moment", {"moment": at}


def user_words(id: str) -> Transaction[str | None]:
    """Reads what the user of a call had typed, encrypted; None: nothing, or no more."""
    return value("SELECT user_words FROM approvals WHERE id = :id AND state = 'waiting'", {"id": id})


def _same_question(
    draft: ApprovalRow, busy: Collection[str], state: Literal["waiting", "approved"]
) -> Transaction[ApprovalRow | None]:
    """The oldest question in this state that is the draft's in all that an approval is bound to, unless it is `busy`."""
    rows = yield from select(
        ApprovalRow, "approvals",
        "WHERE tenant_id = :tenant AND state = :state AND user_id = :user "
        "AND coalesce(persona_id, '') = :persona AND coalesce(session_id, '') = :session AND workspace = :workspace "
        "AND tool_name = :tool AND fingerprint = :fingerprint AND policy_hash = :policy AND args_hash = :hash "
        "AND estimate >= :estimate "  # what was agreed to as a free call is not agreed to at a price
        "AND expires_at > :moment AND created_at <= :soon AND outer_call IS NULL ORDER BY created_at, id",
        {
            "tenant": draft.tenant_id, "state": state, "user": draft.user_id, "persona": draft.persona_id or "",
            "session": draft.session_id or "", "workspace": draft.workspace, "tool": draft.tool_name,
            "fingerprint": draft.fingerprint, "policy": draft.policy_hash, "hash": draft.args_hash,
            "estimate": draft.estimate, **instants(draft.created_at),
        },
    )  # fmt: skip
    return next((row for row in rows if row.id not in busy), None)


def _count_waiting(draft: ApprovalRow) -> Transaction[int]:
    """Counts the questions of the draft's user that wait. Who asks at the same moment is not counted: it is no exact
    bound."""
    return value(
        f"SELECT count(*) FROM approvals WHERE tenant_id = :tenant AND user_id = :user AND {STATE_SQL['waiting']}",
        {"tenant": draft.tenant_id, "user": draft.user_id, "moment": draft.created_at},
    )


def _check_hour(draft: ApprovalRow, limit: int, setting: str, whose: str) -> Transaction[None]:
    """Raises if as many questions were put to people within an hour as may be. `--yes` is no question to anybody. Who asks
    at the same moment is not counted."""
    rows = yield (
        f"SELECT created_at FROM approvals WHERE tenant_id = :tenant {whose} AND created_at > :since "
        "AND coalesce(answered_through, '') <> '--yes' ORDER BY created_at DESC LIMIT 1 OFFSET :before",
        {"tenant": draft.tenant_id, "user": draft.user_id, "since": draft.created_at - WINDOW, "before": limit - 1},
    )
    if rows:
        seconds = (moment(rows[0][0]) + WINDOW - draft.created_at).total_seconds()
        raise AskedTooOften(max(seconds, 1.0), limit, setting)


def vote(
    id: str, tenant: str, said: AnswerRow, at: datetime, quorum: int, counted: Callable[[list[str]], list[str]]
) -> Transaction[list[str] | None]:
    """Counts one of several who must agree; gives who has, now. The last one answers the question. None: it no longer waits.
    The row is locked first: of two that agree at the same moment, the second sees the first."""
    locked = yield (
        "UPDATE approvals SET state = state WHERE id = :id AND tenant_id = :tenant AND state = 'waiting' "
        "AND expires_at > :moment RETURNING id",
        {"id": id, "tenant": tenant, "moment": at},
    )
    if not locked:
        return None
    yield (
        "INSERT INTO approval_votes (approval_id, answered_by, answered_through, created_at) "
        "VALUES (:id, :by, :through, :moment) ON CONFLICT (approval_id, answered_by) DO NOTHING",
        {"id": id, "by": said.answered_by, "through": said.answered_through, "moment": at},
    )
    agreed = counted((yield from votes(id)))
    if len(agreed) >= quorum:
        yield from answer(id, tenant, said._replace(answered_by=", ".join(agreed)), at)
    return agreed


def votes(id: str) -> Transaction[list[str]]:
    """Those who have agreed to a question that several must agree to, in order."""
    return column(
        "SELECT answered_by FROM approval_votes WHERE approval_id = :id ORDER BY created_at, answered_by", {"id": id}
    )


def answer(id: str, tenant: str, said: AnswerRow, at: datetime, grant: GrantRow | None = None) -> Transaction[bool]:
    """Records an answer, and the grant that came with it; False if the question no longer waits for one."""
    rows = yield (
        "UPDATE approvals SET state = :state, answered_by = :answered_by, answered_through = :answered_through, "
        "answer_reason = :answer_reason, edited = :edited, edited_hash = :edited_hash, answered_at = :moment, "
        "used_by = :used_by, used_at = :used_at, sealed = NULL, user_words = NULL "
        "WHERE id = :id AND tenant_id = :tenant AND state = 'waiting' AND expires_at > :moment RETURNING id",
        {**said._asdict(), "id": id, "tenant": tenant, "moment": at, "used_at": at if said.used_by else None},
    )
    if rows and grant is not None:
        yield from grants.add(grant)
    return bool(rows)


def use(id: str, tenant: str, call_id: str, at: datetime) -> Transaction[bool]:
    """Uses an approval, once; False if it can't be used (any more)."""
    return is_any(
        "UPDATE approvals SET state = 'used', used_by = :call, used_at = :moment "
        "WHERE id = :id AND tenant_id = :tenant AND state = 'approved' AND expires_at > :moment RETURNING id",
        {"id": id, "tenant": tenant, "call": call_id, "moment": at},
    )


def withdraw(id: str, tenant: str, at: datetime) -> Transaction[bool]:
    """Ends a question, whether it waits or was approved and not used; False if it was over."""
    return is_any(
        "UPDATE approvals SET expires_at = :moment, sealed = NULL, user_words = NULL WHERE id = :id AND tenant_id = :tenant "
        "AND state IN ('waiting', 'approved') AND expires_at > :moment RETURNING id",
        {"id": id, "tenant": tenant, "moment": at},
    )


def put_back(id: str, call_id: str) -> Transaction[None]:
    """Undoes `use`, or an `answer` that a call used at once: the call was not made after all. Where the connection was lost
    while that was committed, the server may still be at it, with the row locked: so the row is locked first."""
    yield "UPDATE approvals SET state = state WHERE id = :id", {"id": id}
    yield (
        "UPDATE approvals SET state = 'approved', used_by = NULL, used_at = NULL "
        "WHERE id = :id AND state = 'used' AND used_by = :call",
        {"id": id, "call": call_id},
    )


def prune(forgotten: datetime) -> Transaction[int]:
    """Forgets questions that ended before this, whatever became of them; gives how many."""
    yield (
        "DELETE FROM approval_votes WHERE approval_id IN (SELECT id FROM approvals WHERE expires_at < :forgotten)",
        {"forgotten": forgotten},
    )
    rows = yield (
        "DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE expires_at < :forgotten LIMIT :most) "
        "AND expires_at < :forgotten RETURNING id",
        {"forgotten": forgotten, "most": MAX_PRUNED_ROWS},
    )
    return len(rows)


STATE_SQL = {
    "waiting": "state = 'waiting' AND expires_at > :moment",
    "approved": "state = 'approved' AND expires_at > :moment",
    "rejected": "state = 'rejected'",
    "used": "state = 'used'",
    "expired": "state IN ('waiting', 'approved') AND expires_at <= :moment",
    "over": "(state IN ('rejected', 'used', 'approved') OR expires_at <= :moment)",
}
"""By state of a question; `over`: all that no longer wait."""


def listed(
    tenant: str | None,
    state: str | None,
    at: datetime,
    most: int,
    since: tuple[datetime, str] | None = None,
    *,
    tool: str | None = None,
    user: str | None = None,
    newest: bool = False,
) -> Transaction[list[ApprovalRow]]:
    """Questions of a tenant or of all (None), oldest first, or `newest`: those in one state (see STATE_SQL), or all; about
    one tool, and asked by one user, or by any; from the start, or those after one, given by its instant and id."""
    chosen = [STATE_SQL[state] if state is not None else "TRUE", _owned(tenant)]
    values: dict[str, Any] = {"moment": at, "most": most, "tenant": tenant, "tool": tool, "user": user}
    chosen += ["tool_name = :tool"] if tool is not None else []
    chosen += ["user_id = :user"] if user is not None else []
    if since is not None:
        beyond = "<" if newest else ">"
        chosen.append(f"(created_at {beyond} :since OR (created_at = :since AND id {beyond} :last))")
        values["since"], values["last"] = since
    order = "created_at DESC, id DESC" if newest else "created_at, id"
    return select(ApprovalRow, "approvals", f"WHERE {' AND '.join(chosen)} ORDER BY {order} LIMIT :most", values)


def last_answers(tenant: str, tool: str, but: str, most: int, user: str | None = None) -> Transaction[list[ApprovalRow]]:
    """The questions about a tool that people answered last, newest first, `but` for one; of one user, or of all."""
    mine = "" if user is None else "AND user_id = :user "
    return select(
        ApprovalRow,
        "approvals",
        "WHERE tenant_id = :tenant AND tool_name = :tool AND id <> :but AND state IN ('approved', 'rejected', 'used') "
        f"AND answered_at IS NOT NULL {mine}ORDER BY answered_at DESC, id LIMIT :most",
        {"tenant": tenant, "tool": tool, "but": but, "user": user, "most": most},
    )


def ids(table: Literal["approvals", "grants"], tenant: str | None, beginning: str) -> Transaction[list[tuple[str, str]]]:
    """The ids that begin so, of a tenant or of all (None), each with its tenant; at most two: enough to tell whether one is
    meant."""
    rows: Rows = yield (
        f"SELECT id, tenant_id FROM {table} WHERE {_owned(tenant)} AND substr(id, 1, :length) = :beginning "
        "ORDER BY id LIMIT 2",
        {"tenant": tenant, "beginning": beginning, "length": len(beginning)},
    )
    return [(id, owner) for id, owner in rows]


class WaitingQuestions(NamedTuple):
    """The questions that wait for an answer."""

    number: int
    oldest: datetime | None
    """When the first of them was asked; None: there is none."""


def all_waiting(at: datetime, tenant: str | None, user: str | None) -> Transaction[WaitingQuestions]:
    """Counts the questions that wait: of a tenant or of all, and asked by one user or by any."""
    asked = "" if user is None else " AND user_id = :user"
    [(count, oldest)] = yield (
        f"SELECT count(*), min(created_at) FROM approvals WHERE {STATE_SQL['waiting']} AND {_owned(tenant)}{asked}",
        {"moment": at, "tenant": tenant, "user": user},
    )
    return WaitingQuestions(int(count), None if oldest is None else moment(oldest))


def waiting(at: datetime) -> Transaction[dict[str, int]]:
    """Counts the questions that wait, of each tenant that has any."""
    rows = yield (
        f"SELECT tenant_id, count(*) FROM approvals WHERE {STATE_SQL['waiting']} GROUP BY tenant_id ORDER BY tenant_id",
        {"moment": at},
    )
    return {tenant: int(count) for tenant, count in rows}
