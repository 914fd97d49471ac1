"""The contract of a jail: its input, its output, and what it must enforce. Everything above is the same for all jails."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, get_args

import msgspec

from toolgate.errors import ToolgateError

MB = 1024 * 1024

Feature = Literal["files", "environment", "network", "processes", "memory", "cpu", "time", "disk", "output", "signals"]
FEATURES: tuple[Feature, ...] = get_args(Feature)
"""All that has to be held. A jail that cannot hold one of them is not used."""

Profile = Literal["python", "deno", "shell", "server"]
"""The kind of a program: decides the system calls that it has, and how its memory is counted. Only a shell and a server
may start other programs."""
STARTS_OTHERS: frozenset[Profile] = frozenset(("shell", "server"))

LAYERING_JAILS = frozenset(("bubblewrap", "namespaces"))
"""Jails that can keep what a program changes in a folder apart from the folder (`Spec.layers`). Elsewhere it gets a copy."""

Network = Literal["none", "loopback", "host"]
"""The network of a server or a command: none and no sockets; its own loopback, on which the host may answer; or, of servers
only, the host's. Everything else has none."""
NETWORK_ADVICE = "Install bubblewrap, and set sandbox.backend to auto or bubblewrap."

Stopped = Literal["time", "memory", "disk", "processes", "output"]
"""Why the host put an end to a process."""


class Unavailable(ToolgateError):
    """A jail can't be had on this machine."""


class ResourceLimits(msgspec.Struct, frozen=True, gc=False):
    """The limits of one run. Sizes are bytes."""

    seconds: float = 30.0
    """Infinite for what runs until it is stopped: a server."""
    memory: int = 256 * MB
    """All its processes together."""
    disk: int = 64 * MB
    """All that it may write, wherever that is."""
    files: int = 10_000
    """Files and folders that it may make."""
    processes: int = 64
    """At once, threads too."""
    output: int = MB
    """Of each: stdout, stderr, the result."""
    open_files: int = 256


class ProjectedEntry(NamedTuple):
    """One thing in a projected folder. What is mounted is what was looked at: another file in its place is not shown."""

    kind: Literal["file", "folder", "whole", "link"]
    """A folder has pieces of its own; one that is shown as a whole has everything that is ever in it."""
    device: int = 0
    inode: int = 0
    target: str = ""
    """Of a link, as it is written there: inside it leads only to what is shown there."""


SettleChanges = Callable[..., Sequence[str]]
"""Decides about the changes of a program that is over, given its upper layer as an open folder (`Intake.settle`). For a
thread."""


class ProgramFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of the host that a program works in, and what of it the jail holds back."""

    path: Path
    cwd: Path | None = None
    """The directory that the program begins in; None: the top."""
    fixed: tuple[Path, ...] = ()
    """Paths that it may read but not change."""
    hidden: tuple[Path, ...] = ()
    """Paths that it may not see."""
    settle: SettleChanges | None = None
    """Set: what the program changes is kept apart from the folder, and then handed to this."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One process to be jailed. Equal specs can be served by the same warm worker."""

    profile: Profile
    argv: tuple[str, ...]
    """The program, by its whole path, and its arguments."""
    environment: tuple[tuple[str, str], ...] = ()
    """All of it, besides HOME, TMPDIR and PATH, which the jail sets."""
    readable: tuple[Path, ...] = ()
    """Files and folders of the host that it may read, at the same path, besides the system's own programs and libraries."""
    workspace: Path | None = None
    """A folder of the host that it works in, at the same path. None: an empty one that is gone afterwards."""
    cwd: Path | None = None
    fixed: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    """Of the workspace, as a `ProgramFolder` says."""
    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    writable: tuple[Path, ...] = ()
    """Only for servers: folders of the host, besides a workspace, that it may read and change, at the same path. What is
    fixed or hidden may be in them, or in what is readable."""
    layers: tuple[Path, ...] = ()
    """Of the workspace and the writable folders, those that the program changes only in a layer over them
    (`JailedProcess.uppers`), which may hold as much as the limits of disk and files say."""
    projected: tuple[Path, ...] = ()
    """Only for servers: folders of the host of which it sees the pieces and nothing else, at the same path, to be read only.
    What comes into such a folder later is not seen until it is made a piece (`JailedProcess.project`)."""
    pieces: tuple[tuple[str, ProjectedEntry], ...] = ()
    """Of the projected folders, by their paths; outer before inner."""
    shown: tuple[tuple[Path, Path], ...] = ()
    """For what has a network: a file of the host, and the path at which it is found, to be read only."""
    network: Network = "none"
    listen: tuple[tuple[str, int], ...] = ()
    """With a loopback of its own: addresses and ports on it that the host answers on (`Process.listeners`)."""
    limits: ResourceLimits = ResourceLimits()

    def writable_folders(self) -> list[Path]:
        """The folders of the host that it may write to."""
        return [folder for folder in (self.workspace, *self.writable) if folder is not None]

    def working_in(self, folder: ProgramFolder | None) -> "Spec":
        """The same process, working in a folder of the host."""
        if folder is None:
            return self
        layers = () if folder.settle is None else (folder.path,)
        return msgspec.structs.replace(
            self, workspace=folder.path, cwd=folder.cwd, fixed=folder.fixed, hidden=folder.hidden, layers=layers
        )


class JailedProcess(Protocol):
    """A jailed process. Its stdin, stdout and stderr are pipes (or one socket) held by the host."""

    pid: int
    stopped: Stopped | None
    """Why the host ended it, if it did."""
    busy: bool
    """False while it only waits for work, and needs little watching."""

    def uppers(self) -> list[int]:
        """The upper layers (`Spec.layers`) that hold its changes, in order: open folders, which are closed with the process.
        Empty if it has none, or never began."""

    def is_alive(self) -> bool: ...

    async def write(self, data: bytes) -> None:
        """To its stdin. What can't be delivered any more is dropped."""

    async def close_stdin(self) -> None: ...

    async def read(self, most: int) -> bytes:
        """The next bytes of its stdout; empty at the end."""

    async def read_errors(self, most: int) -> bytes:
        """The next bytes of its stderr; empty at the end."""

    async def wait(self) -> int:
        """Its exit code; minus the number of the signal that ended it."""

    def kill(self, why: Stopped | None = None) -> None:
        """End it and everything that it started, now. Does not wait; may be called twice."""

    async def close(self) -> None:
        """Kill it, wait until all of it is gone, and remove what it left on the host."""


class Jail(Protocol):
    """Holds processes."""

    name: str

    def enforces(self) -> Mapping[Feature, str]:
        """By what means each feature is held, in a few words, for `doctor` and for results."""

    async def start(self, spec: Spec) -> JailedProcess:
        """Start a process. Must be called on the event loop's thread. Raises Unavailable if this spec can't be held."""

    async def close(self) -> None: ...
