"""The one thread that writes to a log: takes whatever is waiting, commits it together, then tells those who wait.

Knows nothing of databases: a backend says how a batch is committed. Grouping is what makes durability cheap: a disk that can
flush a thousand times a second serves tens of thousands of durable records, because those that arrive during one flush share
the next.
"""

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic, sleep, time_ns
from typing import Any

import msgspec
import orjson

from toolgate.errors import StoreError
from toolgate.store.call_details import Detail
from toolgate.store.chain import Head, LinkedRow, link
from toolgate.store.database import LogRecord, LogRow, Transaction
from toolgate.threads import to_thread

LINGER_SECONDS = 0.01
"""The time that a record may lie for which nobody waits, so that more can join it."""
MAX_WRITE_SECONDS = 0.05
"""Within this a record that was handed over is on disk: what `Store.append` promises."""
SLOW_SECONDS = 0.02
"""Age of the oldest record that is not on disk from which on callers wait. What is left of the bound is for writing those
that are there: callers that wait leave the processor, and the interpreter's lock, to the writer."""
FEW_RECORDS = 64
"""Records waiting up to which nobody looks at the clock."""
MAX_QUEUED_RECORDS = 200_000
"""Records waiting at which no more are taken: the database has not accepted any for long."""
WRITER_CLOSE_SECONDS = 10
"""The time that closing waits for a database that does not answer."""

logger = logging.getLogger("toolgate.store")


class AwaitedWrite(msgspec.Struct, frozen=True):
    """A record or a transaction that somebody waits for. Neither: they only wait for what came before."""

    done: Any
    record: Any = None
    transaction: Any = None


QueuedWrite = LogRecord | AwaitedWrite
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]
Answers = list[Answer]


def row_of(record: LogRecord) -> LogRow:
    """The row of a record. One that can't be made is replaced by a row that says so: it must not hold up all others."""
    try:
        return record.row()
    except Exception as error:
        logger.exception("a record could not be written")
        body = orjson.dumps({"error": f"{type(error).__name__}", "record": type(record).__name__})
        return time_ns() // 1000, "broken", "", "", "", "broken", body


UnlinkedRow = tuple[LogRow, Any]
"""A row, and what is kept beside it."""


def rows_of(batch: "Iterable[QueuedWrite]") -> list[UnlinkedRow]:
    """The rows of a batch. They are made before it has the database's lock, for which other processes wait."""
    records = (item.record if isinstance(item, AwaitedWrite) else item for item in batch)
    return [(row_of(record), getattr(record, "detail", None)) for record in records if record is not None]


def link_all(head: Head, rows: Iterable[UnlinkedRow]) -> tuple[list[LinkedRow], list[Detail], Head]:
    """Rows at the end of the chain, what is kept beside them, and the new end."""
    linked: list[LinkedRow] = []
    details: list[Detail] = []
    for row, kept in rows:
        linked.append(link(head, row))
        head = Head(linked[-1][0], linked[-1][-1])
        if kept is not None:
            details.append((head.seq, linked[-1][1], kept))
    return linked, details, head


class LoggedStore(ABC):
    """A store whose log has a queue and a thread that empties it; each kind says how a batch is committed."""

    def __init__(self, name: str) -> None:
        self.written = 0
        """The last row that this process wrote."""
        self._queue: deque[QueuedWrite] = deque()
        self._asleep = True
        self._oldest = 0.0
        """No record that is not on disk was handed over before this, by the monotonic clock."""
        self._relief: asyncio.Future[None] | None = None
        """Done when callers that were asked to wait may go on."""
        self._wake = threading.Semaphore(0)
        self._hurry = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._keep_writing, name=f"toolgate-{name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.trouble: str | None = None
        """The reason why the last commit failed, if it did."""

    @abstractmethod
    def _commit(self, batch: list[QueuedWrite]) -> Answers:
        """Everything that waits, in one transaction. Runs in the writer's thread."""

    @abstractmethod
    def _let_go(self) -> None:
        """Closes what `_commit` uses: nothing is committed any more. Runs in the writer's thread, as the last thing."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Makes a commit fail that has not ended for long. Runs beside the writer's thread."""

    def _start_writer(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def append(self, record: LogRecord) -> None:
        queue = self._queue
        if self._closing:
            raise StoreError("The store is closed.")
        queue.append(record)
        if self._asleep:
            self._rouse()
        if len(queue) > MAX_QUEUED_RECORDS:
            queue.pop()
            raise StoreError(f"The audit log takes no more records: {self.trouble or 'the database does not keep up'}.")

    def late(self) -> bool:
        return len(self._queue) >= FEW_RECORDS and monotonic() - self._oldest > SLOW_SECONDS

    def _rouse(self) -> None:
        self._oldest = monotonic()
        self._asleep = False
        self._wake.release()

    def append_durably(self, record: LogRecord) -> "asyncio.Future[None]":
        return self._wait_for(record)

    async def flush(self) -> None:
        if self._asleep and not self._queue and not self._closing:
            return  # the writer sleeps only when all that it was given is on disk
        await self._wait_for()

    def _wait_for(
        self, record: LogRecord | None = None, transaction: Transaction[Any] | None = None
    ) -> "asyncio.Future[Any]":
        """Takes something whose end is awaited; with neither, the end of all that was taken before."""
        if self._closing or self._loop is None:
            raise StoreError("The store is closed.")
        done: asyncio.Future[Any] = self._loop.create_future()
        self._queue.append(AwaitedWrite(done, record, transaction))
        if not self._hurry.is_set():
            self._hurry.set()
        if self._asleep:
            self._rouse()
        return done

    async def room(self) -> None:
        """Waits until the oldest record that is not on disk is young again."""
        while self._is_behind():
            relief = self._relief
            if relief is None:
                relief = self._relief = asyncio.get_running_loop().create_future()
                self._look_again(relief)  # the writer's thread may just have caught up: then it is done already
            await asyncio.wait((relief,))

    def _is_behind(self) -> bool:
        return not self._asleep and self.trouble is None and monotonic() - self._oldest > SLOW_SECONDS

    def _look_again(self, relief: "asyncio.Future[None]") -> None:
        """Looks for all who wait, now and then: if each looked for itself, a thousand of them would do nothing else."""
        self._relieve()
        if not relief.done():
            self._hurry.set()
            relief.get_loop().call_later(LINGER_SECONDS, self._look_again, relief)

    def _relieve(self) -> None:
        if self._relief is not None and not self._is_behind():
            relief, self._relief = self._relief, None
            relief.set_result(None)

    async def _close_writer(self) -> None:
        """Writes what waits, and ends the thread. If it can't be written, raises that; the thread ends all the same."""
        if self._closing or self._loop is None:
            return
        try:
            async with asyncio.timeout(WRITER_CLOSE_SECONDS):
                await self._wait_for()
        except TimeoutError:
            raise StoreError(
                f"The store was closed, but its database did not answer for {WRITER_CLOSE_SECONDS} s."
            ) from None
        finally:
            self._closing = True
            self._wake.release()
            await to_thread(self._join)

    def _join(self) -> None:
        self._thread.join(1)  # what came while it wrote the rest
        if self._thread.is_alive():
            self._interrupt()
            self._thread.join(WRITER_CLOSE_SECONDS)  # one that still does not end lets go when it does

    def _keep_writing(self) -> None:
        try:
            while not self._closing or (self._queue and self.trouble is None):
                self._wake.acquire()
                self._empty()
        finally:
            self._give_up()
            self._let_go()

    def _empty(self) -> None:
        while self._queue:
            if self.trouble is None:
                self._hurry.wait(LINGER_SECONDS)
            else:
                sleep(0.2)
            if self._closing and self.trouble is not None:
                return
            self._hurry.clear()
            self._write_all()
        self._asleep = True
        if self._queue:  # something came between the last look and falling asleep
            self._rouse()

    def _give_up(self) -> None:
        """Nobody writes any more: tell those who wait, and say what is lost."""
        left = list(self._queue)
        self._queue.clear()
        closed = StoreError("The store was closed before this was written.")
        waiting = [item for item in left if isinstance(item, AwaitedWrite)]
        self._answer([(item.done, None, closed) for item in waiting])
        if len(left) > len(waiting):
            logger.error("%d records of the audit log are lost: %s", len(left) - len(waiting), self.trouble)

    def _write_all(self) -> None:
        queue = self._queue
        taken = monotonic()
        batch = [queue.popleft() for _ in range(len(queue))]
        answers: Answers
        try:
            answers = self._commit(batch)
            self.trouble = None
        except BaseException as error:
            if self.trouble is None:
                logger.error("the store cannot write: %s", error)
            self.trouble = str(error)
            self._soon(self._tell_of, [item for item in batch if isinstance(item, AwaitedWrite)], error)
            queue.extendleft(item for item in reversed(batch) if not isinstance(item, AwaitedWrite))
        else:
            self._oldest = taken  # what is waiting now came after that
            self._answer(answers)
            if self._relief is not None:
                self._soon(self._relieve)

    def _answer(self, answers: Answers) -> None:
        if answers:
            self._soon(tell, answers)

    def _soon(self, told: Callable[..., None], *of: Any) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(told, *of)

    def _tell_of(self, waiting: list[AwaitedWrite], error: BaseException) -> None:
        """Tells those who wait that it failed. What insists is tried again though nobody waits for it any more."""
        for item in waiting:
            if not item.done.done():
                item.done.set_exception(error)
            elif getattr(item.record, "insists", False):
                with contextlib.suppress(StoreError):
                    self.append(item.record)


def tell(answers: Answers) -> None:
    """Gives those who wait what they wait for. Runs in the loop's thread."""
    for done, value, error in answers:
        if done.done():
            continue
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)
