"""Processes as the kernel tells of them in /proc: who descends from whom, and when each began."""

import os
from contextlib import suppress


def read(path: str) -> bytes:
    """The content of a file in /proc; empty if the process is gone, or may not be looked into."""
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - read many times a second
        return file.read()
    return b""


def parent_of(pid: int) -> int | None:
    """None: there is no such process."""
    return _stat(pid, 1)


def began(pid: int) -> int | None:
    """The start of a process, in the kernel's ticks: with its number, that names it for good. None: there is none."""
    return _stat(pid, 19)


def _stat(pid: int, field: int) -> int | None:
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[field]) if len(fields) > field else None


def is_first(pid: int) -> bool:
    """True for the first process of a world of its own."""
    numbers = read(f"/proc/{pid}/status").partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
    return len(numbers) > 1 and numbers[-1] == b"1"


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    """Each thread has its own."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return found
