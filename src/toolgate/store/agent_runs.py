"""Runs of agents and their messages: agent_runs, agent_messages.

A run is driven by one process at a time. Each write of that process names the process and its claim, so one that stood
still for so long that another took the run over writes nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.live_processes import IS_DEAD, alive_since, beat
from toolgate.store.sql import column, columns, insert, is_any, made, select, select_one, value

LIVE = "status IN ('running', 'waiting')"
ORPHAN = f"(process_id IS NULL OR {IS_DEAD})"
OURS = f"id = :id AND process_id = :process AND claims = :claims AND {LIVE}"
MAX_AT_ONCE = 100
"""Runs that one transaction takes over or forgets."""


class RunRow(NamedTuple):
    """A row of agent_runs."""

    id: str
    tenant_id: str
    persona_id: str | None
    user_id: str
    scopes: str
    session_id: str | None
    door: str
    workspace: str | None
    here: str | None
    style: str
    status: str
    reason: str | None
    answer: str | None
    limits: str
    turns: int
    tokens: int
    cost: int
    seconds: float
    leg: str
    pending: str
    grants: str
    is_attended: bool
    is_queued: bool
    needs_key: bool
    parent_run: str | None
    origin: str | None
    args_hash: str | None
    process_id: str | None
    claims: int
    crashes: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None

    @property
    def is_live(self) -> bool:
        return self.status in ("running", "waiting")


class RunMessageRow(NamedTuple):
    """A row of agent_messages."""

    run_id: str
    seq: int
    turn: int
    kind: str
    content: str
    created_at: datetime


class Claim(NamedTuple):
    """A process's hold on a run."""

    id: str
    process: str
    claims: int


def add(row: RunRow, messages: Iterable[RunMessageRow], most: int) -> Transaction[bool]:
    """Adds a run that its process drives; False if so many of its user's are live already."""
    live = yield from value(
        f"SELECT count(*) FROM agent_runs WHERE tenant_id = :tenant AND user_id = :user AND {LIVE} AND parent_run IS NULL",
        {"tenant": row.tenant_id, "user": row.user_id},
    )
    if row.parent_run is None and int(live) >= most:
        return False
    yield insert("agent_runs", row._asdict())
    for message in messages:
        yield insert("agent_messages", message._asdict())
    return True


def get(id: str) -> Transaction[RunRow | None]:
    return select_one(RunRow, "agent_runs", "WHERE id = :id", {"id": id})


def of_call(tenant: str, user: str, origin: str) -> Transaction[RunRow | None]:
    """The run of a subordinate that a call made."""
    return select_one(
        RunRow,
        "agent_runs",
        "WHERE tenant_id = :tenant AND user_id = :user AND origin = :origin",
        {"tenant": tenant, "user": user, "origin": origin},
    )


def messages(id: str) -> Transaction[list[RunMessageRow]]:
    return select(RunMessageRow, "agent_messages", "WHERE run_id = :id ORDER BY seq", {"id": id})


def save(claim: Claim, changes: Mapping[str, Any], new: Iterable[RunMessageRow] = ()) -> Transaction[bool]:
    """Changes a run that a process has, with messages that are new; False if it does not have it any more. A message that
    is there already stays as it is."""
    taken = ", ".join(f"{name} = :{name}" for name in changes)
    names = {"id": claim.id, "process": claim.process, "claims": claim.claims}
    if not (yield from is_any(f"UPDATE agent_runs SET {taken} WHERE {OURS} RETURNING id", {**changes, **names})):
        return False
    for message in new:
        sql, values = insert("agent_messages", message._asdict())
        yield f"{sql} ON CONFLICT (run_id, seq) DO NOTHING", values
    return True


def claim(
    id: str, process: str, at: datetime, *, lease: float, statuses: Iterable[str], is_idle: bool
) -> Transaction[RunRow | None]:
    """Takes a run in one of these states that no living process has; None if there is none. One that this process has by the
    record and does not drive (`is_idle`) is nobody's. A process that died while it drove the run is counted."""
    yield from beat(process)
    among = ", ".join(f"'{status}'" for status in statuses)
    mine = " OR process_id = :process" if is_idle else ""
    rows = yield (
        "UPDATE agent_runs SET crashes = CASE WHEN process_id IS NULL OR process_id = :process THEN crashes "
        "ELSE crashes + 1 END, process_id = :process, claims = claims + 1, status = 'running', ended_at = NULL, "
        f"is_queued = FALSE, updated_at = :moment WHERE id = :id AND status IN ({among}) AND ({ORPHAN}{mine}) "
        f"RETURNING {columns(RunRow)}",
        {"id": id, "process": process, "moment": at, **alive_since(lease)},
    )
    return made(RunRow, rows[0]) if rows else None


def end(id: str, status: str, reason: str, at: datetime) -> Transaction[RunRow | None]:
    """Ends a run, whoever drives it, and the subordinates in it; gives it as it was. None: it has ended already."""
    before = yield from get(id)
    rows = yield (
        "UPDATE agent_runs SET status = :status, reason = :reason, pending = '[]', process_id = NULL, updated_at = :moment, "
        f"ended_at = :moment WHERE id = :id AND {LIVE} RETURNING id",
        {"id": id, "status": status, "reason": reason, "moment": at},
    )
    if not rows:
        return None
    for child in (yield from column(f"SELECT id FROM agent_runs WHERE parent_run = :id AND {LIVE}", {"id": id})):
        yield from end(child, status, reason, at)
    return before


def children(id: str) -> Transaction[list[RunRow]]:
    """The runs of subordinates in a run, oldest first."""
    return select(RunRow, "agent_runs", "WHERE parent_run = :id ORDER BY id", {"id": id})


def listed(
    tenant: str, persona: str | None, user: str, *, status: str | None, before: str | None, most: int
) -> Transaction[list[RunRow]]:
    """The latest runs of an actor, latest first, without those of subordinates; older than one, if it is given."""
    chosen = ["tenant_id = :tenant", "user_id = :user", "coalesce(persona_id, '') = :persona", "parent_run IS NULL"]
    values: dict[str, Any] = {"tenant": tenant, "user": user, "persona": persona or "", "most": most}
    for name, sign, given in (("status", "=", status), ("id", "<", before)):
        if given is not None:
            chosen.append(f"{name} {sign} :{name}")
            values[name] = given
    return select(RunRow, "agent_runs", f"WHERE {' AND '.join(chosen)} ORDER BY id DESC LIMIT :most", values)


def orphans(lost: datetime, *, lease: float) -> Transaction[list[RunRow]]:
    """Runs that have not ended, that no living process drives, no person drives by hand, and for which no job was queued
    since then; oldest first."""
    return select(
        RunRow,
        "agent_runs",
        f"WHERE {LIVE} AND is_attended = FALSE AND (is_queued = FALSE OR updated_at < :lost) AND origin IS NULL "
        f"AND {ORPHAN} ORDER BY updated_at, id LIMIT :most",
        {"most": MAX_AT_ONCE, "lost": lost, **alive_since(lease)},
    )


def note_queued(id: str, claims: int, at: datetime) -> Transaction[None]:
    """Notes that a job is to drive a run, unless somebody has taken it meanwhile."""
    yield (
        f"UPDATE agent_runs SET is_queued = TRUE, updated_at = :moment WHERE id = :id AND claims = :claims AND {LIVE}",
        {"id": id, "claims": claims, "moment": at},
    )


def forget(before: datetime) -> Transaction[int]:
    """Deletes runs that ended before then, with their messages; gives how many."""
    gone = yield from column(
        "SELECT id FROM agent_runs WHERE ended_at < :before ORDER BY ended_at LIMIT :most",
        {"before": before, "most": MAX_AT_ONCE},
    )
    for id in gone:
        yield "DELETE FROM agent_messages WHERE run_id = :id", {"id": id}
        yield "DELETE FROM agent_runs WHERE id = :id", {"id": id}
    return len(gone)
