"""Parts of a folder that are mounted apart from the rest of it: those that may not be changed, or not be seen.

Three things would walk round a mere mount on such a part. Its folder could be renamed and another put in its place: so each
folder on the way there is mounted too, since what is a mount can't be renamed. It could be missing and be made: so
something empty and unchangeable stands there meanwhile, a placeholder. It could be a link, which cannot be mounted upon:
that is refused.

The host has a placeholder in its folder, since a mount needs something to be mounted on. Several jails may share one, of
several hosts too: each host holds a lock on it, and whoever is the last removes it. A host that was killed leaves it there
without a lock. The next jail with the same place knows it by its date, takes it for its own, and removes it at its end.

And a mount on a part is gone once somebody on the host puts another file in its place, as editors do when they save, unless
it is in a layer, which keeps its own names. So folders that a server may only read are not shown this way but projected
(`layers`).
"""

import fcntl
import os
import stat
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from toolgate.sandbox.jail import Spec, Unavailable

How = Literal["write", "read", "hide"]
PLACEHOLDER_TIME = 318_398_706
"""The mtime of a placeholder: a moment of 1980 that no real file has, and that every file system can note. Whoever
fills a folder changes it."""

_held: Counter[Path] = Counter()
_locks: dict[Path, int] = {}


class Submounts(msgspec.Struct):
    """Outer before inner."""

    mounts: dict[Path, How]
    held: tuple[Path, ...]
    """Placeholders, to be released when the program has ended."""


def submounts(spec: Spec) -> Submounts:
    """The submounts of a process. Raises Unavailable for what cannot be held."""
    if not spec.hidden and not spec.fixed:
        return Submounts({}, ())
    mounts: dict[Path, How] = {}
    held: list[Path] = []
    try:
        for path in spec.hidden:
            if path.is_symlink() or path.exists():
                mounts |= _ways(spec, path) | {_real(path): "hide"}
        for path in spec.fixed:
            _fix(spec, path, mounts, held)
    except BaseException:
        release(held)
        raise
    return Submounts(dict(sorted(mounts.items(), key=lambda mount: mount[0].parts)), tuple(held))


def root_of(spec: Spec, path: Path) -> Path:
    """The innermost of the folders given to the program that this is a part of."""
    given = [*spec.writable_folders(), *spec.readable]
    around = [folder for folder in given if path != folder and path.is_relative_to(folder) and ".." not in path.parts]
    if not around:
        raise Unavailable(f"{path} is not in the workspace {spec.workspace or given}.")
    return max(around, key=lambda folder: len(folder.parts))


def _fix(spec: Spec, path: Path, mounts: dict[Path, How], held: list[Path]) -> None:
    root = root_of(spec, path)
    missing = _missing(root, path)
    if missing is not None and root in spec.layers:
        return  # what is made there is not the host's
    if missing is not None and hold_place(missing):
        held.append(missing)
        path = missing
    for way, how in _ways(spec, path).items():
        mounts.setdefault(way, how)
    if mounts.get(path) != "hide":
        mounts[_real(path)] = "read"


def _missing(workspace: Path, path: Path) -> Path | None:
    """The outermost place on the way that is missing, or where only a placeholder is."""
    for place in (*reversed(_between(workspace, path)), path):
        if not place.is_symlink() and (not place.exists() or is_placeholder(place)):
            return place
    return None


def _ways(spec: Spec, path: Path) -> dict[Path, How]:
    """The folders between the workspace and its part, which it may go on writing to. What it may only read needs none:
    there nothing can be renamed. Nor does a layer: what is renamed there takes what is mounted on it along."""
    root = root_of(spec, path)
    if root in spec.layers or root not in spec.writable_folders():
        return {}
    return {_real(place): "write" for place in _between(root, path)}


def _between(root: Path, path: Path) -> list[Path]:
    """Inner before outer."""
    return [place for place in path.parents if place != root and place.is_relative_to(root)]


def _real(path: Path) -> Path:
    if path.is_symlink():
        raise Unavailable(f"{path} is a link: what it leads to can be kept from the program, the link itself cannot.")
    return path


# -- placeholders


def hold_place(path: Path) -> bool:
    """True if a placeholder of ours is there now: an empty folder, or file if so named. False: something else is there."""
    if path not in _held:
        with suppress(FileExistsError):
            _make(path)
        lock = _lock(path)
        if lock is None:
            return False
        _locks[path] = lock
    _held[path] += 1
    return True


def is_placeholder(path: Path) -> bool:
    """True if a placeholder, of whichever host, is there."""
    with suppress(OSError):
        return _is_empty_place(path.lstat())
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
        if _take(lock, fcntl.LOCK_EX) and is_placeholder(path):
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


def _is_empty_place(found: os.stat_result) -> bool:
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
        if _take(number, fcntl.LOCK_SH) and _is_empty_place(found) and os.path.samestat(found, path.lstat()):
            return number
    os.close(number)
    return None


def _make(path: Path) -> None:
    if path.suffix or path.name.endswith("rc"):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))
    else:
        path.mkdir(mode=0o755)
    os.utime(path, (PLACEHOLDER_TIME, PLACEHOLDER_TIME), follow_symlinks=False)
