"""Tells what SQLite left beside a database, when its process was killed, from what somebody else put there.

SQLite takes over whatever it finds in `toolgate.db-wal` or `toolgate.db-journal`, page by page, and a pull or an archive can
bring such a file: with one that leaves the mark in the database alone, it would add servers and grants to a database that is
trusted. So while a process has the database open there is a file beside it that says so, under a name that only those know
who can read the data folder's own mark. It stays if the process is killed; without it, nothing is to be left over.
"""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where nothing is told apart
    fcntl = None  # type: ignore[assignment]

LEFTOVER_SUFFIXES = ("-wal", "-journal")
LOCK_FILE_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class InUse:
    """Says, for one process, that a database is in use. `mark`: what only those know who can read the data folder."""

    def __init__(self, database: Path, mark: bytes) -> None:
        self._database = database
        self._file = database.with_name(f"{database.name}-open-{sha256(b'open' + mark).hexdigest()[:32]}")
        self._lock = -1

    def foreign(self) -> list[Path]:
        """Files that no process of ours left there. Twice looked at: a process may just be beginning or ending."""
        left = self._left()
        if not left or fcntl is None or self._file.exists():
            return []
        return sorted(left.keys()) if left == self._left() else self.foreign()

    def begin(self) -> None:
        """To be called before SQLite opens the database."""
        while fcntl is not None and self._lock < 0:
            lock = os.open(self._file, LOCK_FILE_FLAGS, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if self._is(lock):
                self._lock = lock
            else:  # whoever used it last has just removed it
                os.close(lock)

    def accept(self) -> None:
        """Take what is left over for SQLite's own, at the word of a person."""
        os.close(os.open(self._file, LOCK_FILE_FLAGS, 0o600))

    def end(self) -> None:
        """To be called once SQLite has closed it. If nobody else uses it and nothing is left, that is known from now on."""
        if self._lock < 0 or fcntl is None:
            return
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._left():
                self._file.unlink()
        os.close(self._lock)
        self._lock = -1

    def _is(self, lock: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(lock), self._file.lstat())
        return False

    def _left(self) -> dict[Path, int]:
        left: dict[Path, int] = {}
        for suffix in LEFTOVER_SUFFIXES:
            file = self._database.with_name(self._database.name + suffix)
            with suppress(FileNotFoundError):
                status = file.lstat()
                if status.st_size:
                    left[file] = status.st_ino
        return left
