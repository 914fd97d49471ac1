"""Watches what jailed processes use together, where the kernel counts only for each alone, and ends those that use too much.

One timer for all jails of an event loop. A look at a jail lists its own /proc and reads a line for each process in it; only
if the rough sum is too high is it counted exactly. Jails near a limit are looked at more often, those that only wait for
work hardly ever.
"""

import asyncio
import logging
import os
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from toolgate.sandbox.jail import Stopped
from toolgate.sandbox.jails.process_tree import descendants, read
from toolgate.sandbox.jails.usage_counts import DiskUsage, KernelMemory

if TYPE_CHECKING:
    from toolgate.sandbox.jails.process import Process

USUAL, CLOSE, IDLE = 0.03, 0.005, 1.0
"""Seconds from one look to the next: at most jails, at one that has used a third of something, at one that waits."""
SERVER, SERVER_CLOSE = 0.1, 0.02
"""The same for servers, which stay for days."""

logger = logging.getLogger("toolgate.sandbox")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ResourceUsage(NamedTuple):
    """The resources that the processes of one jail use, roughly."""

    processes: int
    memory: int
    written: int
    """Bytes that they sent to disk, deleted or not."""


class ProcessWatch:
    """The view of one jailed process and everything below it."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.next = 0.0
        self.proc = -1
        """The jail's own /proc, in which exactly its processes are."""
        self.places: list[int] = []
        """Folders in the jail that are file systems of their own."""
        shared = [] if process.launch.told else list(process.launch.places)
        if process.spec.workspace is not None and process.spec.workspace not in process.spec.layers:
            shared.append(str(process.spec.workspace))
        self.disk = DiskUsage(shared, process.spec.limits) if shared else None
        self.kernel_memory = KernelMemory(process.spec.limits)

    def close(self) -> None:
        for number in (self.proc, *self.places):
            if number >= 0:
                os.close(number)
        self.proc, self.places = -1, []

    def look(self, now: float) -> None:
        limits = self.process.spec.limits
        if self.proc < 0:
            self._enter()
        used = self._used()
        if used.memory > limits.memory:
            used = used._replace(memory=self._exactly())
        files = max((place.f_files - place.f_ffree for place in map(os.fstatvfs, self.places)), default=0)
        why = self._too_much(used, files)
        if why is not None:
            self.process.kill(why)
            return
        if self.disk is not None:
            self.disk.look_into(now, self._members, lambda: self.process.kill("disk"))
        if self.process.busy:
            self.kernel_memory.look_into(now, self._members, lambda: self.process.kill("memory"))
        near = 3 * used.memory > limits.memory or 3 * files > limits.files or 3 * used.written > limits.disk
        usual, close = (SERVER, SERVER_CLOSE) if self.process.spec.profile == "server" else (USUAL, CLOSE)
        self.next = now + (IDLE if not self.process.busy else close if near else usual)

    def _too_much(self, used: ResourceUsage, files: int) -> Stopped | None:
        limits = self.process.spec.limits
        if used.memory > limits.memory:
            return "memory"
        if files > limits.files or used.written > limits.disk:
            return "disk"
        return "processes" if used.processes > limits.processes else None

    # Where to look

    def _enter(self) -> None:
        """Find the jail's own /proc, once the launcher has built its world: until then, its root is the host's."""
        root = f"/proc/{self.process.init}/root"
        if self.process.init is None or _same(root, "/"):
            return
        opened: list[int] = []
        try:
            for place in ("/proc", *self.process.launch.places):
                opened.append(os.open(root + place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))  # noqa: PERF401
            self.proc, *self.places = opened
        except OSError:
            for number in opened:
                os.close(number)

    def _members(self) -> list[str]:
        """The folders of its processes in /proc; not that of the first one inside, which is ours."""
        if self.proc >= 0:
            above = f"/proc/self/fd/{self.proc}"
            names = os.listdir(self.proc)  # noqa: PTH208
            return [f"{above}/{name}" for name in names if name.isdigit() and name != "1"]
        return [f"/proc/{number}" for number in descendants(self.process.pid) if number != self.process.init]

    # What they use

    def _used(self) -> ResourceUsage:
        """All memory that is in use by anyone, counted for each who shares it."""
        members = self._members()
        memory = sum(_resident(member) for member in members) + self._sockets()
        written = 0
        if self.disk is not None and self.process.spec.profile != "server":  # whose life has no end to count towards
            written = sum(_written(member) for member in (*members, f"/proc/{self.process.init or self.process.pid}"))
        return ResourceUsage(len(members), memory, written)

    def _sockets(self) -> int:
        """The memory of their sockets. In a network of their own, only theirs are counted."""
        if self.proc < 0 or self.process.spec.network == "host":
            return 0
        _, _, rest = read(f"/proc/{self.process.init}/net/sockstat").partition(b"sockets: used ")
        return int(rest.split()[0]) * _socket_buffer() if rest else 0

    def _exactly(self) -> int:
        """Their memory: what is shared, divided by those who share it, without files that are merely mapped."""
        return sum(_proportional(member) for member in self._members()) + self._sockets()


@cache
def _socket_buffer() -> int:
    """Bytes that the kernel may hold for each socket of a pair; they are in nobody's memory."""
    return int(read("/proc/sys/net/core/wmem_default") or 208 * 1024)


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.stat(one), os.stat(other))  # noqa: PTH116
    except OSError:
        return True


def _of(member: str, name: str) -> bytes:
    """A process's memory as the kernel tells it. Where its first thread has ended, only another one can be asked."""
    text = read(f"{member}/{name}")
    if text and not text.startswith(b"0 "):
        return text
    try:
        tasks = os.listdir(f"{member}/task")  # noqa: PTH208
    except OSError:
        return b""
    return max((read(f"{member}/task/{task}/{name}") for task in tasks), key=len, default=b"")


def _resident(member: str) -> int:
    fields = _of(member, "statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _proportional(member: str) -> int:
    sums = dict.fromkeys((b"Pss_Anon", b"Pss_Shmem", b"SwapPss"), 0)
    text = _of(member, "smaps_rollup")
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        if name in sums:
            sums[name] = int(rest.split()[0]) * 1024
    return sum(sums.values()) if text else _private(member)


def _private(member: str) -> int:
    """Its memory without what is backed by files, for kernels that do not say more."""
    fields = _of(member, "statm").split()
    return (int(fields[1]) - int(fields[2])) * _PAGE if len(fields) > 2 else 0


def _written(member: str) -> int:
    text = read(f"{member}/io")
    _, found, rest = text.partition(b"\nwrite_bytes:")
    return int(rest.split()[0]) if found else 0


class Watchdog:
    """All processes of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.watches: dict[Process, ProcessWatch] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.due = 0.0

    def add(self, process: "Process") -> None:
        self.watches[process] = ProcessWatch(process)
        self._set_timer(monotonic() + USUAL)

    def discard(self, process: "Process") -> None:
        watch = self.watches.pop(process, None)
        if watch is not None:
            watch.close()
        if not self.watches and self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def hurry(self, process: "Process") -> None:
        """It begins to work: look at it as soon as at any other."""
        watch = self.watches.get(process)
        if watch is not None:
            watch.next = 0.0
            self._set_timer(monotonic() + USUAL)

    def _set_timer(self, due: float) -> None:
        if self.timer is not None and self.due <= due:
            return
        if self.timer is not None:
            self.timer.cancel()
        self.due = due
        self.timer = self.loop.call_later(max(0.0, due - monotonic()), self._on_time)

    def _on_time(self) -> None:
        self.timer = None
        now = monotonic()
        for process, watch in list(self.watches.items()):
            if watch.next <= now:
                try:
                    watch.look(now)
                except Exception:
                    # What cannot be watched is not run.
                    logger.exception("a jailed process cannot be watched, and is ended")
                    process.kill()
        if self.watches:
            self._set_timer(max(now + CLOSE, min(watch.next for watch in self.watches.values())))


_watchdogs: WeakKeyDictionary[asyncio.AbstractEventLoop, Watchdog] = WeakKeyDictionary()


def of_loop() -> Watchdog:
    loop = asyncio.get_running_loop()
    if loop not in _watchdogs:
        _watchdogs[loop] = Watchdog(loop)
    return _watchdogs[loop]
