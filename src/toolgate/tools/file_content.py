"""Reads and lists files of the folder that a call works in, for every tool that does so.

A path is opened, not compared: the kernel is asked not to leave the folder, and what was opened is judged again.
"""

import base64
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.pipeline.context import InvokeContext
from toolgate.screening.safe_open import name_of
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, folder_of, refused

MAX_READ_BYTES = 10_000_000
"""A file larger than this is not read as a whole."""
MAX_LISTED_ENTRIES = 10_000

Kind = Literal["file", "directory", "link", "other"]
KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


class Content(TypedDict):
    """What is in a file."""

    content: str
    size: int
    mimeType: str


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


class Existence(TypedDict):
    """Whether something stands at a path, and what."""

    exists: bool
    type: Kind | None


# -- reading


async def read_content(ctx: InvokeContext, path: str, encoding: str = "utf8") -> Content:
    """The content of a file, as text or as base64."""
    content = await to_thread(_content, await folder_of(ctx), path, encoding)
    ctx.used(path)
    return content


def as_text(path: str, data: bytes, suggestion: str = 'Read it with encoding "base64" (read_file).') -> str:
    """Bytes as text; raises InvalidInput if they are none in UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is no text in UTF-8, from byte {error.start} on.", suggestion=suggestion) from None


def _content(work: CallFolder, path: str, encoding: str) -> Content:
    data = work.read(path, MAX_READ_BYTES)
    kind = _mime_type(path)
    if encoding == "base64":
        return {
            "content": base64.b64encode(data).decode("ascii"), "size": len(data),
            "mimeType": kind or "application/octet-stream",
        }  # fmt: skip
    return {"content": as_text(path, data), "size": len(data), "mimeType": kind or "text/plain"}


def _mime_type(path: str) -> str | None:
    from mimetypes import guess_type

    return guess_type(Path(path).name, strict=False)[0]


# -- listing


async def list_folder(ctx: InvokeContext, path: str, *, alone: bool = False) -> Listing:
    """The entries of a folder; `alone`: only the folder itself."""
    listing = await to_thread(_listing, await folder_of(ctx), path, alone)
    ctx.used(path)
    return listing


async def existence(ctx: InvokeContext, path: str) -> Existence:
    """What stands at a path. Where it leads out of the folder, or to what no tool may open, that is refused, not told."""
    found = await to_thread(_existence, await folder_of(ctx), path)
    ctx.used(path)
    return found


def _existence(work: CallFolder, path: str) -> Existence:
    try:
        with work.opened(path) as opened:
            judge_name(work, opened)
            return {"exists": True, "type": _kind(os.fstat(opened))}
    except InvalidInput as error:
        if error.details == {"missing": True}:
            return {"exists": False, "type": None}
        raise


def judge_name(work: CallFolder, opened: int) -> None:
    """Raise Denied if what is open is, by the name that the system knows it by, what no tool may see."""
    from toolgate.screening.folder_search import FolderLookups, slashed

    found = work.places.rules.named(slashed(name_of(opened) or ""), FolderLookups(), surely=True)
    if found is not None:
        raise refused(f"it leads to a place for {found}")


def _listing(work: CallFolder, path: str, alone: bool) -> Listing:
    with work.opened(path) as opened:
        judge_name(work, opened)
        status = os.fstat(opened)
        if alone or not stat.S_ISDIR(status.st_mode):
            return {"path": path, "entries": [_item(Path(path).name or ".", status)], "truncated": False}
        with os.scandir(opened) as entries:
            items = [_item(shown(entry.name), status) for entry, status in _with_status(entries)]
    items.sort(key=lambda item: item["name"])
    return {"path": path, "entries": items[:MAX_LISTED_ENTRIES], "truncated": len(items) > MAX_LISTED_ENTRIES}


def _with_status(entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    for entry in islice(entries, MAX_LISTED_ENTRIES + 1):
        try:
            yield entry, entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it is gone by now


def _kind(status: os.stat_result) -> Kind:
    return KINDS.get(stat.S_IFMT(status.st_mode), "other")


def _item(name: str, status: os.stat_result) -> Item:
    kind = _kind(status)
    modified = datetime.fromtimestamp(min(max(status.st_mtime, 0), 253_402_300_799), UTC)
    return {
        "name": name, "type": kind, "size": status.st_size if kind == "file" else None,
        "modified": modified.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }  # fmt: skip


def shown(name: str) -> str:
    """A name that is no text in UTF-8, as text all the same."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
