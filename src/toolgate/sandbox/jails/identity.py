"""The user of a jailed program, when Toolgate itself runs as root: never root, and nobody else either.

A user number of its own makes the limit on processes exact and keeps it from everybody's files. Where it works in a folder
of the host, that folder's owner is mapped onto that number by an idmapped mount: nothing changes hands on disk. Where that
can't be had, it has to become the owner; if that is root, the folder is given to a number made from its path.
"""

import hashlib
import os
import secrets
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from toolgate.sandbox.jail import Spec, Unavailable
from toolgate.sandbox.jails.inside_files import STARTER, python

FIRST, LAST = 1_900_000_000, 2_000_000_000
"""User numbers that nobody else uses."""

ORDINARY = 65_536
"""Users below it keep their files through a mapping."""


class Identity(NamedTuple):
    """Whom the starter becomes."""

    uid: int
    gid: int


def lent(spec: Spec) -> list[Path]:
    """Folders of the host that a program is to use as their owner could."""
    return [*spec.writable_folders(), *spec.projected, *(spec.readable if spec.profile == "server" else ())]


def choose(spec: Spec, *, mapped: Collection[Path]) -> Identity | None:
    """None: we are not root, so there is nothing to give up. `mapped`: folders whose owner is mapped onto it."""
    if os.geteuid() != 0:
        return None
    stuck = [folder for folder in spec.writable if folder not in mapped]
    if stuck:
        return _owner(stuck)
    if spec.workspace is None or spec.workspace in mapped:
        number = FIRST + secrets.randbelow(LAST - FIRST)
        return Identity(number, number)
    owner = spec.workspace.stat()
    if owner.st_uid != 0:
        return Identity(owner.st_uid, owner.st_gid or owner.st_uid)
    digest = hashlib.sha256(os.fsencode(spec.workspace.resolve())).digest()
    number = FIRST + int.from_bytes(digest[:8]) % (LAST - FIRST)
    return Identity(number, number)


def _owner(folders: list[Path]) -> Identity:
    """The owner of folders that cannot be shown as anybody else's. Nothing is given away: they are not ours alone."""
    owners = {Identity(found.st_uid, found.st_gid) for found in (folder.stat() for folder in folders)}
    if len(owners) > 1 or any(owner.uid == 0 for owner in owners):
        raise Unavailable(
            f"Nobody but root could write to {folders[0]}: its file system cannot show it as another user's. "
            "Run Toolgate as an ordinary user, or name a folder that is not root's."
        )
    return owners.pop()


def mapping(owner: int, identity: int) -> str:
    """For a user namespace: on disk the owner, seen from the jail the identity; other users stay who they are."""
    rows = [(owner, identity, 1)]
    if owner > 1:
        rows.append((1, 1, min(owner, ORDINARY) - 1))
    if owner + 1 < ORDINARY:
        rows.append((owner + 1, owner + 1, ORDINARY - owner - 1))
    return "".join(f"{inner} {outer} {count}\n" for inner, outer, count in rows)


_answers: dict[int, bool] = {}
"""By device: asking costs a process."""


def can_remap(folder: Path) -> bool:
    """True if we are root and the folder's file system takes idmapped mounts: it is tried, on a mount that nobody sees."""
    if os.geteuid() != 0:
        return False
    device = folder.stat().st_dev
    if device not in _answers:
        asked = subprocess.run(
            [str(python()), "-I", "-S", "-B", str(STARTER), "--remap", str(folder)], capture_output=True, env={}, timeout=10
        )
        _answers[device] = asked.returncode == 0
    return _answers[device]


def give(folder: Path, identity: Identity, hidden: Collection[Path] = ()) -> None:
    """Make root's workspace theirs, but for what they are not to see. Neither through links nor where a file has a second
    name, which may be elsewhere."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if Path(entry.path) in hidden:
                continue
            found = entry.stat(follow_symlinks=False)
            if found.st_uid == 0 and (found.st_nlink == 1 or entry.is_dir(follow_symlinks=False)):
                os.chown(entry.path, *identity, follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                give(Path(entry.path), identity, hidden)
    if folder.stat(follow_symlinks=False).st_uid == 0:
        os.chown(folder, *identity, follow_symlinks=False)
