"""Decides which changes that a program made in its layer reach the workspace: data, by a list of what is allowed.

A file is brought in if a pattern (`bring_in`) matches its path, it is a regular file that can't be executed, and no folder
above it is a virtual environment or a repository. Everything else, deletions included, is set aside (`quarantine`).

Nothing in the layer is trusted: it was written by the program, which in the case of a server still runs. Everything is
opened from the folder it is in, without following links, and looked at once it is open.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import time_ns
from typing import NamedTuple

from toolgate.sandbox.intake_rules import REPOSITORY, IntakeRule, is_plain
from toolgate.sandbox.quarantine import Kind, QuarantinedChange, QuarantineWriter
from toolgate.sandbox.untrusted_files import FILE_FLAGS, FOLDER_FLAGS, Parts, delete, opened, replace, stays_inside
from toolgate.sandbox.workspace_scan import is_environment, is_repository
from toolgate.screening.safe_open import PathEscape, folder_beneath, make_folder

MAX_DEPTH, MAX_PATH = 100, 1_000
"""Folders within folders, and characters of a path; what is deeper is not looked at."""
MAX_NAMED = 10
"""Changes that are named in an outcome."""
OPAQUE = "user.overlay.opaque"

Signature = tuple[int, ...] | None


class IntakeReport(NamedTuple):
    """The result of one look at a layer."""

    brought: int
    aside: list[str]
    """Paths, the nearest first."""

    def words(self, number: str, setting: str) -> list[str]:
        """For whoever ran the program; `number` is that of the set, `setting` the one whose patterns decide."""
        if not self.aside:
            return []
        names = ", ".join(self.aside[:MAX_NAMED]) + (
            f" and {len(self.aside) - MAX_NAMED} more" if len(self.aside) > MAX_NAMED else ""
        )
        changes = "1 change is" if len(self.aside) == 1 else f"{len(self.aside)} changes are"
        return [
            # A model reads this too: it is told who decides, not the command that takes the changes.
            f"{changes} set aside and not in the workspace: {names}. The operator reviews them: set {number} of `toolgate "
            f"workspace list`. The setting {setting} lists what is applied without review."
        ]


class Intake:
    """The layer over one folder. It may be looked at again and again, while the program runs."""

    def __init__(
        self,
        top: Path,
        rule: IntakeRule,
        kept: QuarantineWriter,
        refuses: Callable[[Path], bool],
        max_bytes: int,
        repositories: Iterable[Parts] = (),
        setting: str = "sandbox.bring_in",
    ) -> None:
        """`refuses`: paths that are not brought in whatever the rule says. `max_bytes`: what is read at most of a layer, in
        which files with holes may seem larger than the layer. `repositories`: where the program, which is git, may write
        what a repository consists of, but not what git is set up by. `setting`: the one to name for more patterns."""
        self._repositories = tuple(repositories)
        self._setting = setting
        self.top = top
        self.kept = kept
        self._rule = rule
        self._refuses = refuses
        self._max_bytes = max_bytes
        self._left = 0
        self._seen: dict[Parts, tuple[Signature, Signature]] = {}
        """Paths that were dealt with: as each was in the layer, and what the workspace had in its place afterwards."""
        self._met: set[Parts] = set()
        """Paths in the layer, as far as it was looked at."""
        self._emptied: set[Parts] = set()
        """Folders that the program deleted and made anew."""
        self._taken = IntakeReport(0, [])
        self._plain_folders: dict[Parts, bool] = {}
        self._says_deleted = True
        self.withheld: str | None = None
        """The reason to bring in nothing more, however harmless: what the program writes may be what it was not to see."""

    def look(self, upper: int, deleted: Iterable[Parts] | None = None) -> IntakeReport:
        """Deal with what has changed in the layer since the last look. For a thread. `deleted`: what the program deleted,
        where the layer itself does not say so, and could be made to say anything."""
        self._says_deleted = deleted is None
        self._left = self._max_bytes
        self._plain_folders = {}
        self._taken = IntakeReport(0, [])
        self._met = set()
        self.kept.sync()
        self._folder(upper, ())
        for parts in deleted or ():
            self._deleted(parts, time_ns())
        self._seen = {parts: seen for parts, seen in self._seen.items() if parts in self._met}
        self.kept.save()
        return self._taken

    def settle(self, upper: int, deleted: Iterable[Parts] | None = None) -> list[str]:
        """The same; gives what is to be said of it."""
        try:
            return self.look(upper, deleted).words(self.kept.listed.id, self._setting)
        except OSError as error:
            return [f"not all that was changed could be looked at, and the rest is not in the workspace: {error}"]

    def yield_to_host(self, upper: int) -> None:
        """Take out of the layer what the host has changed since it was dealt with, so that the program sees the host's."""
        for parts, (_, before) in list(self._seen.items()):
            if _signature(self.top.joinpath(*parts)) != before:
                with suppress(OSError), _inner_folder(upper, parts[:-1]) as folder:
                    os.unlink(parts[-1], dir_fd=folder)
                del self._seen[parts]

    # -- what is in the layer

    def _folder(self, folder: int, parts: Parts) -> None:
        names = sorted(os.listdir(folder))
        for name in names:
            with suppress(FileNotFoundError):
                self._entry(folder, (*parts, name), os.stat(name, dir_fd=folder, follow_symlinks=False))
        if parts and parts not in self._emptied and self._says_deleted and _is_opaque(folder):
            self._emptied.add(parts)
            at = os.fstat(folder).st_ctime_ns
            for name in sorted(self._names_there(parts).difference(names)):
                self._deleted((*parts, name), at)

    def _names_there(self, parts: Parts) -> set[str]:
        with suppress(OSError, PathEscape), self._above(parts) as above, opened(parts[-1], FOLDER_FLAGS, above) as there:
            return set(os.listdir(there))  # noqa: PTH208 - of an open folder
        return set()

    def _is_there(self, parts: Parts) -> bool:
        with suppress(OSError, PathEscape), self._above(parts) as above:
            os.stat(parts[-1], dir_fd=above, follow_symlinks=False)
            return True
        return False

    @contextmanager
    def _above(self, parts: Parts, *, make: bool = False) -> Iterator[int]:
        """The folder of the workspace that something is in, open. What is behind a link is not there: the program did not
        see it, and is not to learn of it from what is said of its changes."""
        above, _ = folder_beneath(self.top, self.top, os.path.join(*parts), make=make)  # noqa: PTH118
        try:
            yield above
        finally:
            os.close(above)

    def _entry(self, folder: int, parts: Parts, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            self._inner(folder, parts)
            return
        sign = (status.st_ino, status.st_ctime_ns, status.st_size)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0 and self._says_deleted:
            self._once(parts, sign, lambda parts: self._deleted(parts, status.st_ctime_ns))
        elif stat.S_ISREG(status.st_mode):
            self._once(parts, sign, lambda parts: self._file(folder, parts))
        elif stat.S_ISLNK(status.st_mode):
            self._once(parts, sign, lambda parts: self._link(folder, parts))
        else:
            self._once(parts, sign, lambda parts: self._set_aside(parts, "other", "it is no file"))

    def _once(self, parts: Parts, sign: tuple[int, ...], deal: Callable[[Parts], None]) -> None:
        self._met.add(parts)
        if self._seen.get(parts, ((-1,), None))[0] == sign:
            return
        deal(parts)
        self._seen[parts] = sign, _signature(self.top.joinpath(*parts))

    def _inner(self, folder: int, parts: Parts) -> None:
        if len(parts) > MAX_DEPTH or len("/".join(parts)) > MAX_PATH:
            self._once(parts, (), lambda parts: self._set_aside(parts, "other", "it is too deep"))
            return
        with ExitStack() as held:
            try:
                inner = held.enter_context(opened(parts[-1], FOLDER_FLAGS, folder))
            except OSError:
                self._once(parts, (), lambda parts: self._set_aside(parts, "other", "it cannot be read"))
                return
            if not self._is_there(parts):
                self._once(parts, (), lambda parts: self._new_folder(inner, parts))
            self._folder(inner, parts)

    # -- what is done about it

    def _new_folder(self, inner: int, parts: Parts) -> None:
        """One with something in it is made when that is brought in."""
        if os.listdir(inner):
            return
        if self.withheld is not None:
            self._set_aside(parts, "folder", self.withheld)
            return
        if self._in_repository(parts) is None and not (is_plain(parts) and self._is_plain_place(parts)):
            self._set_aside(parts, "folder", "its name is hidden, or that of a folder for packages")
            return
        with self._errors(parts, "folder"), self._above(parts, make=True) as folder:
            make_folder(parts[-1], folder)

    def _file(self, folder: int, parts: Parts) -> None:
        with ExitStack() as held:
            try:
                content = held.enter_context(opened(parts[-1], FILE_FLAGS, folder))
            except OSError:
                self._set_aside(parts, "other", "it cannot be read")
                return
            status = os.fstat(content)
            if not stat.S_ISREG(status.st_mode) or self._is_unchanged(parts, content, status):
                return
            if status.st_size > self._left:
                self._set_aside(parts, "other", "it is more than the program may write in all", status)
                return
            self._left -= status.st_size
            why = self._not_brought_in(parts, status)
            if why is not None:
                self._set_aside(parts, "file", why, status, content)
                return
            with self._errors(parts, "file", status, content):
                self._bring_in(parts, content, status)

    def _bring_in(self, parts: Parts, content: int, status: os.stat_result) -> None:
        with self._above(parts, make=True) as folder:
            mode = status.st_mode & 0o664 | 0o600  # what everybody may write, everybody may put something into
            with suppress(FileNotFoundError):
                mode = stat.S_IMODE(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
            replace(folder, parts[-1], content, mode, status.st_size)
        self._taken = self._taken._replace(brought=self._taken.brought + 1)

    def _deleted(self, parts: Parts, at: int) -> None:
        path = self.top.joinpath(*parts)
        if not os.path.lexists(path):
            return
        files = list(_files(path, parts))
        if any(_is_newer(_status(found), at) for _, found in files):
            return  # somebody made it anew
        if self.withheld is not None or not all(self._may_delete(below, found) for below, found in files):
            self._set_aside(parts, "deleted", self.withheld or "what is deleted is no data")
            return
        with self._errors(parts, "deleted"), self._above(parts) as folder:
            delete(parts[-1], folder)

    def _may_delete(self, parts: Parts, path: Path) -> bool:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return False
        inside = self._in_repository(parts)
        if inside is not None:
            return path.is_dir() or REPOSITORY.admits(inside)
        return is_plain(parts) if path.is_dir() else self._rule.admits(parts) and self._is_fit(parts)

    def _link(self, folder: int, parts: Parts) -> None:
        target = os.readlink(parts[-1], dir_fd=folder)
        why = "it is a link" if stays_inside("/".join(parts), target) else "it is a link that leads out of the workspace"
        self._set_aside(parts, "link", why, target=target)

    # -- the rule

    def _not_brought_in(self, parts: Parts, status: os.stat_result) -> str | None:
        """Why a file is not brought in; None if it is."""
        if self.withheld is not None:
            return self.withheld
        inside = self._in_repository(parts)
        if not (self._rule.admits(parts) if inside is None else REPOSITORY.admits(inside)):
            return f"no pattern of {self._setting} matches it" if inside is None else "git may be set up by it"
        if inside is None and not self._is_fit(parts):
            return "it is where programs are kept, or what Toolgate is set up by"
        before = _status(self.top.joinpath(*parts))
        if before is not None and not stat.S_ISREG(before.st_mode):
            return "it stands in the place of something that is no file"
        if _is_newer(before, status.st_ctime_ns):
            return "the workspace's own was changed since"
        if (before or status).st_mode & 0o111:
            return "it can be executed"
        return None

    def _in_repository(self, parts: Parts) -> Parts | None:
        """A path as seen from the repository that it is in."""
        around = (known for known in self._repositories if parts[: len(known)] == known and len(parts) > len(known))
        return next((parts[len(known) :] for known in around), None)

    def _is_fit(self, parts: Parts) -> bool:
        return self._is_plain_place(parts) and not self._refuses(self.top.joinpath(*parts))

    def _is_plain_place(self, parts: Parts) -> bool:
        """True if no folder that it is in is a virtual environment or a repository."""
        return all(self._is_plain_folder(parts[:depth]) for depth in range(len(parts)))

    def _is_plain_folder(self, parts: Parts) -> bool:
        if parts not in self._plain_folders:
            path = self.top.joinpath(*parts)
            names: set[str] = set()
            with suppress(OSError):
                names = {entry.name.lower() for entry in path.iterdir()}
            self._plain_folders[parts] = not (is_environment(names) or is_repository(names) or path.is_symlink())
        return self._plain_folders[parts]

    def _is_unchanged(self, parts: Parts, content: int, status: os.stat_result) -> bool:
        """True if the workspace has the same there: a program may only have touched it."""
        with suppress(OSError, PathEscape), self._above(parts) as above, opened(parts[-1], FILE_FLAGS, above) as there:
            return _is_same(there, content, status.st_size)
        return False

    # -- what is set aside

    def _set_aside(
        self, parts: Parts, kind: Kind, why: str, status: os.stat_result | None = None, content: int | None = None,
        target: str | None = None,
    ) -> None:  # fmt: skip
        path = "/".join(parts).encode("utf-8", "backslashreplace").decode()
        mode, size = (0o644, 0) if status is None else (stat.S_IMODE(status.st_mode) & 0o777, status.st_size)
        self.kept.add(QuarantinedChange(path, kind, why, mode=mode, size=size, target=target), content)
        self._taken.aside.append(path if path.isprintable() else ascii(path))

    @contextmanager
    def _errors(
        self, parts: Parts, kind: Kind, status: os.stat_result | None = None, content: int | None = None
    ) -> Iterator[None]:
        """Sets aside what cannot be done in the workspace."""
        try:
            yield
        except (OSError, PathEscape) as error:
            self._set_aside(parts, kind, f"it could not be brought in: {error}", status, content)


# -- small things


@contextmanager
def _inner_folder(upper: int, parts: Parts) -> Iterator[int]:
    with ExitStack() as way:
        for part in parts:
            upper = way.enter_context(opened(part, FOLDER_FLAGS, upper))
        yield upper


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError:
        return False


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _is_newer(found: os.stat_result | None, moment: int) -> bool:
    """True if a file of the workspace was changed after a moment. Nobody can choose that time, unlike the others."""
    return found is not None and not stat.S_ISDIR(found.st_mode) and found.st_ctime_ns > moment


def _signature(path: Path) -> Signature:
    found = _status(path)
    return None if found is None else (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def _files(path: Path, parts: Parts) -> Iterator[tuple[Parts, Path]]:
    yield parts, path
    if path.is_dir() and not path.is_symlink():
        for below in path.iterdir():
            yield from _files(below, (*parts, below.name))


def _is_same(one: int, other: int, size: int) -> bool:
    if os.fstat(one).st_size != size or not stat.S_ISREG(os.fstat(one).st_mode):
        return False
    offset = 0
    while offset < size:
        piece = os.pread(one, 1 << 20, offset)
        if not piece or piece != os.pread(other, 1 << 20, offset):
            return False
        offset += len(piece)
    return True
