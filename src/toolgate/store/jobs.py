"""Jobs: the table that they are queued in, and the transactions that move one from state to state.

    queued -> running -> done | failed | cancelled | parked
    running -> queued (again, after a failure or a crash) | waiting (for a person) -> queued

A worker takes jobs (`claim`) and ends each with the number of its claim: one that was taken for dead meanwhile, and whose
job another worker has, ends nothing. Tenants take turns, so that none waits for another's backlog.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from toolgate.store.database import Transaction, moment
from toolgate.store.live_processes import IS_DEAD
from toolgate.store.sql import column, columns, insert, made, select, select_one, value

UNSETTLED = "('queued', 'running', 'waiting')"
ENDED = "('done', 'failed', 'cancelled')"
MAX_AT_ONCE = 1_000
"""Jobs that one transaction moves when it recovers, releases or forgets."""


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


def add(row: JobRow, most: int) -> Transaction[JobRow | None]:
    """Queues a job; gives it, or the one that has its key already. None: the tenant has too many that wait."""
    if row.idempotency_key is not None and (found := (yield from _with_key(row))) is not None:
        return found
    count = yield from value(
        f"SELECT count(*) FROM (SELECT 1 FROM jobs WHERE tenant_id = :tenant AND state IN {UNSETTLED} LIMIT :most) AS few",
        {"tenant": row.tenant_id, "most": most},
    )
    if int(count) >= most:
        return None
    sql, values = insert("jobs", row._asdict())
    added = yield f"{sql} ON CONFLICT DO NOTHING RETURNING id", values
    return row if added else (yield from _with_key(row))


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


def listed(chosen: Mapping[str, str], most: int) -> Transaction[list[JobRow]]:
    """The latest jobs whose columns have these values, latest first."""
    where = " AND ".join(f"{name} = :{name}" for name in chosen)
    rest = f"WHERE {where} ORDER BY id DESC LIMIT :most" if chosen else "ORDER BY id DESC LIMIT :most"
    return select(JobRow, "jobs", rest, {**chosen, "most": most})


def hasten(id: str, at: datetime) -> Transaction[None]:
    """Has a job that is queued for later run at this time, if that is sooner."""
    yield (
        "UPDATE jobs SET run_at = :moment WHERE id = :id AND state = 'queued' AND run_at > :moment",
        {"id": id, "moment": at},
    )


def counts(tenant: str | None = None) -> Transaction[dict[str, int]]:
    """The number of jobs in each state."""
    own, values = ("", {}) if tenant is None else ("WHERE tenant_id = :tenant ", {"tenant": tenant})
    rows = yield f"SELECT state, count(*) FROM jobs {own}GROUP BY state", values
    return {str(state): int(count) for state, count in rows}


# -- a worker takes jobs


def claim(process: str, at: datetime, most: int, types: frozenset[str]) -> Transaction[list[JobRow]]:
    """Takes up to so many jobs that are due, of these types: of the tenant that has the fewest running ones first."""
    is_known, names = _one_of(types)
    due = {"moment": at, **names}
    waiting = f"state = 'queued' AND run_at <= :moment AND {is_known}"
    tenants = yield from column(
        "WITH RECURSIVE tenants(name) AS ("
        "SELECT min(tenant_id) FROM jobs WHERE state = 'queued' UNION ALL "
        "SELECT (SELECT min(tenant_id) FROM jobs WHERE state = 'queued' AND tenant_id > name) FROM tenants "
        "WHERE name IS NOT NULL) SELECT name FROM tenants WHERE name IS NOT NULL"
    )
    if not tenants:
        return []
    rows = yield "SELECT tenant_id, count(*) FROM jobs WHERE state = 'running' GROUP BY tenant_id", {}
    running = {str(tenant): int(count) for tenant, count in rows}
    found: dict[str, list[str]] = {}
    for tenant in tenants:
        found[tenant] = yield from column(
            f"SELECT id FROM jobs WHERE {waiting} AND tenant_id = :tenant ORDER BY rank, run_at, id LIMIT :most",
            {**due, "tenant": tenant, "most": most},
        )
    taken: list[JobRow] = []
    for id in _in_turn(found, running, most):
        rows = yield (
            "UPDATE jobs SET state = 'running', process_id = :process, claim = claim + 1, started_at = :moment "
            f"WHERE id = :id AND state = 'queued' RETURNING {columns(JobRow)}",
            {"id": id, "process": process, "moment": at},
        )
        taken += [made(JobRow, row) for row in rows]
    return taken


def _in_turn(found: dict[str, list[str]], running: dict[str, int], most: int) -> list[str]:
    """The jobs to take: one after the other of the tenant that has the fewest by then."""
    have = {tenant: running.get(tenant, 0) for tenant in found}
    left = {tenant: iter(ids) for tenant, ids in found.items()}
    chosen: list[str] = []
    while left and len(chosen) < most:
        tenant = min(left, key=lambda name: (have[name], name))
        id = next(left[tenant], None)
        if id is None:
            del left[tenant]
        else:
            chosen.append(id)
            have[tenant] += 1
    return chosen


def claim_one(id: str, process: str, at: datetime) -> Transaction[JobRow | None]:
    """Takes a job, if it is due."""
    rows = yield (
        "UPDATE jobs SET state = 'running', process_id = :process, claim = claim + 1, started_at = :moment "
        f"WHERE id = :id AND state = 'queued' AND run_at <= :moment RETURNING {columns(JobRow)}",
        {"id": id, "process": process, "moment": at},
    )
    return made(JobRow, rows[0]) if rows else None


def next_due(types: frozenset[str]) -> Transaction[datetime | None]:
    """The time at which the next queued job is due."""
    is_known, names = _one_of(types)
    found = yield from value(f"SELECT min(run_at) FROM jobs WHERE state = 'queued' AND {is_known}", names)
    return None if found is None else moment(found)


def _one_of(types: frozenset[str]) -> tuple[str, dict[str, str]]:
    """A condition on the type of a job, and its parameters."""
    names = {f"type{number}": name for number, name in enumerate(sorted(types))}
    return f"type IN ({', '.join(f':{name}' for name in names)})" if names else "FALSE", names


def move(row: JobRow, **changes: Any) -> Transaction[bool]:
    """Changes a job that is running, if this claim of it is the last; gives whether it was."""
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


def recover(alive_since: Mapping[str, Any], at: datetime, max_crashes: int, error: str) -> Transaction[int]:
    """Queues the jobs of workers that died again; one whose workers died too often has failed."""
    rows = yield (
        f"SELECT id, claim FROM jobs WHERE state = 'running' AND {IS_DEAD} LIMIT :most",
        {**alive_since, "most": MAX_AT_ONCE},
    )
    for id, claimed in rows:
        yield (
            "UPDATE jobs SET crashes = crashes + 1, process_id = NULL, "
            "state = CASE WHEN is_cancelled THEN 'cancelled' WHEN crashes + 1 >= :max_crashes THEN 'failed' "
            "ELSE 'queued' END, "
            "ended_at = CASE WHEN is_cancelled OR crashes + 1 >= :max_crashes THEN :moment ELSE NULL END, "
            "error = CASE WHEN crashes + 1 >= :max_crashes THEN :error ELSE error END "
            "WHERE id = :id AND claim = :claim AND state = 'running'",
            {"id": id, "claim": claimed, "max_crashes": max_crashes, "moment": at, "error": error},
        )
    return len(rows)


def release(at: datetime) -> Transaction[int]:
    """Queues the jobs whose question was answered, or can't be any more: running one says what that means for it."""
    rows = yield (
        "SELECT jobs.id FROM jobs LEFT JOIN approvals ON approvals.id = jobs.approval WHERE jobs.state = 'waiting' "
        "AND (approvals.id IS NULL OR approvals.state <> 'waiting' OR approvals.expires_at <= :moment) LIMIT :most",
        {"moment": at, "most": MAX_AT_ONCE},
    )
    for (id,) in rows:
        yield (
            "UPDATE jobs SET state = 'queued', run_at = :moment WHERE id = :id AND state = 'waiting'",
            {
                "id": id,
                "moment": at,
            },
        )
    return len(rows)


def forget(before: datetime) -> Transaction[int]:
    """Deletes jobs that ended before then. What is parked stays until a person has settled it."""
    rows = yield (
        f"DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state IN {ENDED} AND ended_at < :before LIMIT :most) "
        "RETURNING id",
        {"before": before, "most": MAX_AT_ONCE},
    )
    return len(rows)


# -- by hand


def cancel(id: str, at: datetime) -> Transaction[JobRow | None]:
    """Ends a job that waits; has the worker of a running one end it. Gives the job, None: there is none."""
    yield (
        "UPDATE jobs SET state = 'cancelled', is_cancelled = TRUE, ended_at = :moment WHERE id = :id "
        "AND state IN ('queued', 'waiting')",
        {"id": id, "moment": at},
    )
    yield "UPDATE jobs SET is_cancelled = TRUE WHERE id = :id AND state = 'running'", {"id": id}
    return (yield from get(id))


def retry(id: str, at: datetime) -> Transaction[bool]:
    """Queues a job that failed, was cancelled or is parked again; gives whether it was one of these. The attempts go on
    being counted from where they were, so that no idempotency key of an earlier one is used again."""
    rows = yield (
        "UPDATE jobs SET state = 'queued', attempts = attempts + 1, max_attempts = attempts + 1 + max_attempts, "
        "crashes = 0, run_at = :moment, is_cancelled = FALSE, approval = NULL, error = NULL, result = NULL, "
        "progress = NULL, process_id = NULL, ended_at = NULL WHERE id = :id "
        "AND state IN ('failed', 'cancelled', 'parked') RETURNING id",
        {"id": id, "moment": at},
    )
    return bool(rows)
