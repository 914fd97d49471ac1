"""What of a folder is mounted apart from the rest of it: parts that may not be changed, and parts that may not be seen.

Three things would walk round a mere mount on such a part. Its folder could be renamed and another put in its place: so each
folder on the way there is mounted too, since what is a mount can't be renamed. It could be missing and be made: so
something empty stands there meanwhile. It could be a link, which can't be mounted upon: that is refused.

And a mount on a part is gone once somebody on the host puts another file in its place, as editors do when they save, unless
it is in a layer, which keeps its own names. So folders that a server may only read are not shown this way but projected
(`layers`).
"""

from pathlib import Path
from typing import Literal

import msgspec

from toolgate.sandbox.jails import placeholders
from toolgate.sandbox.port import Spec, Unavailable

How = Literal["write", "read", "hide"]


class Submounts(msgspec.Struct):
    """Outer before inner."""

    mounts: dict[Path, How]
    held: tuple[Path, ...]
    """Placeholders, to be released when the program has ended."""


def submounts(spec: Spec) -> Submounts:
    """Raises Unavailable for what can't be held."""
    if not spec.hidden and not spec.fixed:
        return Submounts({}, ())
    mounts: dict[Path, How] = {}
    held: list[Path] = []
    try:
        for path in spec.hidden:
            if path.is_symlink() or path.exists():
                mounts |= _ways(spec, path) | {_real(path): "hide"}
        for path in spec.fixed:
            _fix(spec, path, mounts, held)
    except BaseException:
        placeholders.release(held)
        raise
    return Submounts(dict(sorted(mounts.items(), key=lambda mount: mount[0].parts)), tuple(held))


def root_of(spec: Spec, path: Path) -> Path:
    """The innermost of the folders given to the program that this is a part of."""
    given = [folder for folder in (spec.workspace, *spec.writable, *spec.readable) if folder is not None]
    around = [folder for folder in given if path != folder and path.is_relative_to(folder) and ".." not in path.parts]
    if not around:
        raise Unavailable(f"{path} is not in the workspace {spec.workspace or given}.")
    return max(around, key=lambda folder: len(folder.parts))


def _fix(spec: Spec, path: Path, mounts: dict[Path, How], held: list[Path]) -> None:
    root = root_of(spec, path)
    missing = _missing(root, path)
    if missing is not None and root in spec.layers:
        return  # what is made there is not the host's
    if missing is not None and placeholders.hold(missing):
        held.append(missing)
        path = missing
    for way, how in _ways(spec, path).items():
        mounts.setdefault(way, how)
    if mounts.get(path) != "hide":
        mounts[_real(path)] = "read"


def _missing(workspace: Path, path: Path) -> Path | None:
    """The outermost place on the way that is missing, or where only a placeholder is."""
    for place in (*reversed(_between(workspace, path)), path):
        if not place.is_symlink() and (not place.exists() or placeholders.is_one(place)):
            return place
    return None


def _ways(spec: Spec, path: Path) -> dict[Path, How]:
    """The folders between the workspace and its part, which it may go on writing to. What it may only read needs none:
    there nothing can be renamed. Nor does a layer: what is renamed there takes what is mounted on it along."""
    root = root_of(spec, path)
    if root in spec.layers or (root != spec.workspace and root not in spec.writable):
        return {}
    return {_real(place): "write" for place in _between(root, path)}


def _between(root: Path, path: Path) -> list[Path]:
    """Inner before outer."""
    return [place for place in path.parents if place != root and place.is_relative_to(root)]


def _real(path: Path) -> Path:
    if path.is_symlink():
        raise Unavailable(f"{path} is a link: what it leads to can be kept from the program, the link itself can't.")
    return path
