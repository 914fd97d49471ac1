"""Opens the store that a database URL names."""

from pathlib import Path

from toolgate.extras import require
from toolgate.store.chain import HeadFile
from toolgate.store.database import Store
from toolgate.store.sqlite import SqliteStore


def open_store(url: str, head_file: Path | None) -> Store:
    """The store for a URL, not yet started. A database in memory has no head outside it."""
    heads = HeadFile(head_file) if head_file else None
    if url.startswith("memory://"):
        return SqliteStore(None)
    if url.startswith("sqlite:///"):
        return SqliteStore(Path(url.removeprefix("sqlite:///")), heads)
    require("postgres")
    from toolgate.store.postgres import PostgresStore  # asyncpg takes 100 ms to import

    return PostgresStore(url, heads)
