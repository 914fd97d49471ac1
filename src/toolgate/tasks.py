"""Work that goes on when whoever asked for it is cancelled, and tasks that belong to one owner."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_finishing: set[asyncio.Future[Any]] = set()
"""The event loop keeps only weak references to tasks: without this, one that nobody awaits could vanish."""


async def finish(work: Awaitable[T]) -> T:
    """Awaits work that is carried out to its end, also if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    _finishing.add(task)
    task.add_done_callback(_finishing.discard)
    return await asyncio.shield(task)


def uninterrupted(act: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """An act that is carried out and put on record as a whole, also if the caller is cancelled meanwhile."""

    @wraps(act)
    async def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        return await finish(act(*args, **kwargs))

    return whole


class BackgroundTasks:
    """The tasks that an object has started and not awaited."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a task and holds it until it ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    async def wait(self, seconds: float | None = None) -> None:
        """Waits until all have ended, or for so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def close(self) -> None:
        """Cancels those that still run and waits for their ends; their errors are no longer anybody's."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
