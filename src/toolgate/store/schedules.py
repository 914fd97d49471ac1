"""Schedules: the table that they are kept in, and the transactions that fire one.

What fires is decided by `next_at`: whoever moves it on from the time that they saw queues the job, in the same transaction.
So of any number of workers one queues it, and a worker that dies has either done both or neither.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from toolgate.store import jobs
from toolgate.store.database import Transaction, moment
from toolgate.store.jobs import UNSETTLED, JobRow
from toolgate.store.sql import containing, insert, is_any, made, select, select_one, value

OWN = "tenant_id = :tenant AND user_id = :user"


class ScheduleRow(NamedTuple):
    """A row of schedules."""

    id: str
    tenant_id: str
    persona_id: str | None
    user_id: str
    scopes: str
    name: str
    cron: str
    timezone: str
    type: str
    payload: str
    shown: str
    needs_key: bool
    state: str
    reason: str | None
    next_at: datetime | None
    last_due: datetime | None
    last_at: datetime | None
    last_job: str | None
    is_open: bool
    runs: int
    max_runs: int | None
    until: datetime | None
    missed: int
    failures: int
    created_by: str
    created_at: datetime


class TooManySchedules(Exception):
    """A user has as many schedules as they may have."""


class ScheduleNameTaken(Exception):
    """A user has a schedule of this name."""


class QueueFull(Exception):
    """A tenant has as many jobs as it may have."""


def add(row: ScheduleRow, most: int) -> Transaction[None]:
    """Adds a schedule. Where there is no room, those of the user that have ended make it."""
    whose = {"tenant": row.tenant_id, "user": row.user_id}
    counting = f"SELECT count(*) FROM schedules WHERE {OWN}"
    if int((yield from value(counting, whose))) >= most:
        yield f"DELETE FROM schedules WHERE {OWN} AND state = 'ended' AND NOT is_open", whose
        if int((yield from value(counting, whose))) >= most:
            raise TooManySchedules
    sql, values = insert("schedules", row._asdict())
    if not (yield from is_any(f"{sql} ON CONFLICT DO NOTHING RETURNING id", values)):
        raise ScheduleNameTaken


def get(id: str, tenant: str | None = None) -> Transaction[ScheduleRow | None]:
    """A schedule; None: there is none, or it is another tenant's."""
    own, values = ("", {}) if tenant is None else (" AND tenant_id = :tenant", {"tenant": tenant})
    return select_one(ScheduleRow, "schedules", f"WHERE id = :id{own}", {"id": id, **values})


def named(name: str, tenant: str, user: str) -> Transaction[ScheduleRow | None]:
    """The schedule of a user that has this name."""
    values = {"tenant": tenant, "user": user, "name": name}
    return select_one(ScheduleRow, "schedules", f"WHERE {OWN} AND name = :name", values)


def listed(
    tenant: str,
    owner: tuple[str, str | None] | None,
    most: int,
    after: str | None = None,
    *,
    state: str | None = None,
    named: str | None = None,
) -> Transaction[list[ScheduleRow]]:
    """The schedules of a user in the role of a persona, or of all users of a tenant, oldest first; those after an id, in a
    state, and with a text in their name, if one is given."""
    chosen = "tenant_id = :tenant" if owner is None else f"{OWN} AND coalesce(persona_id, '') = :persona"
    values: dict[str, Any] = {"tenant": tenant, "most": most, "after": after or ""}
    if owner is not None:
        values |= {"user": owner[0], "persona": owner[1] or ""}
    if state is not None:
        chosen, values["state"] = f"{chosen} AND state = :state", state
    if named is not None:
        chosen, values["named"] = rf"{chosen} AND lower(name) LIKE :named ESCAPE '\'", containing(named)
    return select(ScheduleRow, "schedules", f"WHERE {chosen} AND id > :after ORDER BY id LIMIT :most", values)


def remove(id: str) -> Transaction[str | None]:
    """Removes a schedule; gives the id of its job that is not over."""
    return value("DELETE FROM schedules WHERE id = :id RETURNING CASE WHEN is_open THEN last_job END", {"id": id})


def change(row: ScheduleRow, **changes: Any) -> Transaction[bool]:
    """Changes a schedule that is still in the state, and due at the time, that the row says; gives whether it was."""
    sets = ", ".join(f"{name} = :{name}" for name in changes)
    due, values = ("next_at IS NULL", {}) if row.next_at is None else ("next_at = :old_due", {"old_due": row.next_at})
    return is_any(
        f"UPDATE schedules SET {sets} WHERE id = :id AND state = :old_state AND {due} RETURNING id",
        {**changes, **values, "id": row.id, "old_state": row.state},
    )


# -- time


def due(at: datetime, after: tuple[datetime, str] | None, most: int) -> Transaction[list[ScheduleRow]]:
    """Schedules that are due, those first that have been for longest; beginning after one of them."""
    more, values = "", {"moment": at, "most": most}
    if after is not None:
        more = " AND (next_at > :seen OR (next_at = :seen AND id > :seen_id))"
        values |= {"seen": after[0], "seen_id": after[1]}
    rest = f"WHERE state = 'active' AND next_at <= :moment{more} ORDER BY next_at, id LIMIT :most"
    return select(ScheduleRow, "schedules", rest, values)


def next_due(after: datetime) -> Transaction[datetime | None]:
    """The time at which the next schedule fires, of those that are not due yet."""
    found = yield from value(
        "SELECT min(next_at) FROM schedules WHERE state = 'active' AND next_at > :moment", {"moment": after}
    )
    return None if found is None else moment(found)


def is_busy(row: ScheduleRow) -> Transaction[bool]:
    """Tells whether the last job of a schedule is not over."""
    if row.last_job is None:
        return False
    return (yield from is_any(f"SELECT 1 FROM jobs WHERE id = :id AND state IN {UNSETTLED}", {"id": row.last_job}))


def fire(row: ScheduleRow, job: JobRow, limit: jobs.QueueLimit, changes: Mapping[str, Any]) -> Transaction[bool]:
    """Moves a schedule on and queues its job; False: another worker did. Raises QueueFull, and nothing is changed."""
    if not (yield from change(row, **changes)):
        return False
    kept = yield from jobs.add(job, limit)
    if kept is None:
        raise QueueFull
    yield "UPDATE schedules SET last_job = :job, is_open = TRUE WHERE id = :id", {"id": row.id, "job": kept.id}
    return True


def pause(row: ScheduleRow, reason: str, notice: JobRow, limit: jobs.QueueLimit) -> Transaction[bool]:
    """Pauses a schedule, and queues a notice to its user; False: it has been changed meanwhile."""
    if not (yield from change(row, state="paused", reason=reason)):
        return False
    yield from jobs.add(notice, limit)
    return True


# -- what came of the jobs


def ended_jobs(most: int) -> Transaction[list[tuple[ScheduleRow, str | None]]]:
    """Schedules whose last job is over and not counted yet, and how it ended; None: it is not kept any more."""
    names = ", ".join(f"schedules.{name}" for name in ScheduleRow._fields)
    rows = yield (
        f"SELECT {names}, jobs.state FROM schedules LEFT JOIN jobs ON jobs.id = schedules.last_job "
        f"WHERE schedules.is_open AND (jobs.state IS NULL OR jobs.state NOT IN {UNSETTLED}) "
        "ORDER BY schedules.id LIMIT :most",
        {"most": most},
    )
    return [(made(ScheduleRow, row[:-1]), row[-1]) for row in rows]


def count_end(
    row: ScheduleRow, changes: Mapping[str, Any], notice: JobRow | None, limit: jobs.QueueLimit
) -> Transaction[bool]:
    """Notes how the last job of a schedule ended, and queues a notice to its user; False: another worker did, or it has a
    new job."""
    sets = ", ".join(f"{name} = :{name}" for name in changes)
    is_ours = yield from is_any(
        f"UPDATE schedules SET is_open = FALSE, {sets} WHERE id = :id AND is_open AND last_job = :job "
        "AND state = :old_state RETURNING id",
        {**changes, "id": row.id, "job": row.last_job, "old_state": row.state},
    )
    if is_ours and notice is not None:
        yield from jobs.add(notice, limit)
    return is_ours
