"""The queue: takes jobs in, and says what became of them. What runs them is a worker, in this process or in another."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from toolgate.errors import Failed, StoreError, plural, unknown
from toolgate.jobs.handlers import MAX_ATTEMPTS, JobHandlers
from toolgate.jobs.job import MAX_PRIORITY, MIN_PRIORITY, STATES, Job, actor_of, job_of, sealed_for
from toolgate.jsontext import find_not_json
from toolgate.model import Actor, new_id
from toolgate.settings.jobs import JobSettings
from toolgate.store import approvals, reservations
from toolgate.store import jobs as table
from toolgate.store.database import Store, Transaction, now
from toolgate.store.jobs import JobRow
from toolgate.store.sealed_values import Seal
from toolgate.tasks import finish, wait_for_any

TOPIC = "jobs"
"""Of the notices by which processes tell each other that a job was queued, cancelled or ended."""
MAX_KEY_BYTES = 255
MAX_DELAY = timedelta(days=3650)
LOOK_SECONDS = 1.0
"""Between two looks at a job that somebody waits for: a notice may be lost."""
FOLLOW_SECONDS = 0.25
"""The same for one whose progress somebody watches: one in another process may tell nobody."""

logger = logging.getLogger("toolgate.jobs")


class JobQueue:
    """Jobs of all tenants. Whoever acts for somebody passes their tenant; None is the operator, who sees all."""

    def __init__(
        self,
        store: Store,
        handlers: JobHandlers,
        settings: JobSettings,
        *,
        announce: Callable[[str, str], Awaitable[None]],
        watch: Callable[[str, Callable[[str], None]], Callable[[], None]],
        mask: Callable[..., Any],
        clock: Callable[[], datetime] = now,
    ) -> None:
        """`mask` gives a value as records may hold it, without texts that are known to be secret."""
        self._store = store
        self.handlers = handlers
        self.settings = settings
        self._announce = announce
        self._watch = watch
        self._mask = mask
        self.clock = clock
        self._seal = Seal(store, "jobs")
        self.limit = table.QueueLimit(settings.max_queued)
        self.running: set[str] = set()
        """The jobs that workers of this process have under way."""

    # -- taking jobs in

    async def enqueue(
        self,
        type: str,  # noqa: A002 - as handlers name it
        payload: Mapping[str, Any],
        *,
        actor: Actor,
        key: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
        max_attempts: int | None = None,
        shown: Mapping[str, Any] | None = None,
        approval: str | None = None,
        call_id: str | None = None,
    ) -> Job:
        """Queues a job. Where its key was used for one before, gives that one.

        Args:
            shown: The payload as records may hold it; without it, secrets in it are looked for.
            approval: Waits until this approval is answered.
            call_id: The call whose reservation of money it takes along.
        Raises Failed: for what is wrong with it, a key that was used for another payload, too many jobs of the tenant.
        """
        row = await self.prepare(
            type, payload, actor=actor, key=key, delay=delay, priority=priority, max_attempts=max_attempts, shown=shown,
            approval=approval, call_id=call_id,
        )  # fmt: skip
        kept = await finish(self._store.transact(table.add(row, self.limit)))
        if kept is None:
            raise self._full(actor.tenant)
        if kept.payload_hash != row.payload_hash:
            raise Failed(
                "IDEMPOTENCY_CONFLICT",
                f"This idempotency key belongs to job {kept.id}, which has another payload, persona or scopes; "
                "nothing was queued.",
                suggestion="Use a new key for a new job.",
            )
        await self.tell(kept.id)
        return job_of(kept)

    def _full(self, tenant: str) -> Failed:
        return Failed(
            "CAPACITY_EXCEEDED",
            f"Tenant {tenant} has {self.settings.max_queued:,} jobs that are not done yet, and may have no more.",
            retryable=True,
            suggestion="Wait until some are done, or raise the setting jobs.max_queued.",
        )

    async def hasten(self, id: str, delay: float = 0.0) -> Job | None:
        """Has a job that is queued for later run in so many seconds, if that is sooner; gives it. None: there is none."""
        await finish(self._store.transact(table.hasten(id, self.clock() + timedelta(seconds=delay))))
        await self.tell(id)
        return await self.get(id)

    async def prepare(
        self,
        type: str,  # noqa: A002
        payload: Mapping[str, Any],
        *,
        actor: Actor,
        key: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
        max_attempts: int | None = None,
        shown: Mapping[str, Any] | None = None,
        approval: str | None = None,
        call_id: str | None = None,
        schedule: str | None = None,
    ) -> JobRow:
        """A job, checked and encrypted, that can be queued in a transaction of the caller's. Raises Failed."""
        kind = self.handlers.get(type)
        if kind is None:
            raise Failed("VALIDATION_ERROR", f"Job type {unknown(type, sorted(self.handlers.names))}.")
        text = self._checked(payload)
        fault = kind.fault(payload)
        if fault is not None:
            raise Failed("VALIDATION_ERROR", f"The payload of a job of type {type} is wrong: {fault}.")
        attempts = kind.max_attempts if max_attempts is None else max_attempts
        check_wish(key, delay, priority, attempts)
        moment, id = self.clock(), new_id()
        return JobRow(
            id, actor.tenant, actor.persona, actor.user, orjson.dumps(actor.scopes).decode(), type,
            await self._sealed(sealed_for(id, actor, type), text), _payload_hash(actor, text),
            orjson.dumps(self._mask(dict(payload)) if shown is None else shown).decode(),
            "queued" if approval is None else "waiting", -priority, moment + timedelta(seconds=delay), key, attempts,
            0, 0, 0, None, False, approval, call_id, schedule, None, None, None, moment, None, None,
        )  # fmt: skip

    def _checked(self, payload: Mapping[str, Any]) -> bytes:
        """A payload as canonical JSON."""
        wrong = find_not_json(payload)
        if wrong is not None:
            where = f" at {wrong.path}" if wrong.path else ""
            raise Failed("VALIDATION_ERROR", f"The payload cannot be kept:{where} it {wrong.message}.")
        text = orjson.dumps(dict(payload), option=orjson.OPT_SORT_KEYS)
        if len(text) > self.settings.max_payload_bytes:
            raise Failed(
                "VALIDATION_ERROR",
                f"The payload has {len(text):,} bytes; a job may have {self.settings.max_payload_bytes:,}.",
                suggestion="Keep what is large elsewhere and name it in the payload, or raise jobs.max_payload_bytes.",
            )
        return text

    async def _sealed(self, id: str, text: bytes) -> str:
        sealed = await self._seal.close(id, text)
        if sealed is None:
            raise Failed("UNEXPECTED_ERROR", "A job cannot be kept: the package cryptography is not installed.")
        return sealed

    async def payload_of(self, row: JobRow) -> dict[str, Any] | None:
        """The payload of a job as it was given; None: it can't be read."""
        try:
            text = await self._seal.open(sealed_for(row.id, actor_of(row), row.type), row.payload)
            payload: dict[str, Any] | None = None if text is None else orjson.loads(text)
        except ValueError:  # somebody changed the row
            return None
        return payload

    def masked(self, value: Any, known: tuple[str, ...] = ()) -> Any:
        """The words or the result of a tool or a handler as records may hold them: without secrets and these texts."""
        return self._mask(value, known)

    async def is_of_call(self, id: str, call_id: str) -> bool:
        """Tells whether a job was queued by this call, not by an earlier one with the same key."""
        row = await self._store.read(table.get(id))
        return row is not None and row.call_id == call_id

    async def tell(self, id: str) -> None:
        """Tells workers, and whoever waits for it, that something happened to a job."""
        await self._announce(TOPIC, id)

    def watch(self, watcher: Callable[[str], None]) -> Callable[[], None]:
        """Has something called with the id of each job that something happens to ("": look at all)."""
        return self._watch(TOPIC, watcher)

    # -- what became of them

    async def get(self, id: str, tenant: str | None = None) -> Job | None:
        row = await self._store.read(table.get(id, tenant))
        return None if row is None else job_of(row)

    async def list(
        self,
        *,
        owner: Actor | None = None,
        tenant: str | None = None,
        persona: str | None = None,
        state: str | None = None,
        type: str | None = None,  # noqa: A002
        limit: int = 100,
        before: str | None = None,
    ) -> list[Job]:
        """The latest jobs, latest first: of an actor, or of a tenant or of all tenants, of one persona or of all; those that
        are older than one, if it is given."""
        chosen = {"tenant_id": tenant, "persona_id": persona, "state": state, "type": type}
        given = {name: value for name, value in chosen.items() if value is not None}
        if owner is not None:
            given |= {"tenant_id": owner.tenant, "persona_id": owner.persona or "", "user_id": owner.user}
        if state is not None and state not in STATES:
            raise Failed("VALIDATION_ERROR", f"A job is {', '.join(STATES[:-1])} or {STATES[-1]}, not {state!r:.40}.")
        return [job_of(row) for row in await self._store.read(table.listed(given, limit, before))]

    async def counts(self, tenant: str | None = None) -> dict[str, int]:
        return await self._store.read(table.counts(tenant))

    async def wait(self, id: str, seconds: float, tenant: str | None = None) -> Job | None:
        """Gives a job once it is over, or as it is when the time is."""
        changed = asyncio.Event()
        stop = self.watch(lambda told: changed.set() if told in ("", id) else None)
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            while True:
                changed.clear()
                job = await self.get(id, tenant)
                left = deadline - asyncio.get_running_loop().time()
                if job is None or job.is_over or left <= 0:
                    return job
                try:
                    async with asyncio.timeout(min(left, LOOK_SECONDS)):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            stop()

    async def follow(self, id: str, tenant: str | None = None) -> AsyncGenerator[Job]:
        """Gives a job as it is, and again whenever it has changed, until it is over."""
        changed = asyncio.Event()
        stop = self.watch(lambda told: changed.set() if told in ("", id) else None)
        last: Job | None = None
        try:
            while True:
                changed.clear()
                job = await self.get(id, tenant)
                if job is None:
                    return
                if job != last:
                    yield job
                if job.is_over:
                    return
                last = job
                await wait_for_any(changed, seconds=FOLLOW_SECONDS)
        finally:
            stop()

    async def release(self) -> None:
        """Queues the jobs that waited for a person and were answered. What can't be done now, a worker does later."""
        try:
            moved = await finish(self._store.transact(table.release(self.clock())))
        except StoreError as error:
            logger.warning("jobs that were agreed to cannot be queued yet: %s", error)
            return
        if moved:
            await self.tell("")

    # -- by hand

    async def cancel(self, id: str, tenant: str | None = None) -> Job | None:
        """Ends a job that waits or is parked, and has a running one ended; gives it as it is then. None: there is none.
        Raises Failed for a job that is over."""
        found = await self.get(id, tenant)
        if found is None:
            return None
        if found.state in ("done", "failed"):
            words = f"Job {id} is {found.state}: there is nothing left to cancel."
            raise Failed("VALIDATION_ERROR", words, category="conflict")
        row = await finish(self._store.transact(_cancel(id, self.clock())))
        await self.tell(id)
        return None if row is None else job_of(row)

    async def retry(self, id: str, tenant: str | None = None) -> Job | None:
        """Queues a job again that failed, was cancelled or is parked; gives it. None: there is none. Raises Failed for a
        job in another state, and where the tenant has too many that are not done."""
        found = await self.get(id, tenant)
        if found is None:
            return None
        if not await finish(self._store.transact(table.has_room(found.tenant, self.limit))):
            raise self._full(found.tenant)
        if not await finish(self._store.transact(table.retry(id, self.clock()))):
            raise Failed(
                "VALIDATION_ERROR",
                f"Job {id} is {found.state}; only a job that failed, was cancelled or is parked can be tried again.",
                category="conflict",
            )
        await self.tell(id)
        return await self.get(id, tenant)


def _cancel(id: str, at: datetime) -> Transaction[JobRow | None]:
    row = yield from table.cancel(id, at)
    if row is not None and row.state == "cancelled":
        yield from give_back(row, at)
    return row


def give_back(row: JobRow, at: datetime) -> Transaction[None]:
    """Gives back what a job holds that was cancelled: its money, and the question to a person, whose answer would else have
    its call run after all."""
    if row.call_id is not None:
        yield from reservations.release(row.call_id)
    if row.approval is not None:
        yield from approvals.withdraw(row.approval, row.tenant_id, at)


def _payload_hash(actor: Actor, text: bytes) -> str:
    """A digest of all that a key stands for. Persona and scopes belong to it: else another persona of the user would be
    given the result."""
    return sha256(orjson.dumps((actor.persona, sorted(set(actor.scopes)))) + text).hexdigest()


def check_wish(key: str | None, delay: float, priority: int, attempts: int = 1) -> None:
    """Raises Failed for a wish that no job can have."""
    wrong = None
    if key is not None and not (isinstance(key, str) and key.isprintable() and 0 < len(key.encode()) <= MAX_KEY_BYTES):
        wrong = f"an idempotency key is printable text of 1 to {MAX_KEY_BYTES} bytes"
    elif not isinstance(delay, int | float) or not math.isfinite(delay) or not 0 <= delay <= MAX_DELAY.total_seconds():
        wrong = f"a delay is between 0 s and {plural(MAX_DELAY.days, 'day')}"
    elif type(priority) is not int or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        wrong = f"a priority is a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}"
    elif type(attempts) is not int or not 1 <= attempts <= MAX_ATTEMPTS:
        wrong = f"the number of attempts is between 1 and {MAX_ATTEMPTS}"
    if wrong is not None:
        raise Failed("VALIDATION_ERROR", f"The job was not queued: {wrong}.")


def encoded(value: Any) -> str:
    """A result or an error as the table holds it."""
    return msgspec.json.encode(value).decode()
