"""`read_file`, `file_read`, `write_file`, `list_directory`, `create_directory`: files of the folder that a call works in.

A path is opened, not compared: the kernel is asked not to leave the folder, and what was opened is judged again. Nothing is
written through a link. What is about to change is kept by the journal first, and a file is put in place whole.
"""

import base64
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.model import Capability
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.screening.safe_open import PathEscape, make_folder, name_of, own_like
from toolgate.tasks import complete
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, explained, folder_of, refused
from toolgate.undo import Journal

MAX_READ_BYTES = 10_000_000
"""A file larger than this is not read as a whole."""
MAX_LISTED_ENTRIES = 10_000
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

Kind = Literal["file", "directory", "link", "other"]


class Content(TypedDict):
    """What is in a file."""

    content: str
    size: int
    mimeType: str


class Written(TypedDict):
    """What was written."""

    success: bool
    bytesWritten: int


class Item(TypedDict):
    """One thing in a folder. The size is in bytes, and that of files only; the time is UTC."""

    name: str
    type: Kind
    size: int | None
    modified: str


class Listing(TypedDict):
    """What is in a folder, by name; or the one file that was asked for."""

    path: str
    entries: list[Item]
    truncated: bool


class FolderMade(TypedDict):
    """The folder, and whether it was made now."""

    path: str
    created: bool


# -- reading


@tool(
    tier="read_only",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="read", description="Read file contents")],
)
async def read_file(ctx: InvokeContext, path: str, encoding: Literal["utf8", "base64"] = "utf8") -> Content:
    """Read a file of the working directory.

    Args:
        path: File path to read, relative to the working directory.
        encoding: utf8 for text; base64 for anything else.
    """
    return await _read_file(ctx, path, encoding)


@tool(
    tier="read_only",
    category="filesystem",
    tags=["executor", "files"],
    capabilities=[Capability(action="read", description="Read file contents")],
)
async def file_read(ctx: InvokeContext, path: str) -> Content:
    """Read file content: a text file of the working directory.

    Args:
        path: The file, relative to the working directory.
    """
    return await _read_file(ctx, path, "utf8")


async def _read_file(ctx: InvokeContext, path: str, encoding: str) -> Content:
    content = await to_thread(_content, await folder_of(ctx), path, encoding)
    ctx.used(path)
    return content


def _content(work: CallFolder, path: str, encoding: str) -> Content:
    data = work.read(path, MAX_READ_BYTES)
    kind = _mime_type(path)
    if encoding == "base64":
        return {
            "content": base64.b64encode(data).decode("ascii"), "size": len(data),
            "mimeType": kind or "application/octet-stream",
        }  # fmt: skip
    try:
        return {"content": data.decode(), "size": len(data), "mimeType": kind or "text/plain"}
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is no text in UTF-8, from byte {error.start} on.", suggestion='Read it with encoding "base64".'
        ) from None


def _mime_type(path: str) -> str | None:
    from mimetypes import guess_type

    return guess_type(Path(path).name, strict=False)[0]


# -- listing


@tool(
    tier="read_only",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="list", description="List what is in a folder")],
)
async def list_directory(ctx: InvokeContext, path: str = ".", self: bool = False) -> Listing:
    """List what is in a folder of the working directory: names, kinds, sizes and times.

    Args:
        path: The folder, relative to the working directory. Of a file, the file itself is listed.
        self: Whether of a folder, too, only the folder itself is listed.
    """
    listing = await to_thread(_listing, await folder_of(ctx), path, self)
    ctx.used(path)
    return listing


def _listing(work: CallFolder, path: str, alone: bool) -> Listing:
    from toolgate.screening.folder_search import FolderLookups, slashed

    with work.opened(path) as opened:
        found = work.places.rules.named(slashed(name_of(opened) or ""), FolderLookups(), surely=True)
        if found is not None:
            raise refused(f"it leads to a place for {found}")
        status = os.fstat(opened)
        if alone or not stat.S_ISDIR(status.st_mode):
            return {"path": path, "entries": [_item(Path(path).name or ".", status)], "truncated": False}
        with os.scandir(opened) as entries:
            items = [_item(_shown(entry.name), status) for entry, status in _with_status(entries)]
    items.sort(key=lambda item: item["name"])
    return {"path": path, "entries": items[:MAX_LISTED_ENTRIES], "truncated": len(items) > MAX_LISTED_ENTRIES}


def _with_status(entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    for entry in islice(entries, MAX_LISTED_ENTRIES + 1):
        try:
            yield entry, entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it is gone by now


def _item(name: str, status: os.stat_result) -> Item:
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    modified = datetime.fromtimestamp(min(max(status.st_mtime, 0), 253_402_300_799), UTC)
    return {
        "name": name, "type": kind, "size": status.st_size if kind == "file" else None,
        "modified": modified.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }  # fmt: skip


def _shown(name: str) -> str:
    """A name that is no text in UTF-8, as text all the same."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# -- writing


@tool(
    tier="write",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="write", description="Write content to file", requires_confirmation=True)],
)
async def write_file(ctx: InvokeContext, path: str, content: str, createDirs: bool = True) -> Written:
    """Write a text file in the working directory, in place of what is there. `toolgate undo` puts that back.

    Args:
        path: The file, relative to the working directory.
        content: All that the file shall hold.
        createDirs: Whether folders that are missing are made.
    """
    data = content.encode()
    work = await folder_of(ctx)
    place = await to_thread(_place, work, path)
    await to_thread(_check_file, work, path)
    async with ctx.get(Journal).changing(ctx.call, place):
        # A thread can't be stopped, and what the journal puts back must not be written afterwards.
        await complete(to_thread(_write, work, path, data, createDirs))
        await to_thread(work.judge_place, place)  # calls at the same time may have made a repository together
    ctx.used(path)
    return {"success": True, "bytesWritten": len(data)}


@tool(
    tier="write",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="create", description="Make a folder")],
)
async def create_directory(ctx: InvokeContext, path: str, parents: bool = True) -> FolderMade:
    """Make a folder in the working directory. One that is there already will do.

    Args:
        path: The folder, relative to the working directory.
        parents: Whether the folders that it is in are made too, if they are missing.
    """
    work = await folder_of(ctx)
    place = await to_thread(_place, work, path)
    if await to_thread(_is_there, work, path):
        return {"path": path, "created": False}
    async with ctx.get(Journal).changing(ctx.call, place):
        await complete(to_thread(_make, work, path, parents))
        await to_thread(work.judge_place, place)
    ctx.used(path)
    return {"path": path, "created": True}


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
