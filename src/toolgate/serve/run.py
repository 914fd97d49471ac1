"""`toolgate serve`: the socket, uvicorn on it, and an orderly end: running calls end, then what holds them is closed. A
second signal ends it at once.
"""

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn

from toolgate.app.app import App
from toolgate.serve.app import HttpApp
from toolgate.serve.problems import NotServing
from toolgate.serve.protocol import BoundedProtocol
from toolgate.tasks import finish, start_task

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle: longer than the proxies' usual minute, so that it is they who close it."""


def bind(app: App) -> socket.socket:
    """The socket to listen on."""
    host, port = app.settings.serve.host, app.settings.serve.port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise NotServing(f"The address {host!r} can't be resolved: {error}.", suggestion="Give --host 127.0.0.1.") from None
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # said, or answers are held back (Nagle)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _explain(error, host, port) from None
    listening.setblocking(False)
    return listening


def _explain(error: OSError, host: str, port: int) -> NotServing:
    if error.errno == errno.EADDRINUSE:
        return NotServing(f"Port {port} of {host} is already in use.", suggestion="Choose another with --port.")
    return NotServing(f"{host}:{port} can't be listened on: {error.strerror}.", suggestion="Give another --host or --port.")


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: App, ready: Callable[[str, HttpApp], Coroutine[Any, Any, None]]) -> None:
    """Serve until a signal says to stop. `ready` is told once requests are taken: under which URL, and by what."""
    listening = bind(app)
    url = url_of(listening)
    async with HttpApp(app) as http:
        config = uvicorn.Config(
            http, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, interface="asgi3",
            timeout_graceful_shutdown=max(1, round(app.settings.shutdown_seconds)),
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # strangers' faults; ours `HttpApp` logs
        server = uvicorn.Server(config)
        with _signals(partial(_signalled, server, http)):
            serving = start_task(server._serve([listening]))  # without its own way with signals
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            try:
                if not serving.done():
                    await ready(url, http)
                await finish(serving)
            finally:
                _stop(server, http)
                await serving


def _signalled(server: uvicorn.Server, http: HttpApp) -> None:
    server.force_exit = server.should_exit  # the second time
    _stop(server, http)


def _stop(server: uvicorn.Server, http: HttpApp) -> None:
    server.should_exit = True
    http.mcp.end_streams()


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
    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        from uvloop import new_event_loop as factory
    except ImportError:  # Windows
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
