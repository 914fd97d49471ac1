"""Removes a folder that untrusted code has filled: however deep, however named, and though it was closed to its owner."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def remove(folder: Path) -> None:
    """Never through links. Folders are moved to the top before they are emptied, so that no path is too long and none nests.

    Nobody else may be using it any more."""
    with suppress(FileNotFoundError, NotADirectoryError):
        folder.chmod(0o700)
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _empty(top)
        finally:
            os.close(top)
        folder.rmdir()


def _empty(top: int) -> None:
    moved = 0
    waiting = _clear(top)
    while waiting:
        name = waiting.pop()
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        try:
            for child in _clear(inner):
                moved += 1
                lifted = b"%d.toolgate-removed" % moved
                os.rename(child, lifted, src_dir_fd=inner, dst_dir_fd=top)
                waiting.append(lifted)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)


def _clear(folder: int) -> list[bytes]:
    """Unlink its files; give the names of its folders, opened up."""
    folders: list[bytes] = []
    for name in map(os.fsencode, os.listdir(folder)):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.chmod(name, 0o700, dir_fd=folder)
            folders.append(name)
        else:
            os.unlink(name, dir_fd=folder)
    return folders
