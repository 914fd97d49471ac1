"""The one thread that reads beside a writer: takes whatever is waiting, one read after the other, then tells those who wait.

Knows nothing of databases: a backend says how a transaction is read. Requests that come together share the two switches
between threads that each would take alone, which on a busy machine last longer than most reads.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from toolgate.errors import StoreError
from toolgate.store.database import Transaction
from toolgate.store.writer import Answer, tell

T = TypeVar("T")


class ReadQueue:
    """Reads that wait, and the thread that carries them out in their order."""

    def __init__(self, name: str, read: Callable[[Transaction[Any]], Any], loop: asyncio.AbstractEventLoop) -> None:
        self._read = read
        self._loop = loop
        self._waiting: deque[tuple[Transaction[Any], asyncio.Future[Any]]] = deque()
        self._answers: deque[Answer] = deque()
        self._asleep = True
        self._is_told = False
        """True: the loop will come for the answers."""
        self._closed = False
        self._thread = ThreadPoolExecutor(1, name)

    def put(self, transaction: Transaction[T]) -> "asyncio.Future[T]":
        """Hands over a transaction; what it gives can be awaited."""
        if self._closed:
            raise StoreError("The store is closed.")
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((transaction, done))
        if self._asleep:
            self._asleep = False
            self._thread.submit(self._empty)
        return done

    async def close(self, let_go: Callable[[], None]) -> None:
        """Reads what waits, then closes what `read` uses, in its thread."""
        if not self._closed:
            self._closed = True
            await self._loop.run_in_executor(self._thread, let_go)
            self._thread.shutdown()

    def _empty(self) -> None:
        while self._has_more():
            transaction, done = self._waiting.popleft()
            if not done.cancelled():
                self._answers.append((done, *self._outcome(transaction)))
                if not self._is_told:
                    self._is_told = True
                    self._tell()

    def _has_more(self) -> bool:
        """Tells whether a read waits; if none does, the next one wakes the thread. One that came between the look and
        falling asleep may have found it awake: so it looks once more."""
        if not self._waiting:
            self._asleep = True
            if self._waiting:
                self._asleep = False
        return bool(self._waiting)

    def _outcome(self, transaction: Transaction[Any]) -> tuple[Any, BaseException | None]:
        try:
            return self._read(transaction), None
        except BaseException as error:  # whoever waits for it gets it
            return None, error

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._give)

    def _give(self) -> None:
        """Gives the answers that are there when the loop comes to it: of a loop that has much to do, all at once."""
        self._is_told = False
        tell([self._answers.popleft() for _ in range(len(self._answers))])
