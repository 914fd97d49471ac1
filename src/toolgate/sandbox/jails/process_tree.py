"""Processes as the kernel tells of them in /proc: who descends from whom, and when each began."""

import os
from contextlib import suppress


def parent_of(pid: int) -> int | None:
    """None: there is no such process."""
    return _stat(pid, 1)


def began(pid: int) -> int | None:
    """When a process was started, in the kernel's ticks: with its number, that names it for good. None: there is none."""
    return _stat(pid, 19)


def _stat(pid: int, field: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - read many times a second
            return int(file.read().rpartition(b")")[2].split()[field])
    except (OSError, IndexError, ValueError):
        return None


def is_first(pid: int) -> bool:
    """Whether it is the first process of a world of its own."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            numbers = file.read().partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
    except OSError:
        return False
    return len(numbers) > 1 and numbers[-1] == b"1"


def descendants(pid: int) -> list[int]:
    """All of them that are alive now."""
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
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found
