"""Schedules: jobs that are queued again and again, at the times of a cron line. `timer` queues them."""

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import orjson

from toolgate.errors import Failed, plural, quoted
from toolgate.jobs.cron import least_gap, next_time, read_cron, read_zone
from toolgate.jobs.job import Job, job_of, sealed_for
from toolgate.jobs.queue import JobQueue
from toolgate.model import Actor, new_id
from toolgate.store import schedules as table
from toolgate.store.database import Store
from toolgate.store.schedules import QueueFull, ScheduleNameTaken, ScheduleRow, TooManySchedules
from toolgate.store.sealed_values import Seal
from toolgate.tasks import finish

MAX_NAME_CHARS = 64
MAX_RUNS = 1_000_000
MIN_YEAR, MAX_YEAR = 1970, 9000
ScheduleState = Literal["active", "paused", "ended"]


class Schedule(msgspec.Struct, frozen=True):
    """A schedule, as people and programs are shown it: secrets in its payload are masked."""

    id: str
    name: str
    """Of all schedules of a user there is one with this name."""
    state: ScheduleState
    reason: str | None
    """The reason why it is paused, or has ended."""
    tenant: str
    persona: str | None
    user: str
    cron: str
    timezone: str
    type: str
    """Of its jobs."""
    payload: dict[str, Any]
    next_at: datetime | None
    last_due: datetime | None
    """When it was to fire the last time; `last_at` is when it did."""
    last_at: datetime | None
    last_job: str | None
    runs: int
    max_runs: int | None
    until: datetime | None
    missed: int
    """Times at which it did not fire: no worker ran, or the job of the time before was not over."""
    failures: int
    """Of its jobs, in a row."""
    created_by: str
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Gives the schedule as plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class CronTimes(msgspec.Struct, frozen=True):
    """A cron line as it is read, and the next times at which it fires."""

    cron: str
    timezone: str
    times: list[datetime]
    """In UTC."""


def schedule_of(row: ScheduleRow) -> Schedule:
    """A schedule from its row."""
    values = {name: getattr(row, name) for name in Schedule.__struct_fields__ if name in ScheduleRow._fields}
    who = {"tenant": row.tenant_id, "persona": row.persona_id, "user": row.user_id}
    return Schedule(**{**values, **who, "payload": orjson.loads(row.shown)})


def owner_of(row: ScheduleRow) -> Actor:
    """The actor for whom the jobs of a schedule are done."""
    return Actor(row.tenant_id, row.persona_id, row.user_id, tuple(orjson.loads(row.scopes)))


def moved_on(row: ScheduleRow, after: datetime) -> dict[str, Any]:
    """The columns of a schedule that say when it fires next after a moment, or that it does not any more."""
    found = next_time(row.cron, read_zone(row.timezone), after)
    if found is None or (row.until is not None and found > row.until):
        return {"next_at": None, "state": "ended", "reason": "It has no further times."}
    return {"next_at": found}


class Schedules:
    """Schedules of all tenants. Whoever acts for somebody passes their tenant."""

    def __init__(self, store: Store, queue: JobQueue, zone_of: Callable[[Actor], str]) -> None:
        """`zone_of` gives the time zone of an actor who names none."""
        self._store = store
        self.queue = queue
        self._zone_of = zone_of
        self._seal = Seal(store, "schedules")

    async def add(
        self,
        cron: str,
        type: str,  # noqa: A002 - as handlers name it
        payload: Mapping[str, Any],
        *,
        actor: Actor,
        label: str,
        name: str | None = None,
        timezone: str | None = None,
        shown: Mapping[str, Any] | None = None,
        max_runs: int | None = None,
        until: datetime | None = None,
        needs_key: bool = False,
        created_by: str | None = None,
    ) -> Schedule:
        """Adds a schedule that queues a job of a type for an actor.

        Args:
            label: What the name begins with, where none is given.
            timezone: In which the cron line is read; without it, the actor's.
            shown: The payload as records may hold it; without it, secrets in it are looked for.
            max_runs: How often it fires; then it ends.
            until: The last moment at which it may fire.
        Raises Failed: for what is wrong with it.
        """
        zone = self._zone_of(actor) if timezone is None else timezone
        line = read_cron(cron)
        read_zone(zone)
        self._check(line, name, max_runs, until)
        checked = await self.queue.prepare(type, payload, actor=actor, shown=shown)
        id, moment = new_id(), self.queue.clock()
        sealed = await self._seal.close(sealed_for(id, actor, type), orjson.dumps(dict(payload)))
        if sealed is None:
            raise Failed("UNEXPECTED_ERROR", "A schedule cannot be kept: the package cryptography is not installed.")
        row = ScheduleRow(
            id, actor.tenant, actor.persona, actor.user, checked.scopes, name or f"{label[:48]}-{id[-8:]}", line, zone, type,
            sealed, checked.shown, needs_key, "active", None, None, None, None, None, False, 0, max_runs,
            None if until is None else until.astimezone(UTC), 0, 0, created_by or actor.user, moment,
        )  # fmt: skip
        first = moved_on(row, moment)
        if first["next_at"] is None:
            before = "" if until is None else f" before {until.isoformat(timespec='minutes')}"
            raise Failed("VALIDATION_ERROR", f"The schedule {quoted(line)} never fires{before}.")
        row = row._replace(**first)
        await self._keep(row)
        return schedule_of(row)

    def times(self, cron: str, timezone: str | None, count: int, actor: Actor) -> CronTimes:
        """The next times of a cron line, which is refused as `add` would refuse it. Raises Failed."""
        name = self._zone_of(actor) if timezone is None else timezone
        line, zone = read_cron(cron), read_zone(name)
        self._check(line, None, None, None)
        found: list[datetime] = []
        moment: datetime | None = self.queue.clock()
        while len(found) < count and moment is not None and (moment := next_time(line, zone, moment)) is not None:
            found.append(moment)
        return CronTimes(line, name, found)

    async def _keep(self, row: ScheduleRow) -> None:
        most = self.queue.settings.schedules_per_user
        try:
            await finish(self._store.transact(table.add(row, most)))
        except TooManySchedules:
            raise Failed(
                "CAPACITY_EXCEEDED",
                f"User {row.user_id} has {plural(most, 'schedule')}, and may have no more.",
                retryable=False,
                suggestion="Remove one, or raise the setting jobs.schedules_per_user.",
            ) from None
        except ScheduleNameTaken:
            words = f"User {row.user_id} has a schedule named {quoted(row.name, MAX_NAME_CHARS)} already."
            advice = "Give another name, or remove that one first."
            raise Failed("VALIDATION_ERROR", words, suggestion=advice, category="conflict") from None

    def _check(self, line: str, name: str | None, max_runs: int | None, until: datetime | None) -> None:
        least = timedelta(seconds=self.queue.settings.schedule_seconds)
        wrong = None
        if least_gap(line) < least:
            wrong = f"it may fire at most every {least.total_seconds():g} s (setting jobs.schedule_seconds)"
        elif name is not None and (not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable() or name != name.strip()):
            wrong = f"its name must be 1 to {MAX_NAME_CHARS} printable characters"
        elif max_runs is not None and (type(max_runs) is not int or not 1 <= max_runs <= MAX_RUNS):
            wrong = f"the number of its runs must be between 1 and {MAX_RUNS:,}"
        elif until is not None and until.tzinfo is None:
            wrong = "the time at which it ends needs a time zone"
        elif until is not None and not MIN_YEAR <= until.year <= MAX_YEAR:
            wrong = f"the time at which it ends must be in the years {MIN_YEAR} to {MAX_YEAR}"
        if wrong is not None:
            raise Failed("VALIDATION_ERROR", f"The schedule was not added: {wrong}.")

    async def payload_of(self, row: ScheduleRow) -> dict[str, Any] | None:
        """The payload of a schedule as it was given; None: it can't be read."""
        try:
            text = await self._seal.open(sealed_for(row.id, owner_of(row), row.type), row.payload)
            payload: dict[str, Any] | None = None if text is None else orjson.loads(text)
        except ValueError:  # somebody changed the row
            return None
        return payload

    # -- which there are

    async def find(self, id_or_name: str, actor: Actor, *, all_users: bool = False) -> ScheduleRow:
        """A schedule of an actor by its id or name; of all users of their tenant, by its id. Raises Failed."""
        row = await self._store.read(table.get(id_or_name, actor.tenant))
        if row is None and not all_users:
            row = await self._store.read(table.named(id_or_name, actor.tenant, actor.user))
        if row is None or not (all_users or (row.user_id, row.persona_id) == (actor.user, actor.persona)):
            raise Failed(
                "VALIDATION_ERROR",
                f"There is no schedule {quoted(id_or_name, MAX_NAME_CHARS)}.",
                suggestion="`toolgate schedules list` shows those there are.",
                category="missing",
            )
        return row

    async def list(
        self,
        actor: Actor,
        limit: int,
        *,
        all_users: bool = False,
        after: str | None = None,
        state: ScheduleState | None = None,
        named: str | None = None,
    ) -> list[Schedule]:
        """The schedules of an actor, or of all users of their tenant, oldest first: in a state, and with a text in their
        name, or all."""
        owner = None if all_users else (actor.user, actor.persona)
        wanted = table.listed(actor.tenant, owner, limit, after, state=state, named=named)
        return [schedule_of(row) for row in await self._store.read(wanted)]

    # -- by hand

    async def pause(self, row: ScheduleRow, by: str) -> Schedule:
        """Has a schedule fire no more until it is resumed."""
        return await self._change(row, "active", state="paused", reason=f"Paused by {by}.")

    async def resume(self, row: ScheduleRow) -> Schedule:
        """Has a schedule that is paused fire again, from its next time on."""
        changes = {"state": "active", "reason": None, "failures": 0, **moved_on(row, self.queue.clock())}
        return await self._change(row, "paused", **changes)

    async def _change(self, row: ScheduleRow, expected: str, **changes: Any) -> Schedule:
        """Changes a schedule in a state. A worker may fire it meanwhile: then what is changed is looked up again."""
        for _ in range(10):
            if row.state != expected:
                words = f"Schedule {row.name} is {row.state}, not {expected}."
                raise Failed("VALIDATION_ERROR", words, category="conflict")
            if await finish(self._store.transact(table.change(row, **changes))):
                return schedule_of(row._replace(**changes))
            row = await self.find(row.id, owner_of(row))
        raise Failed("UNEXPECTED_ERROR", f"Schedule {row.name} keeps changing; try again.", retryable=True)

    async def remove(self, row: ScheduleRow) -> None:
        """Removes a schedule. Its job is cancelled, if it has one that is not over."""
        job = await finish(self._store.transact(table.remove(row.id)))
        if job is not None:
            with contextlib.suppress(Failed):  # it is over by now
                await self.queue.cancel(job, row.tenant_id)

    async def run_now(self, row: ScheduleRow) -> Job:
        """Queues the job of a schedule now, whatever its times. Raises Failed where its last one is not over."""
        if await self._store.read(table.is_busy(row)):
            raise Failed(
                "VALIDATION_ERROR",
                f"Job {row.last_job} of schedule {row.name} is not over yet.",
                suggestion=f"Wait for it (`toolgate jobs show {row.last_job} --follow`), or cancel it.",
                category="conflict",
            )
        payload = await self.payload_of(row)
        if payload is None:
            raise Failed("UNEXPECTED_ERROR", f"The payload of schedule {row.name} cannot be read.")
        job = await self.queue.prepare(
            row.type, payload, actor=owner_of(row), shown=orjson.loads(row.shown), schedule=row.id
        )
        limit, changes = self.queue.limit, {"last_at": self.queue.clock()}
        try:
            is_queued = await finish(self._store.transact(table.fire(row, job, limit, changes)))
        except QueueFull:
            raise Failed("CAPACITY_EXCEEDED", f"Tenant {row.tenant_id} has too many jobs that are not done yet.") from None
        if not is_queued:
            raise Failed("UNEXPECTED_ERROR", f"Schedule {row.name} has just fired or was changed.", retryable=True)
        await self.queue.tell(job.id)
        return job_of(job)
