"""An event loop in a thread of its own, for programs that have none, or one that they may not block with others' work.

Any thread may hand it work and wait. Ctrl-C in a thread that waits cancels that work and waits for its end, so that a call
is on record as cancelled; a second Ctrl-C does not wait. A process that was forked off has the object but not the thread,
and is told so.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from inspect import isawaitable
from typing import Any

from toolgate.errors import NotOpen, ToolgateError
from toolgate.tasks import start_task
from toolgate.threads import DaemonExecutor


class LoopThread:
    """Runs an event loop from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self._waiting: set[Future[Any]] = set()
        """The work that threads wait for."""
        self._is_over = False
        self._one_at_a_time = threading.Lock()

    @property
    def is_ours(self) -> bool:
        """True in the process that started it, while it runs."""
        return self._loop is not None and self._process == os.getpid()

    def start(self) -> None:
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="toolgate-app", daemon=True)
        self._thread.start()
        self._loop, self._process = ready.result(), os.getpid()

    def stop(self) -> None:
        """Ends the loop; whoever still waits for work is told that it was cancelled."""
        if self.is_ours and self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop = None

    def _run(self, ready: "Future[asyncio.AbstractEventLoop]") -> None:
        with asyncio.Runner() as runner:  # which cancels what is left
            loop = runner.get_loop()
            asyncio.set_event_loop(loop)
            loop.set_default_executor(DaemonExecutor())  # a hook's thread that hangs holds no program
            ready.set_result(loop)
            loop.run_forever()
            with self._one_at_a_time:
                self._is_over = True
        for done in tuple(self._waiting):  # handed over when the loop had come to its end: nothing will come of it
            if not done.done():
                done.set_exception(asyncio.CancelledError())

    def call(self, work: Callable[[], Any]) -> Any:
        """Calls a function in the loop's thread, and awaits what it gives if that is to be awaited."""
        loop = self._checked()
        done: Future[Any] = Future()
        started: list[asyncio.Task[Any]] = []

        def begin() -> None:
            if self._is_over:
                return
            task = start_task(_result(work), unheard=True)
            started.append(task)
            task.add_done_callback(lambda _: _settle(task, done))

        try:
            with self._one_at_a_time:
                if self._is_over:
                    raise asyncio.CancelledError
                self._waiting.add(done)
                # The context goes along: what this thread traces, the call is part of.
                loop.call_soon_threadsafe(begin, context=copy_context())
            return done.result()
        except asyncio.CancelledError:
            raise NotOpen("The App was closed while it was in use.") from None
        except BaseException:
            if not done.done():  # not the work has failed, but who waits for it is interrupted
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])
                done.exception()  # waits for the end, whatever that is
            raise
        finally:
            self._waiting.discard(done)

    def forget(self, work: Callable[[], Awaitable[Any]] | None) -> None:
        """Has something done that nobody waits for, if there is a loop to do it."""
        if work is not None and self.is_ours and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it ends just now
                self._loop.call_soon_threadsafe(lambda: start_task(work(), unheard=True))

    def _checked(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise NotOpen("The App is not open: use it inside `with App.open_sync() as app:`.")
        if self._process != os.getpid():
            raise ToolgateError(
                "The App was opened in another process, and this one was forked off it.",
                suggestion="Open one in each process, after the fork.",
            )
        if threading.current_thread() is self._thread:
            raise ToolgateError(
                "An async tool, hook or approver cannot wait for the App that runs it.",
                suggestion="Call tools with `await ctx.call_tool(…)`, or make it a plain function, which has a thread.",
            )
        return self._loop


async def _result(work: Callable[[], Any]) -> Any:
    found = work()
    return await found if isawaitable(found) else found


def _settle(task: "asyncio.Task[Any]", done: "Future[Any]") -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
