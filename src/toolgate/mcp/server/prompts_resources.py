"""Prompts, resources and completion: those of upstream servers, and whole outputs that were too long for a result.

Getting a prompt and reading a resource are calls like any other, of the tools that stand for them, so that policy, limits
and the audit log see them. Prompts are named as tools are, with the server's prefix; resources keep their URIs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import mcp_types as types

from toolgate.mcp.server.caller import Request, meta_of
from toolgate.mcp.server.identity import Credential, IdentifyCaller
from toolgate.mcp.server.request_state import InputRequiredResult
from toolgate.mcp.server.results import (
    ARTIFACT_SCHEME,
    INVALID_PARAMS,
    MISSING_META,
    JsonObject,
    ProtocolError,
    decode_cursor,
    encode_cursor,
    refusal,
)
from toolgate.mcp.server.tasks import Task, Tasks
from toolgate.mcp.server.tool_calls import ToolCalls
from toolgate.mcp.server.upstreams import SERVER_META, ItemListing, ListedItem, VisibleUpstreams
from toolgate.model import Actor, Outcome

if TYPE_CHECKING:
    from toolgate.app.app import App

ARTIFACT_TEMPLATE: JsonObject = {
    "uriTemplate": f"{ARTIFACT_SCHEME}{{id}}",
    "name": "whole_output",
    "title": "Whole output",
    "description": "The whole output of a call, of which only a part was given out.",
    "mimeType": "application/json",
}


class PromptsAndResources:
    def __init__(
        self, app: "App", who: IdentifyCaller, upstreams: VisibleUpstreams, tool_calls: ToolCalls, tasks: Tasks
    ) -> None:
        self._app = app
        self._who = who
        self._upstreams = upstreams
        self._tool_calls = tool_calls
        self._tasks = tasks

    # -- prompts

    async def list_prompts(self, ctx: Request, params: types.PaginatedRequestParams) -> JsonObject:
        found = await self._upstreams.listed(self._who(ctx).actor, "prompts")
        named = [self._with_prefix(part) for part in found.parts]
        return self._page("prompts", named, found, params.cursor)

    def _with_prefix(self, part: ListedItem) -> JsonObject:
        return {**_from(part), "name": self._upstreams.prefix(part.server.name) + part.item["name"]}

    async def get_prompt(self, ctx: Request, params: types.GetPromptRequestParams) -> JsonObject:
        who = self._who(ctx)
        owner = await self._upstreams.prompt(who.actor, params.name, meta_of(ctx).get(SERVER_META))
        if owner is None:
            raise ProtocolError(INVALID_PARAMS, "Unknown prompt")
        server, name = owner
        arguments = {"name": name, "arguments": dict(params.arguments or {})}
        return await self._through(ctx, who, server.methods["prompts/get"], arguments)

    # -- resources

    async def list_resources(self, ctx: Request, params: types.PaginatedRequestParams) -> JsonObject:
        found = await self._upstreams.listed(self._who(ctx).actor, "resources")
        return self._page("resources", list(map(_from, found.parts)), found, params.cursor)

    async def list_templates(self, ctx: Request, params: types.PaginatedRequestParams) -> JsonObject:
        found = await self._upstreams.listed(self._who(ctx).actor, "templates")
        return self._page("resourceTemplates", [ARTIFACT_TEMPLATE, *map(_from, found.parts)], found, params.cursor)

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
        """Calls the tool that stands for a method."""

        async def call(task: Task | None) -> JsonObject:
            ended = await self._tool_calls.call(ctx, who, tool, arguments, task)
            return ended.to_dict() if isinstance(ended, InputRequiredResult) else _given(ended, uri)

        return await self._tasks.run(ctx, call)

    # -- completion

    async def complete(self, ctx: Request, params: types.CompleteRequestParams) -> JsonObject:
        who, ref = self._who(ctx), params.ref
        actor = who.actor
        passed = {name: value for name, value in (ctx.params or {}).items() if name in ("argument", "context", "ref")}
        if isinstance(ref, types.PromptReference):
            owner = await self._upstreams.prompt(actor, ref.name, meta_of(ctx).get(SERVER_META))
            if owner is None:
                raise ProtocolError(INVALID_PARAMS, "Unknown prompt")
            server = owner[0]
            passed["ref"] = {**passed["ref"], "name": owner[1]}
        else:
            found = await self._upstreams.template(actor, ref.uri, meta_of(ctx).get(SERVER_META))
            if found is None:
                raise no_resource(ref.uri)
            server = found
        tool = server.methods.get("completion/complete")
        entry = None if tool is None else self._tool_calls.entry(tool, who)
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
        """How long a client may cache a response, which is for this actor alone; not at all if it may change soon."""
        return {"ttlMs": 0 if short else int(self._app.settings.mcp.list_seconds * 1000), "cacheScope": "private"}


def no_resource(uri: str) -> ProtocolError:
    """Hidden and missing look the same."""
    return ProtocolError(INVALID_PARAMS, "Resource not found", {"uri": uri[:2048]})


def _from(part: ListedItem) -> JsonObject:
    """An item with its server's name."""
    meta = part.item.get("_meta")
    return {**part.item, "_meta": {**(meta if isinstance(meta, Mapping) else {}), SERVER_META: part.server.name}}


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
