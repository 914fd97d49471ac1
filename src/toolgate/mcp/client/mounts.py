"""The host's files that a jailed server sees: its mounts, what is hidden or read-only in them, and the layers over them.

What the settings name is mounted at its own path, and so is the script that it runs. Files that no tool may open, and those
in `blocked`, are hidden, as are Toolgate's settings unless `read` names that very file, and repositories where neither
`read` nor `write` names the folder. A read-only folder is projected file by file, so that a secret that is added later is
not seen. What would have the host run something later (git hooks, editor settings) can be read there but not changed.

The layers are settled after each call, and when the server ends. Before a call it is shown what the host has changed. Of
folders that it may only read it sees nothing that was not scanned first. A writable folder is seen through an overlay, which
shows new files at once: so it is scanned before and after each call, and a server that may have seen a file that no tool may
open is stopped. Its response is then withheld, and what it wrote goes to quarantine.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate.discovery import SETTINGS_FILE
from toolgate.errors import Denied, Failed
from toolgate.mcp.client.errors import Unreachable
from toolgate.sandbox.jail import MB, JailedProcess, ProjectedEntry
from toolgate.sandbox.workspace_scan import GIT, GIT_FIXED, ProtectedPaths, WorkspaceScan, is_below
from toolgate.settings import ServerSettings
from toolgate.tasks import finish
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.sandbox.workspaces import Workspaces
    from toolgate.screening.paths import SensitivePaths

NEVER_MOUNTED = ("/proc", "/sys", "/dev", "/run", "/boot")
LayerStep = Callable[[list[int]], list[str]]
MAX_INLINE_STATS = 100
"""Folders that are checked without a thread: it takes a tenth of a millisecond."""
EXPOSED_REASON = (
    "a file that no tool may open came into a folder of the server while it ran, so it may hold what was in that"
)

logger = logging.getLogger("toolgate.mcp")


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


class MountScan:
    """The scan of one server's folders, each by every judge: the rules for all tools, and the server's own `blocked`."""

    def __init__(
        self, name: str, settings: ServerSettings, home: Path | None, rules: "SensitivePaths | None", own: Iterable[Path]
    ) -> None:
        """`rules`: what no tool may open; None: the usual. `own`: the script that it runs, or its project. Raises
        Unreachable for what no server may have."""
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
        """Scans all folders, so call this in a thread. Raises Unreachable for what no server may have."""
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


class FolderLayers:
    """The layers of one running server."""

    def __init__(
        self,
        server: str,
        settings: ServerSettings,
        box: JailedProcess,
        places: "Workspaces",
        mounts: MountPlan,
        plan: Callable[[], MountPlan],
    ) -> None:
        """`places` decides which of its changes are applied. `mounts`: those that it was given; `plan` plans them again."""
        self._server = server
        self._box = box
        self._intakes = [
            places.intake(
                folder,
                f"server {server}",
                settings.disk_mb * MB,
                bring_in=settings.bring_in,
                setting=f"servers.{server}.bring_in",
                repositories=[path for path in mounts.repositories if path.is_relative_to(folder)],
            )
            for folder in mounts.writable
        ]
        self._mounts = mounts
        self._plan = plan
        self._lock = Lock()
        self.exposed = False
        """True: it may have seen a file that no tool may open, and has to be stopped."""

    async def show_host(self) -> None:
        """Shows the server the host's files as they are now."""
        if self._intakes or len(self._mounts.times) > MAX_INLINE_STATS or self._is_stale():
            await self._in_thread(self._show_host, self._uppers())

    async def settle(self) -> list[str]:
        """Applies what the server changed, or quarantines it; returns notes for the caller."""
        return await self._in_thread(self._settle, self._uppers()) if self._intakes else []

    async def close(self) -> None:
        """Ends the program, then settles its last changes."""
        uppers = self._uppers()
        try:
            await self._box.close()
        finally:
            await self._in_thread(self._settle, uppers)

    def _uppers(self) -> list[int]:
        return list(map(os.dup, self._box.uppers()))

    async def _in_thread(self, step: LayerStep, uppers: list[int]) -> list[str]:
        """Runs a step to its end, whoever waits for it: the folders are open as long as that takes."""

        def run() -> list[str]:
            try:
                with self._lock:
                    return step(uppers)
            except OSError as error:
                logger.error("server %s: its changes cannot be read: %s", self._server, error)
                return ["the changes of its server cannot be read, and were not applied"]
            finally:
                for upper in uppers:
                    os.close(upper)

        return await finish(to_thread(run))

    def _is_stale(self) -> bool:
        """True if something was added to a folder, or removed, since it was scanned."""
        return any(_changed(folder) != known for folder, known in self._mounts.times.items())

    def _look(self) -> None:
        """Projects what the host has now. A secret in a projected folder is never shown; in a writable one, it was."""
        if not self._is_stale():
            return
        try:
            now = self._plan()
        except Unreachable as error:
            logger.warning("server %s: its folders cannot be scanned: %s", self._server, error.message)
            self.exposed = bool(self._intakes)
            return
        before, self._mounts = self._mounts, now
        if (now.projected, now.writable) != (before.projected, before.writable) or not set(now.hidden) <= set(before.hidden):
            self.exposed = True
            return
        project = getattr(self._box, "project", None)
        if project is not None:
            project(now.pieces)

    def _show_host(self, uppers: list[int]) -> list[str]:
        self._look()
        for upper, intake in zip(uppers, self._intakes, strict=False):
            intake.yield_to_host(upper)
        refresh = getattr(self._box, "refresh", None)
        if refresh is not None:
            refresh()
        return []

    def _settle(self, uppers: list[int]) -> list[str]:
        if self._intakes:
            self._look()
        for intake in self._intakes if self.exposed else ():
            intake.withheld = EXPOSED_REASON
        said = [line for upper, intake in zip(uppers, self._intakes, strict=False) for line in intake.settle(upper)]
        for line in said:
            logger.warning("server %s: %s", self._server, line)
        return said


def _changed(folder: str) -> int:
    try:
        return os.stat(folder, follow_symlinks=False).st_ctime_ns  # noqa: PTH116 - for every folder, at each call
    except OSError:
        return -1


def withheld_error(server: str) -> Failed:
    """The error that a caller gets in place of the response."""
    return Failed(
        "SANDBOX_ERROR",
        f"The answer of server {server} is withheld: a file that no tool may open came into a folder that it may write "
        "while it worked, so it may have seen that. The server was ended, and what it wrote is set aside.",
        suggestion="Call it again: it is restarted, and does not see that file.",
        details={"withheld": True},
    )


def with_notes(answer: Mapping[str, Any], said: list[str]) -> Mapping[str, Any]:
    """The result of a tool with notes on its server's changes, which the caller would believe to be applied."""
    content = answer.get("content")
    if not said or not isinstance(content, list):
        return answer
    return {**answer, "content": [*content, *({"type": "text", "text": f"toolgate: {line}"} for line in said)]}
