"""Asks a server what it is and what it has, through the engine."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import orjson

from toolgate.mcpclient.port import About, Listed, Standing, Unreachable
from toolgate.model import Caller
from toolgate.registry.sources.mcp import Upstream
from toolgate.registry.sources.mcp_methods import CAPABILITIES
from toolgate.settings import ServerSettings

LONGEST_ABOUT = 65_536


class Engine(Protocol):
    """`mcpclient.engine.Servers`, as far as its tools need it."""

    def set(self, name: str, settings: ServerSettings) -> None: ...
    async def remove(self, name: str) -> None: ...
    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        start: int | None = None,
        seconds: float | None = None,
    ) -> Mapping[str, Any]: ...
    def starts(self, server: str) -> int: ...
    async def listed(self, server: str, what: Listed, *, fresh: bool = False) -> list[dict[str, Any]]: ...
    async def about(self, server: str) -> About: ...
    async def restart(self, server: str) -> None: ...
    def standings(self) -> list[Standing]: ...
    def listen(self, listener: Callable[[str, str, str | None], None]) -> None: ...
    def conceal(self, server: str, shapes: Iterable[str]) -> None: ...
    async def close(self) -> list[str]: ...


async def ask(engine: Engine, upstream: Upstream) -> tuple[About, list[dict[str, Any]]]:
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


def jail_of(engine: Engine, server: str) -> str | None:
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
