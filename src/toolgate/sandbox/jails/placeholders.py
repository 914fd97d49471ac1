"""Places in a workspace that must not come into being: while a jail runs, something empty and unchangeable stands there.

A mount needs something to be mounted on, so the host has it in its folder for that time. Several jails may share one, of
several hosts too: each host holds a lock on it, and whoever is the last removes it. A host that was killed leaves it there
without a lock. The next jail with the same place knows it by its date, takes it for its own, and removes it at its end.
"""

import fcntl
import os
import stat
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PLACEHOLDER_TIME = 318_398_706
"""When a placeholder was last changed: a moment of 1980 that no real file has, and that every file system can note. Whoever
fills a folder changes it."""

_held: Counter[Path] = Counter()
_locks: dict[Path, int] = {}


def hold(path: Path) -> bool:
    """Whether a placeholder of ours is there now: an empty folder, or file if so named. False: something else is there."""
    if path not in _held:
        with suppress(FileExistsError):
            _make(path)
        lock = _lock(path)
        if lock is None:
            return False
        _locks[path] = lock
    _held[path] += 1
    return True


def is_one(path: Path) -> bool:
    """Whether a placeholder, of whichever host, is there."""
    with suppress(OSError):
        return _is_one(path.lstat())
    return False


def release(paths: Iterable[Path]) -> None:
    """Once for each time that it was held. What has been filled meanwhile, from outside, stays."""
    for path in paths:
        _held[path] -= 1
        if _held[path] <= 0:
            del _held[path]
            _let_go(path, _locks.pop(path))


def _let_go(path: Path, lock: int) -> None:
    try:
        if _take(lock, fcntl.LOCK_EX) and is_one(path):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
    finally:
        os.close(lock)


def _take(lock: int, how: int) -> bool:
    """False while another host holds it. Where there are no locks, there are no other hosts."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _is_one(found: os.stat_result) -> bool:
    empty = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_size == 0)
    return empty and found.st_mtime == PLACEHOLDER_TIME


def _lock(path: Path) -> int | None:
    """Held together with other hosts. None: it is no placeholder, or is being removed at this moment."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        found = os.fstat(number)
        if _take(number, fcntl.LOCK_SH) and _is_one(found) and os.path.samestat(found, path.lstat()):
            return number
    os.close(number)
    return None


def _make(path: Path) -> None:
    if path.name.startswith(".") and "." not in path.name[1:] and not path.name.endswith("rc"):
        path.mkdir(mode=0o755)
    elif path.suffix or path.name.endswith("rc"):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))
    else:
        path.mkdir(mode=0o755)
    os.utime(path, (PLACEHOLDER_TIME, PLACEHOLDER_TIME), follow_symlinks=False)
