"""The timer of schedules: queues their jobs when their times come, and pauses schedules whose jobs keep failing.

Every worker does so. A schedule whose time passed while no worker ran fires once, late; one whose last job is not over lets
the time pass, so that what waits for a person, or is slow, does not pile up.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import orjson

from toolgate.errors import Failed, StoreError
from toolgate.jobs.cron import next_time, read_zone
from toolgate.jobs.schedules import Schedules, moved_on, owner_of
from toolgate.model import Actor
from toolgate.store import schedules as table
from toolgate.store.database import Store
from toolgate.store.jobs import JobRow
from toolgate.store.schedules import QueueFull, ScheduleRow
from toolgate.tasks import finish

NOTICE = "send_notification"
"""The type of the jobs that tell a user something."""
PAGE = 100
LATE = timedelta(seconds=60)
"""Whatever fires later than this is put on record as late."""
MAX_MISSED = 100
"""Missed times that are counted at once."""

logger = logging.getLogger("toolgate.jobs")
Note = Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]


class ScheduleTimer:
    """Looks at all schedules of the store."""

    def __init__(self, store: Store, schedules: Schedules, note: Note) -> None:
        """`note` puts on record what happened to a schedule."""
        self._store = store
        self._schedules = schedules
        self._queue = schedules.queue
        self._note = note

    async def tick(self) -> float | None:
        """Queues what is due. Gives the seconds until the next time; None: there is none. What is due and cannot be queued
        here (no handler, a full queue) is not counted: it would have the worker look again at once, and again."""
        await self._count_ends()
        at = self._queue.clock()
        seen: tuple[datetime, str] | None = None
        while page := await self._store.read(table.due(at, seen, PAGE)):
            for row in page:
                try:
                    await self._fire(row, at)
                except StoreError:
                    raise
                except Exception:  # whatever is wrong with one keeps none of the others from firing
                    logger.exception("schedule %s cannot fire", row.id)
            assert page[-1].next_at is not None
            seen = page[-1].next_at, page[-1].id
        due = await self._store.read(table.next_due(at))
        return None if due is None else (due - self._queue.clock()).total_seconds()

    # -- firing

    async def _fire(self, row: ScheduleRow, at: datetime) -> None:
        assert row.next_at is not None
        if self._queue.handlers.get(row.type) is None:
            return  # another worker may have it
        try:
            missed, changes = self._times(row, row.next_at, at)
            if await self._store.read(table.is_busy(row)):
                await self._store.transact(table.change(row, **changes, missed=row.missed + missed + 1))
                return
            job = await self._job(row, row.next_at)
        except Failed as error:  # its zone is gone, or its payload does not fit any more
            await self._pause(row, f"It cannot fire: {error.message}")
            return
        if row.max_runs is not None and row.runs + 1 >= row.max_runs:
            changes = {"next_at": None, "state": "ended", "reason": "It has run as often as it was to."}
        changes |= {"last_due": row.next_at, "last_at": at, "runs": row.runs + 1, "missed": row.missed + missed}
        try:
            has_fired = await finish(self._store.transact(table.fire(row, job, self._queue.limit, changes)))
        except QueueFull:
            logger.warning("schedule %s cannot fire: tenant %s has too many jobs that wait", row.id, row.tenant_id)
            return
        if has_fired:
            await self._queue.tell(job.id)
            if missed or at - row.next_at > LATE:
                details = {"schedule": row.id, "name": row.name, "due": row.next_at.isoformat(), "missed": missed}
                await self._note("schedule.late", owner_of(row), "", {**details, "job": job.id})

    def _times(self, row: ScheduleRow, due: datetime, at: datetime) -> tuple[int, dict[str, Any]]:
        """Gives the number of times that passed since the one that is due, and what comes after."""
        zone, missed = read_zone(row.timezone), 0
        least = timedelta(seconds=self._queue.settings.schedule_seconds)
        time = next_time(row.cron, zone, due)
        while time is not None and time <= at and missed < MAX_MISSED:
            missed += 1
            time = next_time(row.cron, zone, time)
        try:
            soonest = max(at, due + least - timedelta(seconds=1))
        except OverflowError:
            soonest = at
        return missed, moved_on(row, soonest)

    async def _job(self, row: ScheduleRow, due: datetime) -> JobRow:
        payload = await self._schedules.payload_of(row)
        if payload is None:
            raise Failed("UNEXPECTED_ERROR", "its payload cannot be read.")
        return await self._queue.prepare(
            row.type,
            payload,
            actor=owner_of(row),
            key=f"schedule:{row.id}:{due.isoformat()}",
            shown=orjson.loads(row.shown),
            schedule=row.id,
        )

    async def _pause(self, row: ScheduleRow, reason: str) -> None:
        notice = await self._notice(row, reason)
        if await finish(self._store.transact(table.pause(row, reason, notice, self._queue.limit))):
            await self._tell_paused(row, reason, notice)

    # -- what came of the jobs

    async def _count_ends(self) -> None:
        while rows := await self._store.read(table.ended_jobs(PAGE)):
            for row, state in rows:
                await self._count_end(row, state)

    async def _count_end(self, row: ScheduleRow, state: str | None) -> None:
        failures = {"done": 0, "failed": row.failures + 1, "parked": row.failures + 1}.get(state or "", row.failures)
        changes: dict[str, Any] = {"failures": failures}
        notice = reason = None
        if row.state == "active" and failures >= self._queue.settings.schedule_failures:
            times = "failed" if failures == 1 else f"failed {failures} times in a row"
            reason = f"Its job {times}; the last is {row.last_job}."
            changes |= {"state": "paused", "reason": reason}
            notice = await self._notice(row, reason)
        limit = self._queue.limit
        if await finish(self._store.transact(table.count_end(row, changes, notice, limit))) and notice and reason:
            await self._tell_paused(row, reason, notice)

    async def _notice(self, row: ScheduleRow, reason: str) -> JobRow:
        message = (
            f"Your schedule {row.name} ({row.cron}, {row.timezone}) is paused. {reason} "
            f"`toolgate schedules show {row.id}` shows it, `toolgate schedules resume {row.id}` has it fire again."
        )
        told = {"userId": row.user_id, "title": "Schedule paused", "body": message}
        return await self._queue.prepare(NOTICE, told, actor=owner_of(row))

    async def _tell_paused(self, row: ScheduleRow, reason: str, notice: JobRow) -> None:
        logger.warning("schedule %s is paused: %s", row.id, reason)
        await self._queue.tell(notice.id)
        details = {"schedule": row.id, "name": row.name, "reason": reason}
        await self._note("schedule.paused", owner_of(row), "", details)
