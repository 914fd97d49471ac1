"""What a jail is tried with before it is relied on: a small program that would do harm, and one thing that must work.

Each attempt that succeeds is a hole, and is named. A jail whose launcher merely crashed would show none; so a
line that only comes if an honest program can work here is part of the answer.
"""

# Strings are cheaper than pathlib, which nothing else here needs.
# ruff: noqa: PTH108, PTH123

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HOLE, HELD, WORKS = "hole:", "held:", "control: works"
CLONE_NEWUSER = 0x10000000
MB = 1024 * 1024


def reads_files(secret: str) -> None:
    """A file of the host, which anybody there may read."""
    with open(secret, "rb") as file:
        file.read(1)


def has_environment(name: str) -> None:
    """A variable of the host's."""
    os.environ[name]


def reaches_network() -> None:
    """Any address at all, by any kind of socket."""
    import _socket

    for family in (_socket.AF_UNIX, _socket.AF_INET, _socket.AF_INET6):
        try:
            _socket.socket(family, _socket.SOCK_STREAM).close()
            return
        except OSError:
            continue
    raise PermissionError


def starts_processes() -> None:
    """A copy of itself."""
    if os.fork() == 0:
        os._exit(0)


def takes_memory(limit: str) -> None:
    """As much as the limit, besides what it has."""
    held = bytearray(int(limit))
    held[-1] = 1


def fills_disk(limit: str) -> None:
    """More than the limit."""
    with open("much", "wb") as file:
        for _ in range(int(limit) // MB + 2):
            file.write(bytes(MB))


def signals_host(host: str) -> None:
    """The process that started it all."""
    os.kill(int(host), 0)


def takes_cores() -> None:
    """More than one, or others."""
    if len(os.sched_getaffinity(0)) > 1:
        return
    os.sched_setaffinity(0, set(range(1024)))


def leaves() -> None:
    """A user namespace in which it would be root."""
    import ctypes

    if ctypes.CDLL(None).unshare(CLONE_NEWUSER) != 0:
        raise PermissionError


def writes_elsewhere() -> None:
    """The system's own programs."""
    with open("/usr/bin/toolgate-was-here", "wb"):
        os.unlink("/usr/bin/toolgate-was-here")


def attempts(secret: str, name: str, host: str, memory: str) -> list[tuple[str, Callable[[], None]]]:
    """What is tried, by the feature that should hold it."""
    return [
        ("files", lambda: reads_files(secret)),
        ("files", writes_elsewhere),
        ("environment", lambda: has_environment(name)),
        ("network", reaches_network),
        ("processes", starts_processes),
        ("processes", leaves),
        ("memory", lambda: takes_memory(memory)),
        ("cpu", takes_cores),
        ("signals", lambda: signals_host(host)),
    ]


def works() -> None:
    """An honest program: a file of its own, a thread."""
    import _thread

    with open("little", "w") as file:
        file.write("works")
    with open("little") as file:
        said = file.read()
    lock = _thread.allocate_lock()
    lock.acquire()
    _thread.start_new_thread(lock.release, ())
    if lock.acquire(timeout=5) and said == "works":
        say(WORKS)


def say(words: str) -> None:
    """A line for the host."""
    os.write(1, words.encode() + b"\n")


def attempt(feature: str, act: Callable[[], None]) -> None:
    """Say what became of it."""
    try:
        act()
    except (OSError, KeyError, MemoryError):
        say(f"{HELD} {feature}")
    else:
        say(f"{HOLE} {feature}: {act.__doc__ or act.__name__}")


def main() -> None:
    """The disk comes last, since the host may put an end to whoever fills it."""
    *others, disk = sys.argv[1:]
    for feature, act in attempts(*others):
        attempt(feature, act)
    works()
    attempt("disk", lambda: fills_disk(disk))


if __name__ == "__main__":
    main()
