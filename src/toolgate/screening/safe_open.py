"""Opening a file without being led astray, and telling what was opened.

To read below a root, the kernel itself is asked not to leave it (`openat2` with RESOLVE_BENEATH); where it can't, the
folders are walked one by one, following no link. To write, they always are: a link is never written through. Nothing here
knows which files are sensitive.
"""

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
OPEN_FLAGS |= getattr(os, "O_BINARY", 0)
"""Not blocking, so that a pipe put in the file's place can't hold us up."""
OPENAT2 = 437
"""The number of the system call, the same on all machines that Python runs on."""
BENEATH_WITHOUT_MAGIC = 0x08 | 0x02
TRIES = 20
"""The kernel says EAGAIN when folders are moved about while it looks."""


ESCAPE_ADVICE = (
    "Name a file below the working directory, by a path relative to it. "
    "Whoever runs Toolgate chooses that directory (--workspace)."
)


class PathEscape(Exception):
    """The path leads out of the folder that it must stay in."""


def open_plainly(base: Path, path: str) -> int:
    """A file that may be anywhere, relative to a folder."""
    return os.open(os.path.join(base, path), OPEN_FLAGS)  # noqa: PTH118 - Path would fold the spelling


def open_beneath(root: Path, base: Path, path: str) -> int:
    """A file that must be inside of `root` when it is opened; relative to `base`, which is `root` or inside of it."""
    top = os.path.realpath(root)
    inside = _relative(top, root, os.path.join(base, path))  # noqa: PTH118
    if not hasattr(os, "O_DIRECTORY"):
        return _open_and_compare(top, inside)
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        opened = _openat2(folder, inside)
        return opened if opened is not None else _walk(folder, top, inside)
    finally:
        os.close(folder)


def folder_beneath(root: Path, base: Path, path: str, *, make: bool = False) -> tuple[int, str]:
    """The folder of what is to be written, opened, and its name in there. No part of the way may be a link. `make`: folders
    that are missing are made; raises FileNotFoundError otherwise, and PathEscape for a path that leads out of the root."""
    if not hasattr(os, "O_DIRECTORY"):
        raise OSError(errno.ENOTSUP, "folders cannot be opened on this system")
    top = os.path.realpath(root)
    inside = os.path.normpath(_relative(top, root, os.path.join(base, path)))  # noqa: PTH118
    parts = Path(inside).parts
    if ".." in parts:
        raise PathEscape("it leads out of the folder that the tool works in")
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = _enter(here, part, make)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here, parts[-1] if parts else "."


def _enter(folder: int, name: str, make: bool) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            return os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
            make_folder(name, folder)
            return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(name, folder)):
            raise PathEscape("a link stands in its way, and nothing is written through a link") from None
        raise


def make_folder(name: str, folder: int) -> None:
    """Makes a folder in an open one, for whoever owns that: it matters where Toolgate is root and the folder is not its own.
    One that appears meanwhile will do."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=folder)
        own_like(name, folder)


def own_like(name: str, folder: int, replaced: os.stat_result | None = None) -> None:
    """Gives something that was just made in a folder to whoever owns what it replaces, or else the folder, if not us."""
    owner = replaced or os.fstat(folder)
    if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def name_of(opened: int) -> str | None:
    """The path of an open file, as the system knows it; None if it can't tell."""
    try:
        if sys.platform == "linux":
            name = os.readlink(f"/proc/self/fd/{opened}")  # noqa: PTH115
            return name if name.startswith("/") else None
        if sys.platform == "darwin":
            from fcntl import fcntl

            return os.fsdecode(fcntl(opened, 50, b"\0" * 1024).partition(b"\0")[0])  # F_GETPATH
        if sys.platform == "win32":
            return _final_path(opened)
    except OSError:
        return None
    return None


def _relative(top: str, root: Path, path: str) -> str:
    """A path as seen from the root. Only its beginning is looked at; whatever links and `..` follow is for the kernel."""
    for start in (str(root), os.path.abspath(root), top):  # noqa: PTH100
        if path == start or path.startswith(start.rstrip(os.sep) + os.sep):
            return path[len(start) :].lstrip(os.sep) or "."
    raise PathEscape("it is outside of the folder that the tool works in")


def _openat2(folder: int, path: str) -> int | None:
    """None where the system has no such call."""
    if sys.platform != "linux":
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    how = (ctypes.c_uint64 * 3)(OPEN_FLAGS, 0, BENEATH_WITHOUT_MAGIC)
    for _ in range(TRIES):
        opened: int = library.syscall(OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        number = ctypes.get_errno()
        if opened >= 0:
            return opened
        if number in (errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL):
            return None
        if number in (errno.EXDEV, errno.ELOOP):
            raise PathEscape("it leads out of the folder that the tool works in")
        if number != errno.EAGAIN:
            raise OSError(number, os.strerror(number), path)
    raise PathEscape("what it leads to keeps changing")


def _walk(folder: int, top: str, path: str) -> int:
    """Resolves first, then opens part by part without following links: a link that appears in between is an error."""
    real = os.path.realpath(os.path.join(top, path))  # noqa: PTH118
    if real != top and not real.startswith(top.rstrip(os.sep) + os.sep):
        raise PathEscape("it leads out of the folder that the tool works in")
    parts = Path(real).relative_to(top).parts or (".",)
    here = os.dup(folder)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        return os.open(parts[-1], OPEN_FLAGS | os.O_NOFOLLOW, dir_fd=here)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathEscape("what it leads to keeps changing") from None
        raise
    finally:
        os.close(here)


def _open_and_compare(top: str, path: str) -> int:
    """Opens, then looks where the file is: for systems where files can't be opened relative to a folder."""
    opened = os.open(os.path.join(top, path), OPEN_FLAGS)  # noqa: PTH118
    name = name_of(opened)
    if name is not None and os.path.normcase(name).startswith(os.path.normcase(top)):
        return opened
    os.close(opened)
    raise PathEscape("it leads out of the folder that the tool works in")


def _final_path(opened: int) -> str | None:
    """Windows: the name of a handle."""
    import ctypes
    import msvcrt

    text = ctypes.create_unicode_buffer(32_768)
    handle = msvcrt.get_osfhandle(opened)  # type: ignore[attr-defined,unused-ignore]
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    length = kernel.GetFinalPathNameByHandleW(handle, text, len(text), 0)
    return text.value.removeprefix("\\\\?\\") if 0 < length < len(text) else None
