"""The jail that is preferred: bubblewrap builds a world of its own for each program, of namespaces and mounts.

As an ordinary user everything happens in a user namespace, in which no further one can be made. As root there is none: the
mounts are real ones, and the starter goes on as a user that nobody else is. bubblewrap limits neither how much may be used
nor which system calls; the starter and the watcher do.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from toolgate.sandbox.jails import identity, launch, placeholders, process, seccomp
from toolgate.sandbox.jails.identity import Identity
from toolgate.sandbox.jails.launch import OWN_WORLD, ChildPipe, Launch
from toolgate.sandbox.jails.layers import Layers, layers_of
from toolgate.sandbox.jails.process_tree import is_first, parent_of
from toolgate.sandbox.jails.socket_handoff import SocketHandoff
from toolgate.sandbox.jails.submounts import How, Submounts, parts
from toolgate.sandbox.port import Feature, Spec, Unavailable

PLACES = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"
"""Where bubblewrap is looked for: PATH could lead to a workspace."""
SCRATCH = "/tmp"
"""Inside: the one place, besides a workspace, that can be written to."""
SMALL = "65536"
DEVICES = ("null", "zero", "full", "random", "urandom")
STREAMS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
KERNELS_OWN = (
    "kcore", "keys", "key-users", "kallsyms", "kmsg", "latency_stats", "sched_debug", "sysrq-trigger", "timer_list",
)  # fmt: skip
"""In /proc: what the kernel tells, or is told, about more than the program."""
CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
"""What the starter needs to become somebody else."""
REMAPPING = ("CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")
"""And to show a workspace as that one's, which may be closed to all but its owner."""
LISTENING = ("CAP_NET_BIND_SERVICE",)
"""And to listen on ports that are the system's."""
FIRST_FREE = 1024

ENFORCES: dict[Feature, str] = OWN_WORLD


class Bubblewrap:
    """Holds processes with bubblewrap."""

    name = "bubblewrap"

    def __init__(self, *, scratch_parent: Path | None = None, cpu: int | None = None) -> None:  # noqa: ARG002 - as all jails
        self._program = shutil.which("bwrap", path=PLACES)
        self._cpu = cpu
        self._swept = False
        self._processes: set[process.Process] = set()

    def enforces(self) -> Mapping[Feature, str]:
        """By what means each feature is held."""
        return ENFORCES

    async def start(self, spec: Spec) -> process.Process:
        """Start a process in a world of its own."""
        if self._program is None:
            raise Unavailable("bubblewrap is not installed.", suggestion="Install the package bubblewrap.")
        self._processes = {other for other in self._processes if not other.closed}
        if not self._swept:
            self._swept = True
            end_orphans()
        apart = parts(spec)
        try:
            made = self._launch(self._program, spec, apart)
        except BaseException:
            placeholders.release(apart.held)
            raise
        started = await process.start(made, spec)
        self._processes.add(started)
        return started

    def _launch(self, program: str, spec: Spec, apart: Submounts) -> Launch:
        mapped = identity.mappable(spec)
        who = identity.choose(spec, mapped=mapped)
        if who is not None and spec.workspace is not None and spec.workspace not in (*mapped, *spec.layers):
            identity.give(spec.workspace, who, spec.hidden)
        remap = launch.remapping(spec, who, mapped, apart) if who else None
        layers = layers_of(spec, who, mapped)
        around = (*_walls(spec, who, remap=remap is not None), *_world(spec, apart, layers))
        handing = SocketHandoff() if spec.listen else None
        said = launch.order(
            spec,
            identity=who,
            home=f"{SCRATCH}/home",
            temporary=f"{SCRATCH}/tmp",
            work=str(spec.workspace or f"{SCRATCH}/work"),
            filter=seccomp.program(spec.profile, network=spec.network),
            remap=remap,
            cpu=self._cpu,
            handing=handing,
            gate=layers.gate if layers else None,
        )
        order, told = ChildPipe.down(said), ChildPipe.up()
        argv = (program, "--info-fd", str(told.inner), *around, "--", *launch.start_command(spec, order))
        return Launch(
            argv=layers.command(launch.interpreter(spec), argv) if layers else argv,
            layers=layers,
            order=order,
            told=told,
            handing=handing,
            places=(SCRATCH,),
            release=apart.held,
        )

    async def close(self) -> None:
        """End whatever still runs."""
        await asyncio.gather(*(started.close() for started in self._processes))
        self._processes.clear()


def end_orphans() -> None:
    """bubblewrap has one weak moment: if its host is killed before it lets its child go on, the child waits for ever."""
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        if _is_orphan(int(name)):
            with suppress(OSError):
                os.kill(int(name), signal.SIGKILL)


def _is_orphan(pid: int) -> bool:
    """The first process inside a world of ours, without a bubblewrap outside."""
    words = _words(pid)
    if not words[0].endswith(b"/bwrap") or os.fsencode(launch.STARTER) not in words:
        return False
    above = parent_of(pid)
    return is_first(pid) and above is not None and not _words(above)[0].endswith(b"/bwrap")


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def _walls(spec: Spec, who: Identity | None, *, remap: bool) -> Iterator[str]:
    """Namespaces of its own; an end when we end; no terminal, no environment."""
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if spec.network != "host":
        yield "--unshare-net"
    yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv")
    # Read by the C library before anything of ours runs: arenas would use up the address space.
    yield from ("--setenv", "MALLOC_ARENA_MAX", "1")
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


def _world(spec: Spec, apart: Submounts, layers: Layers | None = None) -> Iterator[str]:
    """All that the program will see. Whatever is not a bind is memory, so all of it has a size or is made read-only."""
    yield from ("--perms", "1777", "--size", str(spec.limits.disk), "--tmpfs", SCRATCH)
    readable = launch.readable_paths(spec)
    views = (*launch.system_paths(), *launch.network_paths(spec.network))
    shown = [view.path for view in views if view.kind == "bind"]
    written = ([spec.workspace] if spec.workspace else []) + list(spec.writable)
    yield from _ways([*shown, *readable, *written, *spec.projected, *(place for _, place in spec.shown)])
    for view in views:
        yield from ("--symlink", view.target, str(view.path)) if view.kind == "link" else _bind(view.path, Path(view.target))
    yield from _devices()
    inner = (*written, *spec.projected)
    around = [path for path in readable if any(folder.is_relative_to(path) for folder in inner)]
    mounts = [(path, _bind(path, path)) for path in around]
    source = layers.source if layers else Path
    mounts += [(path, _bind(path, source(path))) for path in spec.projected]
    mounts += [(path, _given(path, source(path))) for path in written]
    mounts += [(path, _apart(path, how, source(path))) for path, how in apart.mounts.items()]
    mounts += [(path, _bind(path, path)) for path in readable if path not in around]
    mounts += [(place, _bind(place, source)) for source, place in spec.shown]
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
    """Those that hold nothing, and no terminals. Shared memory is in the scratch, and as big as that."""
    yield from ("--size", SMALL, "--tmpfs", "/dev")
    for name in DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, target in STREAMS.items():
        yield from ("--symlink", target, f"/dev/{name}")
    yield from ("--symlink", SCRATCH, "/dev/shm", "--remount-ro", "/dev")


def _given(folder: Path, source: Path) -> tuple[str, ...]:
    if Path(SCRATCH).is_relative_to(folder):
        raise Unavailable(f"{folder} can't be a workspace: it holds the folder for temporary files.")
    return ("--bind", str(source), str(folder))


def _apart(path: Path, how: How, source: Path) -> tuple[str, ...]:
    match how:
        case "write":
            return ("--bind", str(source), str(path))
        case "read":
            return ("--ro-bind", str(source), str(path))
        case "hide" if path.is_dir():
            return ("--perms", "0000", "--size", SMALL, "--tmpfs", str(path), "--remount-ro", str(path))
    return ("--ro-bind", os.devnull, str(path))
