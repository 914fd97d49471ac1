"""What a server has: its lists of tools, prompts, resources and templates, page by page, kept for as long as it allows."""

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

import orjson

from toolgate.jsontext import DEEPEST_DEFINITION, is_deeper
from toolgate.mcp.client.errors import ErrorResponse
from toolgate.mcp.client.model import ListKind
from toolgate.mcp.client.untrusted_text import printable, size
from toolgate.settings import ServerSettings

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import Connection

MAX_LIST_ITEMS = 10_000
"""Things in one list."""
MAX_LIST_PAGES = 1_000
LIST_METHODS: dict[ListKind, tuple[str, str, str]] = {
    "tools": ("tools/list", "tools", "tools"),
    "prompts": ("prompts/list", "prompts", "prompts"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
}
"""Of each: the method, the name of the list in the answer, and the capability."""
KEY_FIELDS: dict[ListKind, str] = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}
"""What each thing in it must have, as text."""
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
FOREVER = float("inf")
MAX_LIST_MESSAGES = 64
"""A whole list may be as long as so many of the longest messages: a server of ten thousand tools has several megabytes."""

logger = logging.getLogger("toolgate.mcp")


async def fetch(connection: "Connection", what: ListKind, settings: ServerSettings) -> tuple[list[dict[str, Any]], float]:
    """All of a list, and for how many seconds it may be kept. Bounded in number, size and time."""
    method, field, capability = LIST_METHODS[what]
    if capability not in connection.about.capabilities and what != "tools":  # some have tools and don't say so
        return [], FOREVER
    found: list[dict[str, Any]] = []
    seconds, cursor, seen, left = FOREVER, None, set[str](), settings.output_bytes * MAX_LIST_MESSAGES
    try:
        async with asyncio.timeout(settings.start_seconds):
            for _ in range(MAX_LIST_PAGES):
                page = await connection.request(method, {"cursor": cursor} if cursor is not None else {}, None)
                items = page.get(field)
                if not isinstance(items, list):
                    raise ErrorResponse(
                        INTERNAL_ERROR, f"The server {connection.name} answered {method} without a list of {field}."
                    )
                left -= _bytes(items, settings.output_bytes)
                found += [one for one in items if isinstance(one, dict) and isinstance(one.get(KEY_FIELDS[what]), str)]
                seconds = min(seconds, _seconds(page, modern=connection.modern))
                cursor = page.get("nextCursor")
                if not isinstance(cursor, str) or cursor in seen or len(found) >= MAX_LIST_ITEMS or left < 0:
                    break
                seen.add(cursor)
    except TimeoutError:
        words = f"The server {connection.name} did not list its {what} within {settings.start_seconds:g} s."
        raise ErrorResponse(INTERNAL_ERROR, words) from None
    except ErrorResponse as error:
        if error.number != METHOD_NOT_FOUND:
            raise
    if left < 0 or len(found) > MAX_LIST_ITEMS:
        logger.warning("server %s lists more %s than are taken (%d, %s)", connection.name, what, MAX_LIST_ITEMS, size(-left))
    return _usable(connection, what, found[:MAX_LIST_ITEMS]), seconds


def _bytes(items: list[Any], most: int) -> int:
    """The size of a page; of one that can't be written as JSON again (too deep), that of the largest message."""
    try:
        return len(orjson.dumps(items))
    except (TypeError, ValueError, RecursionError):
        return most


def _seconds(page: Any, *, modern: bool) -> float:
    """How long a page may be kept. In the old protocol: until the server says that something has changed."""
    milliseconds = page.get("ttlMs")
    if isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool):
        return max(0.0, milliseconds / 1000)
    return 0.0 if modern else FOREVER


def _usable(connection: "Connection", what: ListKind, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the new protocol a tool may say which arguments go into headers; one that says it wrongly is left out."""
    if what != "tools" or not connection.modern:
        return found
    from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

    kept: list[dict[str, Any]] = []
    maps: dict[str, Mapping[tuple[str, ...], str]] = {}
    for tool in found:
        schema = tool.get("inputSchema")
        if is_deeper(schema, DEEPEST_DEFINITION):
            kept.append(tool)  # the registry refuses it, and says why
            continue
        wrong = find_invalid_x_mcp_header(schema)
        if wrong is not None:
            words = printable(f"{tool['name']}: {wrong}", 300)
            logger.warning("server %s: a tool is left out, its x-mcp-header is wrong: %s", connection.name, words)
            continue
        if header_map := x_mcp_header_map(schema):
            maps[tool["name"]] = header_map
        kept.append(tool)
    connection.header_maps = maps
    return kept


class ListCache:
    """The lists of one server, as they were last told."""

    def __init__(self) -> None:
        self._kept: dict[ListKind, tuple[float, list[dict[str, Any]]]] = {}
        self._fetching: dict[ListKind, asyncio.Task[list[dict[str, Any]]]] = {}
        self._changes = 0

    def drop(self, *which: ListKind) -> None:
        """Of these, or of all, something has changed. What is being fetched is not kept."""
        self._changes += 1
        for one in which or tuple(LIST_METHODS):
            self._kept.pop(one, None)
            self._fetching.pop(one, None)

    def kept(self, what: ListKind) -> list[dict[str, Any]] | None:
        """A list, if it may still be used."""
        until, found = self._kept.get(what, (0.0, []))
        return found if monotonic() < until else None

    async def get(
        self, connection: "Connection", what: ListKind, settings: ServerSettings, *, fresh: bool
    ) -> list[dict[str, Any]]:
        """A list; it is asked for once, however many want it."""
        kept = self.kept(what)
        if kept is not None and not fresh:
            return kept
        fetching = self._fetching.get(what)
        if fetching is None or fetching.done() or fresh:
            fetching = asyncio.create_task(self._fetch(connection, what, settings))
            fetching.add_done_callback(_seen)
            self._fetching[what] = fetching
        return await asyncio.shield(fetching)

    async def _fetch(self, connection: "Connection", what: ListKind, settings: ServerSettings) -> list[dict[str, Any]]:
        changes = self._changes
        found, seconds = await fetch(connection, what, settings)
        if changes == self._changes:
            self._kept[what] = (monotonic() + seconds, found)
        return found


def _seen(task: asyncio.Task[list[dict[str, Any]]]) -> None:
    """Whoever asked may be gone when it fails."""
    if not task.cancelled():
        task.exception()
