"""Notifies clients of changes: lists of tools, prompts and resources, and resources that they watch.

A client with a handshake session is notified on its session's own stream; one of 2026-07-28 on a stream that it requests
(subscriptions/listen). Each is notified of what its own actor sees, and of nothing else. While nobody listens, nothing is
done.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.subscriptions import ListenHandler
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
    event_to_notification,
)

from toolgate.errors import CallError
from toolgate.mcp.method_tools import METHOD_TAG
from toolgate.mcp.server.caller import Request
from toolgate.mcp.server.identity import IdentifyCaller
from toolgate.mcp.server.prompts_resources import VisibleServer, VisibleUpstreams
from toolgate.mcp.server.results import INTERNAL_ERROR, ProtocolError
from toolgate.mcp.server.session_records import KEPT_KEY, KeptSession
from toolgate.model import Actor, Tool
from toolgate.tasks import BackgroundTasks

if TYPE_CHECKING:
    from toolgate.app.app import App

CHANGE_POLL_SECONDS = 0.25
"""A poll costs a comparison of numbers."""
MAX_LISTENERS = 10_000
MAX_ACTOR_LISTENERS = 300
MAX_WATCHED_RESOURCES = 1_000
LISTENER_KEY = "toolgate_watcher"
OnEvent = Callable[[ServerEvent], object]


@dataclass(eq=False)
class ChangeListener:
    actor: Actor
    tell: OnEvent
    seen: tuple[Tool, ...] = ()
    """The tools that its actor may see."""
    listed: tuple[Tool, ...] = ()
    """Those of them that it is listed."""
    uris: dict[str, str] = field(default_factory=dict)
    """The resources that it watches, each with its server."""


class ChangeNotifier:
    def __init__(self, app: "App", who: IdentifyCaller, upstreams: VisibleUpstreams) -> None:
        self._app = app
        self._who = who
        self._upstreams = upstreams
        self._watchers: set[ChangeListener] = set()
        self._work = BackgroundTasks()
        self._looking: asyncio.Task[None] | None = None
        self._streams: set[ListenHandler] = set()
        self._is_open = True
        app.servers.connections.listen(self._hear)

    async def close(self) -> None:
        self._is_open = False
        for stream in tuple(self._streams):
            stream.close()
        self._work.cancel()
        self._watchers.clear()

    # -- who listens

    async def begin(self, ctx: Request, _params: types.NotificationParams) -> None:
        """Adds a client with a handshake session, for as long as that lasts."""
        connection = ctx.session._connection
        await self.join(
            connection, self._who(ctx).actor, lambda event: self._work.start(notify(connection, event), unheard=True)
        )

    async def join(self, connection: Connection, actor: Actor, tell: Callable[[ServerEvent], object]) -> ChangeListener:
        """Adds a handshake session, once; gives its listener."""
        known = connection.state.get(LISTENER_KEY)
        if isinstance(known, ChangeListener):
            return known
        watcher = connection.state[LISTENER_KEY] = ChangeListener(actor, tell)
        connection.exit_stack.callback(self.remove, watcher)
        await self._add(watcher)
        return watcher

    async def listen(self, ctx: Request, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Serves a stream of changes to a client of 2026-07-28."""
        actor = self._who(ctx).actor
        own = sum(watcher.actor == actor for watcher in self._watchers)
        if len(self._streams) >= MAX_LISTENERS or own >= MAX_ACTOR_LISTENERS or not self._is_open:
            raise ProtocolError(INTERNAL_ERROR, "Too many open subscriptions")
        wanted = params.notifications.resource_subscriptions or []
        if len(wanted) > MAX_WATCHED_RESOURCES:
            raise ProtocolError(INTERNAL_ERROR, f"At most {MAX_WATCHED_RESOURCES} resources can be subscribed to at once")
        watcher = ChangeListener(actor, lambda _event: None)
        stream = ListenHandler(_SingleListenerBus(watcher))
        self._streams.add(stream)
        try:
            await self._add(watcher)
            for uri in wanted:
                await self.watch(watcher, str(uri))
            return await stream(ctx, params)
        finally:
            self._streams.discard(stream)
            self.remove(watcher)

    async def _add(self, watcher: ChangeListener) -> None:
        watcher.seen = await self._app.tools.list(watcher.actor)
        watcher.listed = (await self._app.tools.served(watcher.actor)).tools
        self._watchers.add(watcher)
        if self._looking is None or self._looking.done():
            self._looking = self._work.start(self._look())

    def remove(self, watcher: ChangeListener) -> None:
        self._watchers.discard(watcher)
        for uri, server in watcher.uris.items():
            self._let_go(server, uri)
        watcher.uris.clear()

    # -- resources

    async def subscribe(self, ctx: Request, params: types.SubscribeRequestParams) -> dict[str, object]:
        watcher, uri = ctx.session._connection.state.get(LISTENER_KEY), str(params.uri)
        if isinstance(watcher, ChangeListener) and len(watcher.uris) < MAX_WATCHED_RESOURCES and uri not in watcher.uris:
            await self.watch(watcher, uri)
            if uri in watcher.uris:
                await _keep(ctx, uri, subscribed=True)
        return {}

    async def unsubscribe(self, ctx: Request, params: types.UnsubscribeRequestParams) -> dict[str, object]:
        watcher, uri = ctx.session._connection.state.get(LISTENER_KEY), str(params.uri)
        if isinstance(watcher, ChangeListener) and uri in watcher.uris:
            self.unwatch(watcher, uri)
            await _keep(ctx, uri, subscribed=False)
        return {}

    def unwatch(self, watcher: ChangeListener, uri: str) -> None:
        if (server := watcher.uris.pop(uri, None)) is not None:
            self._let_go(server, uri)

    async def watch(self, watcher: ChangeListener, uri: str) -> None:
        """Notifies a client of changes of a resource; nothing comes of one that it can't see."""
        server = await self._upstreams.resource(watcher.actor, uri)
        if server is None or uri in watcher.uris or not await self._may_read(watcher.actor, server, uri):
            return
        watcher.uris[uri] = server.name
        tool = server.methods["resources/read"]
        with contextlib.suppress(CallError):  # a server that can't be asked now, or has no such thing, tells nothing
            await self._app.servers.subscribe(server.name, uri, tool=tool, actor=watcher.actor)

    async def _may_read(self, actor: Actor, server: VisibleServer, uri: str) -> bool:
        policy, tool = self._app.policy, server.methods["resources/read"]
        tier = self._app.tools.get(tool, actor).tier
        arguments = {"uri": uri} if policy.engine.reads.arguments else None
        return (await policy.decide(actor, "tool.request", tool, tier=tier, door="mcp", arguments=arguments)).allow

    def _let_go(self, server: str, uri: str) -> None:
        """Unsubscribes at the server once nobody here watches."""
        if self._is_open and not any(watcher.uris.get(uri) == server for watcher in self._watchers):
            self._work.start(self._unsubscribe(server, uri), unheard=True)

    async def _unsubscribe(self, server: str, uri: str) -> None:
        with contextlib.suppress(CallError):
            await self._app.servers.connections.unsubscribe(server, uri)

    # -- what changes

    async def _look(self) -> None:
        """Polls for changes of anybody's tools: by the catalog, the flags, or the policy."""
        tools, servers = self._app.tools, self._app.servers
        known, items = tools.version, servers.accepted_items
        while self._watchers:
            await asyncio.sleep(CHANGE_POLL_SECONDS)
            if tools.version == known is not None and servers.accepted_items is items:
                continue
            for watcher in tuple(self._watchers):
                await self._compare(watcher)
            for server, kind in servers.accepted_items.differ(items):
                await self._spread(server, [PromptsListChanged() if kind == "prompts" else ResourcesListChanged()])
            known, items = tools.version, servers.accepted_items

    async def _compare(self, watcher: ChangeListener) -> None:
        listed_before, listed = watcher.listed, (await self._app.tools.served(watcher.actor)).tools
        watcher.listed = listed
        if listed is not listed_before and _listed(listed_before) != _listed(listed):
            watcher.tell(ToolsListChanged())
        before, now = watcher.seen, await self._app.tools.list(watcher.actor)
        if now is before:
            return
        watcher.seen = now
        if _methods(before) != _methods(now):
            watcher.tell(PromptsListChanged())
            watcher.tell(ResourcesListChanged())

    def _hear(self, server: str, what: str, uri: str | None) -> None:
        """Handles a change at an upstream server."""
        events: list[ServerEvent] = []
        if what == "prompts" or (what == "up" and server in self._upstreams.missed):
            events.append(PromptsListChanged())
        if what == "resources" or (what == "up" and server in self._upstreams.missed):
            events.append(ResourcesListChanged())
        if what == "up":
            self._upstreams.missed.discard(server)
        if what == "resource" and uri is not None:
            for watcher in tuple(self._watchers):
                if watcher.uris.get(uri) == server:
                    watcher.tell(ResourceUpdated(uri))
        if events and self._watchers and self._is_open:
            self._work.start(self._spread(server, events), unheard=True)

    async def _spread(self, server: str, events: list[ServerEvent]) -> None:
        for watcher in tuple(self._watchers):
            if server in await self._upstreams.servers(watcher.actor):
                for event in events:
                    watcher.tell(event)


async def notify(connection: Connection, event: ServerEvent) -> None:
    """Sends a client with a handshake session an event, on the session's own stream."""
    notification = event_to_notification(event, {})
    params = notification.model_dump(by_alias=True, mode="json", exclude_none=True).get("params")
    await connection.notify(notification.method, params or None)


async def _keep(ctx: Request, uri: str, *, subscribed: bool) -> None:
    """Puts a subscription on record where the session is on record."""
    if isinstance(kept := ctx.session._connection.state.get(KEPT_KEY), KeptSession):
        await kept.set_subscribed(uri, subscribed=subscribed)


class _SingleListenerBus:
    """The bus from which the SDK's stream takes its events, with one listener."""

    def __init__(self, watcher: ChangeListener) -> None:
        self._watcher = watcher

    async def publish(self, event: ServerEvent) -> None:
        self._watcher.tell(event)

    def subscribe(self, listener: OnEvent) -> Callable[[], None]:
        self._watcher.tell = listener
        return lambda: None


def _listed(tools: tuple[Tool, ...]) -> list[Tool]:
    return [tool for tool in tools if METHOD_TAG not in tool.tags]


def _methods(tools: tuple[Tool, ...]) -> list[str]:
    return [tool.name for tool in tools if METHOD_TAG in tool.tags]
