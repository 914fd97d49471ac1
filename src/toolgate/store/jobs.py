"""Jobs: the table that they are queued in, and the transactions that move one from state to state.

    queued -> running -> done | failed | cancelled | parked
    running -> queued (again, after a failure or a crash) | waiting (for a person) -> queued

A worker takes jobs (`job_claims`) and ends each with the number of its claim: one that was taken for dead meanwhile, and
whose job another worker has, ends nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.live_processes import IS_DEAD
from toolgate.store.sql import column, insert, select, select_one, value

UNSETTLED = "('queued', 'running', 'waiting')"
ENDED = "('done', 'failed', 'cancelled')"
MAX_AT_ONCE = 1_000
"""Jobs that one transaction moves when it recovers, releases or forgets."""
COUNT_SECONDS, COUNT_SHARE = 1.0, 10
MAX_COUNTED_TENANTS = 10_000


class JobRow(NamedTuple):
    """A row of jobs."""

    id: str
    tenant_id: str
    persona_id: str | None
    user_id: str
    scopes: str
    type: str
    payload: str
    payload_hash: str
    shown: str
    state: str
    rank: int
    run_at: datetime
    idempotency_key: str | None
    max_attempts: int
    attempts: int
    crashes: int
    claim: int
    process_id: str | None
    is_cancelled: bool
    approval: str | None
    call_id: str | None
    schedule_id: str | None
    progress: str | None
    result: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class QueueLimit:
    """The most jobs of one tenant that are not done. To count them takes the longer the more there are. So a count holds for
    a second and for a tenth of the room that it found: one process never queues too many by itself, and while there is
    little room it counts each time. Several processes may together queue as many more as each of them takes in within that
    second, at most a tenth of the limit each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._room: dict[str, tuple[float, int]] = {}
        """By tenant: until when its last count holds, and for how many more jobs."""

    def has_room(self, tenant: str) -> bool:
        """Takes room for one job that is known to be there; False: the tenant's jobs must be counted."""
        until, left = self._room.get(tenant, (0.0, 0))
        if not left or monotonic() >= until:
            return False
        self._room[tenant] = until, left - 1
        return True

    def note(self, tenant: str, count: int) -> bool:
        """Notes how many jobs a tenant has; False: it may have no more."""
        if len(self._room) >= MAX_COUNTED_TENANTS:
            self._room.clear()
        self._room[tenant] = monotonic() + COUNT_SECONDS, (self.most - count) // COUNT_SHARE
        return count < self.most


def add(row: JobRow, limit: QueueLimit) -> Transaction[JobRow | None]:
    """Queues a job; gives it, or the one that has its key already. None: the tenant has too many that wait."""
    if row.idempotency_key is not None and (found := (yield from _with_key(row))) is not None:
        return found
    if not (yield from has_room(row.tenant_id, limit)):
        return None
    sql, values = insert("jobs", {**row._asdict(), "is_due": row.run_at <= row.created_at})
    added = yield f"{sql} ON CONFLICT DO NOTHING RETURNING id", values
    return row if added else (yield from _with_key(row))


def has_room(tenant: str, limit: QueueLimit) -> Transaction[bool]:
    """Tells whether a tenant may have one more job that is not done."""
    if limit.has_room(tenant):
        return True
    count = yield from value(
        f"SELECT count(*) FROM (SELECT 1 FROM jobs WHERE tenant_id = :tenant AND state IN {UNSETTLED} LIMIT :most) AS few",
        {"tenant": tenant, "most": limit.most},
    )
    return limit.note(tenant, int(count))


def _with_key(row: JobRow) -> Transaction[JobRow | None]:
    return select_one(
        JobRow,
        "jobs",
        "WHERE tenant_id = :tenant AND user_id = :user AND type = :type AND idempotency_key = :key",
        {"tenant": row.tenant_id, "user": row.user_id, "type": row.type, "key": row.idempotency_key},
    )


def get(id: str, tenant: str | None = None) -> Transaction[JobRow | None]:
    """A job; None: there is none, or it is another tenant's."""
    own = "" if tenant is None else " AND tenant_id = :tenant"
    return select_one(JobRow, "jobs", f"WHERE id = :id{own}", {"id": id, **({} if tenant is None else {"tenant": tenant})})


def listed(chosen: Mapping[str, str], most: int, before: str | None = None) -> Transaction[list[JobRow]]:
    """The latest jobs whose columns have these values, latest first; those before an id, if one is given. A persona "" is
    none."""
    columns = {"persona_id": "coalesce(persona_id, '')"}
    wanted = [f"{columns.get(name, name)} = :{name}" for name in chosen] + (["id < :before"] if before is not None else [])
    where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
    values = {**chosen, "most": most, **({} if before is None else {"before": before})}
    return select(JobRow, "jobs", f"{where}ORDER BY id DESC LIMIT :most", values)


def count_since(since: datetime, tenant: str, user: str, type: str, key_prefix: str) -> Transaction[int]:  # noqa: A002
    """Counts a user's jobs of a type that were queued since, and whose key begins so."""
    return value(
        "SELECT count(*) FROM jobs WHERE tenant_id = :tenant AND user_id = :user AND type = :type "
        "AND substr(idempotency_key, 1, :length) = :prefix AND created_at > :since",
        {
            "tenant": tenant, "user": user, "type": type, "prefix": key_prefix, "length": len(key_prefix), "since": since,
        },
    )  # fmt: skip


def hasten(id: str, at: datetime) -> Transaction[None]:
    """Has a job that is queued for later run at this time, if that is sooner."""
    yield (
        "UPDATE jobs SET run_at = :moment WHERE id = :id AND state = 'queued' AND run_at > :moment",
        {"id": id, "moment": at},
    )


def ids(tenant: str | None, beginning: str) -> Transaction[list[tuple[str, str]]]:
    """The ids that begin so, of a tenant or of all (None), each with its tenant; at most two: enough to tell whether one is
    meant."""
    own, values = ("", {}) if tenant is None else (" AND tenant_id = :tenant", {"tenant": tenant})
    rows = yield f"SELECT id, tenant_id FROM jobs WHERE id = :id{own}", {"id": beginning, **values}
    if not rows:
        rows = yield (
            f"SELECT id, tenant_id FROM jobs WHERE substr(id, 1, :length) = :beginning{own} ORDER BY id LIMIT 2",
            {"beginning": beginning, "length": len(beginning), **values},
        )
    return [(str(id), str(owner)) for id, owner in rows]


class JobBacklog(NamedTuple):
    """The jobs that somebody should look at."""

    counts: dict[str, int]
    """By state."""
    failed: int
    """Since a moment."""
    overdue: dict[str, int]
    """Jobs that are due since before another moment, by type."""
    is_worked: bool
    """True if a living process runs a job."""


def backlog(alive_since: Mapping[str, Any], failed_since: datetime, due_before: datetime) -> Transaction[JobBacklog]:
    """The jobs of all tenants, as a check of the installation sees them."""
    found = yield from counts()
    failed = yield from value(
        "SELECT count(*) FROM jobs WHERE state = 'failed' AND ended_at > :since", {"since": failed_since}
    )
    rows = yield (
        "SELECT type, count(*) FROM jobs WHERE state = 'queued' AND run_at < :due GROUP BY type ORDER BY type",
        {"due": due_before},
    )
    running = yield f"SELECT 1 FROM jobs WHERE state = 'running' AND NOT ({IS_DEAD}) LIMIT 1", dict(alive_since)
    return JobBacklog(found, int(failed), {str(name): int(count) for name, count in rows}, bool(running))


def counts(tenant: str | None = None) -> Transaction[dict[str, int]]:
    """The number of jobs in each state."""
    own, values = ("", {}) if tenant is None else ("WHERE tenant_id = :tenant ", {"tenant": tenant})
    rows = yield f"SELECT state, count(*) FROM jobs {own}GROUP BY state", values
    return {str(state): int(count) for state, count in rows}


# -- by the worker that has them


def move(row: JobRow, **changes: Any) -> Transaction[bool]:
    """Changes a job that is running, if this claim of it is the last; gives whether it was."""
    if "run_at" in changes:
        changes["is_due"] = False
    sets = ", ".join(f"{name} = :{name}" for name in changes)
    rows = yield (
        f"UPDATE jobs SET {sets} WHERE id = :id AND claim = :claim AND state = 'running' RETURNING id",
        {**changes, "id": row.id, "claim": row.claim},
    )
    return bool(rows)


def cancelled_of(process: str) -> Transaction[list[str]]:
    """Jobs of a worker that somebody wants to end."""
    return column(
        "SELECT id FROM jobs WHERE state = 'running' AND process_id = :process AND is_cancelled", {"process": process}
    )


# -- what happens to jobs that nobody has


def release(at: datetime) -> Transaction[int]:
    """Queues the jobs whose question was answered, or can't be any more: running one says what that means for it."""
    rows = yield (
        "SELECT jobs.id FROM jobs LEFT JOIN approvals ON approvals.id = jobs.approval WHERE jobs.state = 'waiting' "
        "AND (approvals.id IS NULL OR approvals.state <> 'waiting' OR approvals.expires_at <= :moment) LIMIT :most",
        {"moment": at, "most": MAX_AT_ONCE},
    )
    for (id,) in rows:
        yield (
            "UPDATE jobs SET state = 'queued', run_at = :moment, is_due = TRUE WHERE id = :id AND state = 'waiting'",
            {"id": id, "moment": at},
        )
    return len(rows)


def forget(before: datetime) -> Transaction[int]:
    """Deletes jobs that ended before then. What is parked stays until a person has settled it."""
    rows = yield (
        f"DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE ended_at < :before AND state IN {ENDED} LIMIT :most) "
        "RETURNING id",
        {"before": before, "most": MAX_AT_ONCE},
    )
    return len(rows)


# -- by hand


def cancel(id: str, at: datetime) -> Transaction[JobRow | None]:
    """Ends a job that waits or is parked; has the worker of a running one end it. Gives the job, None: there is none."""
    yield (
        "UPDATE jobs SET state = 'cancelled', is_cancelled = TRUE, ended_at = :moment WHERE id = :id "
        "AND state IN ('queued', 'waiting', 'parked')",
        {"id": id, "moment": at},
    )
    yield "UPDATE jobs SET is_cancelled = TRUE WHERE id = :id AND state = 'running'", {"id": id}
    return (yield from get(id))


def retry(id: str, at: datetime) -> Transaction[bool]:
    """Queues a job that failed, was cancelled or is parked again; gives whether it was one of these. The attempts go on
    being counted from where they were, so that no idempotency key of an earlier one is used again. Rate limits count it as a
    call of its own."""
    rows = yield (
        "UPDATE jobs SET state = 'queued', attempts = attempts + 1, max_attempts = attempts + 1 + max_attempts, "
        "crashes = 0, run_at = :moment, is_due = TRUE, is_cancelled = FALSE, approval = NULL, error = NULL, result = NULL, "
        "progress = NULL, process_id = NULL, ended_at = NULL, call_id = NULL WHERE id = :id "
        "AND state IN ('failed', 'cancelled', 'parked') RETURNING id",
        {"id": id, "moment": at},
    )
    return bool(rows)
