"""Threads for what would block the event loop.

A thread can't be stopped: one whose work never returns is taken for good. So each kind of work has threads that nothing
else takes: Toolgate's own (`to_thread`), what grows with a call's input (`Offload`), tools that are not async
(`ToolThreads`). `asyncio.to_thread`, which hooks and tools use, takes those of the loop's default executor; in Toolgate's
own commands that is a `DaemonExecutor`, which holds neither the end of the process nor work that nobody waits for any more.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from toolgate.errors import NotReached
from toolgate.tasks import complete

MAX_OWN_THREADS = 32
MAX_OTHER_THREADS = 64
MAX_OFFLOAD_THREADS = 4
LARGE = 100_000
"""Bytes, as JSON, from which on a value is worked on off the event loop."""

P = ParamSpec("P")
T = TypeVar("T")

_ToolJob = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]

logger = logging.getLogger("toolgate")
_own = ThreadPoolExecutor(MAX_OWN_THREADS, thread_name_prefix="toolgate-own")
_offload = ThreadPoolExecutor(MAX_OFFLOAD_THREADS, thread_name_prefix="toolgate-large")


async def to_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread` for Toolgate's own work, which ends."""
    inner = partial(copy_context().run, work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_own, inner)


class DaemonExecutor(ThreadPoolExecutor):
    """An executor for an event loop whose threads end with the process. Work that was cancelled before it began is dropped:
    behind threads that never return it would pile up."""

    def __init__(self, most: int = MAX_OTHER_THREADS) -> None:
        super().__init__(most)  # asyncio takes no other kind; its threads are never started
        self._most = most
        self._taken = 0
        self._room = threading.Lock()
        self._waiting: dict[Future[Any], Callable[[], Any]] = {}
        self._is_full = False

    @property
    def backlog(self) -> int:
        """The number of jobs that wait for a thread."""
        return len(self._waiting)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._room:
            self._waiting[future] = partial(fn, *args, **kwargs)
            starts = self._taken < self._most
            self._taken += starts
            tells, self._is_full = not starts and not self._is_full, not starts
        future.add_done_callback(self._drop)
        if starts:
            threading.Thread(target=self._work, name="toolgate-other", daemon=True).start()
        elif tells:
            logger.warning(
                "all %d threads of asyncio.to_thread are taken, and more work waits for one: hooks or tools that overran "
                "their time may hold theirs, since a thread cannot be stopped. If it stays so, restart this process",
                self._most,
            )
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - for the loop that ends
        """Wait for nothing."""
        super().shutdown(wait=False)

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            future, work = taken
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                future.set_exception(error)
            del taken, future, work  # nothing is kept alive while the next is waited for

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._room:
            if not self._waiting:
                self._taken -= 1
                return None
            future = next(iter(self._waiting))
            return future, self._waiting.pop(future)

    def _drop(self, future: Future[Any]) -> None:
        with self._room:
            self._waiting.pop(future, None)


class Offload:
    """Work that grows with a call's input. Each tenant has one piece of it under way at a time, the others wait in line, so
    that one tenant's large calls take neither all threads nor most of the interpreter's time."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        """By tenant: whose turn it is, and one entry for each that waits or works."""

    async def __call__(self, tenant: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Does work in a thread when it is the tenant's turn. A caller that is cancelled waits for its end, or what it
        works on would change under whoever settles the call."""
        turn, here = self._lines.setdefault(tenant, (asyncio.Lock(), []))
        here.append(None)
        try:
            async with turn:
                return await complete(asyncio.get_running_loop().run_in_executor(_offload, partial(work, *args, **kwargs)))
        finally:
            here.pop()
            if not here:
                self._lines.pop(tenant, None)


class ToolThreads:
    """At most `most` threads for tools that are not async, kept for the next when they are free. Daemons, so that a tool
    that never ends does not keep the process alive. One that overruns its time can't be stopped: its caller is told TIMEOUT,
    its thread is given up and counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[_ToolJob | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0
        self._free = 0
        self.overrunning = 0
        """Threads whose tool has been given up."""

    def submit(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Run a function in a thread; its future may be cancelled or given up at any time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = copy_context()
        with self._lock:
            if self._free > 0:
                self._free -= 1
            elif self._alive < self._most:
                self._alive += 1
                threading.Thread(target=self._work, name="toolgate-tool", daemon=True).start()
            else:
                raise NotReached(
                    "CAPACITY_EXCEEDED",
                    f"All {self._most} threads for synchronous tools are taken, {self.overrunning} by tools that overran.",
                    suggestion="Raise limits.threads, or make the tool async.",
                    details={"retry_after": 1.0},
                )
        self._jobs.put((lambda: context.run(function), future, loop))
        return future

    def close(self) -> None:
        with self._lock:
            for _ in range(self._free):
                self._jobs.put(None)
            self._free = 0

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                break
            function, future, loop = job
            value: Any = None
            error: BaseException | None = None
            try:
                value = function()
            except BaseException as raised:  # noqa: BLE001 - whoever waits for it gets it
                error = raised
            with self._lock:
                self._free += 1
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._finish, future, value, error)
        with self._lock:
            self._alive -= 1

    def give_up(self) -> None:
        self.overrunning += 1

    def _finish(self, future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
        if future.cancelled():
            self.overrunning -= 1
        elif error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError(f"the tool raised StopIteration: {error}"))
        else:
            future.set_exception(error)
