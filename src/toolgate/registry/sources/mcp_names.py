"""Whose a name in the catalog is, where several servers would have it.

Callers, policies and people know a tool by its name. So a name stays with the tool that was first accepted under it, also
while that can't be called because it has changed, is gone, or its server is off: a server can't take over another's calls by
offering a tool of that name. And what begins with `mcp_` and the name of a server is for that server alone.
"""

from collections.abc import Iterable, Mapping

from toolgate.registry.sources.mcp import Key, Upstream, name_here
from toolgate.store.servers import Claim


class Names:
    """The names of all tools of servers that were ever accepted."""

    def __init__(self, upstreams: Mapping[str, Upstream] | None = None, claims: Iterable[Claim] = ()) -> None:
        upstreams = upstreams or {}
        order = {server: place for place, server in enumerate(upstreams)}
        self._servers = sorted(upstreams, key=len, reverse=True)
        self._holders: dict[str, tuple[str, Key]] = {}
        there = [claim for claim in claims if claim.server in upstreams]
        for claim in sorted(there, key=lambda one: (one.since, order[one.server], one.key)):
            upstream, holder = upstreams[claim.server], (claim.server, claim.key)
            if is_wanted(upstream, claim.key) and self.fault(upstream, claim.key) is None:
                self._holders[name_here(upstream, claim.key)] = holder

    def fault(self, upstream: Upstream, key: Key) -> str | None:
        """Why a tool can't have the name that it would have; None: it can."""
        name = name_here(upstream, key)
        holder = self._holders.get(name)
        if holder is not None and holder != (upstream.name, key):
            return f"the name {name} is that of a tool of server {holder[0]}"
        meant = next((server for server in self._servers if name.startswith(f"mcp_{server}_")), upstream.name)
        if meant != upstream.name and not _is_said(upstream, key, name):
            return f"the name {name} would be one of server {meant}"
        return None


def is_wanted(upstream: Upstream, key: Key) -> bool:
    """Whether the settings of a server let a tool be offered at all."""
    only = upstream.settings.only
    return only is None or key[0] != "tools/call" or key[1] in only


def _is_said(upstream: Upstream, key: Key, name: str) -> bool:
    """Whether the name is one that a person gave."""
    method, tool = key
    said = upstream.settings.tools.get(tool if method == "tools/call" else method)
    return said is not None and said.name == name
