"""Threads for tools that are not async. Daemons, so that one that never ends does not keep the process alive.

A tool that overruns its time can't be stopped: its caller is told TIMEOUT, its thread is given up and counted.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from toolgate.errors import NotReached

Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """At most `most` threads, kept for the next job when they are free."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
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
        """Let the free threads end."""
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
            except BaseException as raised:
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
