"""Looks at what stands at a path, and puts something else there.

A folder is opened component by component, none of which may be a link, and everything is done relative to it: what is
swapped meanwhile can't lead elsewhere. A file is put in place whole, by renaming. Each function does one thing that
can be done again after a crash.
"""

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from io import FileIO
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

CHUNK = 1_048_576
TEMPORARY = ".toolgate-undo-"
"""The beginning of the names of files that are about to be put in place."""
ABSENT, DIRECTORY = "absent", "directory"


def _flags(*names: str) -> int:
    """Flags of `os.open`, as far as this system has them; where folders can't be opened, the first look says so."""
    return sum(getattr(os, f"O_{name}", 0) for name in names)


_SEARCH = _flags("PATH", "DIRECTORY", "NOFOLLOW", "CLOEXEC")
_FOLDER = _flags("DIRECTORY", "NOFOLLOW", "CLOEXEC")
_READ = _flags("NOFOLLOW", "NONBLOCK", "CLOEXEC")
_WRITE = _flags("WRONLY", "CREAT", "EXCL", "NOFOLLOW", "CLOEXEC")


class InTheWay(OSError):
    """A link stands where a folder was."""

    def __init__(self, link: Path) -> None:
        super().__init__(errno.ELOOP, f"a link stands in the way, {link}")
        self.link = link


class TooLarge(Exception):
    """What should be kept is larger than it may be."""


class Node(NamedTuple):
    """The thing at a path. Equal states are the same thing: the same content and rights, or the same target."""

    state: str
    mode: int | None = None
    target: str | None = None

    @property
    def kind(self) -> str:
        """absent, file, link, directory, or other (a device, a socket)."""
        return self.state.partition(":")[0]


def place_of(path: str | os.PathLike[str]) -> Path:
    """A path as it is kept: absolute, its folder without links; its last part is what it is, perhaps a link itself."""
    given = Path.cwd() / path
    if given.name in ("", ".."):
        given = real(given)
    return real(given.parent) / given.name


def real(path: Path) -> Path:
    """A path without links; one that leads in circles stays as it is."""
    return Path(os.path.realpath(path))


@contextmanager
def folder_of(path: Path) -> Iterator[int]:
    """The folder of a path, opened. Raises FileNotFoundError if there is none."""
    handle = os.open(path.anchor, _SEARCH)
    try:
        parts = path.parent.parts[1:]
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            inner = _enter(handle, part, Path(path.anchor, *parts[: index + 1]), _FOLDER if last else _SEARCH)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _enter(outer: int, name: str, folder: Path, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=outer)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        if stat.S_ISLNK(os.stat(name, dir_fd=outer, follow_symlinks=False).st_mode):
            raise InTheWay(folder) from None
        raise FileNotFoundError(errno.ENOENT, "its folder is gone", str(folder)) from None


# -- looking


def look(path: Path, among: Collection[Path] = ()) -> Node:
    """Gives what stands there now. Where a link of those paths stands in place of its folder, nothing does."""
    if not path.name:
        return Node(DIRECTORY)
    try:
        with folder_of(path) as folder:
            return _look(path.name, folder)
    except FileNotFoundError:
        return Node(ABSENT)
    except InTheWay as error:
        if error.link in among:
            return Node(ABSENT)
        raise


def _look(name: str, folder: int, copy: Path | None = None, most: int = 0) -> Node:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        target = os.readlink(name, dir_fd=folder)
        return Node(f"link:{target}", None, target)
    if stat.S_ISDIR(found.st_mode):
        return Node(DIRECTORY, mode)
    if not stat.S_ISREG(found.st_mode):
        return Node(f"other:{stat.S_IFMT(found.st_mode):o}", mode)
    handle = os.open(name, _READ, dir_fd=folder)
    with os.fdopen(handle, "rb", buffering=0) as file:
        now = os.fstat(handle)
        if not stat.S_ISREG(now.st_mode):
            raise OSError(errno.EINVAL, "it is no file any more")
        mode = stat.S_IMODE(now.st_mode)
        digest = file_digest(file, sha256).hexdigest() if copy is None else _copy(file, copy, now, most)
    return Node(f"file:{mode:o}:{digest}", mode)


def keep(path: Path, copy: Path, most: int) -> Node:
    """Gives what stands there now; of a file, a copy is put on disk. Raises TooLarge if it has more than `most` bytes."""
    try:
        with folder_of(path) as folder:
            return _look(path.name, folder, copy, most)
    except FileNotFoundError:
        return Node(ABSENT)


def inside(path: Path) -> list[Path]:
    """The content of a folder; empty if it is none. Links are not entered."""
    try:
        with folder_of(path) as folder:
            handle = os.open(path.name, _FOLDER, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return []
        raise
    try:
        return [path / name for name in sorted(os.listdir(handle))]  # noqa: PTH208
    finally:
        os.close(handle)


def below(path: Path) -> Iterator[Path]:
    """All that is in a folder, at any depth, the outer before the inner."""
    for inner in inside(path):
        yield inner
        yield from below(inner)


def is_copy(copy: Path, state: str) -> bool:
    """True if a kept file is still the content of a state."""
    try:
        handle = os.open(copy, _READ)
    except OSError:
        return False
    with os.fdopen(handle, "rb", buffering=0) as file:
        return file_digest(file, sha256).hexdigest() == state.rpartition(":")[2]


def _copy(source: FileIO, copy: Path, of: os.stat_result, most: int) -> str:
    """Copy a file; the copy has its time and its owner, so that nothing else need be noted of them."""
    if of.st_size > most:
        raise TooLarge
    digest = sha256()
    handle = os.open(copy, _WRITE, 0o600)
    try:
        _write(handle, source, of, most=most, digest=digest)
    except BaseException:
        copy.unlink()
        raise
    return digest.hexdigest()


def _write(
    handle: int, source: FileIO, like: os.stat_result, *, mode: int | None = None, most: float = inf, digest: Any = None
) -> None:
    """Writes a file to the disk, with the time and the owner of another."""
    size = 0
    with os.fdopen(handle, "wb") as file:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if size > most:  # it grows
                raise TooLarge
            if digest is not None:
                digest.update(chunk)
            file.write(chunk)
        file.flush()
        if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):
                os.fchown(handle, like.st_uid, like.st_gid)
        if mode is not None:
            os.fchmod(handle, mode)
        os.utime(handle, ns=(like.st_atime_ns, like.st_mtime_ns))
        os.fsync(handle)


# -- putting back


def put_file(path: Path, copy: Path, mode: int) -> None:
    """Put a kept file in place of whatever is there."""
    with folder_of(path) as folder, copy.open("rb", buffering=0) as source:
        temporary = _temporary(path, folder)
        handle = os.open(temporary, _WRITE, 0o600, dir_fd=folder)
        _write(handle, source, os.fstat(source.fileno()), mode=mode)
        _move_in(temporary, path.name, folder)


def put_link(path: Path, target: str) -> None:
    with folder_of(path) as folder:
        temporary = _temporary(path, folder)
        os.symlink(target, temporary, dir_fd=folder)
        _move_in(temporary, path.name, folder)


def put_directory(path: Path) -> None:
    """Make a directory, in place of a file or link if there is one."""
    with folder_of(path) as folder:
        try:
            os.mkdir(path.name, 0o700, dir_fd=folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(path.name, dir_fd=folder)
                os.mkdir(path.name, 0o700, dir_fd=folder)
        os.fsync(folder)


def set_mode(path: Path, mode: int) -> None:
    with folder_of(path) as folder:
        handle = os.open(path.name, _FOLDER, dir_fd=folder)
        try:
            os.fchmod(handle, mode)
        finally:
            os.close(handle)


def remove(path: Path) -> bool:
    """Take away what is there; False if that is a directory with something in it."""
    try:
        with folder_of(path) as folder:
            is_folder = stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)
            (os.rmdir if is_folder else os.unlink)(path.name, dir_fd=folder)
            os.fsync(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def missing_folders(path: Path) -> list[Path]:
    """The folders of a path that are missing, inner before outer."""
    return list(takewhile(lambda folder: look(folder).kind == ABSENT, path.parents))


def make_folders(path: Path) -> None:
    for folder in reversed(missing_folders(path)):
        put_directory(folder)
        set_mode(folder, 0o755)


def _temporary(path: Path, folder: int) -> str:
    """A name beside a path, always the same for it: what a crash left there is taken away."""
    name = TEMPORARY + sha256(path.name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return name


def _move_in(temporary: str, name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=folder)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
