"""The port between what is stored and where: transactions, and the chained log with its own fast way in.

A `Transaction` is a generator that yields `(sql, parameters)` and is sent the rows, so one piece of code runs on
SQLite (in a thread) and on PostgreSQL (asynchronously). Parameters are written `:name`. Instants go in as aware
datetimes and come out through `moment`; JSON goes in and comes out as text.
"""

import asyncio
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from toolgate.extras import require

if TYPE_CHECKING:
    from toolgate.store.chain import HeadFile

T = TypeVar("T")
Statement = tuple[str, Mapping[str, Any]]
Rows = list[tuple[Any, ...]]
Transaction = Generator[Statement, Rows, T]

LogRow = tuple[int, str, str, str, str, str, bytes]
"""A row of the log before it is linked: microseconds since 1970, kind, call id, tenant, tool, status, body as JSON."""


LOG_COLUMNS = ("seq", "at", "kind", "call_id", "tenant", "tool", "status", "body", "hash")
"""Of the log's table: a row between its sequence and its hash."""


class LogRecord(Protocol):
    """Something to be logged. `row` is called in the writer's thread, off the path of the call. If the record then has a
    `detail` (bytes), that is kept beside its row until retention removes it."""

    def row(self) -> LogRow: ...


class Store(Protocol):
    """The port of the databases."""

    name: str
    written: int
    """The last row of the log that this process wrote; 0: none yet."""

    @property
    def trouble(self) -> str | None:
        """The reason why the log can't be written, if it can't."""

    async def start(self) -> None:
        """Opens, and brings the schema up to date. Raises StoreError with what to do."""

    async def close(self) -> None:
        """Writes what is waiting, and lets go."""

    def append(self, record: LogRecord) -> None:
        """Hands a record to the log. It is on disk within 50 ms, if callers await `room` first whenever it is `late`."""

    def late(self) -> bool:
        """Tells whether records come faster than they can be written."""

    def append_durably(self, record: LogRecord) -> "asyncio.Future[None]":
        """Logs a record; awaited, it is on disk."""

    async def room(self) -> None:
        """Waits until the writer has caught up."""

    async def transact(self, transaction: Transaction[T]) -> T:
        """Runs a transaction that writes."""

    async def read(self, transaction: Transaction[T]) -> T:
        """Runs a transaction that only reads."""

    async def flush(self) -> None:
        """Waits until every record handed over before is on disk."""

    async def ping(self) -> None:
        """Raises if the database does not answer."""


def open_store(url: str, head_file: "HeadFile | None" = None) -> Store:
    """The store that a URL names, not yet started. A database in memory has no head outside it."""
    if url.startswith(("memory://", "sqlite:///")):
        from toolgate.store.sqlite import SqliteStore

        file = Path(url.removeprefix("sqlite:///"))
        return SqliteStore(None) if url.startswith("memory://") else SqliteStore(file, head_file)
    require("postgres")
    from toolgate.store.postgres import PostgresStore  # asyncpg takes 100 ms to import

    return PostgresStore(url, head_file)


def now() -> datetime:
    return datetime.now(UTC)


def moment(value: Any) -> datetime:
    """An instant as a backend gives it."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return datetime.fromisoformat(value)
