"""The start of a jailed process: what every jail says alike, whatever its walls are made of.

A jail turns a Spec into a Launch: the command of its own launcher, which ends in the starter, and the starter's order. The
order goes through a pipe, since a command line can be read by everybody on the machine.
"""

import marshal
import math
import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import MAGIC_NUMBER
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from toolgate.sandbox.jail import MB, Network, Spec, Unavailable
from toolgate.sandbox.jails.child_descriptors import ChildEnds, ChildPipe, SocketHandoff
from toolgate.sandbox.jails.identity import Identity, lent, mapping
from toolgate.sandbox.jails.inside_files import INSIDE, STARTER, WORKER, WORKER_PARTS, python
from toolgate.sandbox.jails.layers import Layers
from toolgate.sandbox.jails.submounts import Submounts, release, root_of
from toolgate.sandbox.untrusted_files import remove

CODE_RANGE = 512 * MB
"""Set aside by V8 for compiled code, of address space and not of memory: RLIMIT_DATA counts it all the same."""
DENO_ITSELF = 24 * MB
"""Memory that Deno keeps from programs for itself."""
SERVER_FILE = 4096 * MB
"""The largest file that a server may write in folders that are given to it."""

UMASK, SERVER_UMASK = 0o077, 0o022
"""Files that a server writes in somebody's folders are for others to read, as usual."""

ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""Read by the C library before anything of ours runs: arenas would use up the address space."""


class Launch(msgspec.Struct, kw_only=True):
    """The start of a process as a jail hands it to `process.begin`."""

    argv: tuple[str, ...]
    order: ChildPipe
    told: ChildPipe | None = None
    """The launcher says `{"child-pid": N}` there, the host's number of the first process inside: with it, all of them end.
    None: there is no such process, and what descends from the launcher is looked up."""
    handoff: SocketHandoff | None = None
    """The way out for the sockets that it was to listen on."""
    layers: Layers | None = None
    """The layers over the folders that it may change."""
    environment: Mapping[str, str] = {}
    """The launcher's own."""
    places: tuple[str, ...] = ()
    """Folders that it can write to besides the workspace: inside if there is a first process, else on the host."""
    remove: tuple[Path, ...] = ()
    """Folders of the host that go when it has ended."""
    release: tuple[Path, ...] = ()
    """Placeholders that were put into the workspace."""
    kill_signal: int = signal.SIGKILL
    """Makes the launcher end everything."""
    end_seconds: float | None = None
    """The time that it may take to do so, if that is more than usual."""
    watched: bool = True
    """False: its resources are not limited."""

    def ends(self) -> list[ChildEnds]:
        return [ends for ends in (self.order, self.told, self.handoff, self.layers) if ends is not None]

    def undo(self) -> None:
        """Remove what a start made on the host. May be called twice."""
        for ends in self.ends():
            ends.close_all()
        for folder in self.remove:
            remove(folder)
        release(self.release)
        self.release = ()


class SystemPath(NamedTuple):
    """A part of the system that programs need: shown at its own path, or a link to where it is."""

    kind: Literal["bind", "link"]
    path: Path
    target: str


def interpreter(spec: Spec) -> str:
    """The interpreter that runs the starter: for Python code, the one that is to run that too."""
    return spec.argv[0] if spec.profile == "python" else str(python())


def start_command(spec: Spec, order: ChildPipe) -> tuple[str, ...]:
    """The end of every launcher's command."""
    return (interpreter(spec), "-I", "-S", "-B", str(STARTER), str(order.number))


def rlimits(spec: Spec, processes: int | None = None) -> dict[str, int]:
    """The limits that the kernel counts by itself, for each process."""
    limits = spec.limits
    found = {
        # Where a program is told of cores, which root runs, 0 would not keep the kernel from starting it; 1 does.
        "RLIMIT_CORE": 1,
        "RLIMIT_FSIZE": SERVER_FILE if spec.writable else limits.disk,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_NPROC": processes or limits.processes,
        "RLIMIT_SIGPENDING": 256,
    }
    if math.isfinite(limits.seconds):
        found["RLIMIT_CPU"] = math.ceil(limits.seconds) + 1
    # Python: its whole address space. V8 reserves far more of that than it uses, so only what it can write to counts.
    if spec.profile == "python":
        return found | {"RLIMIT_AS": limits.memory}
    return found | {"RLIMIT_DATA": limits.memory + CODE_RANGE - (DENO_ITSELF if spec.profile == "deno" else 0)}


def order(
    spec: Spec,
    *,
    identity: Identity | None,
    home: str,
    temporary: str,
    work: str,
    filter: bytes,  # noqa: A002 - what it is
    landlock: Mapping[str, Any] | None = None,
    remap: Mapping[str, Any] | None = None,
    processes: int | None = None,
    handoff: SocketHandoff | None = None,
    gate: int | None = None,
) -> dict[str, Any]:
    """The starter's order. Paths are those inside the jail."""
    folders = [home, temporary] if spec.workspace is not None else [home, temporary, work]
    own = {"HOME": home, "TMPDIR": temporary, "PATH": ":".join(spec.path), "LANG": "C.UTF-8"}
    return {
        "same": spec.profile == "python",
        "uid": identity.uid if identity else None,
        "gid": identity.gid if identity else None,
        "remap": dict(remap) if remap else None,
        "folders": folders,
        "cwd": str(spec.cwd) if spec.cwd is not None else work,
        "cpu": next(_cpus()),
        "rlimits": {name: (value, value) for name, value in rlimits(spec, processes).items()},
        "umask": SERVER_UMASK if spec.profile == "server" else UMASK,
        "listen": {"through": handoff.number, "places": list(map(list, spec.listen))} if handoff else None,
        "gate": gate,
        "landlock": dict(landlock) if landlock else None,
        "filter": filter,
        "environment": own | dict(spec.environment),
        "argv": list(spec.argv),
        "worker": _compiled(spec.argv[1]) if spec.profile == "python" and spec.argv[0] == str(python()) else None,
        "magic": MAGIC_NUMBER,
    }


def packed(order: Mapping[str, Any]) -> bytes:
    """An order as the starter reads it: its length, then the whole."""
    # Version 2 is read by every Python; JSON would cost the starter ten milliseconds to import.
    data = marshal.dumps(dict(order), 2)
    return len(data).to_bytes(4, "little") + data


def _compiled(path: str) -> bytes | None:
    """The worker, after its modules, as our own interpreter compiles them: to read that takes a tenth of the time. None if
    it cannot be done: the starter will say why."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for every start
        return _compiled_once(path, found.st_mtime_ns, found.st_size)
    except (OSError, SyntaxError, ValueError):
        return None


@lru_cache(maxsize=8)
def _compiled_once(path: str, changed: int, size: int) -> bytes:  # noqa: ARG001 - they tell one version from another
    parts = WORKER_PARTS if path == str(WORKER) else ()
    files = [*((name, WORKER.with_name(f"{name}.py")) for name in parts), ("__main__", Path(path))]
    return marshal.dumps([(name, compile(file.read_bytes(), str(file), "exec", dont_inherit=True)) for name, file in files])


@cache
def _cpus() -> Iterator[int]:
    """One core for each program, in turn."""
    return cycle(sorted(os.sched_getaffinity(0)))


def remapping(spec: Spec, identity: Identity, mapped: Collection[Path], apart: Submounts) -> dict[str, Any] | None:
    """The starter's order to see the owners of some folders as the identity; None if there is nothing to be mapped. What is
    mounted inside of them would be covered, so it is all laid on again, outer before inner."""
    done = (*spec.layers, *spec.projected)  # the launcher of the layers has mapped these, with all that is in them
    left = [folder for folder in lent(spec) if not any(folder.is_relative_to(other) for other in done)]
    owners = ((folder, folder.stat()) for folder in left if folder in mapped)
    rows = {folder: (mapping(own.st_uid, identity.uid), mapping(own.st_gid, identity.gid)) for folder, own in owners}
    maps = sorted(set(rows.values()))
    given = [*left, *(folder for folder in done if any(folder.is_relative_to(other) for other in left))]
    places = {folder: maps.index(rows[folder]) if folder in rows else -1 for folder in given}
    for path, how in apart.mounts.items():
        root = root_of(spec, path)
        if root not in done:
            places[path] = -1 if how == "hide" else places.get(root, -1)
    ordered = sorted(places.items(), key=lambda place: place[0].parts)
    return {"maps": maps, "places": [(str(path), number) for path, number in ordered]} if maps else None


@cache
def system_paths() -> tuple[SystemPath, ...]:
    """Programs and libraries of the system, and the little of /etc that finding them takes."""
    found: list[SystemPath] = []
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            found.append(SystemPath("link", path, str(path.readlink())))
        elif path.is_dir():
            found.append(SystemPath("bind", path, str(path)))
    for name in ("ld.so.cache", "alternatives", "ssl/openssl.cnf"):
        path = Path("/etc") / name
        if path.exists():
            found.append(SystemPath("bind", path, str(path.resolve()) if path.is_file() else str(path)))
    return tuple(found)


@cache
def network_paths(network: Network) -> tuple[SystemPath, ...]:
    """The files of /etc for a program that speaks to others: whom to trust and, if it looks names up itself, how."""
    names = ["ssl/certs", "pki", "ca-certificates"] if network != "none" else []
    if network == "host":
        names += ["resolv.conf", "hosts", "nsswitch.conf", "services", "gai.conf"]
    paths = (Path("/etc") / name for name in names)
    return tuple(SystemPath("bind", path, str(path.resolve())) for path in paths if path.exists())


def readable_paths(spec: Spec) -> tuple[Path, ...]:
    """The files that a program needs: both interpreters, those that run inside, itself, and what the spec names. What
    is in a projected folder is seen there, if it is not hidden."""
    wanted = [Path(sys.base_prefix).resolve(), python(), INSIDE, Path(spec.argv[0]), *spec.readable]
    system = [*(view.path for view in system_paths() if view.kind == "bind"), *spec.projected]
    found: list[Path] = []
    for path in sorted(set(map(_shown, wanted))):
        if not any(path.is_relative_to(other) for other in (*system, *found)):
            found.append(path)
    return tuple(found)


def _shown(path: Path) -> Path:
    """By its own name, if the folders on the way there are real; a link on the way would not be there inside."""
    with suppress(OSError):
        return path.parent.resolve(strict=True) / path.name
    raise Unavailable(f"{path} does not exist, or may not be read.")
