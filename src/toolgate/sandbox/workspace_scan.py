"""A search of the folder that a program works in for what it may not change or see, which the jail has to hold back.

Hidden are the files that no tool may open. Read-only are repositories, virtual environments, the programs of packages and
the interpreter that Toolgate runs in: a program has no business there, and is told so at once. What else it changes is
decided about afterwards (`intake`).
"""

import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolgate.errors import Denied, Failed
from toolgate.sandbox.jail import ProjectedEntry

if TYPE_CHECKING:
    from toolgate.screening.paths import SensitivePaths

MAX_SCANNED_ENTRIES = 30_000
"""Files and folders of a workspace that are looked at before a program may work there."""
MAX_PROTECTED_PATHS = 500
"""Of what is held back, each costs the jail a mount."""
NODE_MODULES = "node_modules"
PROGRAMS = ".bin"
"""In a folder of packages: programs that are run by their names."""
UNSEARCHED = frozenset({NODE_MODULES, "__pycache__", ".tox", ".mypy_cache", ".ruff_cache"})
"""Folders full of what others wrote: they are not looked into, for that would take long."""
ENVIRONMENT = "pyvenv.cfg"
"""This file makes a folder a virtual environment of Python, whatever its name."""
GIT = ".git"
GIT_FIXED = ("hooks", "config", "config.worktree", "commondir", "gitdir", "modules", "worktrees", "info")
"""Of a repository, what says which programs git runs: not even git may write that."""

FileIdentity = tuple[int | str, ...]
"""Changes when something else is put in a file's place."""
Protection = Literal["fixed", "hidden"]
NONE: Mapping[Any, Any] = MappingProxyType({})
COARSE_NS = 50_000_000
"""File systems note times by the tick of a clock: two changes this close may have the same."""


class ProtectedPaths(NamedTuple):
    """The paths of a workspace that a jail holds back."""

    fixed: tuple[Path, ...]
    """To be read, not to be changed."""
    hidden: tuple[Path, ...]
    """Not to be seen."""
    secret: Mapping[Path, FileIdentity] = NONE
    """The hidden paths, and what each was."""
    repositories: frozenset[Path] = frozenset()
    pieces: Mapping[str, ProjectedEntry] = NONE
    """The files that were looked at and are not hidden."""
    times: Mapping[str, int] = NONE
    """The folders that were looked through, and when they were last changed (ctime: programs that copy folders set the
    other); 0: that may be just now."""


def is_repository(names: set[str]) -> bool:
    """True if git takes a folder with these names in it, in small letters, for a repository: it may have any name."""
    return "head" in names and ("commondir" in names or {"objects", "refs"} <= names)


def is_environment(names: set[str]) -> bool:
    """True if Python takes a folder with these names in it, in small letters, for a virtual environment."""
    return ENVIRONMENT in names


class WorkspaceScan:
    """A walk through a workspace, nearest first, that enters no link."""

    def __init__(
        self,
        rules: "SensitivePaths",
        top: Path,
        home: str,
        *,
        writes_git: bool = False,
        pieces: bool = False,
        hides: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`pieces`: all that may be seen is named one by one. `hides`: paths that are hidden whatever the rules say."""
        from toolgate.screening.folder_search import FolderLookups

        self._wants_pieces = pieces
        self._hides = hides
        self._pieces: dict[str, ProjectedEntry] = {}
        self._times: dict[str, int] = {}
        self._rules = rules
        self._top = top
        self._home = home
        self._writes_git = writes_git
        self._looks: FolderLookups = FolderLookups(most=20 * MAX_SCANNED_ENTRIES)
        self._left = MAX_SCANNED_ENTRIES
        self._fixed: dict[Path, None] = {}
        self._hidden: dict[Path, None] = {}
        self._secret: dict[Path, FileIdentity] = {}
        self._repositories: set[Path] = set()
        self._interpreters = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)}
        self._waiting = deque([str(top)])
        self._linked: list[tuple[str, os.stat_result]] = []
        """Files that have other names as well."""
        self._inodes: set[tuple[int, int]] = set()
        """Those of secret files."""

    def run(self) -> ProtectedPaths:
        from toolgate.screening.folder_search import LookupLimitExceeded

        try:
            while self._waiting:
                self._folder(self._waiting.popleft())
            self._other_names()
        except LookupLimitExceeded:
            raise self._too_much() from None
        unseen = set(self._hidden)
        held = unseen.union(self._fixed)
        fixed = tuple(path for path in self._fixed if held.isdisjoint(path.parents) and path not in self._hidden)
        hidden = tuple(path for path in self._hidden if unseen.isdisjoint(path.parents))
        if len(fixed) + len(hidden) > MAX_PROTECTED_PATHS:
            raise self._too_much()
        names = set(map(str, unseen))
        shown = {path: piece for path, piece in self._pieces.items() if not is_below(path, names)}
        return ProtectedPaths(fixed, hidden, self._secret, frozenset(self._repositories), shown, self._times)

    def _folder(self, folder: str) -> None:
        if self._wants_pieces:
            self._note_folder(folder)
        entries = self._entries(folder)
        names = {entry.name.lower() for entry in entries}
        is_top = folder == str(self._top)
        if is_repository(names):
            self._repository(Path(folder), is_folder=True)
            if is_top:
                raise _refused("it is a repository of git itself, not a folder with files")
            self._show_whole(folder)
            return
        if is_environment(names) or folder in self._interpreters:
            if is_top:
                raise _refused("it holds the programs and packages of a Python, not files to work with")
            self._fixed[Path(folder)] = None
            self._show_whole(folder)
            return
        if os.path.basename(folder) in UNSEARCHED and not is_top:  # noqa: PTH119
            if PROGRAMS in names:
                self._fixed[Path(folder, PROGRAMS)] = None
            self._show_whole(folder)
            return
        for entry in entries:
            self._entry(entry)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                listed = list(islice(entries, self._left + 1))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:  # it may be ours, and then a program can open it
            path = Path(folder)
            self._hide(path, path.lstat())
            return []
        except OSError as error:
            raise _refused(
                f"{shown(self._top, Path(folder))} cannot be looked through: {os.strerror(error.errno or 0)}"
            ) from None
        self._left -= len(listed)
        if self._left < 0:
            raise self._too_much()
        return listed

    # -- what may be seen

    def _note_folder(self, folder: str) -> None:
        """Before it is listed: what comes afterwards changes its time."""
        with suppress(OSError):
            status = os.stat(folder, follow_symlinks=False)  # noqa: PTH116 - for every folder
            self._times[folder] = 0 if time_ns() - status.st_ctime_ns < COARSE_NS else status.st_ctime_ns
            self._show(folder, status)

    def _show(self, path: str, status: os.stat_result) -> None:
        if not self._wants_pieces or path == str(self._top):
            return
        if stat.S_ISLNK(status.st_mode):
            with suppress(OSError):
                self._pieces[path] = ProjectedEntry("link", target=os.readlink(path))  # noqa: PTH115
        elif stat.S_ISDIR(status.st_mode):
            self._pieces[path] = ProjectedEntry("folder", status.st_dev, status.st_ino)
        elif stat.S_ISREG(status.st_mode):
            self._pieces[path] = ProjectedEntry("file", status.st_dev, status.st_ino)

    def _show_whole(self, folder: str) -> None:
        """It is not looked into, so all of it is seen."""
        known = self._pieces.get(folder)
        if known is not None and known.kind == "folder":
            self._pieces[folder] = known._replace(kind="whole")
        self._times.pop(folder, None)

    # -- one thing in a folder

    def _entry(self, entry: os.DirEntry[str]) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        held = self._held(entry.path, entry.name, is_folder)
        if held is not None:
            with suppress(FileNotFoundError):
                self._hold(Path(entry.path), held, entry.stat(follow_symlinks=False))
        elif entry.is_symlink():
            if self._wants_pieces:
                self._show(entry.path, entry.stat(follow_symlinks=False))
        elif is_folder:
            self._waiting.append(entry.path)
        else:
            status = entry.stat(follow_symlinks=False)
            self._show(entry.path, status)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                self._linked.append((entry.path, status))

    def _held(self, path: str, name: str, is_folder: bool) -> Protection | None:
        """As the rules judge files: a folder whose name only suggests secrets is looked into rather than hidden."""
        if path == self._home or self._hides(path):
            return "hidden"
        sure = is_folder and not name.startswith(".")
        if self._rules.named(path, self._looks, writing=True, holder=is_folder, surely=sure) is None:
            return "fixed" if name.lower() == GIT else None
        return "fixed" if self._rules.named(path, self._looks, surely=sure) is None else "hidden"

    def _hold(self, path: Path, held: Protection, status: os.stat_result) -> None:
        if held != "hidden":
            self._show(str(path), status)
        if stat.S_ISLNK(status.st_mode):
            self._link(path, held)
        elif held == "hidden":
            self._hide(path, status)
        elif path.name.lower() == GIT:
            self._show_whole(str(path))
            self._repository(path, is_folder=stat.S_ISDIR(status.st_mode))
        else:
            self._fixed[path] = None
            if self._wants_pieces and stat.S_ISDIR(status.st_mode):
                self._waiting.append(str(path))  # it may hold what is hidden

    def _hide(self, path: Path, status: os.stat_result) -> None:
        self._hidden[path] = None
        self._secret[path] = secret_identity(path, status)
        if not stat.S_ISDIR(status.st_mode):
            self._inodes.add((status.st_dev, status.st_ino))

    def _link(self, path: Path, held: Protection) -> None:
        """A link cannot be held by a mount; what it leads to can, where that is in the workspace."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._top) or real == self._top:
            return
        try:
            status = real.lstat()
        except OSError:
            return
        if stat.S_ISLNK(status.st_mode):  # in a circle
            return
        if held == "hidden":
            self._hide(real, status)
        elif path.name.lower() == GIT:
            self._repository(real, is_folder=stat.S_ISDIR(status.st_mode))
        else:
            self._fixed[real] = None

    def _repository(self, path: Path, *, is_folder: bool) -> None:
        """A repository is read-only to all but git: whoever writes it says what git runs next on the host."""
        self._repositories.add(path)
        if not (is_folder and self._writes_git):
            self._fixed[path] = None
            return
        for inner in (path / name for name in GIT_FIXED):
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(inner.lstat().st_mode):
                    self._link(inner, "fixed")
                else:
                    self._fixed[inner] = None

    def _other_names(self) -> None:
        """Hard links: a secret by another name is hidden under that as well."""
        for path, status in self._linked:
            known = (status.st_dev, status.st_ino) in self._inodes
            if known or self._rules.twin(path, status, self._looks) is not None:
                self._hide(Path(path), status)

    def _too_much(self) -> Denied:
        return _refused(f"it takes too long to find what a program may not see among all the files in {self._top}")


# -- small things


def is_below(path: str, folders: Collection[str]) -> bool:
    """True if a path is one of some folders, or in one. Of strings, since there are thousands."""
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False


def secret_identity(path: Path, status: os.stat_result) -> FileIdentity:
    """Tells what is hidden from something else in its place. The number of a file that is deleted may be that
    of the next one, so of files their age and size count too. Not when they were last touched: to mount something over a
    file may be that."""
    leads = os.path.realpath(path) if stat.S_ISLNK(status.st_mode) else ""
    is_folder = stat.S_ISDIR(status.st_mode)
    age = (0, 0) if is_folder else (status.st_mtime_ns, status.st_size)
    return status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode), leads, *age


def check_secrets(top: Path, before: ProtectedPaths) -> None:
    """Raise Failed if something hidden was replaced while a program ran: what is put in a hidden file's place is seen."""
    for path, known in before.secret.items():
        try:
            now = secret_identity(path, path.lstat())
        except OSError:
            continue  # what is gone was not seen
        if now != known:
            raise Failed(
                "SANDBOX_ERROR",
                f"The output is withheld: the hidden file {shown(top, path)} was replaced while the program ran, "
                "so the program may have read it.",
                suggestion="Run it again, when nobody changes that file.",
                details={"withheld": True},
            )


def shown(top: Path, path: Path) -> str:
    return str(path.relative_to(top)) if path.is_relative_to(top) else str(path)


def _refused(why: str) -> Denied:
    return Denied(
        "SECURITY_VIOLATION",
        f"No program may work there: {why}.",
        suggestion="Work in a smaller folder, or in that of a session.",
        reason=why,
    )
