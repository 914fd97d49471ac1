"""A wire to a server that can freeze: connections stay open and are even taken, but nothing comes through any more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Wire:
    """A proxy on a port of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._pumps: set[asyncio.Task[None]] = set()

    def freeze(self) -> None:
        self._thawed.clear()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._host, self._port)
        for come, go in ((reader, there[1]), (there[0], writer)):
            pump = asyncio.ensure_future(self._pump(come, go))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, come: asyncio.StreamReader, go: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while data := await come.read(65_536):
                    await self._thawed.wait()
                    go.write(data)
                    await go.drain()
        finally:
            go.transport.abort()

    async def end(self) -> None:
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await asyncio.sleep(0)  # aborted connections are closed in the loop's next round


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[tuple[Wire, str]]:
    """A wire to where the URL leads, and the URL that leads through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    wire = Wire(parts.hostname, parts.port)
    server = await asyncio.start_server(wire.connect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield wire, url.replace(f":{parts.port}/", f":{port}/")
    finally:
        server.close()
        await wire.end()
        await server.wait_closed()
