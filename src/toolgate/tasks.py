"""Tasks: work that nobody awaits, and work that goes on when whoever asked for it is cancelled.

Nothing else starts or shields one (`tests/architecture` holds it). The event loop keeps only weak references to tasks, so
one that nobody holds can vanish: here each is held until it ends. An error that nobody retrieves is logged by the loop when
the task is let go.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from toolgate.errors import ToolgateError

P = ParamSpec("P")
T = TypeVar("T")

_running: set[asyncio.Future[Any]] = set()


def start_task(work: Awaitable[T], *, unheard: bool = False) -> asyncio.Task[T]:
    """Starts a task and holds it until it ends. `unheard`: an error of it is nobody's once it is let go."""
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    if unheard:
        task.add_done_callback(retrieve)
    return task


def retrieve(task: asyncio.Future[Any]) -> None:
    """Keeps the loop from logging the error of a task that has ended."""
    if not task.cancelled():
        task.exception()


async def finish(work: Awaitable[T]) -> T:
    """Awaits work that is carried out to its end, also if the caller is cancelled meanwhile."""
    return await asyncio.shield(start_task(work))


async def outlast(task: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Waits until a task has ended, however often the caller is cancelled meanwhile; gives the last such cancellation."""
    cancelled = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001 - whoever asks for the result gets it
            break
    return cancelled


async def complete(work: Awaitable[T]) -> T:
    """Awaits work to its end. A caller that is cancelled meanwhile is let go only then: for what can't be stopped and must
    not go on beside whatever the caller does next."""
    task = start_task(work)
    cancelled = await outlast(task)
    if cancelled is not None:
        retrieve(task)
        raise cancelled
    return task.result()


async def stop_tasks(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancels tasks and waits for their ends."""
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


async def wait_for_any(event: asyncio.Event, *tasks: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Waits until an event is set, a task has ended, or the time is over. The tasks go on."""
    happening = start_task(event.wait())
    try:
        await asyncio.wait((happening, *tasks), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        happening.cancel()


async def repeat(
    seconds: float, work: Callable[[], Awaitable[object]], logger: logging.Logger, trouble: str, *, at_once: bool = False
) -> None:
    """Does work again and again, with a pause before each time (`at_once`: but the first). What fails is logged."""
    pause = 0 if at_once else seconds
    while True:
        await asyncio.sleep(pause)
        pause = seconds
        try:
            await work()
        except ToolgateError as error:
            logger.warning("%s: %s", trouble, error)
        except Exception:  # whatever a driver raises
            logger.exception(trouble)


def uninterrupted(act: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """An act that is carried out and put on record as a whole, also if the caller is cancelled meanwhile."""

    @wraps(act)
    async def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        return await finish(act(*args, **kwargs))

    return whole


class BackgroundTasks:
    """The tasks that an object has started and waits for, or cancels, when it is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Awaitable[T], *, unheard: bool = False) -> asyncio.Task[T]:
        """As `start_task`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if unheard:
            task.add_done_callback(retrieve)
        return task

    def finish(self, work: Awaitable[T]) -> asyncio.Future[T]:
        """Starts work at once; what it gives can be awaited, and goes on if whoever awaits it is cancelled."""
        return asyncio.shield(self.start(work))

    def cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def wait(self) -> None:
        """Waits until none is left, also of those that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def close(self, *, grace: float = 0.0, limit: float | None = None) -> None:
        """Cancels what has not ended after `grace` seconds, and waits for its end, at most `limit` seconds."""
        if self._tasks and grace:
            await asyncio.wait(tuple(self._tasks), timeout=grace)
        left = tuple(self._tasks)
        self.cancel()
        if left:
            await asyncio.wait(left, timeout=limit)
