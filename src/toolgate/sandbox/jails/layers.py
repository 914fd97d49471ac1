"""The layers between a jailed program and folders of the host: the host's side of `inside/layer_launcher.py`.

Over a folder that it may change lies a writable layer: what the program changes is in a folder that only the host has open;
the host's own folder stays as it is until `sandbox.intake` has looked at it. A folder that it may only read is projected: a
copy of its folders and links, with each of the files mounted in its place. A file that comes later is not in it.
"""

import marshal
import os
import socket
import stat
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from toolgate.sandbox.jail import ProjectedEntry, Spec, Unavailable
from toolgate.sandbox.jails.child_descriptors import ChildEnds
from toolgate.sandbox.jails.identity import Identity, mapping
from toolgate.sandbox.jails.inside_files import INSIDE, STARTER, python

LAYER_LAUNCHER = INSIDE / "layer_launcher.py"
ANSWER_SECONDS = 5.0
"""The time that a refresh may take."""
PROJECTED = "projected"
"""On the stage: the projected folders, by their numbers."""
MAX_PIECES = 30_000
"""Of all projected folders: each is a mount, three times over, and a mount namespace holds 100,000."""
_others: dict[Path, Path] = {}
"""Folders to mount on that this process made where another user took the usual one."""


class Layers(ChildEnds):
    """The layers of one jailed process. Raises Unavailable if they cannot be had."""

    def __init__(self, spec: Spec, who: Identity | None, mapped: Collection[Path]) -> None:
        for folder in spec.layers:
            if who is not None and folder not in mapped and folder.stat().st_uid != who.uid:
                raise Unavailable(
                    f"{folder} cannot be mounted as owned by the program: its file system has no idmapped mounts. "
                    "Run Toolgate as an ordinary user, or work in the folder of a session."
                )
        if len(spec.pieces) > MAX_PIECES:
            raise Unavailable(
                f"{', '.join(map(str, spec.projected))}: more than {MAX_PIECES} files cannot be shown to a program.",
                suggestion="Give it a smaller folder.",
            )
        self.folders = spec.layers
        self._projected = spec.projected
        self._pieces = dict(spec.pieces)
        self._given = spec.writable_folders()
        self._stage = stage()
        self._outer, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        through = inner.detach()
        self.inner = (through,)
        self.gate: int | None = None
        """The descriptor that the starter waits at until all projected files are there; it has the same number there."""
        projected = self._plan_projected(spec, who, mapped) if spec.projected else None
        self._uppers: list[int] = []
        self._begun = False
        owner = who or Identity(os.geteuid(), os.getegid())
        limits = spec.limits
        self._plan = {
            "folders": [[str(folder), _maps(folder, who) if folder in mapped else None] for folder in spec.layers],
            "stage": str(self._stage),
            "options": f"mode=0755,size={limits.disk},nr_inodes={limits.files}",
            "owner": list(owner),
            "user": None if os.geteuid() == 0 else list(owner),
            "through": through,
            "projected": projected,
            "stays": spec.profile == "server",
            "starter": str(STARTER),
        }

    def _plan_projected(self, spec: Spec, who: Identity | None, mapped: Collection[Path]) -> dict[str, Any]:
        early = {path for path, piece in spec.pieces if piece.kind != "file" or _is_of_launchers(path)}
        rows = [[self._row(path, piece) for path, piece in spec.pieces if (path in early) is now] for now in (True, False)]
        pieces = _memory(rows)
        gate, self.gate = (end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
        self.inner += (pieces, gate, self.gate)
        folders = [[str(folder), _maps(folder, who) if folder in mapped else None] for folder in spec.projected]
        return {"folders": folders, "pieces": pieces, "gate": gate, "starters": self.gate}

    def source(self, path: Path) -> Path:
        """The path at which the jail's launcher finds one of the host: in the layer, if it is in one of its folders."""
        around = [folder for folder in self._given if path.is_relative_to(folder)]
        innermost = max(around, key=lambda folder: len(folder.parts), default=None)
        if path in self._projected:
            return self._stage / PROJECTED / str(self._projected.index(path))
        if innermost not in self.folders:  # a folder that is given by itself is not in the layer of one around it
            return path
        number = self.folders.index(innermost)
        return self._stage / str(number) / "merged" / path.relative_to(innermost)

    def command(self, interpreter: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command that lays the layers and then becomes the launcher."""
        return (interpreter, "-I", "-S", "-B", str(LAYER_LAUNCHER), marshal.dumps(self._plan, 2).hex(), *argv)

    def uppers(self) -> list[int]:
        """The upper layers as open folders, in the order of the folders; none if the program never began. Ours to close."""
        if not self._begun:
            with suppress(OSError):
                said, self._uppers, _, _ = socket.recv_fds(
                    self._outer, 1, len(self.folders), socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
                )
                self._begun = bool(said)
        return self._uppers

    def refresh(self) -> None:
        """Have the program see what the host has changed since. Blocks for some microseconds. A layer that cannot be
        refreshed shows what it showed before."""
        self._ask([])

    def project(self, pieces: Mapping[str, ProjectedEntry]) -> None:
        """Have the program see these pieces, and no others, of the projected folders. What cannot be shown is not."""
        before, self._pieces = self._pieces, dict(pieces)
        gone = [path for path, piece in before.items() if pieces.get(path) != piece]
        new = [path for path, piece in pieces.items() if before.get(path) != piece]
        if (gone or new) and len(pieces) <= MAX_PIECES:
            rows = [self._row(path, None) for path in sorted(gone, reverse=True)]
            changed = _memory(rows + [self._row(path, pieces[path]) for path in sorted(new)])
            try:
                self._ask([changed])
            finally:
                os.close(changed)

    def _ask(self, handed: list[int]) -> None:
        self.uppers()
        if not self._begun:
            return
        with suppress(OSError):
            self._outer.settimeout(ANSWER_SECONDS)
            socket.send_fds(self._outer, [b"r"], handed)
            self._outer.recv(1)

    def _row(self, path: str, piece: ProjectedEntry | None) -> list[str | int]:
        """A piece as the launcher is told; None: it is to go."""
        number = next(number for number, root in enumerate(self._projected) if path.startswith(f"{root}/"))
        return [number, path[len(str(self._projected[number])) + 1 :], *(piece or ("gone", 0, 0, ""))]

    def close(self) -> None:
        """Let go of all of it: with the program gone, the layers are gone."""
        self._outer.close()
        for upper in self._uppers:
            os.close(upper)
        self._uppers = []


def _is_of_launchers(path: str) -> bool:
    """True if a file is needed before the program begins: ours may lie in a folder that is projected."""
    return path.startswith((f"{INSIDE}/", f"{Path(sys.base_prefix).resolve()}/", str(python())))


def _memory(rows: list[Any]) -> int:
    """A file in memory that holds what is too long for a command line."""
    number = os.memfd_create("toolgate-pieces", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(number), "wb") as file:
        marshal.dump(rows, file, 2)
    return number


def _maps(folder: Path, who: Identity | None) -> tuple[str, str] | None:
    if who is None:
        return None
    owner = folder.stat()
    return mapping(owner.st_uid, who.uid), mapping(owner.st_gid, who.gid)


def stage(inside: Path = Path("/tmp")) -> Path:
    """An empty folder to mount on, in a mount namespace that nobody else is in. It stays; nothing is ever in it. If somebody
    else was there first, it has a name that nobody can be first with."""
    for path in (inside / f"toolgate-layers-{os.geteuid()}", _others.get(inside)):
        if path is not None and _is_own(path):
            return path
    _others[inside] = Path(mkdtemp(prefix="toolgate-layers-", dir=inside))
    return _others[inside]


def _is_own(path: Path) -> bool:
    with suppress(FileExistsError):
        path.mkdir(mode=0o755)
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
