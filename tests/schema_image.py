"""Databases of tests. Thousands of tests open a new one, so each process has the migrations make its schema once, and begins
the next files with a copy of that. Whatever a test starts in a process of its own makes its schema itself."""

import sqlite3
import threading
from pathlib import Path

from toolgate.store import migrate
from toolgate.store.sqlite import SqliteStore

_connect, _migrations, _upgrade = SqliteStore._connect, migrate.migrations, migrate.upgrade
_image: list[bytes] = []
_one_copy = threading.Lock()


def _connect_to_copy(self: SqliteStore, place: str) -> sqlite3.Connection:
    is_new = place != ":memory:" and Path(place).stat().st_size == 0
    # Not where a test has put other migrations in their place.
    is_usual = (migrate.migrations, migrate.upgrade) == (_migrations, _upgrade)
    with _one_copy:  # several Apps of a test may open one file at once
        if is_new and is_usual and _image and Path(place).stat().st_size == 0:
            with Path(place).open("r+b") as file:
                file.write(_image[0])
    connection = _connect(self, place)
    if is_new and is_usual and not _image:
        _image.append(connection.serialize())
    return connection


def copy_schemas() -> None:
    """From now on, in this process."""
    SqliteStore._connect = _connect_to_copy  # type: ignore[method-assign]
