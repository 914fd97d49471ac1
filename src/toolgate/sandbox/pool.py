"""Workers that are started before they are needed. Each is used once: nothing of one job can be there for the next.

For every kind of worker (its `Spec`) that was asked for of late, a few are kept warm, as long as all of them together stay
within a bound of memory. Those that nobody asked for in a while are let go.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from time import monotonic

from toolgate.sandbox.jail import MB, Jail, Profile, Spec, Unavailable
from toolgate.sandbox.worker_protocol import Worker
from toolgate.tasks import BackgroundTasks, start_task

START_SECONDS = 20.0
"""A worker that is not ready by then has failed to start."""
REFILL_SECONDS = 0.02
"""Seconds after one was taken, the next is started: that holds the loop up for a moment, and a short job is done by then."""
MAX_STARTING = 2
"""Workers that are started at the same time, beyond those that somebody waits for."""
IDLE_BYTES: dict[Profile, int] = {"python": 16 * MB, "deno": 72 * MB, "shell": 8 * MB}
"""The memory that an idle worker of a kind takes, about."""

logger = logging.getLogger("toolgate.sandbox")


class WarmWorkers:
    """The workers of one kind."""

    def __init__(self) -> None:
        self.idle: deque[Worker] = deque()
        self.waiting: deque[asyncio.Future[Worker]] = deque()
        self.starting = 0
        self.used_at = monotonic()

    def next_waiter(self) -> "asyncio.Future[Worker] | None":
        """The waiter that has waited longest and is still there, taken off the queue."""
        while self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                return waiter
        return None


class Pool:
    """Gives workers."""

    def __init__(self, jail: Jail, *, warm: int, memory: int, idle_seconds: float) -> None:
        self._jail = jail
        self._warm = warm
        self._memory = memory
        self._idle_seconds = idle_seconds
        self._shelves: OrderedDict[Spec, WarmWorkers] = OrderedDict()
        self._tasks = BackgroundTasks()
        self._watching = BackgroundTasks()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self, spec: Spec) -> Worker:
        """A worker that is ready; its taker closes it."""
        if self._closed:
            raise Unavailable("the sandbox is closed")
        shelf = self._shelf(spec)
        worker = self._waiting_one(shelf) or await self._next_one(spec, shelf)
        for _ in range(MAX_STARTING):
            if worker.process.is_alive():
                break
            self._tasks.start(worker.close())  # it died after it had said that it was ready, before that was heard
            worker = await self._next_one(spec, shelf)
        asyncio.get_running_loop().call_later(REFILL_SECONDS, self._refill, spec, shelf)
        return worker

    async def _next_one(self, spec: Spec, shelf: WarmWorkers) -> Worker:
        """The next worker that is ready, of those that are being started."""
        waiter: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        shelf.waiting.append(waiter)
        if shelf.starting < len(shelf.waiting):
            self._begin(spec, shelf)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._keep(spec, shelf, waiter.result())
            raise

    def _waiting_one(self, shelf: WarmWorkers) -> Worker | None:
        """A worker that is warm; one that died a moment ago, which nobody has noticed yet, is let go."""
        while shelf.idle:
            worker = shelf.idle.popleft()
            if worker.process.is_alive():
                worker.process.busy = True
                return worker
            self._tasks.start(worker.close())
        return None

    def _keep(self, spec: Spec, shelf: WarmWorkers, worker: Worker) -> None:
        """Put a worker that nobody waits for on its shelf, if there it may wait."""
        full = len(shelf.idle) >= self._wanted(spec) or self._resident() + IDLE_BYTES[spec.profile] > self._memory
        if full or self._closed or self._shelves.get(spec) is not shelf:
            self._tasks.start(worker.close())
            return
        worker.process.busy = False
        shelf.idle.append(worker)
        self._watching.start(self._watch(worker, shelf))

    def _wanted(self, spec: Spec) -> int:
        """None in a workspace: what the host renames there takes away what was mounted over it."""
        return self._warm if spec.workspace is None else 0

    def _shelf(self, spec: Spec) -> WarmWorkers:
        if self._sweeper is None:
            self._sweeper = start_task(self._sweep())
        shelf = self._shelves.setdefault(spec, WarmWorkers())
        shelf.used_at = monotonic()
        self._shelves.move_to_end(spec)
        return shelf

    # -- starting

    def _refill(self, spec: Spec, shelf: WarmWorkers) -> None:
        """Start what is missing, soon, making room by letting go of what was asked for longest ago."""
        if self._closed:
            return
        starting = sum(other.starting for other in self._shelves.values())
        waiting = sum(not waiter.done() for waiter in shelf.waiting)
        while len(shelf.idle) + shelf.starting - waiting < self._wanted(spec) and starting < MAX_STARTING:
            if not self._make_room(spec):
                return
            self._begin(spec, shelf)
            starting += 1

    def _begin(self, spec: Spec, shelf: WarmWorkers) -> None:
        shelf.starting += 1
        self._tasks.start(self._start(spec, shelf))

    async def _start(self, spec: Spec, shelf: WarmWorkers) -> None:
        try:
            worker = await self._started(spec)
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            shelf.starting -= 1
            if waiter := shelf.next_waiter():
                waiter.set_exception(error)
            else:
                logger.warning("a sandbox worker could not be kept warm: %s", error)
            return
        shelf.starting -= 1
        if self._closed or self._shelves.get(spec) is not shelf:
            await worker.close()
            return
        if waiter := shelf.next_waiter():
            waiter.set_result(worker)
        else:
            self._keep(spec, shelf, worker)
        self._refill(spec, shelf)

    async def _started(self, spec: Spec) -> Worker:
        worker = Worker(await self._jail.start(spec), spec.limits)
        try:
            await asyncio.wait_for(worker.ready(), START_SECONDS)
        except TimeoutError:
            await worker.close()
            raise Unavailable(f"a worker was not ready within {START_SECONDS:g} s") from None
        except BaseException:
            await worker.close()
            raise
        return worker

    async def _watch(self, worker: Worker, shelf: WarmWorkers) -> None:
        """Take an idle worker that dies off its shelf."""
        await worker.process.wait()
        if worker in shelf.idle:
            shelf.idle.remove(worker)
            await worker.close()

    # -- letting go

    def _make_room(self, spec: Spec) -> bool:
        wanted = IDLE_BYTES[spec.profile]
        for other in list(self._shelves):
            if self._resident() + wanted <= self._memory:
                break
            if other != spec:
                self._drop(other)
        return self._resident() + wanted <= self._memory

    def _resident(self) -> int:
        return sum(IDLE_BYTES[spec.profile] * (len(shelf.idle) + shelf.starting) for spec, shelf in self._shelves.items())

    def _drop(self, spec: Spec) -> None:
        """Let a kind's idle workers go; it is forgotten if nobody waits for one."""
        shelf = self._shelves[spec]
        while shelf.idle:
            self._tasks.start(shelf.idle.pop().close())
        if not shelf.waiting and not shelf.starting:
            del self._shelves[spec]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle_seconds / 4)
            for spec in list(self._shelves):
                if monotonic() - self._shelves[spec].used_at > self._idle_seconds:
                    self._drop(spec)

    async def close(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for spec in list(self._shelves):
            while waiter := self._shelves[spec].next_waiter():
                waiter.set_exception(Unavailable("the sandbox is closed"))
            self._drop(spec)
        await self._watching.close()
        await self._tasks.wait()
