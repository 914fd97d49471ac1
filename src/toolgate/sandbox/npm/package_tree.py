"""node_modules as npm left it in its own folder: looked at, and put in the place of the project's.

Whatever is in it was written by others. Nothing runs there any more when it is looked at.
"""

import errno
import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from toolgate.errors import InvalidInput, ToolError
from toolgate.sandbox.untrusted_files import FOLDER_FLAGS, opened, remove
from toolgate.sandbox.workspace_scan import is_repository

NODE_MODULES = "node_modules"
MAX_TREE_DEPTH = 100
PLAIN_MODES = 0o755


class PackageTree:
    """The tree in a folder that npm worked in. For a thread."""

    def __init__(self, folder: Path, max_files: int) -> None:
        self._folder = folder
        self._left = max_files

    def check(self, owner: tuple[int, int] | None) -> None:
        """Raises ToolError if it holds anything but files, folders and links within it. Modes become plain, and all of it
        belongs to `owner`, if one is given."""
        (self._folder / NODE_MODULES).mkdir(mode=0o755, exist_ok=True)  # nothing was installed
        if not stat.S_ISDIR((self._folder / NODE_MODULES).lstat().st_mode):
            raise _refused(NODE_MODULES, "is no folder")
        with opened(self._folder, FOLDER_FLAGS) as top:
            for root, folders, files, number in os.fwalk(NODE_MODULES, follow_symlinks=False, dir_fd=top):
                if root.count("/") > MAX_TREE_DEPTH:
                    raise _refused(root, "is nested too deeply")
                if is_repository({name.lower() for name in (*folders, *files)}) or ".git" in map(str.lower, files):
                    raise _refused(root, "holds a repository of git, which git would obey")
                for name in (*folders, *files):
                    self._entry(root, name, number, owner)
                os.fchmod(number, PLAIN_MODES)
                if owner is not None:
                    os.fchown(number, *owner)

    def _entry(self, root: str, name: str, folder: int, owner: tuple[int, int] | None) -> None:
        self._left -= 1
        if self._left < 0:
            raise ToolError("The packages have more files than may be installed at once.")
        status, path = os.stat(name, dir_fd=folder, follow_symlinks=False), f"{root}/{name}"
        if stat.S_ISLNK(status.st_mode):
            if self._leads_out(path.split("/")[:-1], os.readlink(name, dir_fd=folder)):
                raise _refused(path, "is a link that leads out of node_modules")
        elif stat.S_ISREG(status.st_mode):
            os.chmod(name, status.st_mode & PLAIN_MODES | 0o600, dir_fd=folder)
        elif not stat.S_ISDIR(status.st_mode):
            raise _refused(path, "is neither a file nor a folder")
        if owner is not None:
            os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)

    def _leads_out(self, at: list[str], target: str) -> bool:
        """True if a link in a folder of the tree leads out of it, or by way of another link: its text says nothing then."""
        *between, last = [part for part in target.split("/") if part not in ("", ".")] or ["."]
        for part in between:
            if part != "..":
                at = [*at, part]
            elif len(at) > 1:
                at = at[:-1]
            else:
                return True
            if self._folder.joinpath(*at).is_symlink():
                return True
        return target.startswith("/") or (last == ".." and len(at) == 1)

    def put_in_place(self, project: int) -> None:
        """Replaces node_modules of a project, an open folder: whole, or not at all."""
        new = f".{NODE_MODULES}-{secrets.token_hex(8)}"
        old = f"{new}.old"
        try:
            self._move(new, project)
            with suppress(FileNotFoundError):
                os.rename(NODE_MODULES, old, src_dir_fd=project, dst_dir_fd=project)
            try:
                os.rename(new, NODE_MODULES, src_dir_fd=project, dst_dir_fd=project)
            except OSError:
                with suppress(OSError):
                    os.rename(old, NODE_MODULES, src_dir_fd=project, dst_dir_fd=project)
                raise
        finally:
            for left in (new, old):
                remove(_in(project, left))

    def _move(self, new: str, project: int) -> None:
        try:
            os.rename(self._folder / NODE_MODULES, new, dst_dir_fd=project)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copytree(self._folder / NODE_MODULES, _in(project, new), symlinks=True)
            if os.geteuid() == 0:
                _own_alike(self._folder / NODE_MODULES, _in(project, new))


def check_replaceable(project: int) -> None:
    """Raises InvalidInput if node_modules of a project, an open folder, is no folder of its own."""
    with suppress(FileNotFoundError):
        status = os.stat(NODE_MODULES, dir_fd=project, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise InvalidInput("node_modules is a link or a file, not a folder.", suggestion="Remove it first.")


def _own_alike(source: Path, copy: Path) -> None:
    owner = source.lstat()
    for _, folders, files, number in os.fwalk(copy, follow_symlinks=False):
        os.fchown(number, owner.st_uid, owner.st_gid)
        for name in (*folders, *files):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=number, follow_symlinks=False)


def _in(folder: int, name: str) -> Path:
    """A name in an open folder, for what takes only paths."""
    return Path(f"/proc/self/fd/{folder}/{name}")


def _refused(path: str, why: str) -> ToolError:
    return ToolError(f"The packages were not installed: {path[:200]!r} {why}.", retryable=False)
