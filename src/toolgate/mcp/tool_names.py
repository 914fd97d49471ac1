"""Decides which server's tool has a name in the catalog.

Callers, policies, secrets and people know a tool by its name. So a name stays with the tool first accepted under it, also
while that can't be called because it has changed, is gone, or its server is off, and whatever settings call it later: a
server can't take over another's calls by offering a tool of that name, nor by being added under a name that makes its tools
look like another's. And names that begin with `mcp_` and the name of a server are for that server, unless accepted before.
"""

from collections.abc import Iterable, Mapping

from toolgate.mcp.catalog_entries import Upstream, name_here
from toolgate.mcp.definitions import ITEM_KINDS, DefinitionKey, NameClaim


class ToolNames:
    """The names of all tools of servers that were ever accepted."""

    def __init__(self, upstreams: Mapping[str, Upstream] | None = None, claims: Iterable[NameClaim] = ()) -> None:
        self._upstreams = upstreams or {}
        order = {server: place for place, server in enumerate(self._upstreams)}
        self._servers = sorted(self._upstreams, key=len, reverse=True)
        self._holders: dict[str, tuple[str, DefinitionKey]] = {}
        there = [claim for claim in claims if claim.server in self._upstreams and claim.key[0] not in ITEM_KINDS]
        there.sort(key=lambda one: (one.since, order[one.server], one.key))
        for claim in there:
            name = claim.name or name_here(self._upstreams[claim.server], claim.key)
            self._holders.setdefault(name, (claim.server, claim.key))
        for claim in there:  # what settings call it now, if nobody has that
            upstream = self._upstreams[claim.server]
            if is_wanted(upstream, claim.key) and self.fault(upstream, claim.key) is None:
                self._holders[name_here(upstream, claim.key)] = (claim.server, claim.key)

    def fault(self, upstream: Upstream, key: DefinitionKey) -> str | None:
        """The reason why a tool can't have its name; None: it can."""
        name = name_here(upstream, key)
        holder = self._holders.get(name)
        if holder is not None:
            return None if holder == (upstream.name, key) else f"the name {name} is that of a tool of server {holder[0]}"
        meant = next((server for server in self._servers if name.startswith(f"mcp_{server}_")), upstream.name)
        if meant != upstream.name and upstream.said_of(key).name != name:
            return f"the name {name} would be one of server {meant}"
        return None

    def is_kept(self, name: str) -> bool:
        """True for names of servers' tools, accepted or not, there or not: nobody else may have one."""
        return name.startswith("mcp_") or name in self._holders

    def clash(self, upstream: Upstream) -> str | None:
        """The reason why a server can't be used: a name of its tools would be that of an accepted tool of another server.
        One with accepted tools of its own stays: only the tool with another's name is refused (`fault`)."""
        if any(server == upstream.name for server, _ in self._holders.values()):
            return None
        settings = upstream.settings
        said = {tool.name for tool in settings.tools.values() if tool.name is not None}
        starts = (f"mcp_{upstream.name}_", *((settings.prefix,) if settings.prefix else ()))
        for name, (server, key) in self._holders.items():
            if name in said or (name.startswith(starts) and self._upstreams[server].said_of(key).name != name):
                return f"{name} is a tool of server {server} that was accepted under this name"
        return None


def is_wanted(upstream: Upstream, key: DefinitionKey) -> bool:
    """True if the settings of a server (`only`) let a tool be published."""
    only = upstream.settings.only
    return only is None or key[0] != "tools/call" or key[1] in only
