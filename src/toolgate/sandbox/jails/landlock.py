"""The jail for machines where no namespace can be made, most containers among them: Landlock, seccomp and a supervisor.

The program shares the host's processes and files. Landlock keeps it from opening any but its own; what Landlock knows
nothing of (modes, owners, times, sockets, signals in its older versions) the filter of system calls takes away
altogether. `inside/landlock_launcher.py` stands over it and ends all of it.

What can't be held this way is refused: parts of a workspace that may not be changed or seen, and commands where Landlock is
too old to hold signals.
"""

import ctypes
import marshal
import os
import platform
import secrets
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolgate.sandbox.jail import NETWORK_ADVICE, STARTS_OTHERS, Feature, Spec, Unavailable
from toolgate.sandbox.jails import identity, inside_files, launch, process, seccomp
from toolgate.sandbox.jails.child_descriptors import ChildPipe
from toolgate.sandbox.jails.identity import Identity
from toolgate.sandbox.jails.launch import Launch
from toolgate.sandbox.jails.process_tree import began, read
from toolgate.sandbox.untrusted_files import remove
from toolgate.threads import to_thread

LANDLOCK_LAUNCHER = inside_files.INSIDE / "landlock_launcher.py"
LANDLOCK_VERSION = 3
"""The first version that holds truncation."""
HOLDS_SIGNALS = 6
MAX_PIECES = 3_000
"""Of projected folders: each is a rule, and all of them go through one pipe."""
SCRATCH_PREFIX = "toolgate-box"
DEVICE_RULES = {"null": True, "zero": False, "full": False, "random": False, "urandom": False}
"""True: it may be written to."""
_CREATE_RULESET, _ASK_VERSION = 444, 1

LANDLOCK_ENFORCES: dict[Feature, str] = {
    "files": "Landlock: nothing else can be opened or changed; that a path exists, its size and its times can be seen",
    "environment": "built for it; /proc cannot be read",
    "network": "no sockets (seccomp); Landlock",
    "processes": "RLIMIT_NPROC, polled; one signal ends all within a Landlock domain; seccomp",
    "memory": "RLIMIT_AS or RLIMIT_DATA per process; the sum is polled, and what the kernel holds for it",
    "cpu": "one core (affinity)",
    "time": "killed by the host",
    "disk": "RLIMIT_FSIZE per file; the sum is polled",
    "output": "counted by the host",
    "signals": "own process only (seccomp), own programs only (Landlock)",
}


class Landlock(process.LocalJail):
    """Holds processes among the host's own."""

    name = "landlock"

    def __init__(self, *, scratch_parent: Path | None = None) -> None:
        super().__init__()
        self._parent = scratch_parent or Path(tempfile.gettempdir())
        self._swept = False

    def enforces(self) -> Mapping[Feature, str]:
        return LANDLOCK_ENFORCES

    async def start(self, spec: Spec) -> process.Process:
        refuse_what_cannot_be_held(spec, version())
        if not self._swept:
            self._swept = True
            await to_thread(remove_stale, self._parent)
        who = identity.choose(spec, mapped=())
        if who is not None and spec.workspace is not None:
            identity.give(spec.workspace, who, spec.hidden)
        rules = list(allowed(spec, who))
        scratch = make_scratch(self._parent, who)
        try:
            return self._started(self._launch(spec, who, rules, scratch), spec)
        except BaseException:
            remove(scratch)
            raise

    def _launch(self, spec: Spec, who: Identity | None, rules: list[dict[str, Any]], scratch: Path) -> Launch:
        said = launch.order(
            spec,
            identity=who,
            home=str(scratch / "home"),
            temporary=str(scratch / "tmp"),
            work=str(spec.workspace.resolve() if spec.workspace else scratch / "work"),
            filter=seccomp.program(spec.profile, alone=True, network=spec.network),
            landlock={"rules": [*rules, _rule(scratch, write=True)], "network": spec.network == "host"},
            processes=spec.limits.processes + threads_of(who.uid if who else os.getuid()),
        )
        order = ChildPipe.down(launch.packed(said))
        plan = {
            "host": os.getpid(),
            "lifeline": order.number,
            "starts_others": spec.profile in STARTS_OTHERS,
            "starter": str(inside_files.STARTER),
        }
        return Launch(
            argv=(launch.interpreter(spec), "-I", "-S", "-B", str(LANDLOCK_LAUNCHER), marshal.dumps(plan, 2).hex()),
            order=order,
            environment=launch.ONE_ARENA,
            places=(str(scratch),),
            remove=(scratch,),
            kill_signal=signal.SIGTERM,
        )


# -- what it can hold


def version() -> int:
    """Of the kernel's Landlock; 0 if it has none, or none that we may use."""
    if platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(found, 0)


def refuse_what_cannot_be_held(spec: Spec, found: int) -> None:
    """Raise Unavailable rather than hold half of it."""
    if found < LANDLOCK_VERSION:
        raise Unavailable(f"Landlock version {LANDLOCK_VERSION} is needed (Linux 6.2); this kernel has {found or 'none'}.")
    if spec.network == "loopback":
        raise Unavailable(
            "Landlock cannot let a program reach some hosts and no others; bubblewrap can.", suggestion=NETWORK_ADVICE
        )
    if spec.profile in STARTS_OTHERS and found < HOLDS_SIGNALS:
        raise Unavailable(f"For commands, Landlock has to hold signals: version {HOLDS_SIGNALS} (Linux 6.12), not {found}.")
    if len(spec.pieces) > MAX_PIECES:
        raise Unavailable(
            f"Landlock cannot show a program more than {MAX_PIECES} files of {spec.projected[0]} singly; bubblewrap can.",
            suggestion="Install bubblewrap (on Debian: apt-get install bubblewrap), or give it a smaller folder.",
        )
    if spec.layers:
        raise Unavailable(
            f"Landlock cannot keep what a program changes apart from {spec.layers[0]}; bubblewrap can.",
            suggestion="Install bubblewrap.",
        )
    if spec.fixed or spec.hidden:
        parts = ", ".join(path.name for path in (*spec.fixed, *spec.hidden)[:3])
        raise Unavailable(
            f"Landlock cannot keep parts of a workspace from a program that is given the rest ({parts}); bubblewrap can.",
            suggestion="Install bubblewrap (on Debian: apt-get install bubblewrap), or give it a folder without such files.",
        )


def allowed(spec: Spec, who: Identity | None) -> Iterator[dict[str, Any]]:
    """The rules of what it may open, besides its scratch and what its user cannot reach. Raises if it needs such a thing."""
    for path in needed(spec):
        if not is_reachable(path, who):
            raise Unavailable(
                f"The sandbox's user cannot reach {path}: a folder above it is closed to others. "
                "Install it where every user can run it, or install bubblewrap."
            )
    for view in (*launch.system_paths(), *launch.network_paths(spec.network)):
        if view.kind == "bind":
            yield _rule(Path(view.target), optional=True)
    for path in launch.readable_paths(spec):
        if is_reachable(path, who):
            yield _rule(path)
    yield from _pieces(spec)
    for name, write in DEVICE_RULES.items():
        yield _rule(Path("/dev") / name, write=write, execute=False, optional=True)
    for folder in spec.writable_folders():
        yield _rule(folder.resolve(), write=True)


def _pieces(spec: Spec) -> Iterator[dict[str, Any]]:
    """Of projected folders: all can be listed, and the files that were looked at, but none that comes later, can be read."""
    for root in spec.projected:
        yield _rule(root) | {"lists": True}
    for path, piece in spec.pieces:
        if piece.kind != "link":
            known = (piece.device, piece.inode)
            yield _rule(Path(path), optional=True) | {"lists": piece.kind == "folder", "known": known}


def needed(spec: Spec) -> Iterator[Path]:
    """Paths that must be readable once the program has become its user."""
    program = Path(spec.argv[0]).resolve()
    yield program
    yield from (path.resolve() for path in (*spec.readable, *spec.projected, *spec.writable_folders()))
    if program == inside_files.python():
        yield Path(sys.base_prefix).resolve()


def is_reachable(path: Path, who: Identity | None) -> bool:
    """True if the user may go through all the folders above a path."""
    if who is None:
        return os.access(path, os.F_OK)
    return path.exists() and all(_may_enter(folder.stat(), who) for folder in path.resolve().parents)


def _may_enter(folder: os.stat_result, who: Identity) -> bool:
    if folder.st_uid == who.uid:
        return bool(folder.st_mode & stat.S_IXUSR)
    if folder.st_gid == who.gid:
        return bool(folder.st_mode & stat.S_IXGRP)
    return bool(folder.st_mode & stat.S_IXOTH)


def _rule(path: Path, *, write: bool = False, execute: bool = True, optional: bool = False) -> dict[str, Any]:
    return {"path": str(path), "write": write, "execute": execute, "optional": optional}


def threads_of(user: int) -> int:
    """The number of threads that a user has: the kernel counts them all against the limit, not only the jail's."""
    mark = b"\nUid:\t%d\t" % user
    return sum(_threads(entry.path, mark) for entry in os.scandir("/proc") if entry.name.isdigit())


def _threads(process: str, mark: bytes) -> int:
    status = read(f"{process}/status")
    return int(status.partition(b"\nThreads:\t")[2].split(maxsplit=1)[0]) if mark in status else 0


# -- where it works


def make_scratch(parent: Path, who: Identity | None) -> Path:
    """An empty folder of the program's own; its name says whose process made it."""
    parent.mkdir(parents=True, exist_ok=True)
    process = os.getpid()
    folder = parent.resolve() / f"{SCRATCH_PREFIX}-{processes_known()}-{process}-{began(process)}-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    if who is not None:
        os.chown(folder, who.uid, who.gid)
        if not is_reachable(folder, who):
            folder.rmdir()
            raise Unavailable(f"The sandbox's user cannot reach {parent}: a folder above it is closed to others.")
    return folder


def processes_known() -> int:
    """The namespace that our process numbers belong to: containers that share a folder do not share those."""
    return Path("/proc/self/ns/pid").stat().st_ino


def remove_stale(parent: Path) -> None:
    """Remove the folders of hosts that died before they could."""
    with suppress(FileNotFoundError):
        for entry in os.scandir(parent):
            if entry.name.startswith(SCRATCH_PREFIX) and entry.is_dir(follow_symlinks=False) and _is_stale(entry.name):
                remove(Path(entry.path))


def _is_stale(name: str) -> bool:
    match name.removeprefix(f"{SCRATCH_PREFIX}-").split("-"):
        case [known, process, when, _] if known == str(processes_known()) and process.isdigit():
            return str(began(int(process))) != when
    return False
