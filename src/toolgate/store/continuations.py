"""Calls that wait for an answer about a call inside them: continuations, and the steps that each has made.

A continuation is run by one call at a time. Who runs it has claimed it; every later write names that call, so a process that
stood still for so long that another took the continuation over can't write, and does not run, what the other one runs.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from toolgate.store import approvals
from toolgate.store.approvals import ApprovalRow
from toolgate.store.database import Statement, Transaction, moment
from toolgate.store.idempotency import began
from toolgate.store.live_processes import IS_DEAD, alive_since
from toolgate.store.sql import column, is_any, select, select_one, upsert

MAX_CONTINUATIONS_AT_ONCE = 100
"""Continuations that one transaction prunes: each may have many steps."""
MAX_WAITING = 50
"""Outer calls of one user that may wait at once: each may hold megabytes."""
Suspended = Literal["waits", "too many", "taken over"]


class ContinuationRow(NamedTuple):
    """A row of continuations: an outer call."""

    id: str
    tenant_id: str
    persona_id: str | None
    user_id: str
    scopes: str
    session_id: str | None
    tool_name: str
    fingerprint: str
    policy_hash: str
    given_hash: str
    args_hash: str
    arguments: str
    complete: bool
    idempotency_key: str | None
    state: str
    call_id: str
    process_id: str | None
    created_at: datetime
    expires_at: datetime


class StepRow(NamedTuple):
    """A row of its steps: a call inside it."""

    continuation_id: str
    step: str
    parent: str
    tool_name: str
    call_id: str
    state: str
    approval_id: str | None
    agreed: bool
    outcome: str | None
    cost: int


OURS = "id = :id AND call_id = :call AND state = 'running'"


def get(id: str, tenant: str) -> Transaction[ContinuationRow | None]:
    where = "WHERE id = :id AND tenant_id = :tenant"
    return select_one(ContinuationRow, "continuations", where, {"id": id, "tenant": tenant})


def with_key(wanted: ContinuationRow) -> Transaction[ContinuationRow | None]:
    """The one whose outer call has this idempotency key, of the same actor; also one that can't go on any more, for what it
    did must not be done again under that key."""
    return select_one(
        ContinuationRow,
        "continuations",
        "WHERE tenant_id = :tenant_id AND user_id = :user_id "
        "AND idempotency_key = :idempotency_key AND coalesce(persona_id, '') = :persona AND scopes = :scopes "
        "ORDER BY created_at LIMIT 1",
        {**wanted._asdict(), "persona": wanted.persona_id or ""},
    )


def same_call(wanted: ContinuationRow, at: datetime) -> Transaction[ContinuationRow | None]:
    """The oldest that waits and whose outer call was this one, in all that it is bound to."""
    return select_one(
        ContinuationRow,
        "continuations",
        "WHERE tenant_id = :tenant_id AND user_id = :user_id "
        "AND tool_name = :tool_name AND (given_hash = :given_hash OR args_hash = :given_hash) "
        "AND coalesce(persona_id, '') = :persona AND coalesce(session_id, '') = :session AND scopes = :scopes "
        "AND fingerprint = :fingerprint AND policy_hash = :policy_hash AND idempotency_key IS NULL "
        "AND expires_at > :moment ORDER BY created_at LIMIT 1",
        {**wanted._asdict(), "moment": at, "persona": wanted.persona_id or "", "session": wanted.session_id or ""},
    )


def questions(id: str) -> Transaction[list[ApprovalRow]]:
    """The questions that it waits for, oldest first."""
    return select(
        ApprovalRow,
        "approvals",
        "WHERE id IN (SELECT approval_id FROM continuation_steps "
        "WHERE continuation_id = :id AND state = 'asked') ORDER BY created_at, id",
        {"id": id},
    )


def workspaces(id: str) -> Transaction[frozenset[str]]:
    """The workspaces of its inner calls that were asked about, whatever became of the questions."""
    return frozenset((yield from column("SELECT DISTINCT workspace FROM approvals WHERE outer_call = :id", {"id": id})))


def tools(at: datetime) -> Transaction[frozenset[str]]:
    """The tools of which a call waits."""
    sql = "SELECT DISTINCT tool_name FROM continuations WHERE expires_at > :moment"
    return frozenset((yield from column(sql, {"moment": at})))


def are_over(at: datetime) -> Transaction[bool]:
    """Tells whether there is something to prune."""
    return is_any(
        "SELECT 1 FROM continuations WHERE expires_at <= :moment AND state = 'waiting' AND (idempotency_key IS NULL "
        "OR EXISTS (SELECT 1 FROM continuation_steps WHERE continuation_id = continuations.id)) LIMIT 1",
        {"moment": at},
    )


def claim(id: str, call_id: str, process: str, *, lease: float, is_idle: bool) -> Transaction[list[StepRow] | None]:
    """Takes it for a call; gives its steps, or None if another call runs it. One that a process had which is dead, or this
    one (`is_idle`: no call of it is at it), is nobody's."""
    mine = " OR process_id = :process" if is_idle else ""
    rows = yield (
        "UPDATE continuations SET state = 'running', call_id = :call, process_id = :process "
        f"WHERE id = :id AND (state = 'waiting' OR {IS_DEAD}{mine}) RETURNING id",
        {"id": id, "call": call_id, "process": process, **alive_since(lease)},
    )
    if not rows:
        return None
    found = yield from select(StepRow, "continuation_steps", "WHERE continuation_id = :id ORDER BY call_id", {"id": id})
    steps: list[StepRow] = []
    for row in found:
        kept = yield from _judged(row)
        if kept is not None:
            steps.append(kept)
    return steps


def _judged(step: StepRow) -> Transaction[StepRow | None]:
    """A step that was under way when its process died, or its program was stopped: if it began, nobody knows whether it had
    its effect (it stays `running`); if it did not, it was never made, and has its approval back."""
    if step.state != "running":
        return step
    if (yield from began(step.call_id)):
        return step
    where, names = "continuation_id = :id AND step = :step", {"id": step.continuation_id, "step": step.step}
    if step.approval_id is None:
        yield f"DELETE FROM continuation_steps WHERE {where}", names
        return None
    yield from approvals.put_back(step.approval_id, step.call_id)
    yield f"UPDATE continuation_steps SET state = 'asked' WHERE {where}", names
    return step._replace(state="asked")


def confirm(id: str, call_id: str) -> Transaction[bool]:
    """Tells whether it is still this call's. Asked once a start record is on disk: whoever takes the call for dead before
    that takes it from the call here, and whoever does so later finds that the call began."""
    return is_any(f"UPDATE continuations SET state = 'running' WHERE {OURS} RETURNING id", {"id": id, "call": call_id})


def note(step: StepRow, call_id: str) -> Transaction[bool]:
    """Puts a step of a continuation that a call runs on record; False if it is not that call's any more."""
    if not (yield from confirm(step.continuation_id, call_id)):
        return False
    yield _upsert(step)
    return True


def _upsert(step: StepRow) -> Statement:
    return upsert("continuation_steps", step._asdict(), ("continuation_id", "step"), StepRow._fields[4:])


def suspend(row: ContinuationRow, steps: Iterable[StepRow]) -> Transaction[Suspended]:
    """Lets it wait, with these steps: for the first time, or again. It ends with the last of its questions."""
    others = yield (
        "SELECT count(*) FROM continuations WHERE tenant_id = :tenant AND user_id = :user AND expires_at > :moment "
        "AND NOT EXISTS (SELECT 1 FROM continuations WHERE id = :id)",
        {"tenant": row.tenant_id, "user": row.user_id, "id": row.id, "moment": row.created_at},
    )
    if int(others[0][0]) >= MAX_WAITING:
        return "too many"
    ends = yield (
        "SELECT expires_at FROM approvals WHERE outer_call = :id AND state IN ('waiting', 'approved', 'rejected')",
        {"id": row.id},
    )
    expires = max((moment(value) for (value,) in ends), default=row.expires_at)
    values = {**row._asdict(), "state": "waiting", "process_id": None, "expires_at": expires}
    changes = ("state", "process_id", "expires_at", "args_hash", "arguments", "complete")
    sql, _ = upsert("continuations", values, ("id",), changes)
    rows = yield (
        f"{sql} WHERE continuations.call_id = excluded.call_id AND continuations.state = 'running' RETURNING id",
        values,
    )
    if not rows:
        return "taken over"
    for step in steps:
        yield _upsert(step)
    return "waits"


def release(id: str, call_id: str) -> Transaction[None]:
    """The call that took it did not get as far as running it: it waits as before."""
    yield (
        f"UPDATE continuations SET state = 'waiting', process_id = NULL WHERE {OURS}",
        {"id": id, "call": call_id},
    )


def finish(id: str, call_id: str, at: datetime) -> Transaction[None]:
    """The outer call has ended: nothing of it is kept, and what was still asked for it can't be answered or used any more.
    Not if another call has taken it over."""
    others = yield "SELECT 1 FROM continuations WHERE id = :id AND call_id <> :call", {"id": id, "call": call_id}
    if others:
        return
    yield "DELETE FROM continuation_steps WHERE continuation_id = :id", {"id": id}
    yield "DELETE FROM continuations WHERE id = :id", {"id": id}
    yield (
        "UPDATE approvals SET expires_at = :moment WHERE outer_call = :id AND state IN ('waiting', 'approved') "
        "AND expires_at > :moment",
        {"id": id, "moment": at},
    )


def prune(at: datetime, long_ago: datetime) -> Transaction[None]:
    """Forgets those that can't go on any more; one that seems to run, or whose key must not be used again, only when that is
    long ago."""
    over = "expires_at <= :moment AND ((state = 'waiting' AND idempotency_key IS NULL) OR expires_at <= :long_ago)"
    names = {"moment": at, "long_ago": long_ago}
    rows = yield f"SELECT id FROM continuations WHERE {over} LIMIT :most", {**names, "most": MAX_CONTINUATIONS_AT_ONCE}
    for (id,) in rows:
        gone = yield f"DELETE FROM continuations WHERE id = :id AND {over} RETURNING id", {"id": id, **names}
        if gone:
            yield "DELETE FROM continuation_steps WHERE continuation_id = :id", {"id": id}
    yield (
        "DELETE FROM continuation_steps WHERE continuation_id IN "
        "(SELECT id FROM continuations WHERE expires_at <= :moment AND state = 'waiting')",
        names,
    )
