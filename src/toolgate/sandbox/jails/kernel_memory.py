"""Memory that the kernel holds for a program, in no process's own: locks and watches, pieces of mappings, page tables.

Each is small, none has a limit, and fifty processes can have millions. The kernel tells only how much there is on the whole
machine; whose it is has to be counted, process by process, in a thread. That is done at once if the machine's sum has grown
since the program began, and else now and then, since in some containers that sum is not shown.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic

from toolgate.sandbox.jails.throttled_count import ThrottledCount
from toolgate.sandbox.port import ResourceLimits

PART = 4
"""A quarter of a program's memory may be the kernel's for it. Honest programs are far below."""

HINT = 8
"""If the machine's sum has grown by this part of the limit, it is counted whose it is."""

EVERY = 2.0
"""Seconds from one count to the next if nothing has grown."""

EACH = 200
"""Bytes of a mapping, a lock or a watch, as measured."""

NOTED = (b"\nlock:", b"\ntfd:", b"\ninotify ")
"""How the lines begin that tell of locks on an open file, and of what it watches (epoll, inotify)."""

FRESH = 0.02
"""Seconds for which what the machine says is good for all programs."""

_NAMES = (b"SUnreclaim:", b"PageTables:", b"KernelStack:")


class KernelMemory:
    """Memory that the kernel holds for one jail."""

    def __init__(self, limits: ResourceLimits) -> None:
        self._most = limits.memory // PART
        self._hint = limits.memory // HINT
        began = monotonic()
        self._least = machine(began)
        """The lowest sum since it began: what others gave back must not hide what this one took."""
        self._aside = ThrottledCount(began)

    def look_into(self, now: float, members: Callable[[], Sequence[str]], tell: Callable[[], None]) -> None:
        """Count if it is time; tell if it is too much."""
        total = machine(now)
        self._least = min(self._least, total)
        hurry = total - self._least > self._hint
        if self._aside.may_begin(now) and (hurry or self._aside.is_time(now, EVERY)):
            found = members()
            self._aside.begin(now, lambda: self._is_too_much(found), tell)

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
    """Which everybody may read."""
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
    """What hangs on each of its open files."""
    for name in _listed(f"{task}/fdinfo"):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"{task}/fdinfo/{name}", "rb") as file:  # noqa: PTH123
            text = file.read()
            yield sum(map(text.count, NOTED)) * EACH


def _kilobytes(text: bytes, name: bytes) -> int:
    _, found, rest = text.partition(name)
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0
