"""Runs the HTTP server: the socket, uvicorn on it, and an orderly end: running calls end, then what holds them is closed. A
second signal ends it at once.

HTTP is read from a connection in uvicorn's way (httptools), with limits on what may come before a request is known, with
calls that end when whoever made them goes away, and with short answers written at once: head and body in two writes cost a
system call and a wake-up of the client more, a fifth of what a quick call takes in all.
"""

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.loops.auto import auto_loop_factory
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from toolgate.app.app import App
from toolgate.errors import NotServing
from toolgate.jobs.worker import JobWorker
from toolgate.mcp.server.fast_path import CALL_KEY, GONE_KEY, REPLY_KEY
from toolgate.serve.app import HttpApp
from toolgate.serve.open_files import max_connections
from toolgate.tasks import finish, start_task

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 75
"""The time that a connection may be idle: longer than the proxies' usual minute, so that they close it."""
MAX_HEAD_BYTES = 65_536
"""Bytes of a request's first line and headers, and of what comes with a body besides its content: trailers, chunk sizes."""
HEAD_SECONDS = 30.0
"""The time in which they must have arrived."""
REST_SECONDS = 5.0
"""The time in which the rest of a body must have arrived whose request is answered already."""
STALL_SECONDS, STOP_STALL_SECONDS, STALL_BYTES = 60.0, 3.0, 16_384
"""A client that is sent more than it reads must read so many bytes in this time; in the second, once the server stops."""
MAX_PIPELINED = 32
"""Requests that a client may send before the one that runs is answered; more are not read until then."""
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    b"content-length: 76\r\n\r\n"
    b'{"title":"Request Header Fields Too Large","status":431,"code":"TOO_LARGE"}\n'
)


def bind(app: App) -> socket.socket:
    host, port = app.settings.serve.host, app.settings.serve.port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise NotServing(f"The address {host!r} cannot be resolved: {error}.", suggestion="Give --host 127.0.0.1.") from None
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # said, or answers are held back (Nagle)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise NotServing(f"Port {port} of {host} is already in use.", suggestion="Choose another with --port.") from None
        words = f"{host}:{port} cannot be listened on: {error.strerror}."
        raise NotServing(words, suggestion="Give another --host or --port.") from None
    listening.setblocking(False)
    return listening


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: App, ready: Callable[[str, HttpApp], Coroutine[Any, Any, None]]) -> None:
    """Serve until a signal says to stop. `ready` is told once requests are taken: under which URL, and by what. Jobs are run
    meanwhile, if the settings say so; those that run when it is told to stop are waited for."""
    listening = bind(app)
    url = url_of(listening)
    async with HttpApp(app) as http:
        config = uvicorn.Config(
            http, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, interface="asgi3",
            timeout_graceful_shutdown=max(1, round(app.settings.shutdown_seconds)),
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # strangers' faults; ours `HttpApp` logs
        running = RunningServer(uvicorn.Server(config), http)
        with _signals(running.signalled):
            await running.run(listening, partial(ready, url, http))


class RunningServer:
    """The server and the worker beside it, from the first request to the last one's end."""

    def __init__(self, server: uvicorn.Server, http: HttpApp) -> None:
        self._server = server
        self._http = http
        self._worker: JobWorker | None = None

    async def run(self, listening: socket.socket, ready: Callable[[], Coroutine[Any, Any, None]]) -> None:
        serving = start_task(self._server._serve([listening]))  # without its own way with signals
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        async with AsyncExitStack() as stack:
            try:
                if not serving.done():
                    await ready()
                    await self._start_worker(stack)
                await finish(serving)
            finally:
                self._stop()
                await serving

    async def _start_worker(self, stack: AsyncExitStack) -> None:
        """Runs jobs until the stack is closed, which waits for them."""
        app = self._http.app
        if app.settings.jobs.serve and not self._server.should_exit:
            self._worker = await stack.enter_async_context(app.jobs.worker())

    def signalled(self) -> None:
        self._server.force_exit = self._server.should_exit  # the second time
        if self._server.force_exit and self._worker is not None:
            self._worker.hurry()
        self._stop()

    def _stop(self) -> None:
        self._server.should_exit = True
        self._http.streams.end()
        if self._worker is not None:
            self._worker.halt()


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)
    with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, and not in a thread
        for one in handled:
            loop.add_signal_handler(one, stop)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for one in handled:
                loop.remove_signal_handler(one)


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run on the quicker event loop where there is one."""
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        return runner.run(main)


# -- connections


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
        super().on_headers_complete()
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

    def shutdown(self) -> None:
        super().shutdown()
        if self._stalled is not None:
            self._is_read()
            self._watch_reading(STOP_STALL_SECONDS)  # the server stops without those who do not read

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
