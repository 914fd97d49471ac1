"""Writes, edits, deletes and makes files and folders of the folder that a call works in, for every tool that does so.

Nothing is written through a link. What is about to change is kept by the journal first, and a file is put in place whole.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from itertools import islice
from pathlib import Path

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.pipeline.context import InvokeContext
from toolgate.screening.safe_open import PathEscape, make_folder, own_like
from toolgate.tasks import complete
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, explained, folder_of, refused
from toolgate.tools.file_content import MAX_READ_BYTES, as_text
from toolgate.undo import Journal

CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
MAX_DELETED_ENTRIES = 5_000
MAX_DELETED_DEPTH = 100
MAX_NAMED_LINES = 5
"""Places of an ambiguous text that are named."""


class Written(TypedDict):
    """What was written."""

    success: bool
    bytesWritten: int


class Edited(TypedDict):
    """What was written, and in how many places."""

    success: bool
    bytesWritten: int
    replacements: int


class Deleted(TypedDict):
    """How many files and folders were deleted."""

    success: bool
    deleted: int


class FolderMade(TypedDict):
    """The folder, and whether it was made now."""

    path: str
    created: bool


# -- what tools do


async def write(ctx: InvokeContext, path: str, content: str, *, make: bool, backup: bool = True) -> Written:
    """Put a file in place of what is there. `make`: folders that are missing are made."""
    data = content.encode()
    work = await folder_of(ctx)
    place = await to_thread(_place, work, path)
    await to_thread(_check_file, work, path)
    await _change(ctx, work, place, lambda: _write(work, path, data, make), backup=backup)
    ctx.used(path)
    return {"success": True, "bytesWritten": len(data)}


async def edit(ctx: InvokeContext, path: str, old: str, new: str, *, every: bool, backup: bool = True) -> Edited:
    """Replace an exact text of a file by another: the one place where it stands, or every one."""
    work = await folder_of(ctx)
    place = await to_thread(_place, work, path)
    await to_thread(_check_file, work, path)
    await to_thread(_edited, work, path, old, new, every)  # nothing is kept for an edit that can't be made
    made: list[tuple[int, int]] = []

    def replace() -> None:
        data, count = _edited(work, path, old, new, every)
        _write(work, path, data, make=False)
        made.append((len(data), count))

    await _change(ctx, work, place, replace, backup=backup)
    ctx.used(path)
    return {"success": True, "bytesWritten": made[0][0], "replacements": made[0][1]}


async def delete(ctx: InvokeContext, path: str) -> Deleted:
    """Delete a file, a link, or a folder with all that is in it."""
    work = await folder_of(ctx)
    place = await to_thread(_place, work, path)
    paths = await to_thread(_deletable, work, path, place)
    await _change(ctx, work, place, lambda: _delete(work, paths), makes=False)
    ctx.used(path)
    return {"success": True, "deleted": len(paths)}


async def make_directory(ctx: InvokeContext, path: str, *, parents: bool) -> FolderMade:
    """Make a folder, if it is not there yet."""
    work = await folder_of(ctx)
    place = await to_thread(_place, work, path)
    if await to_thread(_is_there, work, path):
        return {"path": path, "created": False}
    await _change(ctx, work, place, lambda: _make(work, path, parents))
    ctx.used(path)
    return {"path": path, "created": True}


async def _change(
    ctx: InvokeContext,
    work: CallFolder,
    place: Path,
    change: Callable[[], None],
    *,
    backup: bool = True,
    makes: bool = True,
) -> None:
    """Make a change in a thread, around which the journal keeps what is there."""
    kept: AbstractAsyncContextManager[None] = nullcontext()
    if backup:
        kept = ctx.get(Journal).changing(ctx.call, place, makes=makes)
    async with kept:
        # A thread can't be stopped, and what the journal puts back must not be written afterwards.
        await complete(to_thread(change))
        await to_thread(work.judge_place, place)  # calls at the same time may have made a repository together


# -- where


def _place(work: CallFolder, path: str) -> Path:
    """The path of what is to be written: the journal keeps what is there by that name."""
    work.judge(path, writing=True)
    with explained(path), suppress(FileNotFoundError), work.parent(path):
        pass  # the way there leads out of nothing, as far as it is there
    place = Path(os.path.normpath(work.folder / path))
    if work.places.is_foreign(work.folder, str(place)):
        raise refused("it is Toolgate's own data")
    work.judge_place(place)
    return place


def _check_file(work: CallFolder, path: str) -> None:
    """Raise if what stands at the path can't be replaced by a file."""
    with explained(path), suppress(FileNotFoundError), work.parent(path) as (folder, name):
        _replaceable(name, folder, path)


def _is_there(work: CallFolder, path: str) -> bool:
    """Tells whether the folder is there; raises if something else is."""
    with explained(path), suppress(FileNotFoundError), work.parent(path) as (folder, name):
        _check_folder(name, folder, path)
        return True
    return False


def _check_folder(name: str, folder: int, path: str) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise PathEscape("it is a link, and nothing is written through a link")
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"{path} is there already and is no folder.")


# -- writing


def _write(work: CallFolder, path: str, data: bytes, make: bool) -> None:
    with explained(path), work.parent(path, make=make) as (folder, name):
        work.judge_opened(folder)
        _put(name, folder, data, _replaceable(name, folder, path))


def _replaceable(name: str, folder: int, path: str) -> os.stat_result | None:
    """The status of what stands where a file is to be put; None if nothing does. Raises if it can't be replaced by a
    file."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise PathEscape("it is a link, and nothing is written through a link")
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"{path} is a folder, so no file can be written there.")
    if not stat.S_ISREG(found.st_mode):
        raise PathEscape("it is a device, a pipe or a socket, not a file")
    return found


def _put(name: str, folder: int, data: bytes, before: os.stat_result | None) -> None:
    """Put a file in place whole, with the owner and the rights of the one that it replaces."""
    temporary = f".toolgate-{secrets.token_hex(8)}"
    handle = os.open(temporary, CREATE_FLAGS, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            own_like(temporary, folder, before)
            if before is not None:
                os.fchmod(handle, stat.S_IMODE(before.st_mode) & 0o777)
            os.fsync(handle)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _make(work: CallFolder, path: str, parents: bool) -> None:
    with explained(path), work.parent(path, make=parents) as (folder, name):
        work.judge_opened(folder)
        make_folder(name, folder)
        _check_folder(name, folder, path)


# -- editing


def _edited(work: CallFolder, path: str, old: str, new: str, every: bool) -> tuple[bytes, int]:
    """The bytes of a file once edited, and the number of places. Raises InvalidInput if it is not clear which are meant."""
    text = as_text(path, work.read(path, MAX_READ_BYTES), "Only text can be edited.")
    count = text.count(old)
    if count == 0:
        raise InvalidInput(
            f"The pattern is not in {path}.",
            suggestion="Read the file, and give the text exactly as it stands there, with its spaces and line ends.",
        )
    if count > 1 and not every:
        raise InvalidInput(
            f"The pattern is in {path} {count:,} times (lines {_lines_of(text, old)}).",
            suggestion="Give more of the text around the place that is meant, or set replaceAll to true.",
            details={"matches": count},
        )
    return text.replace(old, new).encode(), count


def _lines_of(text: str, old: str) -> str:
    lines: list[str] = []
    at = text.find(old)
    while at >= 0 and len(lines) < MAX_NAMED_LINES:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(lines) + (" …" if at >= 0 else "")


# -- deleting


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
