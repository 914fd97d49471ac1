"""Asks a server what it is and what it has, through the engine."""

import asyncio
import logging
from typing import Any, NamedTuple

import orjson

from toolgate.errors import CallError, described
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.model import ServerInfo
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.entries import Upstream, cleaned
from toolgate.mcp.method_tools import METHOD_CAPABILITIES
from toolgate.mcp.prompts_resources import ITEM_SHAPES, ItemKind

MAX_INFO_BYTES = 65_536
ITEM_LIST_SECONDS = 10.0
"""How long a server's tools wait for its prompts and resources."""

logger = logging.getLogger("toolgate")


class ServerListing(NamedTuple):
    """What a server says of itself, and what it has."""

    about: ServerInfo
    tools: list[dict[str, Any]]
    items: dict[ItemKind, list[dict[str, Any]]]
    unknown: frozenset[ItemKind]
    """What it has and could not be asked about: its tools are no worse for it."""


async def ask(engine: UpstreamServers, upstream: Upstream) -> ServerListing:
    """Ask a server what it has. It is started if need be."""
    about = await engine.about(upstream.name)
    tools: list[dict[str, Any]] = []
    seconds = upstream.settings.start_seconds
    listing = {kind: asyncio.ensure_future(_items(engine, upstream.name, kind)) for kind in _kinds(about)}
    try:
        async with asyncio.timeout(seconds):
            if "tools" in about.capabilities:
                tools = await engine.listed(upstream.name, "tools", fresh=True)
            listed = {kind: await task for kind, task in listing.items()}
    except TimeoutError:
        raise Unreachable(message=f"Server {upstream.name} did not say within {seconds:g} s what it has.") from None
    finally:
        for task in listing.values():
            task.cancel()
    known = {kind: items for kind, items in listed.items() if items is not None}
    return ServerListing(about, tools, known, frozenset(listing.keys() - known.keys()))


def _kinds(about: ServerInfo) -> list[ItemKind]:
    return [kind for kind in ITEM_SHAPES if ("prompts" if kind == "prompts" else "resources") in about.capabilities]


async def _items(engine: UpstreamServers, server: str, kind: ItemKind) -> list[dict[str, Any]] | None:
    """A list of a server's; None if it does not give it in time."""
    try:
        async with asyncio.timeout(ITEM_LIST_SECONDS):
            return await engine.listed(server, kind, fresh=True)
    except (TimeoutError, CallError) as error:
        logger.warning("server %s did not list its %s: %s", server, kind, cleaned(described(error))[:300])
        return None


def jail_of(engine: UpstreamServers, server: str) -> str | None:
    """What holds a server; None: nothing."""
    return next((standing.jail for standing in engine.standings() if standing.name == server), None)


def info_json(about: ServerInfo) -> str:
    """What a server said of itself, as JSON that the store can keep: all of it, or as much as is fit to be kept."""
    words = {"protocol": about.protocol, "capabilities": about.capabilities, "info": about.info}
    try:
        text = orjson.dumps(words, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):
        text = ""
    if 0 < len(text) <= MAX_INFO_BYTES:
        return text
    names: dict[str, dict[str, Any]] = {
        name: {} for name in ("tools", *METHOD_CAPABILITIES.values()) if name in about.capabilities
    }
    return orjson.dumps({"protocol": about.protocol[:32], "capabilities": names, "info": {}}).decode()
