"""Threads for what would block the event loop.

A thread can't be stopped: one whose work never returns is taken for good. So Toolgate's own work has threads that nothing
else takes. `asyncio.to_thread`, which hooks and tools use, takes those of the loop's default executor; in Toolgate's own
commands that is a `DaemonExecutor`, which holds neither the end of the process nor work that nobody waits for any more.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

MAX_OWN_THREADS = 32
MAX_OTHER_THREADS = 64

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("toolgate")
_own = ThreadPoolExecutor(MAX_OWN_THREADS, thread_name_prefix="toolgate-own")


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
                "their time may hold theirs, since a thread can't be stopped. If it stays so, restart this process",
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
