"""The jail that is preferred: bubblewrap builds a world of its own for each program, of namespaces and mounts.

bubblewrap limits neither how much may be used nor which system calls; the starter and the watchdog do.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from toolgate.sandbox.jail import Spec, Unavailable
from toolgate.sandbox.jails import launch, process
from toolgate.sandbox.jails.child_descriptors import ChildPipe, SocketHandoff
from toolgate.sandbox.jails.identity import Identity
from toolgate.sandbox.jails.inside_files import STARTER
from toolgate.sandbox.jails.namespaces import DEVICE_LINKS, DEVICES, SCRATCH, Layout, NamespaceJail
from toolgate.sandbox.jails.process_tree import is_first, parent_of, read
from toolgate.sandbox.jails.submounts import How

PLACES = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"
"""Bubblewrap is looked for here: PATH could lead to a workspace."""
SMALL = "65536"
KERNELS_OWN = (
    "kcore", "keys", "key-users", "kallsyms", "kmsg", "latency_stats", "sched_debug", "sysrq-trigger", "timer_list",
)  # fmt: skip
"""In /proc: what the kernel tells, or is told, about more than the program."""
CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
"""Needed by the starter to become somebody else."""
REMAPPING = ("CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")
"""And to show a workspace as that one's, which may be closed to all but its owner."""
LISTENING = ("CAP_NET_BIND_SERVICE",)
"""And to listen on ports that are the system's."""
FIRST_FREE = 1024


class Bubblewrap(NamespaceJail):
    """Holds processes with bubblewrap."""

    name = "bubblewrap"

    def __init__(self) -> None:
        super().__init__()
        self._program = shutil.which("bwrap", path=PLACES)
        self._swept = False

    async def start(self, spec: Spec) -> process.Process:
        if self._program is None:
            raise Unavailable("bubblewrap is not installed.", suggestion="Install the package bubblewrap.")
        if not self._swept:
            self._swept = True
            end_orphans()
        return await super().start(spec)

    def _command(self, layout: Layout, order: ChildPipe, told: ChildPipe, _handoff: SocketHandoff | None) -> tuple[str, ...]:
        spec = layout.spec
        walls = _walls(spec, layout.identity, remap=layout.remap is not None)
        command = (str(self._program), "--info-fd", str(told.number), *walls, *_world(layout), "--")
        return (*command, *launch.start_command(spec, order))


def end_orphans() -> None:
    """bubblewrap has one weak moment: if its host is killed before it lets its child go on, the child waits for ever."""
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        if _is_orphan(int(name)):
            with suppress(OSError):
                os.kill(int(name), signal.SIGKILL)


def _is_orphan(pid: int) -> bool:
    """The first process inside a world of ours, without a bubblewrap outside."""
    words = _words(pid)
    if not words[0].endswith(b"/bwrap") or os.fsencode(STARTER) not in words:
        return False
    above = parent_of(pid)
    return is_first(pid) and above is not None and not _words(above)[0].endswith(b"/bwrap")


def _words(pid: int) -> list[bytes]:
    return read(f"/proc/{pid}/cmdline").split(b"\0")


def _walls(spec: Spec, who: Identity | None, *, remap: bool) -> Iterator[str]:
    """Namespaces of its own; an end when we end; no terminal, no environment."""
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if spec.network != "host":
        yield "--unshare-net"
    yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv")
    for name, value in launch.ONE_ARENA.items():
        yield from ("--setenv", name, value)
    low = LISTENING if any(port < FIRST_FREE for _, port in spec.listen) else ()
    if who is None and low:
        # With --disable-userns the starter would be in a second user namespace, to which the network does not belong. The
        # filter of system calls lets nobody make another one anyhow.
        yield "--unshare-user"
    elif who is None:
        yield from ("--unshare-user", "--disable-userns")
    else:
        yield from ("--cap-drop", "ALL")
    for name in (*(CAPABILITIES if who else ()), *(REMAPPING if remap else ()), *low):
        yield from ("--cap-add", name)


def _world(layout: Layout) -> Iterator[str]:
    """All that the program will see. Whatever is not a bind is memory, so all of it has a size or is made read-only."""
    spec, source = layout.spec, layout.source
    yield from ("--perms", "1777", "--size", str(spec.limits.disk), "--tmpfs", SCRATCH)
    readable = launch.readable_paths(spec)
    views = (*launch.system_paths(), *launch.network_paths(spec.network))
    shown = [view.path for view in views if view.kind == "bind"]
    written = layout.written()
    yield from _ways([*shown, *readable, *written, *spec.projected, *(place for _, place in spec.shown)])
    for view in views:
        yield from ("--symlink", view.target, str(view.path)) if view.kind == "link" else _bind(view.path, Path(view.target))
    yield from _devices()
    inner = (*written, *spec.projected)
    around = [path for path in readable if any(folder.is_relative_to(path) for folder in inner)]
    mounts = [(path, _bind(path, path)) for path in around]
    mounts += [(path, _bind(path, source(path))) for path in spec.projected]
    mounts += [(path, ("--bind", str(source(path)), str(path))) for path in written]
    mounts += [(path, _apart(path, how, source(path))) for path, how in layout.submounts.mounts.items()]
    mounts += [(path, _bind(path, path)) for path in readable if path not in around]
    mounts += [(place, _bind(place, file)) for file, place in spec.shown]
    for _, words in sorted(mounts, key=lambda mount: len(mount[0].parts)):
        yield from words
    # The first process inside is bubblewrap's own, which no filter holds: its memory must not be within reach.
    yield from ("--proc", "/proc", "--perms", "0555", "--size", SMALL, "--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
    for name in KERNELS_OWN:
        if Path("/proc", name).exists():
            yield from ("--ro-bind", os.devnull, f"/proc/{name}")
    yield from ("--remount-ro", "/")


def _ways(paths: list[Path]) -> Iterator[str]:
    """Folders above what is shown, which anybody may go through: bubblewrap's own would be closed to all but its user."""
    for folder in sorted({folder for path in paths for folder in path.parents} - {Path("/"), Path(SCRATCH)}):
        yield from ("--perms", "0755", "--dir", str(folder))


def _bind(path: Path, source: Path) -> tuple[str, ...]:
    return ("--ro-bind", str(source), str(path))


def _devices() -> Iterator[str]:
    """Those that hold nothing, and no terminals."""
    yield from ("--size", SMALL, "--tmpfs", "/dev")
    for name in DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, target in DEVICE_LINKS.items():
        yield from ("--symlink", target, f"/dev/{name}")
    yield from ("--remount-ro", "/dev")


def _apart(path: Path, how: How, source: Path) -> tuple[str, ...]:
    match how:
        case "write":
            return ("--bind", str(source), str(path))
        case "read":
            return ("--ro-bind", str(source), str(path))
        case "hide" if path.is_dir():
            return ("--perms", "0000", "--size", SMALL, "--tmpfs", str(path), "--remount-ro", str(path))
    return ("--ro-bind", os.devnull, str(path))
