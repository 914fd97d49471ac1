"""Runs the HTTP server: the socket, uvicorn on it, and an orderly end: running calls end, then what holds them is closed. A
second signal ends it at once.

It ends so that no request is lost: it says that it is not ready, for as long as `serve.drain_seconds`, so that a balancer
can leave; then it stops listening, after taking what was connected already; then what runs has `shutdown_seconds` to end.
"""

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn.loops.auto import auto_loop_factory

from toolgate.app.app import App
from toolgate.errors import NotServing
from toolgate.jobs.worker import JobWorker
from toolgate.serve.app import HttpApp
from toolgate.serve.connections import BoundedProtocol, DrainableState, drain
from toolgate.serve.request_log import ServerLog
from toolgate.settings.servers import ServeSettings
from toolgate.tasks import BackgroundTasks, finish, start_task

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 75
"""The time that a connection may be idle: longer than the proxies' usual minute, so that they close it."""


def bind(settings: ServeSettings, count: int = 1) -> list[socket.socket]:
    """Listens `count` times on one address: the system gives each connection to one of the sockets."""
    if count > 1:
        _bind(settings.host, settings.port, shared=False).close()  # else it would share the port with another server
    first = _bind(settings.host, settings.port, shared=count > 1)
    address = first.getsockname()[:2]
    return [first, *(_bind(*address, shared=True) for _ in range(count - 1))]


def _bind(host: str, port: int, *, shared: bool) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise NotServing(f"The address {host!r} cannot be resolved: {error}.", suggestion="Give --host 127.0.0.1.") from None
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # said, or answers are held back (Nagle)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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


async def serve(
    app: App,
    ready: Callable[[str, HttpApp], Coroutine[Any, Any, None]],
    log: ServerLog | None = None,
    listening: socket.socket | None = None,
    stopped: Callable[[Callable[[], None]], AbstractContextManager[None]] | None = None,
) -> None:
    """Serves until a signal says to stop. `ready` is told once requests are taken: under which URL, and by what. Jobs are
    run meanwhile, if the settings say so; those that run when it is told to stop are waited for.

    Args:
        log: Where requests are noted.
        listening: The socket; without it, one for the address in the settings.
        stopped: Calls what it is given when the server is to stop; without it, on SIGINT and SIGTERM.
    """
    if listening is None:
        [listening] = bind(app.settings.serve)
    url = url_of(listening)
    async with HttpApp(app, log) as http:
        config = uvicorn.Config(
            http, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, interface="asgi3",
            timeout_graceful_shutdown=max(1, round(app.settings.shutdown_seconds)),
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # strangers' faults; ours `HttpApp` logs
        running = RunningServer(DrainingServer(config), http)
        with (stopped or stop_signals)(running.signalled):
            await running.run(listening, partial(ready, url, http))


class DrainingServer(uvicorn.Server):
    """Takes the connections that wait before it stops listening: the system would reset them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_stopped_listening: Callable[[], None] = lambda: None
        """Called then."""
        self.server_state: DrainableState = DrainableState()
        self._taking = BackgroundTasks()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        drain(self.server_state)
        for listening in sockets or []:
            with suppress(OSError):  # nobody waits any more
                while True:
                    connection, _ = listening.accept()
                    connection.setblocking(False)
                    self._taking.start(self._take(connection), unheard=True)
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        self.has_stopped_listening()
        await super().shutdown(sockets)

    async def _take(self, connection: socket.socket) -> None:
        def protocol() -> BoundedProtocol:
            return BoundedProtocol(self.config, self.server_state, self.lifespan.state)

        await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)


class RunningServer:
    """The server and the worker beside it, from the first request to the last one's end."""

    def __init__(self, server: DrainingServer, http: HttpApp) -> None:
        self._server = server
        server.has_stopped_listening = http.streams.end  # not before: they would come back
        self._http = http
        self._worker: JobWorker | None = None
        self._draining: asyncio.Task[None] | None = None

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
        if app.settings.jobs.serve and self._draining is None:
            self._worker = await stack.enter_async_context(app.jobs.worker())

    def signalled(self) -> None:
        if self._draining is None:
            self._draining = start_task(self._drain())
            return
        self._server.force_exit = True  # the second time
        if self._worker is not None:
            self._worker.hurry()
        self._stop()

    async def _drain(self) -> None:
        """Says that it is about to stop, and serves on until whoever sends requests has had the time to leave."""
        self._http.readiness.is_stopping = True
        drain(self._server.server_state)
        if self._worker is not None:
            self._worker.halt()
        await asyncio.sleep(self._http.app.settings.serve.drain_seconds)
        self._stop()

    def _stop(self) -> None:
        self._server.should_exit = True
        if self._worker is not None:
            self._worker.halt()


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Has something called on SIGINT and SIGTERM."""
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


SWITCH_SECONDS = 0.001
"""The time after which a busy thread lets another one run. The writer holds the database's lock while it waits for its turn,
and other processes wait for that lock: with Python's own 5 ms, two of them did a quarter less."""


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run on the quicker event loop where there is one."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        return runner.run(main)
