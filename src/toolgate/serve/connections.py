"""HTTP connections, read in uvicorn's way (httptools), with limits on what may come before a request is known, with calls
that end when whoever made them goes away, and with short answers written at once: head and body in two writes cost a system
call and a wake-up of the client more, a fifth of what a quick call takes in all.

While the server drains, each answer says that it is the connection's last one, and a connection on which nothing comes is
closed only after a moment: a request may be on its way.
"""

import asyncio
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from toolgate.mcp.server.fast_path import CALL_KEY, GONE_KEY, REPLY_KEY
from toolgate.serve.open_files import max_connections

MAX_HEAD_BYTES = 65_536
"""Bytes of a request's first line and headers, and of what comes with a body besides its content: trailers, chunk sizes."""
HEAD_SECONDS = 30.0
"""The time in which they must have arrived."""
REST_SECONDS = 5.0
"""The time in which the rest of a body must have arrived whose request is answered already."""
STALL_SECONDS, STOP_STALL_SECONDS, STALL_BYTES = 60.0, 3.0, 16_384
"""A client that is sent more than it reads must read so many bytes in this time; in the second, once the server stops."""
BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
MAX_PIPELINED = 32
"""Requests that a client may send before the one that runs is answered; more are not read until then."""
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    b"content-length: 76\r\n\r\n"
    b'{"title":"Request Header Fields Too Large","status":431,"code":"TOO_LARGE"}\n'
)
LINGER_SECONDS = 0.25
"""The time for a request that is on its way on a connection that is about to be closed."""
FIRST_LINGER_SECONDS = 1.0
"""The same on a connection that was opened and has not had a request yet."""


class DrainableState(ServerState):
    """What the connections of a server have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.draining = False


def drain(state: DrainableState) -> None:
    """Has every connection closed after the answer that is on its way, or the next one."""
    state.draining = True
    for connection in state.connections:
        if isinstance(connection, BoundedProtocol) and connection.cycle is not None:
            connection.cycle.keep_alive = False


class _Reply:
    """Answers one request at once. What it does is what uvicorn does for the two messages of a whole answer."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def __call__(self, status: int, body: bytes) -> bool:
        """Send JSON; gives False, and does nothing, if the client does not read what it is sent already."""
        cycle = self._cycle
        if cycle.response_started or cycle.flow.write_paused:
            return False
        if cycle.disconnected:
            return True
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        content = [STATUS_LINE[status]]
        for name, value in cycle.default_headers:
            content += (name, b": ", value, b"\r\n")
        content.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
        content.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        content.append(body)
        cycle.transport.write(b"".join(content))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose client can hold no more than it may: of memory, of time, and of the server's end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False  # whatever handlers its logger is given: addresses can hold what is no log's business
        self._head = 0
        self._in_head = True
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        """The request that is being served. Those that came after it wait."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > max_connections():
            transport.abort()
            return
        self._expect(HEAD_SECONDS)
        if self._is_draining:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_come()
        self._is_read()
        super().connection_lost(exc)
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True  # uvicorn tells only the request that came last, which may not have begun
            running.message_event.set()
            running.scope[GONE_KEY] = True  # type: ignore[literal-required]
            call = running.scope.get(CALL_KEY)
            if call is not None:
                call.cancel()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        """A request has begun, and it is not yet known which: that may take neither too many bytes nor too long. Of a body,
        it may be too many bytes that are not its content."""
        if self._in_head and self._late is None:
            self._expect(HEAD_SECONDS)
        if self._head > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self._in_head:
                self.transport.write(TOO_LONG)
            self.transport.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are no headers: they come when the request is being served
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head = 0
        self._has_come()
        if self.parser.get_http_version() not in ("1.1", "1.0"):
            raise ValueError  # which the parser makes a bad request of
        upgrades = self.parser.should_upgrade()
        if upgrades and any(name in BODY_HEADERS and value != b"0" for name, value in self.headers):
            raise ValueError  # the parser would take its body for the requests that follow
        super().on_headers_complete()
        if self._is_draining or upgrades:  # to another protocol, which is not done; what follows could be of that
            self.cycle.keep_alive = False
        if 0 < len(self.pipeline) <= MAX_PIPELINED:
            self.flow.resume_reading()  # uvicorn reads no more until it is this one's turn, and would not see the client go
        self.scope[REPLY_KEY] = _Reply(self.cycle)  # type: ignore[literal-required]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head = 0
        self._has_come()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_head and self._late is None and self.cycle.response_complete:
            self._expect(REST_SECONDS)  # nobody reads it, and it could come for ever

    # -- time

    def _expect(self, seconds: float) -> None:
        self._late = self.loop.call_later(seconds, self._too_late)

    def _has_come(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading(STALL_SECONDS)

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def _watch_reading(self, seconds: float) -> None:
        unread = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(seconds, self._check_reading, seconds, unread)

    def _check_reading(self, seconds: float, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - STALL_BYTES:
            self.transport.abort()
        else:
            self._watch_reading(seconds)

    def _is_read(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # -- the end of the server

    @property
    def _is_draining(self) -> bool:
        return isinstance(self.server_state, DrainableState) and self.server_state.draining

    def shutdown(self) -> None:
        """Ends the connection after the answer that is on its way; if there is none, when none has to be given soon."""
        if self._is_idle:
            self.loop.call_later(FIRST_LINGER_SECONDS if self.cycle is None else LINGER_SECONDS, self._close_if_idle)
        else:
            self.cycle.keep_alive = False
        if self._stalled is not None:
            self._is_read()
            self._watch_reading(STOP_STALL_SECONDS)  # the server stops without those who do not read

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _close_if_idle(self) -> None:
        if self._is_idle and self._head == 0 and not self.transport.is_closing():
            self.transport.close()
