"""What a program may not change or see of the folder that it works in: a search for what the jail has to hold back.

What is not there yet can't be held back: so the folder is searched again when the program is over, and `leftovers` sees to
what has come. The first search refuses a folder that is too large; the second goes on for as long as it may take, and says
so if that was too short.
"""

import os
import stat
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from toolgate.errors import Denied

if TYPE_CHECKING:
    from toolgate.hazards.paths import Sensitive

MOST_ENTRIES = 30_000
"""Files and folders of a workspace that are looked at before a program may work there."""
MOST_PARTS = 500
"""Of what is held back, each costs the jail a mount."""
AFTER_SECONDS = 20.0
"""How long what a program left is looked through."""
UNSEARCHED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache"})
"""Folders full of what others wrote: of these only the first level is looked at, for more would take long."""
GIT = ".git"
GIT_FIXED = ("hooks", "config", "config.worktree", "commondir", "gitdir", "modules", "worktrees", "info")
"""Of a repository, what says which programs git runs: not even git may write that."""

Identity = tuple[int | str, ...]
"""What a name stands for: it changes when something else is put in its place."""
Held = Literal["fixed", "hidden"]
NOTHING: Mapping[Path, Identity] = MappingProxyType({})


class Parts(NamedTuple):
    """What a jail holds back of a workspace."""

    fixed: tuple[Path, ...]
    """To be read, not to be changed."""
    hidden: tuple[Path, ...]
    """Not to be seen."""
    runs: Mapping[Path, Identity] = NOTHING
    """All that has the host run something by its name, links too."""
    secret: Mapping[Path, Identity] = NOTHING
    """What is hidden."""
    repositories: frozenset[Path] = frozenset()
    troubles: tuple[str, ...] = ()
    """What could not be looked through, in words."""


def is_repository(names: set[str]) -> bool:
    """Whether git takes a folder with these names in it, in small letters, for a repository: it may have any name."""
    return "head" in names and ("commondir" in names or {"objects", "refs"} <= names)


class Search:
    """A walk through a workspace, nearest first, that enters no link."""

    def __init__(
        self, rules: "Sensitive", top: Path, home: str, *, writes_git: bool = False, before: Parts | None = None
    ) -> None:
        """`before` is what was found before a program ran; None: it is to run now."""
        from toolgate.hazards.looking import Looks

        self._rules = rules
        self._top = top
        self._home = home
        self._writes_git = writes_git
        self._before = before
        self._looks: Looks = Looks(most=20 * MOST_ENTRIES if before is None else 1 << 60)
        self._left = MOST_ENTRIES
        self._until = monotonic() + AFTER_SECONDS
        self._fixed: dict[Path, None] = {}
        self._hidden: dict[Path, None] = {}
        self._runs: dict[Path, Identity] = {}
        self._secret: dict[Path, Identity] = {}
        self._repositories: set[Path] = set()
        self._troubles: list[str] = []
        self._waiting = deque([str(top)])
        self._linked: list[tuple[str, os.stat_result]] = []
        """Files that have other names as well."""
        self._inodes: set[tuple[int, int]] = set()
        """Those of secret files."""

    def run(self) -> Parts:
        from toolgate.hazards.looking import TooMuch

        try:
            while self._waiting:
                if self._before is not None and monotonic() > self._until:
                    self._troubles.append(f"it takes more than {AFTER_SECONDS:g} s to look through all of it")
                    break
                self._folder(self._waiting.popleft())
            self._other_names()
        except TooMuch:
            raise self._too_much() from None
        unseen = set(self._hidden)
        held = unseen.union(self._fixed)
        fixed = tuple(path for path in self._fixed if held.isdisjoint(path.parents) and path not in self._hidden)
        hidden = tuple(path for path in self._hidden if unseen.isdisjoint(path.parents))
        if self._before is None and len(fixed) + len(hidden) > MOST_PARTS:
            raise self._too_much()
        repositories = frozenset(self._repositories)
        return Parts(fixed, hidden, self._runs, self._secret, repositories, tuple(self._troubles))

    def _folder(self, folder: str) -> None:
        entries = self._entries(folder)
        if is_repository({entry.name.lower() for entry in entries}):
            self._repository(Path(folder), is_folder=True)
            if self._before is None and folder == str(self._top):
                raise _refused("it is a repository of git itself, not a folder with files")
            if self._before is None or not self._is_new(Path(folder)):
                return
        shallow = folder != str(self._top) and os.path.basename(folder) in UNSEARCHED  # noqa: PTH119
        for entry in entries:
            if not shallow or by_name(entry.name):
                self._entry(entry)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            return self._listed(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:
            return self._closed(folder)
        except OSError as error:
            return self._not_looked_through(folder, error)

    def _listed(self, folder: str) -> list[os.DirEntry[str]]:
        with os.scandir(folder) as entries:
            if self._before is not None:
                return list(entries)
            listed = list(islice(entries, self._left + 1))
        self._left -= len(listed)
        if self._left < 0:
            raise self._too_much()
        return listed

    def _closed(self, folder: str) -> list[os.DirEntry[str]]:
        """A folder that we can't read. It may be ours, and then a program can open it: so it is hidden from one, and what a
        program closed is opened."""
        path = Path(folder)
        if self._before is None:
            self._hide(path, path.lstat())
            return []
        if path in self._before.secret:
            return []
        try:
            _open_up(self._top, folder)
            return self._listed(folder)
        except OSError as error:
            return self._not_looked_through(folder, error)

    def _not_looked_through(self, folder: str, error: OSError) -> list[os.DirEntry[str]]:
        words = f"{shown(self._top, Path(folder))} can't be looked through: {os.strerror(error.errno or 0)}"
        if self._before is None:
            raise _refused(words)
        self._troubles.append(words)
        return []

    # -- one thing in a folder

    def _entry(self, entry: os.DirEntry[str]) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        held = self._held(entry.path, entry.name, is_folder)
        if held is not None:
            with suppress(FileNotFoundError):
                self._hold(Path(entry.path), held, entry.stat(follow_symlinks=False))
        elif entry.is_symlink():
            return
        elif is_folder:
            self._waiting.append(entry.path)
        elif self._before is None:
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                self._linked.append((entry.path, status))

    def _held(self, path: str, name: str, is_folder: bool) -> Held | None:
        """As the rules judge files: a folder whose name only suggests secrets is looked into rather than hidden."""
        if path == self._home:
            return "hidden"
        sure = is_folder and not name.startswith(".")
        if self._rules.named(path, self._looks, writing=True, holder=is_folder, surely=sure) is None:
            return "fixed" if by_name(name) else None
        return "fixed" if self._rules.named(path, self._looks, surely=sure) is None else "hidden"

    def _hold(self, path: Path, held: Held, status: os.stat_result) -> None:
        if held == "fixed" or by_name(path.name):
            self._runs[path] = identity(path, status)
        if stat.S_ISLNK(status.st_mode):
            self._link(path, held)
            return
        if held == "hidden":
            self._hide(path, status)
        elif path.name.lower() == GIT:
            self._repository(path, is_folder=stat.S_ISDIR(status.st_mode))
        else:
            self._fixed[path] = None
        if self._before is not None and stat.S_ISDIR(status.st_mode) and self._is_new(path):
            self._waiting.append(str(path))  # what the program made may hold more of the kind

    def _is_new(self, path: Path) -> bool:
        known = self._before or Parts((), ())
        return (path in self._runs and known.runs.get(path) != self._runs[path]) or (
            path in self._secret and path not in known.secret
        )

    def _hide(self, path: Path, status: os.stat_result) -> None:
        self._hidden[path] = None
        self._secret[path] = secret_identity(path, status)
        if not stat.S_ISDIR(status.st_mode):
            self._inodes.add((status.st_dev, status.st_ino))

    def _link(self, path: Path, held: Held) -> None:
        """A link can't be held by a mount; what it leads to can, where that is in the workspace."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._top):
            return
        try:
            status = real.lstat()
        except OSError:
            status = None
        if status is None or stat.S_ISLNK(status.st_mode) or real == self._top:  # it leads to nothing, in a circle, or here
            if held == "fixed" and self._before is None:
                raise _refused(f"{shown(self._top, path)} is a link, and where it leads to can't be held back")
        elif held == "hidden":
            self._hide(real, status)
        elif path.name.lower() == GIT:
            self._repository(real, is_folder=stat.S_ISDIR(status.st_mode))
        else:
            self._fixed[real] = None

    def _repository(self, path: Path, *, is_folder: bool) -> None:
        """A repository is read-only to all but git: whoever writes it says what git runs next on the host."""
        self._repositories.add(path)
        with suppress(FileNotFoundError):
            self._runs[path] = identity(path, path.lstat())
        if not (is_folder and self._writes_git):
            self._fixed[path] = None
            return
        for inner in (path / name for name in GIT_FIXED):
            with suppress(FileNotFoundError):
                status = inner.lstat()
                self._runs[inner] = identity(inner, status)
                if stat.S_ISLNK(status.st_mode):
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


def identity(path: Path, status: os.stat_result) -> Identity:
    """Of a link, also where it leads to."""
    leads = os.path.realpath(path) if stat.S_ISLNK(status.st_mode) else ""
    return status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode), leads


def secret_identity(path: Path, status: os.stat_result) -> Identity:
    """The same for what is hidden. The number of a file that is deleted may be that of the next one, so of files their
    age and size count too. Not when they were last touched: to mount something over a file may be that."""
    is_folder = stat.S_ISDIR(status.st_mode)
    return *identity(path, status), 0 if is_folder else status.st_mtime_ns, 0 if is_folder else status.st_size


def by_name(name: str) -> bool:
    """Whether a file or folder of this name has the host run something."""
    from toolgate.hazards.paths import run_by_name

    return run_by_name(name) is not None


def shown(top: Path, path: Path) -> str:
    """A path as it is told."""
    return str(path.relative_to(top)) if path.is_relative_to(top) else str(path)


def _open_up(top: Path, folder: str) -> None:
    """Let us read a folder that is ours."""
    from toolgate.hazards.opening import Escapes, folder_beneath

    try:
        parent, name = folder_beneath(top, top, folder)
    except Escapes as error:
        raise NotADirectoryError(20, str(error)) from None
    try:
        opened = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        os.chmod(f"/proc/self/fd/{opened}", stat.S_IMODE(os.fstat(opened).st_mode) | 0o700)  # noqa: PTH101
    finally:
        os.close(opened)


def _refused(why: str) -> Denied:
    return Denied(
        "SECURITY_VIOLATION",
        f"No program may work there: {why}.",
        suggestion="Work in a smaller folder, or in that of a session.",
        reason=why,
    )
