"""Prompts, resources and completion: those of the upstream servers that an actor sees, and whole outputs that were too long
for a result.

An actor sees a server if the policy lets them see one of its tools; prompts and resources are seen by who may see the tool
that gets or reads them (`mcp:method`). Getting a prompt and reading a resource are calls of these tools like any other, so
that policy, limits and the audit log see them. Prompts are named as tools are, with the server's prefix; resources keep
their URIs. A server that is down or slow blocks nobody: its part is missing, and the response says so.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import mcp_types as types
from pydantic import BaseModel, ValidationError

from toolgate.mcp.catalog_entries import MAX_DESCRIPTION_CHARS, MAX_TITLE_CHARS
from toolgate.mcp.client.model import ConnectionStatus, ListKind, OnServerChange, Target
from toolgate.mcp.definitions import ItemKind
from toolgate.mcp.method_tools import METHOD_TAG
from toolgate.mcp.pins import AcceptedItems, cleaned, fits
from toolgate.mcp.server.caller import Request, meta_of
from toolgate.mcp.server.identity import Credential, IdentifyCaller
from toolgate.mcp.server.request_state import InputRequiredResult
from toolgate.mcp.server.results import (
    ARTIFACT_SCHEME,
    INVALID_PARAMS,
    MISSING_META,
    UNREACHABLE_REASON,
    JsonObject,
    ProtocolError,
    decode_cursor,
    encode_cursor,
    refusal,
)
from toolgate.mcp.server.task_call import Task
from toolgate.mcp.server.tasks import Tasks
from toolgate.mcp.server.tool_calls import ClientCalls
from toolgate.model import Actor, Outcome, Tool
from toolgate.settings import ServerSettings
from toolgate.tasks import start_task

if TYPE_CHECKING:
    from toolgate.app.app import App

SERVER_META = "toolgate/server"
"""A key in `_meta`: the server that something is from, or that is meant."""
UPSTREAM_LIST_SECONDS = 10.0
MAX_CACHED_VIEWS = 1_000
ITEM_MODELS: dict[ItemKind, type[BaseModel]] = {
    "prompts": types.Prompt,
    "resources": types.Resource,
    "templates": types.ResourceTemplate,
}
MAX_TEXT_CHARS = {"title": MAX_TITLE_CHARS, "description": MAX_DESCRIPTION_CHARS}
"""Fields that are only there to be read."""
ITEM_METHODS: dict[ItemKind, str] = {"prompts": "prompts/get", "resources": "resources/read", "templates": "resources/read"}
ARTIFACT_TEMPLATE: JsonObject = {
    "uriTemplate": f"{ARTIFACT_SCHEME}{{id}}",
    "name": "whole_output",
    "title": "Whole output",
    "description": "The whole output of a call, of which only a part was given out.",
    "mimeType": "application/json",
}


class UpstreamConnections(Protocol):
    """The part of `UpstreamServers` that doors have. `request` is no part of it: calls go through the pipeline."""

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

    items: list[ListedItem]
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
        prefix = self._connections.settings(server).prefix
        return f"mcp_{server}_" if prefix is None else prefix

    # -- lists

    async def listed(self, actor: Actor, what: ItemKind) -> ItemListing:
        servers = [server for server in (await self.servers(actor)).values() if ITEM_METHODS[what] in server.methods]
        asking = {server.name: start_task(self._connections.listed(server.name, what)) for server in servers}
        if asking:
            await asyncio.wait(asking.values(), timeout=UPSTREAM_LIST_SECONDS)
        found = ItemListing([], {})
        for server in servers:
            task = asking[server.name]
            trouble = _trouble(task)
            if trouble is None:
                found.items.extend(ListedItem(server, item) for item in self._accepted(server.name, what, task.result()))
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

    async def prompt(self, actor: Actor, name: str, wanted: Any) -> tuple[VisibleServer, str]:
        """The server that has a prompt of this name, and its own name of it. Raises ProtocolError if none has."""
        listed = (await self.listed(actor, "prompts")).items
        server = only((one.server for one in listed if self.prefix(one.server.name) + one.item["name"] == name), wanted)
        if server is None:
            raise ProtocolError(INVALID_PARAMS, "Unknown prompt")
        return server, name.removeprefix(self.prefix(server.name))

    async def resource(self, actor: Actor, uri: str, wanted: Any = None) -> VisibleServer | None:
        """The server that lists a resource, or has a template that fits."""
        listed, templates = (await self.listed(actor, "resources")).items, (await self.listed(actor, "templates")).items
        return only((one.server for one in listed if one.item["uri"] == uri), wanted) or only(
            (one.server for one in templates if fits(one.item["uriTemplate"], uri)), wanted
        )

    async def template(self, actor: Actor, uri: str, wanted: Any) -> VisibleServer:
        """The server that has a template, or a resource, of exactly this URI. Raises ProtocolError if none has."""
        templates = (await self.listed(actor, "templates")).items
        found = only((one.server for one in templates if one.item["uriTemplate"] == uri), wanted)
        found = found or await self.resource(actor, uri, wanted)
        if found is None:
            raise no_resource(uri)
        return found


class PromptsAndResources:
    def __init__(
        self, app: "App", who: IdentifyCaller, upstreams: VisibleUpstreams, calls: ClientCalls, tasks: Tasks
    ) -> None:
        self._app = app
        self._who = who
        self._upstreams = upstreams
        self._calls = calls
        self._tasks = tasks

    # -- prompts

    async def list_prompts(self, ctx: Request, params: types.PaginatedRequestParams) -> JsonObject:
        found = await self._upstreams.listed(self._who(ctx).actor, "prompts")
        prefix = self._upstreams.prefix
        named = [{**_from(one), "name": prefix(one.server.name) + one.item["name"]} for one in found.items]
        return self._page("prompts", named, found, params.cursor)

    async def get_prompt(self, ctx: Request, params: types.GetPromptRequestParams) -> JsonObject:
        who = self._who(ctx)
        server, name = await self._upstreams.prompt(who.actor, params.name, meta_of(ctx).get(SERVER_META))
        arguments = {"name": name, "arguments": dict(params.arguments or {})}
        return await self._through(ctx, who, server.methods["prompts/get"], arguments)

    # -- resources

    async def list_resources(self, ctx: Request, params: types.PaginatedRequestParams) -> JsonObject:
        found = await self._upstreams.listed(self._who(ctx).actor, "resources")
        return self._page("resources", list(map(_from, found.items)), found, params.cursor)

    async def list_templates(self, ctx: Request, params: types.PaginatedRequestParams) -> JsonObject:
        found = await self._upstreams.listed(self._who(ctx).actor, "templates")
        return self._page("resourceTemplates", [ARTIFACT_TEMPLATE, *map(_from, found.items)], found, params.cursor)

    async def read_resource(self, ctx: Request, params: types.ReadResourceRequestParams) -> JsonObject:
        who, uri = self._who(ctx), str(params.uri)
        if uri.startswith(ARTIFACT_SCHEME):
            return {"contents": [await self._artifact(who.actor, uri)], **self._fresh()}
        server = await self._upstreams.resource(who.actor, uri, meta_of(ctx).get(SERVER_META))
        if server is None:
            raise no_resource(uri)
        read = await self._through(ctx, who, server.methods["resources/read"], {"uri": uri}, uri)
        return read if "resultType" in read else {**read, **self._fresh(short=True)}

    async def _artifact(self, actor: Actor, uri: str) -> JsonObject:
        """A whole output, for the user whose call it is of."""
        content = await self._app.audit.artifact(uri.removeprefix(ARTIFACT_SCHEME), actor=actor)
        if content is None:
            raise no_resource(uri)
        return {"uri": uri, "mimeType": "application/json", "text": content.decode()}

    async def _through(
        self, ctx: Request, who: Credential, tool: str, arguments: JsonObject, uri: str | None = None
    ) -> JsonObject:

        async def call(task: Task | None) -> JsonObject:
            ended = await self._calls.call(ctx, who, tool, arguments, task)
            return ended.to_dict() if isinstance(ended, InputRequiredResult) else _given(ended, uri)

        return await self._tasks.run(ctx, call, tool=tool)

    # -- completion

    async def complete(self, ctx: Request, params: types.CompleteRequestParams) -> JsonObject:
        who, ref, wanted = self._who(ctx), params.ref, meta_of(ctx).get(SERVER_META)
        passed = {name: value for name, value in (ctx.params or {}).items() if name in ("argument", "context", "ref")}
        if isinstance(ref, types.PromptReference):
            server, name = await self._upstreams.prompt(who.actor, ref.name, wanted)
            passed["ref"] = {**passed["ref"], "name": name}
        else:
            server = await self._upstreams.template(who.actor, ref.uri, wanted)
        tool = server.methods.get("completion/complete")
        entry = None if tool is None else self._calls.entry(tool, who)
        if tool is None or entry is None or entry.asks is not None:
            return {"completion": {"values": []}}  # nobody is asked at each key that is pressed
        return await self._through(ctx, who, tool, passed)

    # -- lists

    def _page(self, name: str, items: list[JsonObject], found: ItemListing, cursor: str | None) -> JsonObject:
        start, most = 0 if cursor is None else _place(cursor), self._app.settings.mcp.page
        told: JsonObject = {name: items[start : start + most], **self._fresh(short=bool(found.missing))}
        if start + most < len(items):
            told["nextCursor"] = encode_cursor(str(start + most))
        if found.missing:
            told["_meta"] = {MISSING_META: found.missing}
        return told

    def _fresh(self, *, short: bool = False) -> JsonObject:
        """The time that a client may cache a response, which is for this actor alone; none if it may change soon."""
        return {"ttlMs": 0 if short else int(self._app.settings.mcp.list_seconds * 1000), "cacheScope": "private"}


def no_resource(uri: str) -> ProtocolError:
    """Hidden and missing look the same."""
    return ProtocolError(INVALID_PARAMS, "Resource not found", {"uri": uri[:2048]})


def _from(one: ListedItem) -> JsonObject:
    meta = one.item.get("_meta")
    return {**one.item, "_meta": {**(meta if isinstance(meta, Mapping) else {}), SERVER_META: one.server.name}}


def _place(cursor: str) -> int:
    place = decode_cursor(cursor)
    if not place.isascii() or not place.isdigit() or len(place) > 9:
        raise ProtocolError(INVALID_PARAMS, "Invalid cursor")
    return int(place)


def _given(outcome: Outcome, uri: str | None = None) -> JsonObject:
    """The response of a server, from the outcome of the call; a failure is a protocol error."""
    if outcome.status == "success" and isinstance(outcome.output, dict):
        given = dict(outcome.output)
        if outcome.artifact is not None and uri is not None and outcome.artifact.id:
            whole = {"uri": f"{ARTIFACT_SCHEME}{outcome.artifact.id}", "mimeType": "text/plain"}
            words = f"The content was cut ({'; '.join(outcome.artifact.cut)}). Read this URI for the whole output, as JSON."
            given["contents"] = [*given.get("contents", ()), {**whole, "text": words}]
        return given
    if outcome.error is not None and outcome.error.code == "TOOL_NOT_FOUND" and uri is not None:
        raise no_resource(uri)
    raise refusal(outcome)


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
