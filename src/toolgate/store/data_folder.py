"""Toolgate's data folder: its owner's alone (0700, files 0600) whatever the umask says, and ignored by git.

Modes are set when the folder is used, not only when it is made: an earlier version, a copy or a restored backup may have
left it open to others. A folder of another user is refused, since that user could replace what is in it at any time.
"""

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from toolgate.errors import StoreError

FOLDER_MODE, FILE_MODE, OTHERS = 0o700, 0o600, 0o077
IGNORE = ".gitignore"
OWN_NAME = ".toolgate"
OWN_FILES = ("toolgate.db", "audit.", "secrets.", ".secrets.", IGNORE)
"""How the names of files begin that are Toolgate's in any folder that is named as its home."""
SQLITE_FILES = ("", "-wal", "-shm", "-journal")

logger = logging.getLogger("toolgate.store")


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
        raise _unusable(f"The data folder {folder} can't be used", error) from error


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
        raise _unusable(f"The database {path} can't be written", error) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(f"The data folder {folder} can't be made", error) from error


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
