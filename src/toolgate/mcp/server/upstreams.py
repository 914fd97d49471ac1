"""The upstream servers that one actor sees: their prompts and resources, and which of them has one.

An actor sees a server if the policy lets them see one of its tools; prompts and resources are seen by who may see the tool
that gets or reads them (`mcp:method`). A server that is down or slow blocks nobody: its part is missing, and the response
says so.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import mcp_types as types
from pydantic import BaseModel, ValidationError

from toolgate.mcp.catalog_entries import MAX_DESCRIPTION_CHARS, MAX_TITLE_CHARS
from toolgate.mcp.client.model import ConnectionStatus, ListKind, Target
from toolgate.mcp.client.servers import OnServerChange
from toolgate.mcp.definitions import ItemKind
from toolgate.mcp.method_tools import METHOD_TAG
from toolgate.mcp.pins import AcceptedItems, cleaned, fits
from toolgate.mcp.server.results import ARTIFACT_SCHEME, INVALID_PARAMS, UNREACHABLE_REASON, ProtocolError
from toolgate.model import Actor, Tool
from toolgate.settings import ServerSettings
from toolgate.tasks import start_task

if TYPE_CHECKING:
    from toolgate.app.app import App

SERVER_META = "toolgate/server"
"""A key in `_meta`: the server that something is from, or that is meant."""
UPSTREAM_LIST_SECONDS = 10.0
"""How long a list waits for its slowest server."""
MAX_CACHED_VIEWS = 1_000
ITEM_MODELS: dict[ItemKind, type[BaseModel]] = {
    "prompts": types.Prompt,
    "resources": types.Resource,
    "templates": types.ResourceTemplate,
}
MAX_TEXT_CHARS = {"title": MAX_TITLE_CHARS, "description": MAX_DESCRIPTION_CHARS}
"""Fields that are only there to be read."""
ITEM_METHODS: dict[ItemKind, str] = {"prompts": "prompts/get", "resources": "resources/read", "templates": "resources/read"}
"""The method that each kind of item is used with."""


class UpstreamConnections(Protocol):
    """The part of `mcp.client.servers.UpstreamServers` that doors have. `request` is no part of it: calls go through the
    pipeline."""

    def names(self) -> list[str]: ...
    def settings(self, name: str) -> ServerSettings: ...
    def statuses(self) -> list[ConnectionStatus]: ...
    async def listed(self, server: str, what: ListKind) -> list[dict[str, Any]]: ...
    async def unsubscribe(self, server: str, uri: str) -> None: ...
    def listen(self, listener: OnServerChange) -> None: ...


class VisibleServer(NamedTuple):
    """A server that an actor sees, and the tools that stand for its methods, by method."""

    name: str
    methods: dict[str, str]


class ListedItem(NamedTuple):
    server: VisibleServer
    item: dict[str, Any]


class ItemListing(NamedTuple):
    """The items of all servers, and the servers whose items are missing: why."""

    parts: list[ListedItem]
    missing: dict[str, str]


class VisibleUpstreams:
    def __init__(self, app: "App") -> None:
        self._app = app
        self._connections = app.servers.connections
        self._seen: dict[tuple[str, str | None, tuple[str, ...]], tuple[tuple[Tool, ...], dict[str, VisibleServer]]] = {}
        self._passed: dict[tuple[str, str], tuple[list[dict[str, Any]], AcceptedItems, list[dict[str, Any]]]] = {}
        self.missed: set[str] = set()
        """Servers that some client was told are missing."""

    async def servers(self, actor: Actor) -> dict[str, VisibleServer]:
        permitted = await self._app.tools.list(actor)
        key = (actor.tenant, actor.persona, actor.scopes)
        known = self._seen.get(key)
        if known is not None and known[0] is permitted:
            return known[1]
        seen = self._find(permitted, actor)
        if len(self._seen) >= MAX_CACHED_VIEWS:
            self._seen.clear()
        self._seen[key] = permitted, seen
        return seen

    def _find(self, permitted: tuple[Tool, ...], actor: Actor) -> dict[str, VisibleServer]:
        there, seen = set(self._connections.names()), dict[str, VisibleServer]()
        for tool in permitted:
            if tool.kind != "mcp":
                continue
            target = self._app.tools.get(tool.name, actor).implementation
            if isinstance(target, Target) and target.server in there:
                server = seen.setdefault(target.server, VisibleServer(target.server, {}))
                if METHOD_TAG in tool.tags:
                    server.methods[target.method] = tool.name
        return dict(sorted(seen.items()))

    def prefix(self, server: str) -> str:
        """The prefix of a server's prompts."""
        prefix = self._connections.settings(server).prefix
        return f"mcp_{server}_" if prefix is None else prefix

    # -- lists

    async def listed(self, actor: Actor, what: ItemKind) -> ItemListing:
        """The items of all servers that an actor sees."""
        servers = [server for server in (await self.servers(actor)).values() if ITEM_METHODS[what] in server.methods]
        asking = {server.name: start_task(self._connections.listed(server.name, what)) for server in servers}
        if asking:
            await asyncio.wait(asking.values(), timeout=UPSTREAM_LIST_SECONDS)
        found = ItemListing([], {})
        for server in servers:
            task = asking[server.name]
            trouble = _trouble(task)
            if trouble is None:
                found.parts.extend(ListedItem(server, item) for item in self._accepted(server.name, what, task.result()))
            else:
                found.missing[server.name] = trouble
                self.missed.add(server.name)
        return found

    def _accepted(self, server: str, what: ItemKind, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The accepted items of a list. Cached while neither changes."""
        accepted, known = self._app.servers.accepted_items, self._passed.get((server, what))
        if known is None or known[0] is not items or known[1] is not accepted:
            passed = [item for item in _sound(items, what) if accepted.is_accepted(server, what, item)]
            known = self._passed[server, what] = (items, accepted, [_readable(item) for item in passed])
        return known[2]

    # -- whose it is

    async def prompt(self, actor: Actor, name: str, wanted: Any = None) -> tuple[VisibleServer, str] | None:
        """The server that has a prompt of this name, and its own name of it."""
        parts = (await self.listed(actor, "prompts")).parts
        found = [part for part in parts if self.prefix(part.server.name) + part.item["name"] == name]
        server = only((part.server for part in found), wanted)
        return None if server is None else (server, name.removeprefix(self.prefix(server.name)))

    async def resource(self, actor: Actor, uri: str, wanted: Any = None) -> VisibleServer | None:
        """The server that lists a resource, or has a template that fits."""
        listed, templates = (await self.listed(actor, "resources")).parts, (await self.listed(actor, "templates")).parts
        return only((part.server for part in listed if part.item["uri"] == uri), wanted) or only(
            (part.server for part in templates if fits(part.item["uriTemplate"], uri)), wanted
        )

    async def template(self, actor: Actor, uri: str, wanted: Any = None) -> VisibleServer | None:
        """The server that has a template, or a resource, of exactly this URI."""
        templates = (await self.listed(actor, "templates")).parts
        found = only((part.server for part in templates if part.item["uriTemplate"] == uri), wanted)
        return found or await self.resource(actor, uri, wanted)


def only(servers: Iterable[VisibleServer], wanted: Any) -> VisibleServer | None:
    """The one server that has something. Of several, the request must name one: what a server lists is its own claim, and
    the next one may list another's URI."""
    found = {server.name: server for server in servers if wanted is None or server.name == wanted}
    if len(found) > 1:
        words = f"Several servers have this: name one in _meta.{SERVER_META}"
        raise ProtocolError(INVALID_PARAMS, words, {"servers": sorted(found)})
    return next(iter(found.values()), None)


def _trouble(task: "asyncio.Future[Any]") -> str | None:
    if not task.done():
        task.cancel()
        return f"it did not answer within {UPSTREAM_LIST_SECONDS:g} s"
    if task.cancelled():
        return "it was stopped"
    return None if task.exception() is None else UNREACHABLE_REASON


def _sound(items: list[dict[str, Any]], what: ItemKind) -> Iterator[dict[str, Any]]:
    """The valid items: an invalid one would spoil the whole list."""
    shape = ITEM_MODELS[what]
    for item in items:
        try:
            shape.model_validate(item, by_name=False)
        except ValidationError:
            continue
        if not str(item.get("uri") or item.get("uriTemplate") or "").startswith(ARTIFACT_SCHEME):
            yield item


def _readable(item: dict[str, Any]) -> dict[str, Any]:
    """An item with its texts cleaned and bounded, as a tool's are. Names and URIs stay: they identify it."""
    told: dict[str, Any] = {
        name: cleaned(item[name])[:most] for name, most in MAX_TEXT_CHARS.items() if isinstance(item.get(name), str)
    }
    if isinstance(item.get("arguments"), list):
        told["arguments"] = [_readable(one) if isinstance(one, dict) else one for one in item["arguments"]]
    return {**item, **told}
