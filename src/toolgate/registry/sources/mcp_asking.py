"""Asks a server what it is and what it has, through the engine."""

import asyncio
from typing import Any

import orjson

from toolgate.mcpclient.engine import Servers
from toolgate.mcpclient.port import About, Unreachable
from toolgate.registry.sources.mcp import Upstream
from toolgate.registry.sources.mcp_methods import CAPABILITIES

LONGEST_ABOUT = 65_536


async def ask(engine: Servers, upstream: Upstream) -> tuple[About, list[dict[str, Any]]]:
    """What a server says of itself, and its tools. It is started if need be."""
    about = await engine.about(upstream.name)
    if "tools" not in about.capabilities:
        return about, []
    seconds = upstream.settings.start_seconds
    try:
        async with asyncio.timeout(seconds):
            return about, await engine.listed(upstream.name, "tools", fresh=True)
    except TimeoutError:
        raise Unreachable(message=f"Server {upstream.name} did not say within {seconds:g} s what it has.") from None


def jail_of(engine: Servers, server: str) -> str | None:
    """What holds a server; None: nothing."""
    return next((standing.jail for standing in engine.standings() if standing.name == server), None)


def told(about: About) -> str:
    """What a server said of itself, as JSON that the store can keep: all of it, or as much as is fit to be kept."""
    words = {"protocol": about.protocol, "capabilities": about.capabilities, "info": about.info}
    try:
        text = orjson.dumps(words, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):
        text = ""
    if 0 < len(text) <= LONGEST_ABOUT:
        return text
    names: dict[str, dict[str, Any]] = {name: {} for name in ("tools", *CAPABILITIES.values()) if name in about.capabilities}
    return orjson.dumps({"protocol": about.protocol[:32], "capabilities": names, "info": {}}).decode()
