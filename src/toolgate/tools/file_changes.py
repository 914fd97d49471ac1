"""Writes, edits and makes files and folders of the folder that a call works in, for every tool that does so.

Nothing is written through a link. What is about to change is kept by the journal first, and a file is put in place whole.
"""

import os
import secrets
import stat
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
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


class FolderMade(TypedDict):
    """The folder, and whether it was made now."""

    path: str
    created: bool


# -- what tools do


async def write(ctx: InvokeContext, path: str, content: str, *, make: bool, backup: bool = True) -> Written:
    """Put a file in place of what is there. `make`: folders that are missing are made."""
    data = content.encode()
    work = await folder_of(ctx)
    place = await to_thread(place_of, work, path)
    await to_thread(_check_file, work, path)
    await change(ctx, work, place, lambda: _write(work, path, data, make), backup=backup)
    ctx.used(path)
    return {"success": True, "bytesWritten": len(data)}


async def edit(ctx: InvokeContext, path: str, old: str, new: str, *, every: bool, backup: bool = True) -> Edited:
    """Replace an exact text of a file by another: the one place where it stands, or every one."""
    work = await folder_of(ctx)
    place = await to_thread(place_of, work, path)
    await to_thread(_check_file, work, path)
    await to_thread(_edited, work, path, old, new, every)  # nothing is kept for an edit that can't be made
    made: list[tuple[int, int]] = []

    def replace() -> None:
        data, count = _edited(work, path, old, new, every)
        _write(work, path, data, make=False)
        made.append((len(data), count))

    await change(ctx, work, place, replace, backup=backup)
    ctx.used(path)
    return {"success": True, "bytesWritten": made[0][0], "replacements": made[0][1]}


async def make_directory(ctx: InvokeContext, path: str, *, parents: bool) -> FolderMade:
    """Make a folder, if it is not there yet."""
    work = await folder_of(ctx)
    place = await to_thread(place_of, work, path)
    if await to_thread(_is_there, work, path):
        return {"path": path, "created": False}
    await change(ctx, work, place, lambda: _make(work, path, parents))
    ctx.used(path)
    return {"path": path, "created": True}


async def change(
    ctx: InvokeContext,
    work: CallFolder,
    place: Path,
    make: Callable[[], None],
    *,
    backup: bool = True,
    makes: bool = True,
) -> None:
    """Make a change in a thread, around which the journal keeps what is there."""
    kept: AbstractAsyncContextManager[None] = nullcontext()
    if backup:
        kept = ctx.get(Journal).changing(ctx.call, place, makes=makes, linked=False)
    async with kept:
        # A thread can't be stopped, and what the journal puts back must not be written afterwards.
        await complete(to_thread(make))
        await to_thread(work.judge_place, place)  # calls at the same time may have made a repository together


# -- where


def place_of(work: CallFolder, path: str) -> Path:
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
