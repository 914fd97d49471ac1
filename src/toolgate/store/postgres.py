"""PostgreSQL: a pool for transactions on the caller's loop, and a writer thread with a connection of its own for the log.

Any number of processes may share a database: an advisory lock orders their batches.
"""

import asyncio
import contextlib
import logging
import re
from functools import lru_cache
from typing import Any, TypeVar

import asyncpg

from toolgate.errors import StoreError
from toolgate.store import call_details, migrate
from toolgate.store.chain import START, Head, HeadFile
from toolgate.store.database import LOG_COLUMNS, Transaction
from toolgate.store.sql import value
from toolgate.store.writer import WRITER_CLOSE_SECONDS, Answers, AwaitedWrite, LoggedStore, QueuedWrite, link_all, rows_of
from toolgate.tasks import start_task

T = TypeVar("T")
LOG_LOCK = 0x746F6F6C  # "tool"
SCHEMA_LOCK = LOG_LOCK + 1
CONNECT_SECONDS = 10
COMMAND_SECONDS = 60
"""The time that a statement may take, and that it waits for a connection of the pool: where the server does not answer,
those who wait would be told so one after the other, or never."""
UPGRADE_SECONDS = 3_600
"""The time that a statement of an upgrade may take: an index over a log of years is not made within a minute."""
TROUBLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The errors that asyncpg raises when the database, or the way to it, is the problem."""

logger = logging.getLogger("toolgate.store")


class PostgresStore(LoggedStore):
    """A database on a server."""

    name = "postgres"

    def __init__(self, url: str, head_file: HeadFile | None = None, connections: int = 8) -> None:
        self._url = url
        self._head_file = head_file
        self._connections = connections
        self._pool: Any = None
        super().__init__("postgres")
        self._log_loop: asyncio.AbstractEventLoop | None = None
        self._log: Any = None
        self._unsure: tuple[Head, list[QueuedWrite]] | None = None
        """A batch of which it is not known whether it was committed, and the head that it would have made."""

    # -- life

    async def start(self) -> None:
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._connections,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
            )
            async with self._pool.acquire(timeout=COMMAND_SECONDS) as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", SCHEMA_LOCK)
                await _drive(connection, migrate.upgrade(migrate.POSTGRES), UPGRADE_SECONDS)
        except StoreError:
            await self._close_pool()
            raise
        except TROUBLE as error:
            await self._close_pool()
            raise _explain(self._url, error) from error
        self._start_writer()

    async def close(self) -> None:
        """Closes the log and the pool at the same time: a server that does not answer is waited for only once."""
        pool = start_task(self._close_pool())
        try:
            await self._close_writer()
        finally:
            await pool

    async def _close_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(WRITER_CLOSE_SECONDS):
                await pool.close()
        except TROUBLE as error:  # it has cut its connections then; what they were doing fails where it is awaited
            logger.warning(
                "the connections to the database were not closed in order: %s", str(error) or type(error).__name__
            )

    def _let_go(self) -> None:
        loop, log = self._log_loop, self._log
        if loop is None:
            return
        try:
            if log is not None:
                loop.run_until_complete(log.close(timeout=WRITER_CLOSE_SECONDS))
        except TROUBLE as error:
            logger.warning("the log's connection was not closed in order: %s", str(error) or type(error).__name__)
        finally:
            self._log_loop = self._log = None
            loop.close()

    def _interrupt(self) -> None:
        loop = self._log_loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(self._cut, loop)

    def _cut(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends what the log's loop waits for: a connection's answer, or a connection."""
        if self._log is not None and not self._log.is_closed():
            self._log.terminate()
        else:
            for task in asyncio.all_tasks(loop):
                task.cancel()

    # -- the log

    def _commit(self, batch: list[QueuedWrite]) -> Answers:
        """Everything that waits, in one transaction. Runs in the writer's thread, on a loop of its own."""
        if self._log_loop is None:
            self._log_loop = asyncio.new_event_loop()
        try:
            return self._log_loop.run_until_complete(self._commit_batch(batch))
        except asyncio.CancelledError:
            raise StoreError("The store was closed before its database answered.") from None
        except TROUBLE as error:
            if self._log is not None:
                self._log.terminate()
                self._log = None  # a new connection next time
            raise _explain(self._url, error) from error

    async def _commit_batch(self, batch: list[QueuedWrite]) -> Answers:
        if self._log is None or self._log.is_closed():
            self._log = await asyncpg.connect(
                self._url,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                server_settings={"synchronous_commit": "on"},  # whatever the server's default is
            )
        answers: Answers = [(item.done, None, None) for item in batch if isinstance(item, AwaitedWrite)]
        fresh = rows_of(batch) if self._unsure is None else None  # before the lock, for which other processes wait
        if fresh == []:
            return answers
        async with self._log.transaction():
            await self._log.execute("SELECT pg_advisory_xact_lock($1)", LOG_LOCK)
            if fresh is None:  # the lock is the proof that the connection that was lost has ended what it did
                fresh = rows_of(await self._not_yet_written(batch))
                if not fresh:
                    return answers
            found = await self._log.fetchrow("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1")
            before = Head(*found) if found else START
            linked, details, head = link_all(before, fresh)
            await self._log.copy_records_to_table("audit_log", records=linked, columns=LOG_COLUMNS)
            if details:
                rows = call_details.with_totals(details, await _drive(self._log, call_details.last_total()))
                await self._log.copy_records_to_table("call_details", records=rows, columns=call_details.COLUMNS)
            known = {START.seq: START.hash, before.seq: before.hash, **await self._noted_before()}
            self._unsure = (head, batch)
        self._unsure = None
        self.written = head.seq
        if self._head_file is not None:
            self._head_file.try_to_note(head, known.get)
        return answers

    async def _not_yet_written(self, batch: list[QueuedWrite]) -> list[QueuedWrite]:
        """Gives what is in a batch, without those of the last one if it was committed after all: when a connection is lost
        while it commits, only the log can tell."""
        written: set[int] = set()
        if self._unsure is not None:
            head, items = self._unsure
            if await self._log.fetchval("SELECT hash FROM audit_log WHERE seq = $1", head.seq) == head.hash:
                written = {id(item) for item in items}
            self._unsure = None
        return [item for item in batch if id(item) not in written]

    async def _noted_before(self) -> dict[int, str]:
        """Reads the hashes where heads were noted last: asked within the transaction, for after it nothing may fail."""
        try:
            noted = self._head_file.last() if self._head_file is not None else None
        except StoreError:
            noted = None
        if noted is None:
            return {}
        return {noted.seq: await self._log.fetchval("SELECT hash FROM audit_log WHERE seq = $1", noted.seq)}

    # -- transactions

    async def transact(self, transaction: Transaction[T]) -> T:
        return await self._run(transaction, readonly=False)

    async def read(self, transaction: Transaction[T]) -> T:
        return await self._run(transaction, readonly=True)

    async def _run(self, transaction: Transaction[T], *, readonly: bool) -> T:
        if self._pool is None:
            raise StoreError("The store is closed.")
        try:
            async with (
                self._pool.acquire(timeout=COMMAND_SECONDS) as connection,
                connection.transaction(isolation="repeatable_read" if readonly else "read_committed", readonly=readonly),
            ):
                return await _drive(connection, transaction)
        except TROUBLE as error:
            raise _explain(self._url, error) from error

    async def ping(self) -> None:
        await self.read(value("SELECT 1"))


async def _drive(connection: Any, transaction: Transaction[T], seconds: float | None = None) -> T:
    try:
        sql, parameters = next(transaction)
        while True:
            text, names = _translate(sql)
            rows = await connection.fetch(text, *(parameters[name] for name in names), timeout=seconds)
            sql, parameters = transaction.send([tuple(row) for row in rows])
    except StopIteration as end:
        result: T = end.value
        return result


@lru_cache(maxsize=1024)
def _translate(sql: str) -> tuple[str, list[str]]:
    """`:name` becomes `$1`; `::type` stays."""
    names: list[str] = []

    def number(found: "re.Match[str]") -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return re.sub(r"(?<!:):([a-z_][a-z0-9_]*)", number, sql), names


def _explain(url: str, error: Exception) -> StoreError:
    place = re.sub(r"//[^@/]*@", "//", url)
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return StoreError(f"The database refused a row: {error}.")
    return StoreError(
        f"The database {place} cannot be used: {str(error) or type(error).__name__}.",
        suggestion="Check that the server runs and that TOOLGATE_DATABASE_URL names it with the right user and password.",
    )
