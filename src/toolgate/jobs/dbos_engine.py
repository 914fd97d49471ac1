"""DBOS as the engine of a worker: it decides which worker runs a job, and how many run at once.

Jobs stay in Toolgate's table. A worker hands those that are due to a queue of DBOS, with their priority; whichever worker
DBOS gives one to takes it (`claim_one`) and runs it. So DBOS holds ids alone, may hand one out twice, and may lose one: it
is handed over again. Delays, attempts, approvals and the jobs of dead workers are Toolgate's own affair on this engine too.
"""

import asyncio
import contextlib
import logging
import os
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from toolgate.errors import SettingsError, StoreError, described
from toolgate.extras import require
from toolgate.jobs.job import MIN_PRIORITY
from toolgate.jobs.queue import JobQueue
from toolgate.jobs.worker import RunJob
from toolgate.store import job_claims
from toolgate.store.database import Store
from toolgate.store.live_processes import ProcessHeartbeat, alive_since
from toolgate.tasks import BackgroundTasks, start_task, stop_tasks, wait_for_any
from toolgate.threads import to_thread

QUEUE = WORKFLOW = "toolgate_jobs"
SCHEMA = "toolgate_dbos"
VERSION = "toolgate-1"
"""Pinned: by default it is a hash of the source, and what is queued when the code changes would never be run."""
POLL_SECONDS = 0.25
"""Between two looks of DBOS into its queue: shorter costs CPU of an idle worker."""
WINDOW = 100
"""Jobs that are handed over ahead of those that run; the rest waits in Toolgate's table, where tenants take turns."""
AGAIN_SECONDS = 15.0
"""A job that still waits after this long is handed over again."""
LOOK_SECONDS = 1.0
UPKEEP_SECONDS = 10.0
KEEP = timedelta(hours=1)
"""The time that DBOS keeps what it has done."""
MAX_DELETED = 1_000

logger = logging.getLogger("toolgate.jobs")
_in_use: "weakref.ref[DbosEngine] | None" = None


def database_of(url: str) -> str:
    """The place of the queue of DBOS: a file beside the SQLite file, or a schema of its own in the same PostgreSQL."""
    if url.startswith("sqlite:///"):
        file = Path(url.removeprefix("sqlite:///"))
        return f"sqlite:///{file.with_name(f'{file.stem}-dbos{file.suffix}')}"
    if url.startswith("memory://"):
        raise SettingsError(
            "jobs.engine is dbos, which needs a database; this installation keeps everything in memory.",
            suggestion="Set database_url to a file or a PostgreSQL server, or jobs.engine to store.",
        )
    return url


class DbosEngine:
    """A `JobEngine`."""

    is_over = False

    def __init__(
        self, store: Store, queue: JobQueue, presence: ProcessHeartbeat, concurrency: int, database_url: str
    ) -> None:
        global _in_use
        require("dbos")
        other = None if _in_use is None else _in_use()
        if other is not None and not other.is_over:
            raise SettingsError(
                "DBOS runs once in a process, and another worker of this one has it.",
                suggestion="Run further workers as processes of their own: `toolgate worker`.",
            )
        _in_use = weakref.ref(self)
        self._store = store
        self._queue = queue
        self._presence = presence
        self._concurrency = concurrency
        self._url = database_of(database_url)
        self._tasks = BackgroundTasks()
        self._running: dict[str, asyncio.Task[str]] = {}
        self._handed: dict[str, float] = {}
        self._after = ""
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._run: RunJob | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._function: Callable[[str], None] = self._take

    # -- the port

    async def run(self, run: RunJob, stopping: asyncio.Event, *, once: bool) -> None:
        self._run, self._loop, self._stopping = run, asyncio.get_running_loop(), stopping
        stop = self._queue.watch(lambda _id: self._wake.set())
        upkeep = None
        try:
            await self._begin(once=once)
            upkeep = start_task(self._look_after())
            while not stopping.is_set():
                self._wake.clear()
                left = await self._hand_over()
                if once and not left and not self._running:
                    break
                halting = start_task(stopping.wait())
                try:
                    await wait_for_any(self._wake, halting, seconds=LOOK_SECONDS)
                finally:
                    halting.cancel()
            await self._tasks.wait()
        finally:
            stop()
            await stop_tasks(upkeep)
            await to_thread(self._destroy)
            self.is_over = True

    def cancel(self, id: str) -> None:
        task = self._running.get(id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        await self._tasks.close()

    async def _begin(self, *, once: bool) -> None:
        """Starts DBOS, as soon as its database is there."""
        while not self._stopping.is_set():
            try:
                return await to_thread(self._launch)
            except Exception as error:
                if once:
                    raise StoreError(f"DBOS cannot be started: {described(error)}.") from error
                logger.error("DBOS cannot be started, and is tried again: %s", described(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UPKEEP_SECONDS):
                    await self._stopping.wait()

    # -- to DBOS, and back

    async def _hand_over(self) -> int:
        """Hands jobs that are due to DBOS; gives how many there are, of those that it looked at."""
        moment = self._queue.clock()
        try:
            rows, self._after = await self._store.transact(
                job_claims.due(
                    moment,
                    WINDOW,
                    self._queue.handlers.names,
                    after=self._after,
                    lock=job_claims.skips_locked(self._store.name),
                )
            )
        except StoreError as error:
            logger.warning("no jobs can be handed over now: %s", error)
            return 1
        now = asyncio.get_running_loop().time()
        self._handed = {name: at for name, at in self._handed.items() if now - at < AGAIN_SECONDS}
        fresh = []
        for id, claimed, rank, run_at in rows:
            name = _name(id, claimed, run_at, moment)
            if name not in self._handed:
                self._handed[name] = now
                fresh.append((name, id, rank - MIN_PRIORITY + 1))
        if fresh:
            await to_thread(self._enqueue, fresh)
        return len(rows)

    def _take(self, id: str) -> None:
        """Runs a job for DBOS, which calls this in a thread of its own: on the App's loop."""
        loop = self._loop
        if loop is not None and not self._stopping.is_set():
            with contextlib.suppress(Exception):  # its end is on record, or left to whoever recovers it
                asyncio.run_coroutine_threadsafe(self._run_one(id), loop).result()

    async def _run_one(self, id: str) -> None:
        if self._stopping.is_set() or self._run is None:
            return
        row = await self._store.transact(job_claims.claim_one(id, self._presence.id, self._queue.clock()))
        if row is None or self._queue.handlers.get(row.type) is None:
            return
        task = self._running[id] = self._tasks.start(self._run(row, lambda: None), unheard=True)
        task.add_done_callback(lambda _task: self._ended(id))
        await asyncio.wait((task,))

    def _ended(self, id: str) -> None:
        self._running.pop(id, None)
        self._wake.set()

    # -- in threads: all of DBOS waits

    def _launch(self) -> None:
        from dbos import DBOS, DBOSConfig
        from dbos import _serialization as serialization

        _refuse_pickle(serialization)
        config: DBOSConfig = {
            "name": "toolgate",
            "executor_id": self._presence.id,  # a second worker with the same one would run the first one's work again
            "application_version": VERSION,
            "serializer": serialization.DBOSPortableJSON,
            "dbos_system_schema": SCHEMA,
            "log_level": "WARNING",
            "enable_otlp": False,
        }
        if self._url.startswith("sqlite:"):
            config["system_database_engine"] = _sqlite(self._url)
        else:
            config["system_database_url"] = self._url
        DBOS.destroy(destroy_registry=True)
        DBOS(config=config)
        self._function = DBOS.workflow(name=WORKFLOW)(_workflow(self._take))
        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=self._concurrency,
            polling_interval_sec=POLL_SECONDS,
            on_conflict="always_update",
        )

    def _destroy(self) -> None:
        from dbos import DBOS

        DBOS.destroy(destroy_registry=True, workflow_completion_timeout_sec=1)

    def _enqueue(self, jobs: list[tuple[str, str, int]]) -> None:
        from dbos import DBOS, SetEnqueueOptions, SetWorkflowID

        for name, id, priority in jobs:
            with SetWorkflowID(name), SetEnqueueOptions(priority=priority):
                DBOS.enqueue_workflow(QUEUE, self._function, id)

    async def _look_after(self) -> None:
        while True:
            try:
                living = await self._store.read(job_claims.living(alive_since(self._presence.seconds)))
                await to_thread(self._clear, {*living, self._presence.id}, self._queue.clock())
            except Exception as error:  # noqa: BLE001 - whatever DBOS or a driver raises: the next time
                logger.warning("the queue of DBOS cannot be looked after now: %s", error)
            await asyncio.sleep(UPKEEP_SECONDS)

    def _clear(self, living: set[str], moment: datetime) -> None:
        """Deletes what dead workers had, which Toolgate's table queues again, and what was done long ago."""
        from dbos import DBOS

        pending = DBOS.list_workflows(status="PENDING", limit=MAX_DELETED, load_input=False, load_output=False)
        gone = [each.workflow_id for each in pending if each.executor_id not in living]
        before = (moment - KEEP).isoformat()
        done = DBOS.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED"], end_time=before, limit=MAX_DELETED, load_input=False, load_output=False
        )
        if ids := [*gone, *(each.workflow_id for each in done)]:
            DBOS.delete_workflows(ids)


def _workflow(take: Callable[[str], None]) -> Callable[[str], None]:
    def toolgate_job(id: str) -> None:
        """One job, by its id."""
        take(id)

    return toolgate_job


def _name(id: str, claimed: int, run_at: datetime, moment: datetime) -> str:
    """The id of a workflow. All workers hand a job over under the same one, so that it is queued once; another one after
    each claim, and where it was lost, after a while."""
    turn = max(int((moment - run_at) / timedelta(seconds=AGAIN_SECONDS)), 0)
    return f"{id}#{claimed}#{turn}"


def _refuse_pickle(serialization: Any) -> None:
    """A row may name the format that it is in, and one of them is pickle, which runs code when it is read: not here."""

    def deserialize(_self: Any, _text: str) -> Any:
        raise TypeError("pickled data in the tables of DBOS is not read")

    serialization.DefaultSerializer.deserialize = deserialize


def _sqlite(url: str) -> Any:
    """An engine for a file that only its owner reads, as durable as Toolgate's own."""
    import sqlalchemy

    file = Path(url.removeprefix("sqlite:///"))
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": 30})

    @sqlalchemy.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 30000", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    return engine
