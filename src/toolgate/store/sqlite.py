"""SQLite: one writer thread for a file (grouped commits, WAL, fsync), one reader thread beside it. Also `memory://`.

Several processes may share a file: the write lock orders them, and each batch begins by reading the head of the chain.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from toolgate.errors import StoreError
from toolgate.store import call_details, migrate
from toolgate.store.audit_log import hash_at
from toolgate.store.chain import START, Head, HeadFile
from toolgate.store.data_folder import make_database_file
from toolgate.store.database import Rows, Transaction
from toolgate.store.read_queue import ReadQueue
from toolgate.store.sql import value
from toolgate.store.writer import Answers, AwaitedWrite, LoggedStore, QueuedWrite, link_all, rows_of
from toolgate.threads import to_thread

T = TypeVar("T")
CHUNKS = (3_600, 450, 64, 8, 1)
"""Rows that one INSERT takes. Few and large ones, because sqlite3 gives up the interpreter's lock at each, and a thread
that wants it back from a busy one waits 5 ms."""
BUSY_SECONDS = 30
CACHE = "cache_size = -16000"
"""16 MB, of each connection: with the 2 MB of SQLite's own choice, a page of the console reads most of its pages anew."""
PRAGMAS: tuple[str, ...] = (
    "journal_mode = WAL",
    "synchronous = FULL",  # a commit is on disk when it returns; grouped, that costs little
    "wal_autocheckpoint = 4000",  # 16 MB between the copies of the log into the database
    CACHE,
    "foreign_keys = ON",
    f"busy_timeout = {BUSY_SECONDS * 1000}",
)


class SqliteStore(LoggedStore):
    """A database in a file, or in memory if there is no path."""

    def __init__(self, path: Path | None, head_file: HeadFile | None = None) -> None:
        self.name = "sqlite" if path else "memory"
        self._path = path
        self._head_file = head_file
        super().__init__("sqlite")
        self._reads: ReadQueue | None = None
        self._connection: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None

    # -- life

    async def start(self) -> None:
        if self._path is not None:
            await to_thread(make_database_file, self._path)
            self._reads = ReadQueue("toolgate-sqlite-read", self._read, asyncio.get_running_loop())
        self._connection = await to_thread(self._open)
        self._start_writer()

    async def close(self) -> None:
        try:
            await self._close_writer()
        finally:
            if self._reads is not None:
                await self._reads.close(self._stop_reading)

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _interrupt(self) -> None:
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(sqlite3.ProgrammingError):  # closed just now
                connection.interrupt()

    def _open(self) -> sqlite3.Connection:
        """Opens and upgrades. Where two processes do so at once, SQLite tells one that the file is locked without waiting
        for it: the switch to WAL has no busy timeout. So it is tried again."""
        place = str(self._path) if self._path else ":memory:"
        patience = monotonic() + BUSY_SECONDS
        while True:
            try:
                return self._connect(place)
            except sqlite3.DatabaseError as error:
                if "locked" not in str(error) or monotonic() > patience:
                    raise _explain(place, error) from error
                sleep(0.02)

    def _connect(self, place: str) -> sqlite3.Connection:
        connection = self._open_file(place)
        try:
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("BEGIN IMMEDIATE")
            _drive(connection, migrate.upgrade(migrate.SQLITE))
            connection.commit()
        except BaseException:
            connection.close()  # which undoes what is not committed
            raise
        return connection

    def _open_file(self, place: str) -> sqlite3.Connection:
        return sqlite3.connect(
            place, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS, cached_statements=256
        )

    # -- the log

    def _commit(self, batch: list[QueuedWrite]) -> Answers:
        connection = self._connection
        assert connection is not None
        answers: Answers = []
        rows = rows_of(batch)
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                last = connection.execute("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1").fetchone()
                before = Head(*last) if last else START
                for item in batch:
                    if isinstance(item, AwaitedWrite):
                        answers.append(_alone(connection, item) if item.transaction else (item.done, None, None))
                linked, details, head = link_all(before, rows)
                _insert(connection, "audit_log", linked)
                if details:
                    total = _drive(connection, call_details.last_total())
                    _insert(connection, "call_details", call_details.with_totals(details, total))
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise
        except sqlite3.Error as error:
            raise _explain(str(self._path), error) from error
        self.written = head.seq if head != before else self.written
        if self._head_file is not None and head != before:
            self._head_file.try_to_note(head, lambda seq: _drive(connection, hash_at(seq)))
        return answers

    # -- transactions

    async def transact(self, transaction: Transaction[T]) -> T:
        result: T = await self._wait_for(transaction=transaction)
        return result

    async def read(self, transaction: Transaction[T]) -> T:
        if self._path is None:
            return await self.transact(transaction)
        if self._reads is None:
            raise StoreError("The store is closed.")
        return await self._reads.put(transaction)

    def _read(self, transaction: Transaction[T]) -> T:
        try:
            if self._reading is None:
                self._reading = self._open_file(str(self._path))
                self._reading.execute(f"PRAGMA {CACHE}")
                self._reading.execute("PRAGMA query_only = ON")
            self._reading.execute("BEGIN")
            try:
                return _drive(self._reading, transaction)
            finally:
                self._reading.rollback()
        except sqlite3.Error as error:
            raise _explain(str(self._path), error) from error

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    async def ping(self) -> None:
        await self.read(value("SELECT count(*) FROM toolgate_schema"))


def _alone(connection: sqlite3.Connection, item: AwaitedWrite) -> "tuple[asyncio.Future[Any], Any, BaseException | None]":
    """A transaction among others: if it fails, it alone is undone."""
    assert item.transaction is not None
    connection.execute("SAVEPOINT alone")
    try:
        result = _drive(connection, item.transaction)
    except BaseException as error:
        connection.execute("ROLLBACK TO alone")
        connection.execute("RELEASE alone")
        return item.done, None, _explain("", error) if isinstance(error, sqlite3.Error) else _without_frames(error)
    connection.execute("RELEASE alone")
    return item.done, result, None


def _without_frames(error: BaseException) -> BaseException:
    """An error that says where it was raised, but does not hold the frames: one of them holds what waits for the error, and
    a ring of the two stays in memory until it is looked for."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is not None:
        error.add_note(f"in the transaction at {place.tb_frame.f_code.co_qualname}, line {place.tb_lineno}")
    return error.with_traceback(None)


def _drive(connection: sqlite3.Connection, transaction: Transaction[T]) -> T:
    try:
        sql, parameters = next(transaction)
        while True:
            rows: Rows = connection.execute(sql, _plain(parameters)).fetchall()
            sql, parameters = transaction.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat(sep=" ") if isinstance(value, datetime) else value for name, value in parameters.items()}


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    done = 0
    for chunk in CHUNKS:
        while len(rows) - done >= chunk:
            values = ("(" + ",".join("?" * len(rows[done])) + "),") * chunk
            flat = [value for row in rows[done : done + chunk] for value in row]
            connection.execute(f"INSERT INTO {table} VALUES {values[:-1]}", flat)
            done += chunk


def _explain(place: str, error: Exception) -> StoreError:
    words = str(error)
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"The database refused a row: {words}.")
    if "not a database" in words or "malformed" in words or "corrupt" in words:
        return StoreError(
            f"The database {place} is damaged: {words}.",
            suggestion="Nothing was changed. Keep a copy of the file, try `sqlite3 FILE .recover`, or restore a backup.",
        )
    if "readonly" in words or "unable to open" in words or "read-only" in words:
        return StoreError(
            f"The database {place} cannot be written: {words}.",
            suggestion="Check the rights on the file and its folder, or set TOOLGATE_HOME to a folder where you may write.",
        )
    if "locked" in words:
        return StoreError(
            f"The database {place} is locked by another process for more than {BUSY_SECONDS} s.",
            suggestion="Find the process that holds it (`fuser FILE`) and end it.",
        )
    if "full" in words:
        return StoreError(f"The disk of the database {place} is full.", suggestion="Free some room; nothing was lost.")
    return StoreError(f"The database {place} cannot be used: {words}.")
