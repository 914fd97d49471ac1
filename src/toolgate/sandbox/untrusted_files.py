"""Files and folders that untrusted code has written: opened, copied, replaced and removed without following a link."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolgate.screening.safe_open import own_like

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY
FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK
COPY_BYTES = 1 << 20

Parts = tuple[str, ...]
"""A path below a folder."""


@contextmanager
def opened(name: str | bytes | Path, flags: int, folder: int | None = None, mode: int = 0o600) -> Iterator[int]:
    """A descriptor of what has this name, in an open folder if one is given; a link is refused."""
    number = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        yield number
    finally:
        os.close(number)


def copy(source: int, target: int, size: int) -> None:
    """At most so many bytes of one open file into another."""
    offset = 0
    while offset < size:
        piece = os.pread(source, min(COPY_BYTES, size - offset), offset)
        if not piece:
            return
        offset += len(piece)
        while piece:
            piece = piece[os.write(target, piece) :]


def replace(folder: int, name: str, content: int, mode: int, size: int) -> None:
    """Put a file in a folder, in place of what has its name: whole, and through no link."""
    new = f".{secrets.token_hex(8)}.toolgate-new"
    try:
        with opened(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, folder) as target:
            copy(content, target, size)
            os.fchmod(target, mode)
        own_like(new, folder)  # now that it is closed: some file systems say only then that it has no room
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)
        raise


def delete(name: str, folder: int) -> None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with opened(name, FOLDER_FLAGS, folder) as inner:
        for below in os.listdir(inner):  # noqa: PTH208 - of an open folder
            delete(below, inner)
    os.rmdir(name, dir_fd=folder)


def remove(folder: Path) -> None:
    """Remove a folder: however deep, however named, and though it was closed to its owner. Folders are moved to the top
    before they are emptied, so that no path is too long and none nests. Nobody else may be using it any more."""
    with suppress(FileNotFoundError, NotADirectoryError):
        _open_up(folder)
        with opened(folder, FOLDER_FLAGS) as top:
            _empty(top)
        folder.rmdir()


def _open_up(name: str | bytes | Path, folder: int | None = None) -> None:
    """Opens a folder to its owner: the folder itself, for a link may have come in its place. Raises NotADirectoryError."""
    if not hasattr(os, "O_PATH"):  # macOS, which can leave links alone
        os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
        return
    with opened(name, os.O_PATH | os.O_DIRECTORY, folder) as number:
        os.chmod(f"/proc/self/fd/{number}", 0o700)  # noqa: PTH101 - what is open only as a path can't be changed otherwise


def _empty(top: int) -> None:
    moved = 0
    waiting = _clear(top)
    while waiting:
        name = waiting.pop()
        with opened(name, FOLDER_FLAGS, top) as inner:
            for child in _clear(inner):
                moved += 1
                lifted = b"%d.toolgate-removed" % moved
                os.rename(child, lifted, src_dir_fd=inner, dst_dir_fd=top)
                waiting.append(lifted)
        os.rmdir(name, dir_fd=top)


def _clear(folder: int) -> list[bytes]:
    """Unlink its files; give the names of its folders, opened up."""
    folders: list[bytes] = []
    for name in map(os.fsencode, os.listdir(folder)):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            _open_up(name, folder)
            folders.append(name)
        else:
            os.unlink(name, dir_fd=folder)
    return folders


def stays_inside(path: str, target: str) -> bool:
    """True if a link at a path in the workspace leads to something in the workspace, by its text."""
    joined = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - texts
    return not os.path.isabs(target) and joined.partition(os.sep)[0] != ".."  # noqa: PTH117
