"""The worker: runs jobs until it is told to stop. Which one, and when, the engine says.

Toolgate's own engine takes jobs from the table that they are kept in: at once when a notice says that there is one, and
otherwise when the next one is due. Jobs of a worker that died are queued again by the others, who see that it gives no more
signs of life.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from toolgate.errors import StoreError
from toolgate.jobs.queue import JobQueue, encoded
from toolgate.jobs.runner import JobRunner
from toolgate.model.outcome import ErrorInfo
from toolgate.store import job_claims
from toolgate.store import jobs as table
from toolgate.store.database import Store
from toolgate.store.jobs import JobRow
from toolgate.store.live_processes import ProcessHeartbeat, alive_since
from toolgate.tasks import BackgroundTasks, repeat, start_task, stop_tasks, wait_for_any

IDLE_SECONDS = 5.0
"""The longest time between two looks for jobs that are due: a notice may be lost."""
SOONEST_SECONDS = 0.01
"""The shortest: another worker may just be taking the job that is due."""
FORGET_SECONDS = 3600.0

logger = logging.getLogger("toolgate.jobs")

RunJob = Callable[[JobRow, Callable[[], None]], Awaitable[str]]
"""Runs a job, and calls what it is given once only the record of its end is waited for. Gives the state it is in then."""
Tick = Callable[[], Awaitable[float | None]]


class JobEngine(Protocol):
    """Decides which job this worker runs next. Jobs themselves are kept in Toolgate's table whatever the engine."""

    async def run(self, run: RunJob, stopping: asyncio.Event, *, once: bool) -> None:
        """Has jobs run until `stopping` is set, or (`once`) until none is due; then returns when those that run are done."""

    def cancel(self, id: str) -> None:
        """Interrupts a job that this worker runs; any other is not its affair."""

    async def close(self) -> None:
        """Interrupts what still runs."""


class StoreEngine:
    """The engine that needs nothing but the store."""

    def __init__(self, store: Store, queue: JobQueue, presence: ProcessHeartbeat, concurrency: int) -> None:
        self._store = store
        self._queue = queue
        self._presence = presence
        self._concurrency = concurrency
        self._tasks = BackgroundTasks()
        self._running: dict[str, asyncio.Task[str]] = {}
        self._at_work: set[str] = set()
        """Those of them whose handlers have not ended: of the others only the record is waited for."""
        self._wake = asyncio.Event()
        self._wants_room = True
        """True if there may be jobs that are due and were not taken for want of room."""
        self._after = ""
        """The tenant after which the next claim goes on."""

    async def run(self, run: RunJob, stopping: asyncio.Event, *, once: bool) -> None:
        stop = self._queue.watch(self._heard)
        halting = start_task(stopping.wait())
        halting.add_done_callback(lambda _task: self._wake.set())
        try:
            while not stopping.is_set():
                self._wake.clear()
                self._wants_room = True
                taken, pause = await self._take()
                for row in taken:
                    self._start(run, row)
                if once and pause > 0 and not taken and not self._running:
                    return
                self._wants_room = once or self._room() <= 0
                await self._sleep(pause)
        finally:
            halting.cancel()
            stop()
        await self._tasks.wait()

    def _room(self) -> int:
        """The number of jobs that can be started. A job leaves its place when its handler has ended, so that the record of
        its end and the claim of the next one share a commit; those that wait for their record are bounded too."""
        return min(self._concurrency - len(self._at_work), 2 * self._concurrency - len(self._running))

    async def _take(self) -> tuple[list[JobRow], float]:
        """Jobs to be run, and the seconds until the next one is due; 0: there is one that this worker could take."""
        room = self._room()
        if room <= 0:
            return [], IDLE_SECONDS
        moment, names = self._queue.clock(), self._queue.handlers.names
        lock = job_claims.skips_locked(self._store.name)
        look = job_claims.look(self._presence.id, moment, room, names, after=self._after, lock=lock)
        try:
            taken, self._after, due = await self._store.transact(look)
        except Exception as error:  # noqa: BLE001 - whatever the driver raises: a worker goes on
            logger.warning("no jobs can be taken now: %s", error)
            await asyncio.sleep(1)
            return [], 0.0
        if due is None:
            return taken, IDLE_SECONDS
        return taken, min(IDLE_SECONDS, max((due - self._queue.clock()) / timedelta(seconds=1), 0.0))

    def _start(self, run: RunJob, row: JobRow) -> None:
        self._at_work.add(row.id)
        task = self._running[row.id] = self._tasks.start(run(row, lambda: self._worked(row.id)), unheard=True)
        task.add_done_callback(lambda task: self._ended(row.id, task))

    def _heard(self, id: str) -> None:
        """Something happened to a job. Of those that run here, `_ended` knows more."""
        if id not in self._running:
            self._wake.set()

    def _worked(self, id: str) -> None:
        self._at_work.discard(id)
        if self._wants_room:
            self._wake.set()

    def _ended(self, id: str, task: "asyncio.Task[str]") -> None:
        self._running.pop(id, None)
        self._worked(id)
        if task.cancelled() or task.exception() is not None or task.result() == "queued":  # it will be due again
            self._wake.set()

    async def _sleep(self, seconds: float) -> None:
        """Until a notice, the end of a job, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, SOONEST_SECONDS)):
                await self._wake.wait()

    def cancel(self, id: str) -> None:
        task = self._running.get(id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        await self._tasks.close()


class JobWorker:
    """Runs jobs in this process."""

    def __init__(
        self,
        store: Store,
        queue: JobQueue,
        runner: JobRunner,
        presence: ProcessHeartbeat,
        engine: JobEngine,
        tick: Tick | None = None,
    ) -> None:
        """`tick` queues what schedules say, and gives the seconds until the next."""
        self._store = store
        self._queue = queue
        self._runner = runner
        self._presence = presence
        self._engine = engine
        self._tick = tick
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._upkeep: list[asyncio.Task[None]] = []
        self._work: asyncio.Task[None] | None = None
        self._cancelling = BackgroundTasks()

    async def start(self, *, once: bool = False) -> None:
        """Begins to run jobs in the background; `once`: until none is left that is due."""
        if once and self._tick is not None:
            await self._tick()
        await self._begin()
        self._work = start_task(self._engine.run(self._runner.run, self._stopping, once=once))

    async def run_once(self) -> None:
        """Runs all jobs that are due, and those that they queue, until none is left."""
        await self.start(once=True)
        try:
            await self.wait()
        finally:
            await self.stop()

    async def wait(self) -> None:
        """Waits until it is told to stop, or (`once`) no job is left. Raises what else ended it."""
        if self._work is not None:
            await wait_for_any(self._stopping, self._work)
            if self._work.done():
                self._work.result()

    @property
    def is_halting(self) -> bool:
        return self._stopping.is_set()

    def halt(self) -> None:
        """Has it take no more jobs. `stop` waits for those that run."""
        self._stopping.set()

    def hurry(self) -> None:
        """Has `stop` wait for none of those that run: they are interrupted, and queued again."""
        self._stopping.set()
        self._hurrying.set()

    async def _begin(self) -> None:
        await self._presence.show()
        await self._recover()
        seconds, trouble = self._presence.seconds / 3, "jobs cannot be looked after now"
        self._upkeep = [
            start_task(repeat(min(seconds, IDLE_SECONDS), self._recover, logger, trouble)),
            start_task(repeat(FORGET_SECONDS, self._forget, logger, trouble, at_once=True)),
        ]
        if self._tick is not None:
            self._upkeep.append(start_task(self._keep_time(self._tick)))
        self._unwatch = self._queue.watch(self._look_for_cancelled)

    async def _recover(self) -> None:
        """Queues again what died with its worker, and what a person has answered. Ends what somebody wanted to end whose
        notice came when it was taken but not begun yet."""
        error = encoded(ErrorInfo("OUTCOME_UNKNOWN", "Its workers died too often while they ran it; it may be the reason."))
        moment, most = self._queue.clock(), self._queue.settings.max_crashes
        alive, lease = alive_since(self._presence.seconds), timedelta(seconds=self._presence.seconds)
        moved = await self._store.transact(job_claims.recover(alive, moment, most, error))
        moved += await self._store.transact(job_claims.recover_own(self._presence.id, self._queue.running, moment - lease))
        if moved:
            await self._queue.tell("")
        await self._queue.release()
        await self._cancel_wanted()

    async def _forget(self) -> None:
        before = self._queue.clock() - timedelta(days=self._queue.settings.keep_days)
        while await self._store.transact(table.forget(before)) >= table.MAX_AT_ONCE:
            pass

    async def _keep_time(self, tick: Tick) -> None:
        while True:
            seconds: float | None = None
            try:
                seconds = await tick()
            except StoreError as error:
                logger.warning("schedules cannot be looked at now: %s", error)
            except Exception:  # one schedule that nobody thought of keeps none of the others from firing tomorrow
                logger.exception("schedules cannot be looked at now")
            await asyncio.sleep(min(IDLE_SECONDS, IDLE_SECONDS if seconds is None else max(seconds, 0.05)))

    def _look_for_cancelled(self, id: str) -> None:
        if (not id or id in self._queue.running) and not len(self._cancelling):
            self._cancelling.start(self._cancel_wanted(), unheard=True)

    async def _cancel_wanted(self) -> None:
        for id in await self._store.read(table.cancelled_of(self._presence.id)):
            self._engine.cancel(id)

    async def stop(self) -> None:
        """Takes no more jobs, waits for those that run as long as the settings say, and has the others queued again."""
        self._stopping.set()
        if self._work is not None:
            await wait_for_any(self._hurrying, self._work, seconds=self._queue.settings.drain_seconds)
        await self._engine.close()
        await stop_tasks(self._work, *self._upkeep)
        await self._cancelling.close()
        if self._upkeep:
            self._unwatch()
        self._upkeep = []
