"""Deletes files, links and folders of the folder that a call works in.

All that a folder holds is judged first, and then deleted by name: what comes to it meanwhile stays, and the folder with it.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.pipeline.context import InvokeContext
from toolgate.screening.safe_open import PathEscape
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, explained, folder_of, refused
from toolgate.tools.file_changes import change, place_of

FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
MAX_DELETED_ENTRIES = 5_000
MAX_DELETED_DEPTH = 100


class Deleted(TypedDict):
    """How many files and folders were deleted."""

    success: bool
    deleted: int


async def delete(ctx: InvokeContext, path: str) -> Deleted:
    """Delete a file, a link, or a folder with all that is in it."""
    work = await folder_of(ctx)
    place = await to_thread(place_of, work, path)
    paths = await to_thread(_deletable, work, path, place)
    await change(ctx, work, place, lambda: _delete(work, paths), makes=False)
    ctx.used(path)
    return {"success": True, "deleted": len(paths)}


def _deletable(work: CallFolder, path: str, place: Path) -> list[str]:
    """All that is deleted with a path, inner before outer, as paths in the working directory. Raises if one of it may not
    be, so that nothing is. What comes to a folder afterwards makes the deletion fail."""
    if place == work.folder or not place.is_relative_to(work.folder):
        raise refused("it is the working directory itself")
    top = str(place.relative_to(work.folder))
    with explained(path), work.parent(top) as (folder, name):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            _check_link(work, path)
        elif stat.S_ISDIR(found.st_mode):
            inner = list(islice(_inside(work, name, folder, top, 1), MAX_DELETED_ENTRIES + 1))
            if len(inner) > MAX_DELETED_ENTRIES:
                raise InvalidInput(f"{path} holds more than {MAX_DELETED_ENTRIES:,} files and folders.")
            return [*reversed(inner), top]
        elif not stat.S_ISREG(found.st_mode):
            raise PathEscape("it is a device, a pipe or a socket, not a file")
    return [top]


def _check_link(work: CallFolder, path: str) -> None:
    """Raise PathEscape for a link that leads out: to keep it, the journal would have to look at what it leads to."""
    real = Path(os.path.realpath(work.folder / path))
    if not real.is_relative_to(work.folder):
        raise PathEscape("it is a link that leads out of the folder that the tool works in")


def _inside(work: CallFolder, name: str, folder: int, path: str, depth: int) -> Iterator[str]:
    from toolgate.screening.folder_search import FolderLookups, slashed

    if depth > MAX_DELETED_DEPTH:
        raise InvalidInput(f"There are more than {MAX_DELETED_DEPTH} folders within each other.")
    opened = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        with os.scandir(opened) as entries:
            names = sorted(_kept_kinds(islice(entries, MAX_DELETED_ENTRIES + 1)))
        looks = FolderLookups()
        for inner, is_folder in names:
            place = work.folder / path / inner
            found = work.places.rules.named(slashed(str(place)), looks, writing=True, holder=is_folder, surely=is_folder)
            if found is not None:
                raise refused(f"it holds a place for {found}")
            work.judge_place(place)
            yield f"{path}/{inner}"
            if is_folder:
                yield from _inside(work, inner, opened, f"{path}/{inner}", depth + 1)
    finally:
        os.close(opened)


def _kept_kinds(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, bool]]:
    """Names of what is in a folder, and whether they are folders; raises for what the journal can't keep."""
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not (is_folder or entry.is_symlink() or entry.is_file(follow_symlinks=False)):
            raise PathEscape("it holds a device, a pipe or a socket")
        yield entry.name, is_folder


def _delete(work: CallFolder, paths: list[str]) -> None:
    for path in paths:
        with explained(path), work.parent(path) as (folder, name):
            work.judge_opened(folder)
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            (os.rmdir if is_folder else os.unlink)(name, dir_fd=folder)
            if path == paths[-1]:
                os.fsync(folder)
