"""GET /v1/events: what happens, live, as server-sent events.

An event's id is the number of its record in the audit log, so that a client that was cut off sends it back as Last-Event-ID
and misses nothing, whichever process answers.
"""

import asyncio
from contextlib import suppress
from typing import Annotated

import msgspec
from starlette.types import Receive, Scope, Send

from toolgate.app.log_tail import LogEvent
from toolgate.mcp.server.fast_path import cancel_with_connection
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, Reply, Resource
from toolgate.serve.problems import HttpProblem

resource = Resource("events")

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
FAREWELL_SECONDS = 1.0
"""The time that a client has to take the end of its stream."""
RETRY_MS = 2_000
MAX_SEQ = 2**63 - 1
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects answers would hold events back
    (b"x-content-type-options", b"nosniff"),
]


class EventsQuery(ApiModel, frozen=True):
    """Filters of events."""

    event: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    """Only events of this name, or of names that begin so: `call.` gives call.started and call.ended."""
    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    session: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    after: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQ)] | None = None
    """The number of the last event that is known, for clients that cannot send Last-Event-ID."""
    unnamed: bool = False
    """True: without the line that names each event. A browser's EventSource takes named ones only if it knows every name."""

    def wants(self, event: LogEvent) -> bool:
        return (
            (self.event is None or event.event.startswith(self.event))
            and self.tool in (None, event.tool)
            and self.session in (None, event.details.get("session"))
        )


@resource.get("/v1/events", permission="own", media_type=MEDIA_TYPE, problems=(429,))
async def follow_events(request: ApiRequest, query: EventsQuery) -> str:
    """Follow what happens, as server-sent events: calls, approvals, changes of tools, budgets, jobs.

    Callers are told of their own user's, other roles of the tenant's. With the header Last-Event-ID it goes on behind that
    event. Each event is JSON in the form of LogEvent; its name is the field `event`.
    """
    after = _last_event_id(request.headers.get(b"last-event-id"))
    stream = SseAnswer(request, query.after if after is None else after, query)
    return Reply(stream, media_type=MEDIA_TYPE)  # type: ignore[return-value]


def _last_event_id(given: bytes | None) -> int | None:
    if given is None or not given.strip():
        return None
    if not given.isdigit() or len(given) > 19:
        raise HttpProblem(400, "Last-Event-ID must be the id of an event of this stream.")
    return min(int(given), MAX_SEQ)


class SseAnswer:
    """The answer to one client, as an ASGI app."""

    def __init__(self, request: ApiRequest, after: int | None, query: EventsQuery) -> None:
        self._request = request
        self._after = after
        self._query = query

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        request = self._request
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        tenant = None if request.all_tenants else request.actor.tenant
        user = None if request.all_users else request.actor.user
        named = not self._query.unnamed
        with request.http.streams.kept(request.credential.id, scope, request.headers):
            cancel_with_connection(scope)
            async with request.app.audit.tail.watching(self._after, tenant=tenant, user=user) as watcher:
                await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
                await self._write(send, b"retry: %d\n\n" % RETRY_MS)
                try:
                    while True:
                        found = await watcher.take(KEEP_ALIVE_SECONDS)
                        text = b"".join(sse_text(event, named=named) for event in found if self._query.wants(event))
                        await self._write(send, text or b": keep-alive\n\n")
                except asyncio.CancelledError:
                    with suppress(RuntimeError, TimeoutError):  # of a connection that is gone, or not read
                        async with asyncio.timeout(FAREWELL_SECONDS):
                            await send({"type": "http.response.body", "body": b""})

    async def _write(self, send: Send, text: bytes) -> None:
        await send({"type": "http.response.body", "body": text, "more_body": True})


def sse_text(event: LogEvent, *, named: bool = True) -> bytes:
    """Gives an event as it is sent. JSON has no line breaks, and names of events come from us."""
    name = b"event: %s\n" % event.event.encode() if named else b""
    return b"id: %d\n%sdata: %s\n\n" % (event.seq, name, msgspec.json.encode(event))
