"""Change notifications of a server: its lists and resources, and the subscription to them.

In older protocols a server just sends them. In 2026-07-28 it sends them on a stream that is requested, and requested again
whenever it ends; what may have been missed meanwhile counts as changed.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from toolgate.errors import CallError
from toolgate.mcp.client.list_cache import ListCache
from toolgate.mcp.client.model import ListKind, OnServerChange
from toolgate.tasks import start_task, wait_for_any

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import Connection

MIN_NOTIFY_SECONDS = 0.25
"""The same change is passed on at most this often."""
ACKNOWLEDGE_SECONDS = 10.0
STREAM_CLOSE_SECONDS = 1.0
"""Seconds for the server to be told that an older stream is not wanted any more."""
FIRST_REOPEN_SECONDS, MAX_REOPEN_SECONDS = 1.0, 60.0
MAX_SUBSCRIBED_URIS, MAX_TRACKED_CHANGES = 1_000, 2_000
MAX_SUBSCRIBED_URI_CHARS = 4_096
CHANGED_LISTS: dict[str, tuple[str, tuple[ListKind, ...]]] = {
    "notifications/tools/list_changed": ("tools", ("tools",)),
    "notifications/prompts/list_changed": ("prompts", ("prompts",)),
    "notifications/resources/list_changed": ("resources", ("resources", "templates")),
}

logger = logging.getLogger("toolgate.mcp")


class Subscriptions:
    def __init__(self, name: str, lists: ListCache, tell: OnServerChange) -> None:
        self.wanted: Counter[str] = Counter()
        """Resources, and how many subscribers each has."""
        self._name = name
        self._lists = lists
        self._tell = tell
        self._told: dict[tuple[str, str | None], float] = {}
        self._stream: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._opened = asyncio.Event()

    def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """Handles a notification."""
        if method in CHANGED_LISTS:
            what, lists = CHANGED_LISTS[method]
            self._lists.drop(*lists)
            self._say(what, None)
        elif method == "notifications/resources/updated":
            uri = params.get("uri")  # of what is subscribed to, or of a part of it
            if isinstance(uri, str) and len(uri) <= MAX_SUBSCRIBED_URI_CHARS and any(map(uri.startswith, self.wanted)):
                self._say("resource", uri)

    def _say(self, what: str, uri: str | None) -> None:
        """Passes a change on now; if it comes again too soon, once more when it is due."""
        now, key = monotonic(), (what, uri)
        due = self._told.get(key, 0.0)
        if due > now + MIN_NOTIFY_SECONDS:  # one more is on its way
            return
        if len(self._told) > MAX_TRACKED_CHANGES:
            self._told = {one: when for one, when in self._told.items() if when > now}
            if len(self._told) > MAX_SUBSCRIBED_URIS:  # nobody can want to hear of so many at a time
                return
        if due <= now:
            self._told[key] = now + MIN_NOTIFY_SECONDS
            self._tell(self._name, what, uri)
        else:
            self._told[key] = due + MIN_NOTIFY_SECONDS
            asyncio.get_running_loop().call_later(due - now, self._tell, self._name, what, uri)

    async def add(self, connection: "Connection", uri: str) -> None:
        """Subscribes to a resource."""
        if uri not in self.wanted and len(self.wanted) >= MAX_SUBSCRIBED_URIS:
            raise CallError(
                "CAPACITY_EXCEEDED", f"No more than {MAX_SUBSCRIBED_URIS} resources of a server can be subscribed to."
            )
        self.wanted[uri] += 1
        if self.wanted[uri] > 1:
            return
        try:
            await self._ask(connection, "resources/subscribe", uri)
        except BaseException:
            self._less(uri)
            raise

    async def remove(self, connection: "Connection | None", uri: str) -> None:
        """Unsubscribes, unless others are subscribed."""
        if uri not in self.wanted:
            return
        self._less(uri)
        if uri not in self.wanted and connection is not None:
            with suppress(CallError):
                await self._ask(connection, "resources/unsubscribe", uri)

    def _less(self, uri: str) -> None:
        self.wanted[uri] -= 1
        if self.wanted[uri] <= 0:
            del self.wanted[uri]

    async def _ask(self, connection: "Connection", method: str, uri: str) -> None:
        if connection.modern:
            await self._open(connection)
        else:
            await connection.request(method, {"uri": uri}, None)

    def _filter(self, connection: "Connection") -> dict[str, Any]:
        """The changes that are listened for: those that the server says it tells, and of what is subscribed to."""
        found: dict[str, Any] = {}
        for what in ("tools", "prompts", "resources"):
            said = connection.about.capabilities.get(what)
            if isinstance(said, Mapping) and said.get("listChanged") is True:
                found[f"{what}ListChanged"] = True
        return found | ({"resourceSubscriptions": sorted(self.wanted)} if self.wanted else {})

    async def run(self, connection: "Connection") -> None:
        """Keeps the subscriptions for as long as the connection lasts."""
        try:
            if connection.modern:
                await self._keep_open(connection)
            else:
                for uri in sorted(self.wanted):
                    with suppress(CallError):
                        await connection.request("resources/subscribe", {"uri": uri}, None)
        finally:
            if self._stream is not None:
                self._stream.cancel()
            self._stream = None

    async def _keep_open(self, connection: "Connection") -> None:
        wait = FIRST_REOPEN_SECONDS
        while True:
            self._opened.clear()
            began = monotonic()
            if self._filter(connection):
                with suppress(CallError):
                    await self._open(connection, anew=False)
            if self._stream is None:
                await self._opened.wait()
            while self._stream is not None and not self._stream.done():
                await asyncio.wait({self._stream})
            wait = FIRST_REOPEN_SECONDS if monotonic() - began > MAX_REOPEN_SECONDS else min(MAX_REOPEN_SECONDS, wait * 2)
            self._stream = None
            await asyncio.sleep(wait)
            for method, (what, _) in CHANGED_LISTS.items():  # it may have been missed
                if f"{what}ListChanged" in self._filter(connection):
                    self.notice(method, {})

    async def _open(self, connection: "Connection", *, anew: bool = True) -> None:
        """Opens a stream for all that is wanted now, then closes the one before it."""
        async with self._opening:
            if self._stream is not None and not anew:
                return
            acknowledged = asyncio.Event()
            before = self._stream
            stream = start_task(connection.listen(self._filter(connection), acknowledged), unheard=True)
            await wait_for_any(acknowledged, stream, seconds=ACKNOWLEDGE_SECONDS)
            self._stream = stream
            self._opened.set()
            if before is not None:
                before.cancel()
                await asyncio.wait({before}, timeout=STREAM_CLOSE_SECONDS)
            if stream.done() and not stream.cancelled() and (error := stream.exception()) is not None:
                raise error
