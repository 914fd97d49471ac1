"""Counts of what jailed programs use that nothing else tells: files in folders of the host, and memory of the kernel.

A count takes too long for the event loop: it is done in a thread, never twice at once, and only for a part of the time,
unless a sum that the kernel tells at once has grown so much that it is called for.
"""

import asyncio
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic, time

from toolgate.sandbox.jail import ResourceLimits
from toolgate.tasks import start_task
from toolgate.threads import to_thread

AGAIN = 0.5
"""Seconds from one count to the next, at least."""
SHARE = 20
"""A count may take this part of the time, if nothing speaks for hurry: the next one comes after so many times as long."""
_BLOCK = 512
_COARSE = 1.0
"""Clocks of file systems are not ours; so many seconds earlier still counts as since."""
PART = 4
"""A quarter of a program's memory may be the kernel's for it. Honest programs are far below."""
HINT = 8
"""If the machine's sum has grown by this part of the limit, it is counted whose it is."""
EACH = 200
"""Bytes of a mapping, a lock or a watch, as measured."""
NOTED = (b"\nlock:", b"\ntfd:", b"\ninotify ")
"""Beginnings of lines that tell of locks on an open file, and of what it watches (epoll, inotify)."""
FRESH = 0.02
"""Seconds for which what the machine says is good for all programs."""
_NAMES = (b"SUnreclaim:", b"PageTables:", b"KernelStack:")


class ThrottledCount(ABC):
    """A count that is not done more often than its time allows."""

    every = 0.0
    """Seconds from one count to the next, at least, if nothing calls for it."""

    def __init__(self, looked: float = 0.0) -> None:
        self._looked, self._took = looked, 0.0
        self._looking = False

    @abstractmethod
    def _is_called_for(self) -> bool:
        """True if what the kernel tells at once has grown too much."""

    @abstractmethod
    def _is_too_much(self, members: Sequence[str]) -> bool:
        """Count; `members` are the folders of the processes in /proc. For a thread."""

    def look_into(self, now: float, members: Callable[[], Sequence[str]], tell: Callable[[], None]) -> None:
        """Count if it is time; tell if it is too much, or if it cannot be counted."""
        since = now - self._looked
        if self._looking or since < AGAIN:
            return
        if since >= max(self.every, self._took * SHARE) or self._is_called_for():
            self._looking, self._looked = True, now

            def counted(done: asyncio.Future[bool]) -> None:
                self._looking = False
                if not done.cancelled() and (done.exception() is not None or done.result()):
                    tell()

            start_task(to_thread(self._timed, members())).add_done_callback(counted)

    def _timed(self, members: Sequence[str]) -> bool:
        began = monotonic()
        try:
            return self._is_too_much(members)
        finally:
            self._took = monotonic() - began


class DiskUsage(ThrottledCount):
    """Counts what was added to some folders of the host, which have no size of their own, since now.

    The files are counted that came or changed since. That takes as long as the folders are big; it is called for once the
    file system, which knows how much was added to it by anybody, has taken more than the program may write."""

    def __init__(self, folders: Sequence[str], limits: ResourceLimits) -> None:
        super().__init__()
        self.folders = folders
        self.limits = limits
        self.began = time() - _COARSE
        self.before = [os.statvfs(folder) for folder in folders]

    def _is_called_for(self) -> bool:
        return any(self._has_taken(folder, before) for folder, before in zip(self.folders, self.before, strict=True))

    def _has_taken(self, folder: str, before: os.statvfs_result) -> bool:
        try:
            after = os.statvfs(folder)
        except OSError:
            return True
        size = (before.f_bfree - after.f_bfree) * after.f_frsize
        return size > self.limits.disk or before.f_ffree - after.f_ffree > self.limits.files

    def _is_too_much(self, members: Sequence[str]) -> bool:
        size, files = _nameless(members), 0
        waiting = list(self.folders)
        while waiting:
            try:
                entries = os.scandir(waiting.pop())
            except OSError:
                continue
            with entries:
                for entry in entries:
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # Deleted meanwhile.
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    if found.st_ctime >= self.began:
                        files, size = files + 1, size + found.st_blocks * _BLOCK
            if size > self.limits.disk or files > self.limits.files:
                return True
        return False


def _nameless(members: Sequence[str]) -> int:
    """Files that were deleted and are still open, in bytes."""
    seen: dict[tuple[int, int], int] = {}
    for member in members:
        with suppress(OSError):
            for number in os.listdir(f"{member}/fd"):  # noqa: PTH208
                with suppress(OSError):
                    found = os.stat(f"{member}/fd/{number}")  # noqa: PTH116
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                        seen[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
    return sum(seen.values())


class KernelMemory(ThrottledCount):
    """Memory that the kernel holds for one jail, in no process's own: locks and watches, pieces of mappings, page tables.

    Each is small, none has a limit, and fifty processes can have millions. The kernel tells only how much there is on the
    whole machine; whose it is has to be counted, process by process. That is called for once the machine's sum has grown
    since the program began, and done now and then, since in some containers that sum is not shown."""

    every = 2.0

    def __init__(self, limits: ResourceLimits) -> None:
        super().__init__(monotonic())
        self._most = limits.memory // PART
        self._hint = limits.memory // HINT
        self._total = self._least = machine(self._looked)
        """Now; and the lowest since it began: what others gave back must not hide what this one took."""

    def look_into(self, now: float, members: Callable[[], Sequence[str]], tell: Callable[[], None]) -> None:
        self._total = machine(now)
        self._least = min(self._least, self._total)
        super().look_into(now, members, tell)

    def _is_called_for(self) -> bool:
        return self._total - self._least > self._hint

    def _is_too_much(self, members: Sequence[str]) -> bool:
        """Counted no further than needed."""
        total = 0
        for member in members:
            for size in held(member):
                total += size
                if total > self._most:
                    return True
        return False


_last = (0.0, 0)


def machine(now: float) -> int:
    """Bytes that the kernel holds for everybody together, as far as it tells."""
    global _last  # Many jails ask in the same moment.
    if now - _last[0] > FRESH:
        with suppress(OSError), open("/proc/meminfo", "rb") as file:  # noqa: PTH123 - many times a second
            text = file.read()
            _last = (now, sum(_kilobytes(text, name) for name in _NAMES))
    return _last[1]


def held(member: str) -> Iterator[int]:
    """Bytes, bit by bit. All of its threads are asked: each may have files of its own, and the first may have ended."""
    seen = False
    for name in _listed(f"{member}/task"):
        task = f"{member}/task/{name}"
        status = _status(task)
        try:
            yield from _noted(task)
            if not seen and b"VmPTE:" in status:
                seen = True
                yield _kilobytes(status, b"VmPTE:")
                yield from _pieces(task)
        except PermissionError:
            # Before it is under its filter, it is ours. Afterwards, who can't be looked into is not run.
            if b"\nSeccomp:\t2" in status:
                raise
        except (FileNotFoundError, ProcessLookupError):
            continue


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        return []


def _status(task: str) -> bytes:
    """The file that everybody may read."""
    with suppress(FileNotFoundError, ProcessLookupError), open(f"{task}/status", "rb") as file:  # noqa: PTH123
        return file.read()
    return b""


def _pieces(member: str) -> Iterator[int]:
    """Its mappings: a line each."""
    number = os.open(f"{member}/maps", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while text := os.read(number, 65_536):
            yield text.count(b"\n") * EACH
    finally:
        os.close(number)


def _noted(task: str) -> Iterator[int]:
    """Bytes for the locks and watches on each of its open files."""
    for name in _listed(f"{task}/fdinfo"):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"{task}/fdinfo/{name}", "rb") as file:  # noqa: PTH123
            text = file.read()
            yield sum(map(text.count, NOTED)) * EACH


def _kilobytes(text: bytes, name: bytes) -> int:
    _, found, rest = text.partition(name)
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0
