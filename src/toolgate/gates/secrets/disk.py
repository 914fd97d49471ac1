"""Small files that several processes read and change: whole or not at all, one change after another, and never readable
by others. What goes wrong is said as a StoreError, without the content.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolgate.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows: one process at a time writes there
    fcntl = None  # type: ignore[assignment]

LOCK_SECONDS = 30.0
SECRETS_POLL_SECONDS = 0.02

State = tuple[int, int, int]
"""What tells one content of a file from another: modification time, size, inode."""


def state_of(path: Path) -> State | None:
    """The state of a file; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path, error) from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read(path: Path) -> tuple[bytes, State] | None:
    """A file and the state in which it was read; None if there is none."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            return file.read(), (found.st_mtime_ns, found.st_size, found.st_ino)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path, error) from None


def replace(path: Path, content: bytes) -> None:
    """Put a content in place of what is there, on disk before this returns. To be called under the lock. Each content has a
    later time than the one before, so that its state differs."""
    before = state_of(path)
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)  # of a process that died
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if before is not None and os.fstat(handle).st_mtime_ns <= before[0]:
                os.utime(fresh, ns=(before[0] + 1, before[0] + 1))
            os.fsync(handle)
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unusable(path, error) from None


def sync_folder(folder: Path) -> None:
    """Make sure that names in a folder are on disk."""
    if fcntl is None:
        return  # a folder can't be opened there
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among all processes and threads, as long as they use this lock. It ends with its process, however that ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise unusable(path, error) from None
    try:
        _wait_for(handle, path)
        yield
    finally:
        os.close(handle)


def _wait_for(handle: int, path: Path) -> None:
    if fcntl is None:
        return
    patience = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > patience:
                raise StoreError(
                    f"{path} has been locked by another process for more than {LOCK_SECONDS:g} s.",
                    suggestion=f"Find the process that holds it (`fuser {path}`) and end it.",
                ) from None
            time.sleep(SECRETS_POLL_SECONDS)
        else:
            return


def unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path} can't be used: {error.strerror or type(error).__name__}.",
        suggestion="Nothing was changed. Check the rights on the file and its folder, and that the disk has room.",
    )
