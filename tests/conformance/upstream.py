"""The MCP server behind the gateway when the official conformance suite is run: `python -m tests.conformance.upstream`.

The suite sends no credentials and expects certain tools, prompts and resources; here they are, on the SDK's low-level
server, for old and new clients, over stdio (`--stdio`) and streamable HTTP (`--port N`; 0 takes a free one). Over HTTP the
first line of stdout is the address. `--old` refuses the protocol without handshake, as most servers of today do.
"""

import argparse
import asyncio
import contextlib
import socket
import sys
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

import tests.conformance.fixture_questions  # noqa: F401  # it adds its tools to TOOLS
from tests.conformance import fixture_contents as contents
from tests.conformance.fixture_events import Events
from tests.conformance.fixture_tasks import Tasks
from tests.conformance.fixture_tools import TOOLS, FixtureTool
from tests.conformance.turns import (
    TASKS,
    Ask,
    Context,
    Json,
    Later,
    Turn,
    converse,
    is_modern,
    knows_tasks,
    missing,
    play,
    text,
)

NAME = "toolgate-fixture"
NOTHING: Json = {"type": "object", "properties": {}, "additionalProperties": False}
TRIGGERS: list[Json] = [
    {"name": f"test_trigger_{what}_change", "description": f"Changes a {what}.", "inputSchema": NOTHING}
    for what in ("tool", "prompt", "resource")
]
ADDED: Json = {"name": "test_added_tool", "description": "Comes and goes.", "inputSchema": NOTHING}
ADDED_PROMPT: Json = {"name": "test_added_prompt", "description": "Comes and goes."}
SESSIONS = 64
"""How many old connections are told of changes: the newest."""

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class FixtureServer(Server[Any]):
    """Says to old clients as well that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changes = notification_options or NotificationOptions(prompts_changed=True, tools_changed=True)
        return super().create_initialization_options(changes, experimental_capabilities, extensions)


class Fixture:
    """What the server's answers depend on."""

    def __init__(self) -> None:
        self.tasks = Tasks()
        self.bus = InMemorySubscriptionBus()
        self.sessions: deque[ServerSession] = deque(maxlen=SESSIONS)
        self.watching: set[str] = set()
        self.has_added_tool = False
        self.has_added_prompt = False
        self.changes = 0

    # -- tools

    async def list_tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        shown = [tool.definition() for tool in TOOLS.values()] + TRIGGERS + ([ADDED] if self.has_added_tool else [])
        return types.ListToolsResult.model_validate({"tools": shown})

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        tool = TOOLS.get(params.name)
        turn = _turn(ctx, params.arguments)
        if tool is None:
            return await self._change(params.name)
        if tool.as_task == "always" and not knows_tasks(ctx):
            raise missing({"extensions": {TASKS: {}}})
        if is_modern(ctx):
            return await self._new_style(tool, turn)
        return types.CallToolResult.model_validate(await converse(tool.play, turn))

    async def _new_style(self, tool: FixtureTool, turn: Turn) -> Any:
        done = await tool.play(turn)
        if isinstance(done, Later):
            if knows_tasks(turn.ctx):
                return self.tasks.start(done.work, turn)
            done = await play(done.work, turn)
        return _asking(done) if isinstance(done, Ask) else types.CallToolResult.model_validate(done)

    async def _change(self, name: str) -> types.CallToolResult:
        match name:
            case "test_trigger_tool_change":
                self.has_added_tool = not self.has_added_tool
                await self.bus.publish(ToolsListChanged())
                await self._tell(ServerSession.send_tool_list_changed)
            case "test_trigger_prompt_change":
                self.has_added_prompt = not self.has_added_prompt
                await self.bus.publish(PromptsListChanged())
                await self._tell(ServerSession.send_prompt_list_changed)
            case "test_trigger_resource_change":
                self.changes += 1
                await self.bus.publish(ResourceUpdated(contents.WATCHED))
                if contents.WATCHED in self.watching:
                    await self._tell(lambda session: session.send_resource_updated(contents.WATCHED))
            case "test_added_tool" if self.has_added_tool:
                pass
            case _:
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
        return types.CallToolResult.model_validate(text("Done."))

    async def _tell(self, send: Callable[[ServerSession], Awaitable[None]]) -> None:
        for session in list(self.sessions):
            try:
                await send(session)
            except Exception:  # noqa: BLE001  # it is closed, in one of several ways
                with contextlib.suppress(ValueError):
                    self.sessions.remove(session)

    async def remember(self, ctx: Context, _: types.NotificationParams) -> None:
        self.sessions.append(ctx.session)

    # -- prompts and resources

    async def list_prompts(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        shown = contents.prompts() + ([ADDED_PROMPT] if self.has_added_prompt else [])
        return types.ListPromptsResult.model_validate({"prompts": shown})

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Any:
        async def work(turn: Turn) -> Json | Ask | Later:
            try:
                found = await contents.prompt(params.name, turn)
            except KeyError as missing:
                raise MCPError(types.INVALID_PARAMS, f"The prompt needs {missing}") from None
            if found is None:
                raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
            return found

        turn = _turn(ctx, params.arguments)
        done = await play(work, turn) if is_modern(ctx) else await converse(work, turn)
        return _asking(done) if isinstance(done, Ask) else types.GetPromptResult.model_validate(done)

    async def list_resources(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult.model_validate({"resources": contents.resources()})

    async def list_templates(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": contents.templates()})

    async def read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        found = contents.read(params.uri, self.changes)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": params.uri})
        return types.ReadResourceResult.model_validate({"contents": found})

    async def subscribe(self, _: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.watching.add(params.uri)
        return types.EmptyResult()

    async def unsubscribe(self, _: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.watching.discard(params.uri)
        return types.EmptyResult()

    async def complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = contents.complete(params.argument.value)
        return types.CompleteResult.model_validate({"completion": {"values": values, "total": len(values)}})

    async def set_level(self, _: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
        return types.EmptyResult()


def _turn(ctx: Context, arguments: dict[str, Any] | None) -> Turn:
    params = ctx.params or {}
    return Turn(ctx, arguments or {}, params.get("inputResponses") or {}, params.get("requestState"))


def _asking(ask: Ask) -> types.InputRequiredResult:
    asked = {"inputRequests": ask.requests} | ({} if ask.state is None else {"requestState": ask.state})
    return types.InputRequiredResult.model_validate(asked)


def build() -> FixtureServer:
    """The server, with nothing called yet."""
    fixture = Fixture()
    hint = CacheHint(ttl_ms=60_000, scope="public")
    server = FixtureServer(
        NAME,
        version="1.0.0",
        cache_hints={
            "tools/list": hint,
            "prompts/list": hint,
            "resources/list": hint,
            "resources/templates/list": hint,
            "resources/read": CacheHint(ttl_ms=0, scope="public"),
        },
        get_tool_input_schema=lambda name: TOOLS[name].schema if name in TOOLS else None,
        on_list_tools=fixture.list_tools,
        on_call_tool=fixture.call_tool,
        on_list_prompts=fixture.list_prompts,
        on_get_prompt=fixture.get_prompt,
        on_list_resources=fixture.list_resources,
        on_list_resource_templates=fixture.list_templates,
        on_read_resource=fixture.read_resource,
        on_subscribe_resource=fixture.subscribe,
        on_unsubscribe_resource=fixture.unsubscribe,
        on_subscriptions_listen=ListenHandler(fixture.bus),
        on_completion=fixture.complete,
        on_set_logging_level=fixture.set_level,
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, fixture.remember)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    fixture.tasks.serve(server)
    return server


def _handshake_only(app: Asgi) -> Asgi:
    """A server from before 2026-07-28: it knows no request without a handshake."""

    async def serve(scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-protocol-version", b"").decode("latin-1") not in MODERN_PROTOCOL_VERSIONS:
            return await app(scope, receive, send)
        body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Unsupported protocol version"}}'
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    return serve


async def serve_http(port: int, *, old: bool) -> None:
    app: Asgi = build().streamable_http_app(event_store=Events(), retry_interval=100)
    # The protocol is named, so that asyncio sends small answers at once (TCP_NODELAY).
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(256)
        sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
        sys.stdout.flush()
        config = uvicorn.Config(_handshake_only(app) if old else app, log_level="warning", timeout_graceful_shutdown=2)
        await uvicorn.Server(config).serve([listening])


async def serve_stdio() -> None:
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--stdio", action="store_true")
    way.add_argument("--port", type=int)
    parser.add_argument("--old", action="store_true", help="over HTTP: only clients that begin with a handshake")
    chosen = parser.parse_args()
    # Logging and sampling are deprecated, and tested all the same.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(serve_stdio() if chosen.stdio else serve_http(chosen.port, old=chosen.old))


if __name__ == "__main__":
    main()
