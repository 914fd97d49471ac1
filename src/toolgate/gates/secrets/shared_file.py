"""Small files that several processes read and change: whole or not at all, one change after another, and never readable
by others. What goes wrong is said as a StoreError, without the content.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from toolgate.errors import StoreError
from toolgate.store import chain

LOCK_SECONDS = 30.0
SECRETS_POLL_SECONDS = 0.02

T = TypeVar("T")
State = tuple[int, int, int]
"""What tells one content of a file from another: modification time, size, inode."""


class ParsedFile(Generic[T]):
    """A file whose content is kept in mind, parsed, until it changes: a look at it costs one look at its state."""

    def __init__(self, path: Path, parse: Callable[[bytes], dict[str, T]]) -> None:
        self._path = path
        self._parse = parse
        self._known: tuple[State, str | None, dict[str, T]] | None = None

    def content(self, beside: str | None = None) -> dict[str, T]:
        """The parsed content; empty if the file is not there. `beside`: what else the content depends on."""
        try:
            state = _state(self._path.stat())
            if self._known is None or self._known[:2] != (state, beside):
                with self._path.open("rb") as file:
                    state = _state(os.fstat(file.fileno()))
                    text = file.read()
                self._known = state, beside, self._parse(text)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise unusable(self._path, error) from None
        return self._known[2]


def _state(found: os.stat_result) -> State:
    return found.st_mtime_ns, found.st_size, found.st_ino


def replace(path: Path, content: bytes) -> None:
    """Put a content in place of what is there, on disk before this returns. To be called under the lock. Each content has a
    later time than the one before, so that its state differs."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        before = path.stat().st_mtime_ns if path.exists() else -1
        fresh.unlink(missing_ok=True)  # of a process that died
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if os.fstat(handle).st_mtime_ns <= before:
                os.utime(fresh, ns=(before + 1, before + 1))
            os.fsync(handle)
        fresh.replace(path)
        if os.name == "posix":  # elsewhere a folder can't be opened
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise unusable(path, error) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among all processes and threads, as long as they use this lock. It ends with its process, however that ends."""
    patience = time.monotonic() + LOCK_SECONDS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                lock = chain.locked(path, wait=False)
                break
            except BlockingIOError:
                if time.monotonic() > patience:
                    raise StoreError(
                        f"{path} has been locked by another process for more than {LOCK_SECONDS:g} s.",
                        suggestion=f"Find the process that holds it (`fuser {path}`) and end it.",
                    ) from None
                time.sleep(SECRETS_POLL_SECONDS)
    except OSError as error:
        raise unusable(path, error) from None
    with lock:
        yield


def damaged(what: str) -> StoreError:
    return StoreError(
        f"{what} is damaged.",
        suggestion="Nothing was changed. Put back a copy of it, or move it away and set the secrets again.",
    )


def unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path} cannot be used: {error.strerror or type(error).__name__}.",
        suggestion="Nothing was changed. Check the rights on the file and its folder, and that the disk has room.",
    )
