"""Toolgate's data folder: its owner's alone (0700, files 0600) whatever the umask says, and ignored by git.

Modes are set when the folder is used, not only when it is made: an earlier version, a copy or a restored backup may have
left it open to others. A folder of another user is refused, since that user could replace what is in it at any time.
"""

import logging
import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import orjson

from toolgate.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows, where nothing is told apart
    fcntl = None  # type: ignore[assignment]

FOLDER_MODE, FILE_MODE, OTHERS = 0o700, 0o600, 0o077
IGNORE = ".gitignore"
OWN_NAME = ".toolgate"
OWN_FILES = ("toolgate.db", "audit.", "secrets.", ".secrets.", IGNORE)
"""The beginnings of the names of files that are Toolgate's in any folder that is named as its home."""
SQLITE_FILES = ("", "-wal", "-shm", "-journal")
LEFTOVER_SUFFIXES = ("-wal", "-journal")
LOCK_FILE_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

DEMO_MARK = "demo.json"
"""The file in a data folder that says that what it holds is demo content: `{"state": "filling"}`, then `complete`."""

logger = logging.getLogger("toolgate.store")


def demo_state(folder: Path) -> str | None:
    """Gives what the mark of a data folder says of its demo content: `filling` or `complete`; None: it holds none."""
    try:
        said = orjson.loads((folder / DEMO_MARK).read_bytes())
    except (OSError, ValueError):
        return None
    return str(said.get("state")) if isinstance(said, dict) else None


def make_home(folder: Path) -> None:
    """Makes the data folder, or closes to others one that is there, with Toolgate's files in it. Raises StoreError."""
    existed = folder.exists()
    _make(folder)
    try:
        _close_folder(folder)
        if not existed or folder.name == OWN_NAME:  # a folder that serves other purposes too is not hidden from git
            _ignore(folder)
        with os.scandir(folder) as entries:
            files = [entry.path for entry in entries if entry.name.startswith(OWN_FILES)]
        for file in files:
            with suppress(FileNotFoundError):  # a temporary one
                _close_file(Path(file))
    except OSError as error:
        raise _unusable(f"The data folder {folder} cannot be used", error) from error


def _ignore(folder: Path) -> None:
    with suppress(FileExistsError):
        number = os.open(folder / IGNORE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(number, "w") as file:
            file.write("*\n")


def make_database_file(path: Path) -> None:
    """Makes an empty database that only its owner reads, or closes one that is there. SQLite gives the write-ahead log and
    its index the mode of the database, but only when it makes them. Raises StoreError."""
    _make(path.parent)
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        for suffix in SQLITE_FILES:
            with suppress(FileNotFoundError):
                _close_file(path.with_name(path.name + suffix))
    except OSError as error:
        raise _unusable(f"The database {path} cannot be written", error) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(f"The data folder {folder} cannot be made", error) from error


def _close_folder(folder: Path) -> None:
    found = folder.stat()
    _own(folder, found)
    mode = stat.S_IMODE(found.st_mode)
    if os.name == "posix" and mode != FOLDER_MODE:
        folder.chmod(FOLDER_MODE)
        if mode & 0o022:
            logger.warning("%s could be written by other users (mode %o); now it is its owner's alone", folder, mode)


def _close_file(file: Path) -> None:
    """A link is left as it is: what it leads to is not in the data folder."""
    found = file.stat(follow_symlinks=False)
    if os.name != "posix" or not stat.S_ISREG(found.st_mode):
        return
    _own(file, found)
    if stat.S_IMODE(found.st_mode) & OTHERS:
        file.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)


def _own(path: Path, found: os.stat_result) -> None:
    if os.name == "posix" and found.st_uid != os.geteuid():
        raise StoreError(
            f"{path} belongs to another user (number {found.st_uid}), who could change what Toolgate keeps there.",
            suggestion=f"Run `chown -R {os.geteuid()} {path}`, or keep the data elsewhere: set TOOLGATE_HOME.",
        )


def _unusable(what: str, error: OSError) -> StoreError:
    return StoreError(
        f"{what}: {error.strerror or error}.",
        suggestion="Check the rights on it, or set TOOLGATE_HOME to a folder where you may write.",
    )


class InUse:
    """Says, for one process, that a database is in use, to tell what SQLite left beside it when its process was killed from
    what somebody else put there.

    SQLite takes over whatever it finds in `toolgate.db-wal` or `toolgate.db-journal`, page by page, and a pull or an archive
    can bring such a file: with one that leaves the mark in the database alone, it would add servers and grants to a database
    that is trusted. So while a process has the database open there is a file beside it that says so, under a name that only
    those know who can read the data folder's own mark. It stays if the process is killed; without it, nothing is to be left
    over."""

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
        """Takes what is left over for SQLite's own, at the word of a person."""
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
