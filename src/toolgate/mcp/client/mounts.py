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
from toolgate.sandbox.workspace_scan import GIT, GIT_FIXED, ProtectedPaths, WorkspaceScan, is_below
from toolgate.settings import ServerSettings

if TYPE_CHECKING:
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
    return _MountScan(name, settings, home, rules, own).plan()


class _MountScan:
    """The scan of one server's folders, each by every judge: the rules for all tools, and the server's own `blocked`."""

    def __init__(
        self, name: str, settings: ServerSettings, home: Path | None, rules: "SensitivePaths | None", own: Iterable[Path]
    ) -> None:
        from toolgate.screening.paths import SensitivePaths

        self._name, self._settings, self._home = name, settings, home
        blocked = SensitivePaths(patterns=map(whole_folder, settings.blocked), data=home)
        self._judges = [blocked] if rules is None else [rules, blocked] if settings.blocked else [rules]
        self._writable = tuple(map(self._real, settings.write))
        named = tuple(map(self._real, settings.read))
        implied = map(self._real, (*((settings.cwd,) if settings.cwd is not None else ()), *own))
        self._asked = {*self._writable, *named}
        self._readable = tuple(path for path in dict.fromkeys((*named, *implied)) if path not in self._writable)
        self._is_settings = _settings_files(rules, self._asked)
        self._seen: dict[Path, list[Mapping[str, ProjectedEntry]]] = {
            path: [] for path in self._readable if path.is_dir() and path.name != GIT
        }
        self._fixed: dict[Path, None] = {}
        self._hidden: dict[Path, None] = {}
        self._repositories: dict[Path, None] = {}
        self._times: dict[str, int] = {}

    def plan(self) -> MountPlan:
        for path in (*self._writable, *self._readable):
            self._check(path)
            for judge in self._judges:
                self._add(path, judge)
        hidden, around = self._hidden, (*self._seen, *self._writable)
        projected = tuple(path for path in self._seen if _innermost(path, around) not in self._seen)
        return MountPlan(
            readable=tuple(path for path in self._readable if path not in self._seen),
            writable=self._writable,
            fixed=tuple(path for path in self._fixed if hidden.keys().isdisjoint((path, *path.parents))),
            hidden=tuple(path for path in hidden if _innermost(path, around) in self._writable),
            repositories=tuple(self._repositories),
            projected=projected,
            pieces=self._pieces(projected),
            times=self._times,
        )

    def _add(self, path: Path, judge: "SensitivePaths") -> None:
        writes = path in self._writable
        writes_git = _is_git(self._settings) or path / GIT in self._writable
        found = self._scan(path, judge, writes_git=writes_git)
        if path in self._seen:
            self._seen[path].append(found.pieces)
        self._times = {**found.times, **self._times}  # of two looks the first: what came since is not in it
        self._fixed |= dict.fromkeys(found.fixed if writes else ())
        self._hidden |= dict.fromkeys(found.hidden)
        self._hidden |= dict.fromkeys(
            inner for inner in found.repositories if not any(inner.is_relative_to(folder) for folder in self._asked)
        )
        if writes and (writes_git or path.name == GIT):
            self._repositories |= dict.fromkeys(found.repositories)

    def _scan(self, path: Path, judge: "SensitivePaths", *, writes_git: bool) -> ProtectedPaths:
        """The read-only and hidden parts of a folder."""
        if not path.is_dir():
            return ProtectedPaths((), ())
        if path.name == GIT:
            # Named by itself, it is meant: but for what says which programs git runs.
            fixed = tuple(path / part for part in GIT_FIXED if (path / part).exists())
            return ProtectedPaths(fixed, (), repositories=frozenset((path,)))
        own = os.path.realpath(self._home) if self._home else ""
        try:
            return WorkspaceScan(judge, path, own, writes_git=writes_git, pieces=True, hides=self._is_settings).run()
        except Denied as error:
            raise self._refusal(path, error.message, error.suggestion) from None

    def _pieces(self, projected: Iterable[Path]) -> dict[str, ProjectedEntry]:
        """The visible files of projected folders: those that every judge allows, without hidden ones and those of writable
        folders, which are seen through their layer. Outer before inner."""
        left_out = {*map(str, self._hidden), *map(str, self._writable)}
        shown: dict[str, ProjectedEntry] = {}
        for root in projected:
            first, *others = self._seen[root]
            shown |= {
                path: piece
                for path, piece in first.items()
                if all(other.get(path) == piece for other in others) and not is_below(path, left_out)
            }
            for folder in (folder for folder in self._writable if folder.is_relative_to(root)):  # something to be mounted on
                ways = (way for way in (folder, *folder.parents) if way != root and way.is_relative_to(root))
                shown |= {str(way): ProjectedEntry("folder") for way in ways}
        return dict(sorted(shown.items()))

    def _real(self, path: Path) -> Path:
        real = Path(os.path.realpath(path.expanduser()))
        if not real.exists():
            raise Unreachable(
                message=f"{path} does not exist (server {self._name!r}).",
                suggestion="Create it, or name another one: `--read`, `--write` or `--cwd` "
                "(settings: `read`, `write`, `cwd`).",
            )
        return real

    def _check(self, path: Path) -> None:
        why = next(self._faults(path), None)
        if why is not None:
            advice = "Name a folder with nothing in it but what the server needs, or add it to the setting paths.allowed."
            raise self._refusal(path, f"{why}.", advice)

    def _faults(self, path: Path) -> Iterator[str]:
        from toolgate.sandbox.workspaces import NEVER, NEVER_INSIDE

        writing, rules = path in self._writable, self._judges[0]
        places = (*NEVER_MOUNTED, *(NEVER_INSIDE if writing else ()))
        if str(path) in NEVER or any(path.is_relative_to(place) for place in places):
            yield "it is a system folder"
        if Path(os.path.realpath(rules.home)).is_relative_to(path):
            yield "it contains a whole home folder"
        if self._home is not None and path.is_relative_to(os.path.realpath(self._home)):
            yield "it is Toolgate's data folder"
        if writing and not path.is_dir():
            yield "it is not a folder"
        reason = rules.reason(str(path))
        if reason is not None:
            yield reason

    def _refusal(self, path: Path, why: str, suggestion: str | None) -> Unreachable:
        return Unreachable("SECURITY_VIOLATION", f"Server {self._name!r} may not have {path}: {why}", suggestion=suggestion)


def _innermost(path: Path, folders: Iterable[Path]) -> Path | None:
    """The innermost of the folders that a path is in."""
    around = (folder for folder in folders if folder != path and path.is_relative_to(folder))
    return max(around, key=lambda folder: len(folder.parts), default=None)


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


def is_shared(folder: Path) -> bool:
    """True for folders that hold far more than one server's files: a person's home, one above it, or the system's."""
    from toolgate.sandbox.workspaces import NEVER

    real = Path(os.path.realpath(folder))
    return str(real) in NEVER or Path(os.path.realpath(Path.home())).is_relative_to(real)


def _is_git(settings: ServerSettings) -> bool:
    """True for the git server, which has to write repositories; for others, `write` must name them."""
    return settings.preset == "git" or (settings.pypi or "").startswith("mcp-server-git")
