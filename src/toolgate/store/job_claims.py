"""Jobs and workers: who takes which job, and what happens to those whose worker is gone.

A job whose time has come has the mark `is_due`, so that the next one of a tenant is found in an index, however many there
are and however many wait for a later time. Tenants take turns: whoever looks for jobs goes round among them, and takes one
of the tenant that has the fewest running. On PostgreSQL several workers take jobs at once; each passes over what another
is just taking.
"""

from collections.abc import Container, Mapping
from datetime import datetime
from typing import Any

from toolgate.store import reservations
from toolgate.store.database import Transaction, moment
from toolgate.store.jobs import MAX_AT_ONCE, JobRow
from toolgate.store.live_processes import IS_DEAD
from toolgate.store.sql import column, columns, made, value

DUE = "state = 'queued' AND is_due = TRUE"
LATER = "state = 'queued' AND is_due = FALSE"
TAKE = "UPDATE jobs SET state = 'running', process_id = :process, claim = claim + 1, started_at = :moment"
MAX_TENANTS = 32
"""Tenants that one claim looks at."""


def skips_locked(store_name: str) -> str:
    """The end of a SELECT that locks rows, where several transactions run at once."""
    return " FOR UPDATE SKIP LOCKED" if store_name == "postgres" else ""


def claim(
    process: str, at: datetime, most: int, types: frozenset[str], *, after: str = "", lock: str = ""
) -> Transaction[tuple[list[JobRow], str]]:
    """Takes up to so many jobs that are due, of these types; gives them, and the tenant to go on after next time."""
    yield from _mark_due(at, lock)
    tenants = yield from _round(after)
    if not tenants:
        return [], ""
    rows = yield "SELECT tenant_id, count(*) FROM jobs WHERE state = 'running' GROUP BY tenant_id", {}
    have = dict.fromkeys(tenants, 0) | {str(tenant): int(count) for tenant, count in rows}
    turn = sorted(tenants, key=lambda name: have[name])  # among those with as many, as they come
    chosen: list[str] = []
    while turn and len(chosen) < most:
        # Each of these has a job, mostly: so none of the others would be chosen.
        few, turn = turn[: most - len(chosen)], turn[most - len(chosen) :]
        found = yield from _due_of(few, most - len(chosen), types, lock)
        chosen += _in_turn(found, have, most - len(chosen))
    last = tenants[-1] if len(tenants) == MAX_TENANTS else ""
    if not chosen:
        return [], last
    ids = {f"id{number}": id for number, id in enumerate(chosen)}
    rows = yield (
        f"{TAKE} WHERE id IN ({', '.join(f':{name}' for name in ids)}) AND state = 'queued' RETURNING {columns(JobRow)}",
        {**ids, "process": process, "moment": at},
    )
    taken = {row.id: row for row in (made(JobRow, row) for row in rows)}
    in_turn = [taken[id] for id in chosen if id in taken]
    return in_turn, in_turn[-1].tenant_id if in_turn else last  # else whoever comes first by name would always be the next


def look(
    process: str, at: datetime, most: int, types: frozenset[str], *, after: str = "", lock: str = ""
) -> Transaction[tuple[list[JobRow], str, datetime | None]]:
    """Takes jobs as `claim` does; gives also the time at which the next one is due, None if there is none or all places are
    taken."""
    taken, last = yield from claim(process, at, most, types, after=after, lock=lock)
    return taken, last, (yield from next_due(types)) if len(taken) < most else None


def _mark_due(at: datetime, lock: str) -> Transaction[None]:
    """Marks the jobs whose time has come."""
    yield (
        f"UPDATE jobs SET is_due = TRUE WHERE id IN (SELECT id FROM jobs WHERE {LATER} AND run_at <= :moment "
        f"ORDER BY run_at LIMIT :most{lock})",
        {"moment": at, "most": MAX_AT_ONCE},
    )


def _round(after: str) -> Transaction[list[str]]:
    """The tenants whose turn it is, from the one after this on, and on from the first."""
    tenants = yield from _tenants(after, MAX_TENANTS)
    if after and len(tenants) < MAX_TENANTS:
        others = yield from _tenants("", MAX_TENANTS - len(tenants))
        tenants += [name for name in others if name not in tenants]
    return tenants


def _tenants(after: str, most: int) -> Transaction[list[str]]:
    """The tenants that have jobs to be done, in the order of their names: a look into the index for each."""
    return column(
        f"WITH RECURSIVE tenants(name, number) AS (SELECT min(tenant_id), 1 FROM jobs WHERE {DUE} AND tenant_id > :after "
        f"UNION ALL SELECT (SELECT min(tenant_id) FROM jobs WHERE {DUE} AND tenant_id > tenants.name), number + 1 "
        "FROM tenants WHERE name IS NOT NULL AND number < :most) SELECT name FROM tenants WHERE name IS NOT NULL",
        {"after": after, "most": most},
    )


def _due_of(tenants: list[str], most: int, types: frozenset[str], lock: str) -> Transaction[dict[str, list[str]]]:
    """The next jobs of each tenant."""
    is_known, names = _one_of(types)
    parts = " UNION ALL ".join(
        f"SELECT * FROM (SELECT tenant_id, id FROM jobs WHERE {DUE} AND tenant_id = :tenant{number} AND {is_known} "
        f"ORDER BY rank, run_at, id LIMIT :most{lock}) AS part{number}"
        for number in range(len(tenants))
    )
    values = {f"tenant{number}": tenant for number, tenant in enumerate(tenants)}
    found: dict[str, list[str]] = {tenant: [] for tenant in tenants}
    for tenant, id in (yield parts, {**names, **values, "most": most}):
        found[tenant].append(id)
    return found


def _in_turn(found: Mapping[str, list[str]], have: dict[str, int], most: int) -> list[str]:
    """The jobs to take: one after the other of the tenant that has the fewest by then."""
    left = {tenant: iter(ids) for tenant, ids in found.items()}
    chosen: list[str] = []
    while left and len(chosen) < most:
        tenant = min(left, key=lambda name: have[name])
        id = next(left[tenant], None)
        if id is None:
            del left[tenant]
        else:
            chosen.append(id)
            have[tenant] += 1
    return chosen


DueJob = tuple[str, int, int, datetime]
"""A job that is to be handed to another engine: its id, the number of claims, its rank and its time."""


def due(
    at: datetime, most: int, types: frozenset[str], *, after: str = "", lock: str = ""
) -> Transaction[tuple[list[DueJob], str]]:
    """The next jobs that are due, of tenants in turn, for an engine that decides who takes them; and the tenant to go on
    after next time."""
    yield from _mark_due(at, lock)
    tenants = yield from _round(after)
    found = (yield from _due_of(tenants, most, types, "")) if tenants else {}
    ids = {f"id{number}": id for number, id in enumerate(_in_turn(found, dict.fromkeys(found, 0), most))}
    last = tenants[-1] if len(tenants) == MAX_TENANTS else ""
    if not ids:
        return [], last
    rows = yield f"SELECT id, claim, rank, run_at FROM jobs WHERE id IN ({', '.join(f':{name}' for name in ids)})", ids
    jobs = {str(id): (str(id), int(claimed), int(rank), moment(run_at)) for id, claimed, rank, run_at in rows}
    return [jobs[id] for id in ids.values() if id in jobs], last


def living(alive_since: Mapping[str, Any]) -> Transaction[list[str]]:
    """The processes that show that they are alive."""
    return column("SELECT id FROM processes WHERE seen_at > :alive_since AND seen_at < :alive_until", dict(alive_since))


def claim_one(id: str, process: str, at: datetime) -> Transaction[JobRow | None]:
    """Takes a job, if it is due."""
    rows = yield (
        f"{TAKE}, is_due = TRUE WHERE id = :id AND state = 'queued' AND (is_due OR run_at <= :moment) "
        f"RETURNING {columns(JobRow)}",
        {"id": id, "process": process, "moment": at},
    )
    return made(JobRow, rows[0]) if rows else None


def next_due(types: frozenset[str]) -> Transaction[datetime | None]:
    """The time at which the next queued job is due; one that is past if there is one to be done now."""
    is_known, names = _one_of(types)
    found = yield from value(f"SELECT run_at FROM jobs WHERE {DUE} AND {is_known} LIMIT 1", names)
    if found is None:
        found = yield from value(f"SELECT run_at FROM jobs WHERE {LATER} AND {is_known} ORDER BY run_at LIMIT 1", names)
    return None if found is None else moment(found)


def _one_of(types: frozenset[str]) -> tuple[str, dict[str, str]]:
    """A condition on the type of a job, and its parameters."""
    names = {f"type{number}": name for number, name in enumerate(sorted(types))}
    return f"type IN ({', '.join(f':{name}' for name in names)})" if names else "FALSE", names


# -- what happens to jobs that nobody has


def recover(alive_since: Mapping[str, Any], at: datetime, max_crashes: int, error: str) -> Transaction[int]:
    """Queues the jobs of workers that died again; one whose workers died too often has failed."""
    rows = yield (
        f"SELECT id, claim, is_cancelled, crashes, call_id FROM jobs WHERE state = 'running' AND {IS_DEAD} LIMIT :most",
        {**alive_since, "most": MAX_AT_ONCE},
    )
    for id, claimed, is_cancelled, crashes, _call_id in rows:
        changes: dict[str, Any] = {"state": "queued"}
        if is_cancelled:
            changes = {"state": "cancelled", "ended_at": at}
        elif int(crashes) + 1 >= max_crashes:
            changes = {"state": "failed", "ended_at": at, "error": error}
        sets = ", ".join(f"{name} = :{name}" for name in changes)
        yield (
            f"UPDATE jobs SET crashes = crashes + 1, process_id = NULL, {sets} "
            "WHERE id = :id AND claim = :claim AND state = 'running'",
            {"id": id, "claim": claimed, **changes},
        )
    for _id, _claimed, _is_cancelled, _crashes, call_id in rows:
        if call_id is not None:  # the next attempt is another call
            yield from reservations.release(call_id)
    return len(rows)


def recover_own(process: str, running: Container[str], before: datetime) -> Transaction[int]:
    """Queues the jobs again that a living worker has by the record, and does not run: their end, or that they were taken,
    was lost with a connection."""
    rows = yield (
        "SELECT id, claim FROM jobs WHERE state = 'running' AND process_id = :process AND started_at < :before",
        {"process": process, "before": before},
    )
    lost = [(id, claimed) for id, claimed in rows if id not in running]
    for id, claimed in lost:
        yield (
            "UPDATE jobs SET state = 'queued', process_id = NULL WHERE id = :id AND claim = :claim AND state = 'running'",
            {"id": id, "claim": claimed},
        )
    return len(lost)
