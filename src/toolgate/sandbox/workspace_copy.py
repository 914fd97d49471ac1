"""A copy of a workspace for programs that a jail can give no layer: what they change is found by comparing.

It is small, or refused: it is made anew for each run.
"""

import os
import stat
import tempfile
from pathlib import Path

from toolgate.sandbox.jail import ProgramFolder, ResourceLimits, Unavailable
from toolgate.sandbox.untrusted_files import FILE_FLAGS, FOLDER_FLAGS, Parts, copy, opened, remove


class WorkspaceCopy:
    """A copy of a folder without what is hidden in it. For a thread, all of it."""

    def __init__(self, original: ProgramFolder, limits: ResourceLimits) -> None:
        """Raises Unavailable if it would take more than half of what a program may write: the copy counts as written."""
        self._original = original
        self._hidden = frozenset(original.hidden)
        self._bytes, self._files = limits.disk // 2, limits.files // 2
        self._known: dict[Parts, tuple[int, ...]] = {}
        """All that was copied, as it is in the copy: whoever forges that has nothing brought in."""
        self.folder = Path(tempfile.mkdtemp(prefix="toolgate-copy-")).resolve()
        try:
            cwd = None if original.cwd is None else self._place_of(original.cwd)
            self.copy = ProgramFolder(path=self.folder, cwd=cwd)
            self._fill()
        except BaseException:
            self.remove()
            raise

    def _place_of(self, path: Path) -> Path:
        """The path in the copy of something of the original."""
        return self.folder / path.relative_to(self._original.path)

    def remove(self) -> None:
        """May be called twice."""
        remove(self.folder)

    def settle(self) -> tuple[str, ...]:
        """Hand over what was changed, once the program is gone: only that is left of the copy."""
        found = set[Parts]()
        for root, folders, files, number in os.fwalk(self.folder, follow_symlinks=False):
            above = Path(root).relative_to(self.folder).parts
            found.update((*above, name) for name in folders)
            for name in files:
                found.add((*above, name))
                if self._known.get((*above, name)) == _signature(os.stat(name, dir_fd=number, follow_symlinks=False)):
                    os.unlink(name, dir_fd=number)
        gone = self._known.keys() - found
        deleted = [parts for parts in sorted(gone) if parts[:-1] not in gone]
        if self._original.settle is None:
            return ()
        with opened(self.folder, FOLDER_FLAGS) as upper:
            return tuple(self._original.settle(upper, deleted))

    # -- the copy

    def _fill(self) -> None:
        for root, folders, files, number in os.fwalk(self._original.path, follow_symlinks=False):
            folders[:] = [name for name in folders if Path(root, name) not in self._hidden]
            target = self._place_of(Path(root))
            for name in folders:
                self._count(0)
                if stat.S_ISLNK(os.stat(name, dir_fd=number, follow_symlinks=False).st_mode):
                    self._link(name, number, target)
                else:
                    (target / name).mkdir(mode=0o700)
                    self._known[(target / name).relative_to(self.folder).parts] = ()
            for name in files:
                if Path(root, name) not in self._hidden:
                    self._file(name, number, target)

    def _file(self, name: str, folder: int, target: Path) -> None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self._link(name, folder, target)
        elif stat.S_ISREG(status.st_mode):
            self._count(status.st_size)
            with opened(name, FILE_FLAGS, folder) as source, (target / name).open("xb") as file:
                copy(source, file.fileno(), status.st_size)
                os.fchmod(file.fileno(), status.st_mode & 0o777)
            self._note(target / name)

    def _link(self, name: str, folder: int, target: Path) -> None:
        self._count(0)
        (target / name).symlink_to(os.readlink(name, dir_fd=folder))
        self._note(target / name)

    def _note(self, path: Path) -> None:
        self._known[path.relative_to(self.folder).parts] = _signature(path.lstat())

    def _count(self, size: int) -> None:
        self._bytes -= size
        self._files -= 1
        if self._bytes < 0 or self._files < 0:
            raise Unavailable(
                f"{self._original.path} is too large to be copied, and what holds programs here can lay no layer over it.",
                suggestion="Install bubblewrap, raise sandbox.disk_mb, or work in the folder of a session.",
            )


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_mtime_ns, status.st_size
