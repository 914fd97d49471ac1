"""A server's lists of tools, prompts, resources and templates: fetched page by page, cached for as long as it allows."""

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

import orjson

from toolgate.jsontext import MAX_DEFINITION_DEPTH, is_deeper
from toolgate.mcp.client.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, ErrorResponse
from toolgate.mcp.client.model import ListKind
from toolgate.mcp.client.untrusted_text import printable, size
from toolgate.settings import ServerSettings
from toolgate.tasks import finish, start_task

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import Connection

MAX_LIST_ITEMS = 10_000
MAX_LIST_PAGES = 1_000
LIST_METHODS: dict[ListKind, tuple[str, str, str, str]] = {
    "tools": ("tools/list", "tools", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "prompts", "name"),
    "resources": ("resources/list", "resources", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources", "uriTemplate"),
}
"""By list: the method, the field of the response, the capability, and the field that each item must have, as text."""
FOREVER = float("inf")
MAX_LIST_MESSAGES = 64
"""The size of a whole list, in messages of the largest size: ten thousand tools take several megabytes."""

logger = logging.getLogger("toolgate.mcp")


async def fetch(connection: "Connection", what: ListKind, settings: ServerSettings) -> tuple[list[dict[str, Any]], float]:
    """Returns a whole list and the seconds that it may be cached. Bounded in number, size and time."""
    method, field, capability, key = LIST_METHODS[what]
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
                        INTERNAL_ERROR, f"Server {connection.name} answered {method} without a list of {field}."
                    )
                left -= _bytes(items, settings.output_bytes)
                found += [one for one in items if isinstance(one, dict) and isinstance(one.get(key), str)]
                seconds = min(seconds, _seconds(page, modern=connection.modern))
                cursor = page.get("nextCursor")
                if not isinstance(cursor, str) or cursor in seen or len(found) >= MAX_LIST_ITEMS or left < 0:
                    break
                seen.add(cursor)
    except TimeoutError:
        words = f"Server {connection.name} did not list its {what} within {settings.start_seconds:g} s."
        raise ErrorResponse(INTERNAL_ERROR, words) from None
    except ErrorResponse as error:
        if error.number != METHOD_NOT_FOUND:
            raise
    if left < 0 or len(found) > MAX_LIST_ITEMS:
        logger.warning("server %s lists more %s than the limit (%d, %s)", connection.name, what, MAX_LIST_ITEMS, size(-left))
    return _usable(connection, what, found[:MAX_LIST_ITEMS]), seconds


def _bytes(items: list[Any], most: int) -> int:
    """The size of a page; of one that can't be encoded again (too deep), that of the largest message."""
    try:
        return len(orjson.dumps(items))
    except (TypeError, ValueError, RecursionError):
        return most


def _seconds(page: Any, *, modern: bool) -> float:
    """The seconds that a page may be cached. In protocols before 2026-07-28: until the server says that it changed."""
    milliseconds = page.get("ttlMs")
    if isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool):
        return max(0.0, milliseconds / 1000)
    return 0.0 if modern else FOREVER


def _usable(connection: "Connection", what: ListKind, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leaves out tools whose `x-mcp-header` (arguments that go into headers, 2026-07-28) is invalid."""
    if what != "tools" or not connection.modern:
        return found
    from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

    kept: list[dict[str, Any]] = []
    maps: dict[str, Mapping[tuple[str, ...], str]] = {}
    for tool in found:
        schema = tool.get("inputSchema")
        if is_deeper(schema, MAX_DEFINITION_DEPTH):
            kept.append(tool)  # the registry refuses it, and says why
            continue
        wrong = find_invalid_x_mcp_header(schema)
        if wrong is not None:
            words = printable(f"{tool['name']}: {wrong}", 300)
            logger.warning("server %s: a tool is left out because its x-mcp-header is invalid: %s", connection.name, words)
            continue
        if header_map := x_mcp_header_map(schema):
            maps[tool["name"]] = header_map
        kept.append(tool)
    connection.header_maps = maps
    return kept


class ListCache:
    def __init__(self) -> None:
        self._kept: dict[ListKind, tuple[float, list[dict[str, Any]]]] = {}
        self._fetching: dict[ListKind, asyncio.Task[list[dict[str, Any]]]] = {}
        self._changes = 0

    def drop(self, *which: ListKind) -> None:
        """Drops these lists, or all. What is being fetched is not cached."""
        self._changes += 1
        for one in which or tuple(LIST_METHODS):
            self._kept.pop(one, None)
            self._fetching.pop(one, None)

    def kept(self, what: ListKind) -> list[dict[str, Any]] | None:
        """A cached list, if it is still valid."""
        until, found = self._kept.get(what, (0.0, []))
        return found if monotonic() < until else None

    async def get(
        self, connection: "Connection", what: ListKind, settings: ServerSettings, *, fresh: bool
    ) -> list[dict[str, Any]]:
        """Returns a list; it is requested once, however many want it."""
        kept = self.kept(what)
        if kept is not None and not fresh:
            return kept
        fetching = self._fetching.get(what)
        if fetching is None or fetching.done() or fresh:
            fetching = self._fetching[what] = start_task(self._fetch(connection, what, settings), unheard=True)
        return await finish(fetching)

    async def _fetch(self, connection: "Connection", what: ListKind, settings: ServerSettings) -> list[dict[str, Any]]:
        changes = self._changes
        found, seconds = await fetch(connection, what, settings)
        if changes == self._changes:
            self._kept[what] = (monotonic() + seconds, found)
        return found
