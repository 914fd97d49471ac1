"""Plans the mounts of a server's jail: the host's files that it sees, and what is hidden or read-only in them.

What the settings name is mounted at its own path, and so is the script that it runs. Files that no tool may open, and those
in `blocked`, are hidden, as are Toolgate's settings unless `read` names that very file, and repositories where neither
`read` nor `write` names the folder. A read-only folder is projected file by file, so that a secret that is added later is
not seen. What would have the host run something later (git hooks, editor settings) can be read there but not changed.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolgate.discovery import SETTINGS_FILE
from toolgate.errors import Denied
from toolgate.mcp.client.errors import Unreachable
from toolgate.sandbox.jail import ProjectedEntry
from toolgate.settings import ServerSettings

if TYPE_CHECKING:
    from toolgate.sandbox.workspace_scan import ProtectedPaths
    from toolgate.screening.paths import SensitivePaths

NEVER_MOUNTED = ("/proc", "/sys", "/dev", "/run", "/boot")


class MountPlan(NamedTuple):
    """The mounts of one jail. What is written goes to a layer over the folder."""

    readable: tuple[Path, ...]
    """Files, and repositories that are named by themselves: folders are projected."""
    writable: tuple[Path, ...]
    fixed: tuple[Path, ...]
    hidden: tuple[Path, ...]
    """Within writable folders; of projected ones, only what is in `pieces` is seen."""
    repositories: tuple[Path, ...]
    """Repositories that the server may write."""
    projected: tuple[Path, ...]
    pieces: Mapping[str, ProjectedEntry]
    times: Mapping[str, int]
    """The ctime of each scanned folder: as long as these hold, so does the plan."""


def plan_mounts(
    name: str, settings: ServerSettings, home: Path | None, rules: "SensitivePaths | None" = None, own: Iterable[Path] = ()
) -> MountPlan:
    """Scans all folders, so call this in a thread. Raises Unreachable for what no server may have.

    `rules`: what no tool may open; None: the usual. `own`: the script that it runs, or its project.
    """
    from toolgate.sandbox.workspace_scan import GIT
    from toolgate.screening.paths import SensitivePaths

    repositories: dict[Path, None] = {}
    blocked = SensitivePaths(patterns=map(whole_folder, settings.blocked), data=home)
    judges = [blocked] if rules is None else [rules, blocked] if settings.blocked else [rules]
    writable = tuple(_real(name, path) for path in settings.write)
    asked = {*writable, *(_real(name, path) for path in settings.read)}
    implied = (*((settings.cwd,) if settings.cwd is not None else ()), *own)
    wanted = dict.fromkeys((*(_real(name, path) for path in settings.read), *(_real(name, path) for path in implied)))
    readable = tuple(path for path in wanted if path not in writable)
    fixed: dict[Path, None] = {}
    hidden: dict[Path, None] = {}
    seen: dict[Path, list[Mapping[str, ProjectedEntry]]] = {
        path: [] for path in readable if path.is_dir() and path.name != GIT
    }
    times: dict[str, int] = {}
    settings_files = _settings_files(rules, asked)
    for path in (*writable, *readable):
        _check(name, path, home, judges[0], writing=path in writable)
        for judge in judges:
            writes_git = _is_git(settings) or path / GIT in writable
            found = _held_back(name, path, home, judge, writes_git=writes_git, settings_files=settings_files)
            if path in seen:
                seen[path].append(found.pieces)
            times = {**found.times, **times}  # of two looks the first: what came since is not in it
            fixed |= dict.fromkeys(found.fixed if path in writable else ())
            hidden |= dict.fromkeys(found.hidden)
            hidden |= dict.fromkeys(
                inner for inner in found.repositories if not any(inner.is_relative_to(folder) for folder in asked)
            )
            if path in writable and (writes_git or path.name == GIT):
                repositories |= dict.fromkeys(found.repositories)
    kept = tuple(path for path in fixed if path not in hidden and not any(above in hidden for above in path.parents))
    projected = tuple(path for path in seen if _innermost(path, (*seen, *writable)) not in seen)
    return MountPlan(
        readable=tuple(path for path in readable if path not in seen),
        writable=writable,
        fixed=kept,
        hidden=tuple(path for path in hidden if _innermost(path, (*seen, *writable)) in writable),
        repositories=tuple(repositories),
        projected=projected,
        pieces=_pieces(projected, seen, hidden, writable),
        times=times,
    )


def _innermost(path: Path, folders: Iterable[Path]) -> Path | None:
    """The innermost of the folders that a path is in."""
    around = (folder for folder in folders if folder != path and path.is_relative_to(folder))
    return max(around, key=lambda folder: len(folder.parts), default=None)


def _pieces(
    projected: Iterable[Path],
    seen: Mapping[Path, list[Mapping[str, ProjectedEntry]]],
    hidden: Iterable[Path],
    writable: Iterable[Path],
) -> dict[str, ProjectedEntry]:
    """The visible files of projected folders: those that every judge allows, without hidden ones and those of writable
    folders, which are seen through their layer. Outer before inner."""
    from toolgate.sandbox.workspace_scan import is_below

    left_out = {*map(str, hidden), *map(str, writable)}
    shown: dict[str, ProjectedEntry] = {}
    for root in projected:
        first, *others = seen[root]
        shown |= {
            path: piece
            for path, piece in first.items()
            if all(other.get(path) == piece for other in others) and not is_below(path, left_out)
        }
        for folder in (folder for folder in writable if folder.is_relative_to(root)):  # something to be mounted on
            ways = (way for way in (folder, *folder.parents) if way != root and way.is_relative_to(root))
            shown |= {str(way): ProjectedEntry("folder") for way in ways}
    return dict(sorted(shown.items()))


def _settings_files(rules: "SensitivePaths | None", asked: Iterable[Path]) -> Callable[[str], bool]:
    """A test for Toolgate's settings files: any of the usual name, and those in use, but for those that `read` names."""
    named = frozenset(map(str, asked))
    used = {os.path.realpath(file) for file in (rules.unwritable if rules else ()) if file.is_file()} - named
    return lambda path: path in used or (path.rpartition("/")[2].lower() == SETTINGS_FILE and path not in named)


def whole_folder(pattern: str) -> str:
    """A pattern for all that is in a folder means the folder: hidden at once, rather than file by file."""
    while pattern.endswith(("/*", "/**")):
        pattern = pattern.rpartition("/")[0]
    return pattern.removeprefix("**/").removeprefix("*/") or "*"


def _real(name: str, path: Path) -> Path:
    real = Path(os.path.realpath(path.expanduser()))
    if not real.exists():
        raise Unreachable(
            message=f"{path} does not exist (server {name!r}).",
            suggestion="Create it, or name another one: `--read`, `--write` or `--cwd` (settings: `read`, `write`, `cwd`).",
        )
    return real


def _check(name: str, path: Path, home: Path | None, rules: "SensitivePaths", *, writing: bool) -> None:
    why = next(_faults(path, home, rules, writing=writing), None)
    if why is not None:
        raise Unreachable(
            "SECURITY_VIOLATION",
            f"Server {name!r} may not have {path}: {why}.",
            suggestion="Name a folder with nothing in it but what the server needs, or add it to the setting paths.allowed.",
        )


def is_shared(folder: Path) -> bool:
    """True for folders that hold far more than one server's files: a person's home, one above it, or the system's."""
    from toolgate.sandbox.workspaces import NEVER

    real = Path(os.path.realpath(folder))
    return str(real) in NEVER or Path(os.path.realpath(Path.home())).is_relative_to(real)


def _faults(path: Path, home: Path | None, rules: "SensitivePaths", *, writing: bool) -> Iterator[str]:
    from toolgate.sandbox.workspaces import NEVER, NEVER_INSIDE

    places = (*NEVER_MOUNTED, *(NEVER_INSIDE if writing else ()))
    if str(path) in NEVER or any(path.is_relative_to(place) for place in places):
        yield "it is a system folder"
    if Path(os.path.realpath(rules.home)).is_relative_to(path):
        yield "it contains a whole home folder"
    if home is not None and path.is_relative_to(os.path.realpath(home)):
        yield "it is Toolgate's data folder"
    if writing and not path.is_dir():
        yield "it is not a folder"
    reason = rules.reason(str(path))
    if reason is not None:
        yield reason


def _held_back(
    name: str,
    path: Path,
    home: Path | None,
    rules: "SensitivePaths",
    *,
    writes_git: bool,
    settings_files: Callable[[str], bool],
) -> "ProtectedPaths":
    """The read-only and hidden parts of a folder."""
    from toolgate.sandbox.workspace_scan import GIT, GIT_FIXED, ProtectedPaths, WorkspaceScan

    if not path.is_dir():
        return ProtectedPaths((), ())
    if path.name == GIT:
        # Named by itself, it is meant: but for what says which programs git runs.
        fixed = tuple(path / part for part in GIT_FIXED if (path / part).exists())
        return ProtectedPaths(fixed, (), repositories=frozenset((path,)))
    try:
        own = os.path.realpath(home) if home else ""
        return WorkspaceScan(rules, path, own, writes_git=writes_git, pieces=True, hides=settings_files).run()
    except Denied as error:
        raise Unreachable(
            "SECURITY_VIOLATION", f"Server {name!r} may not have {path}: {error.message}", suggestion=error.suggestion
        ) from None


def _is_git(settings: ServerSettings) -> bool:
    """True for the git server, which has to write repositories; for others, `write` must name them."""
    return settings.preset == "git" or (settings.pypi or "").startswith("mcp-server-git")
