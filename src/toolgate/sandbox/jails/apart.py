"""What of a folder is mounted apart from the rest of it: parts that may not be changed, and parts that may not be seen.

Three things would walk round a mere mount on such a part. Its folder could be renamed and another put in its place: so each
folder on the way there is mounted too, since what is a mount can't be renamed. It could be missing and be made: so
something empty stands there meanwhile. It could be a link, which can't be mounted upon: that is refused.

And a mount on a part is gone once somebody on the host puts another file in its place, as editors do when they save. So a
folder that may only be read is not shown as a whole where something in it is hidden, but by all else that is in it.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from toolgate.sandbox.jails import standins
from toolgate.sandbox.port import Spec, Unavailable

How = Literal["write", "read", "hide"]
MOST_PIECES = 500
"""Of a folder that is not shown as a whole: each costs the jail a mount."""


class Parts(msgspec.Struct):
    """Outer before inner."""

    mounts: dict[Path, How]
    held: tuple[Path, ...]
    """Stand-ins, to be released when the program has ended."""


def parts(spec: Spec) -> Parts:
    """Raises Unavailable for what can't be held."""
    if not spec.hidden and not spec.fixed:
        return Parts({}, ())
    mounts: dict[Path, How] = {}
    held: list[Path] = []
    try:
        for path in spec.hidden:
            if path.is_symlink() or path.exists():
                mounts |= _ways(spec, path) | {_real(path): "hide"}
        for path in spec.fixed:
            _fix(spec, path, mounts, held)
    except BaseException:
        standins.release(held)
        raise
    return Parts(dict(sorted(mounts.items(), key=lambda mount: mount[0].parts)), tuple(held))


def without_hidden(spec: Spec) -> Spec:
    """The spec with the folders that may only be read replaced by what is shown of them, where something is hidden. What
    comes there later is not seen either. A folder with too much in it stays whole, with mounts on its parts."""
    hidden, readable, shown = frozenset(spec.hidden), list[Path](), list(spec.shown)
    whole = [folder for folder in (spec.workspace, *spec.writable) if folder is not None]
    above = {folder for path in hidden for folder in path.parents}
    for root in spec.readable:
        splits = root in above and not any(folder.is_relative_to(root) for folder in whole)
        pieces = list(islice(_pieces(root, root, hidden, above), MOST_PIECES + 1)) if splits else []
        if not 0 < len(pieces) <= MOST_PIECES:
            readable.append(root)
            whole.append(root)
            continue
        readable += [place for source, place in pieces if source == place]
        shown += [(source, place) for source, place in pieces if source != place]
    left = tuple(path for path in spec.hidden if any(path.is_relative_to(folder) for folder in whole))
    return msgspec.structs.replace(spec, readable=tuple(readable), shown=tuple(shown), hidden=left)


def _pieces(root: Path, folder: Path, hidden: frozenset[Path], above: set[Path]) -> Iterator[tuple[Path, Path]]:
    """What is shown of a folder: what it is, and its place. A link out of it, or to something hidden, is left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            real = Path(os.path.realpath(path)) if entry.is_symlink() else path
            if not hidden.isdisjoint((real, *real.parents)) or not real.is_relative_to(root) or not real.exists():
                continue
            if real not in above:
                yield real, path
            elif real == path:
                yield from _pieces(root, path, hidden, above)


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
    if missing is not None and standins.hold(missing):
        held.append(missing)
        path = missing
    for way, how in _ways(spec, path).items():
        mounts.setdefault(way, how)
    if mounts.get(path) != "hide":
        mounts[_real(path)] = "read"


def _missing(workspace: Path, path: Path) -> Path | None:
    """The outermost place on the way that is missing, or where only a stand-in is."""
    for place in (*reversed(_between(workspace, path)), path):
        if not place.is_symlink() and (not place.exists() or standins.is_one(place)):
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
