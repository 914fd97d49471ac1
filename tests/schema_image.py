"""Databases of tests. Thousands of tests open a new one, so each process has the migrations make its schema once, and begins
the next ones, in files and in memory, with a copy of that. Nor does it wait for the disk, which only a power cut would show.
Whatever a test starts in a process of its own makes its schema itself, and waits."""

import sqlite3
import threading
from pathlib import Path

from toolgate.store import migrate, sqlite
from toolgate.store.sqlite import SqliteStore

MEMORY = ":memory:"
_connect, _open_file = SqliteStore._connect, SqliteStore._open_file
_migrations, _upgrade = migrate.migrations, migrate.upgrade
_images: dict[bool, bytes] = {}
"""By whether it is of a database in memory: the header of a file says that it has a WAL."""
_one_copy = threading.Lock()


def _connect_and_keep_image(self: SqliteStore, place: str) -> sqlite3.Connection:
    in_memory = place == MEMORY
    is_new = in_memory or Path(place).stat().st_size == 0
    connection = _connect(self, place)
    if is_new and _is_usual() and in_memory not in _images:
        _images[in_memory] = connection.serialize()
    return connection


def _open_copy(self: SqliteStore, place: str) -> sqlite3.Connection:
    image = _images.get(place == MEMORY) if _is_usual() else None
    if image is not None and place != MEMORY:
        with _one_copy:  # several Apps of a test may open one file at once
            if Path(place).stat().st_size == 0:
                with Path(place).open("r+b") as file:
                    file.write(image)
    connection = _open_file(self, place)
    if image is not None and place == MEMORY:
        connection.deserialize(image)
    return connection


def _is_usual() -> bool:
    """Not where a test has put other migrations in their place."""
    return (migrate.migrations, migrate.upgrade) == (_migrations, _upgrade)


def copy_schemas() -> None:
    """From now on, in this process."""
    SqliteStore._connect = _connect_and_keep_image  # type: ignore[method-assign]
    SqliteStore._open_file = _open_copy  # type: ignore[method-assign]
    sqlite.PRAGMAS += ("synchronous = OFF",)
