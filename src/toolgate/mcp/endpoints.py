"""Tools of MCP servers that tenants registered by their URL at run time.

A tenant's server is nobody else's: it has a connection of its own, no secret, and reaches what the HTTP client of such tools
reaches (no private address unless `registration.allow` names it). A tool is pinned when it is registered, and the server is
compared with that before a call is sent to a start of it that was not compared yet.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from toolgate.errors import NotReached, not_found
from toolgate.mcp.client.errors import Restarted
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.definitions import FoundDefinition
from toolgate.mcp.pins import found_in
from toolgate.model import Caller, Entry, Tool, new_id
from toolgate.network.http_client import HttpClient
from toolgate.settings import SamplingSettings, ServerSettings
from toolgate.tasks import finish

IDLE_SECONDS = 300.0
START_SECONDS = 15.0
MAX_ENDPOINT_CONNECTIONS = 200
"""Servers that are known at once; those beyond are closed, that first which was not asked for the longest."""


def server_of(tool: Tool) -> str:
    """The name of a tenant's server: the URL and the tenant, which is no name that the operator's servers can have."""
    if tool.mcp is None:
        raise ValueError(f"{tool.name} has no MCP endpoint")
    return f"{tool.mcp.url} of tenant {tool.tenant}"


class McpEndpoints:
    """The servers of registered tools, as `McpRunner` asks them."""

    def __init__(self, engine: UpstreamServers, http: HttpClient) -> None:
        self._engine = engine
        self._http = http
        self._compared: dict[str, tuple[int, Mapping[str, str]]] = {}
        """By server, the number of the start that was listed, and the hash of each tool's definition."""
        self._asked: dict[str, None] = {}
        """The servers of calls, in the order in which they were last asked; also those that were never reached."""
        engine.listen(self._heard)

    async def definitions(self, tool: Tool) -> dict[str, FoundDefinition]:
        """The tools that a server has now, by its own names. Raises CallError if it cannot be asked."""
        name = await self._connect(tool, f" ({new_id()})")
        try:
            listed = await self._engine[name].listed("tools", fresh=True)
        finally:  # a registration that is refused leaves no connection behind
            await finish(self._engine.remove(name))
        found, _ = found_in(name, {}, {"tools": listed})
        return {own: definition for (_, own), definition in found.items()}

    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        seconds: float | None = None,
        entry: Entry | None = None,
    ) -> Mapping[str, Any]:
        """Sends a request to a server, if the definition of the tool is the one that was registered."""
        if entry is not None:
            await self._connect(entry.tool)
        for is_retry in (False, True):
            start = await self._checked_start(server, entry)
            try:
                return await self._engine[server].request(method, params, caller=caller, start=start, seconds=seconds)
            except Restarted:
                self._compared.pop(server, None)
                if is_retry:
                    raise
        raise AssertionError("unreachable")

    async def _checked_start(self, server: str, entry: Entry | None) -> int:
        """The start of the server that may be asked. Requests without an entry belong to a call that was allowed."""
        upstream = self._engine[server]
        known = self._compared.get(server)
        if known is None or known[0] != upstream.starts:
            listed = await upstream.listed("tools", fresh=True)
            found, _ = found_in(server, {}, {"tools": listed})
            known = self._compared[server] = upstream.starts, {own: one.hash for (_, own), one in found.items()}
        if entry is not None:
            wanted = entry.tool.mcp
            if wanted is None or known[1].get(wanted.tool) != wanted.sha256:
                raise not_found(entry.name, "its server's definition is not the one that was registered, or is gone")
        return known[0]

    async def _connect(self, tool: Tool, mark: str = "") -> str:
        """Makes sure that a tool's server can be asked; gives its name. `mark`: for a connection of its own."""
        name, endpoint = server_of(tool) + mark, tool.mcp
        if endpoint is None:
            raise NotReached("CONNECTION_ERROR", f"{tool.name} has no MCP endpoint.")
        self._http.check(endpoint.url)
        self._engine.set(
            name, ServerSettings(url=endpoint.url, idle_seconds=IDLE_SECONDS, start_seconds=START_SECONDS)
        )  # which changes nothing of one that is there
        if not mark:
            self._asked.pop(name, None)
            self._asked[name] = None
            for oldest in [*self._asked][: max(0, len(self._asked) - MAX_ENDPOINT_CONNECTIONS)]:
                del self._asked[oldest]
                self._compared.pop(oldest, None)
                await self._engine.remove(oldest)
        return name

    def _heard(self, server: str, what: str, _uri: str | None) -> None:
        if what in ("down", "tools"):
            self._compared.pop(server, None)

    def mask_secrets(self, server: str, values: Iterable[str]) -> None:
        """Masks secrets that a call hands a server, in whatever it says."""
        self._engine[server].masker.learn_call_secrets(values)

    def sampling_limits(self, _server: str) -> SamplingSettings | None:
        """None: a tenant's server does not ask the language model."""
        return None

    async def close(self) -> list[str]:
        return await self._engine.close()
