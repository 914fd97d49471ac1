"""A plain round-robin proxy: each request goes to the next server, whoever sent it and whatever it is about.

It knows nothing of MCP or sessions. Every request has a connection of its own to a server, so that none sticks to one; a
client's connection is kept. Heads and bodies are passed on as they are, Host and Origin above all, because what a server
makes of them is tested; only Connection is the proxy's, and a key can be put on every request, for clients that can't. A
server that does not take a connection is left out, as a balancer would; one that breaks off an answer is not covered up for.
"""

import asyncio
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

GONE = (OSError, asyncio.IncompleteReadError)
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class RoundRobin:
    """The proxy, which runs in the loop of whoever starts it."""

    def __init__(self, urls: Sequence[str], key: str | None = None) -> None:
        self.places = [(parts.hostname or "", parts.port or 0) for parts in map(urlsplit, urls)]
        self.served = [0] * len(urls)
        """How many requests each server got."""
        self._turns = itertools.count()
        self._added = b"Connection: close\r\n" + (f"Authorization: Bearer {key}\r\n".encode() if key else b"")
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Gives its port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with suppress(*GONE):
                begun: bytes | None = b""
                while begun is not None:
                    begun = await self._one(begun, reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the proxy
        finally:
            await _close(writer)
            self._serving.discard(task)

    async def _one(self, begun: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """One request; gives what has come of the next one, or None if there is none."""
        head = begun + await reader.readuntil(b"\r\n\r\n")
        request = _with(head, self._added) + await _body(head, reader)
        found = await self._connect()
        if found is None:
            writer.write(UNAVAILABLE)
            return None
        theirs, upstream = found
        try:
            upstream.write(request)
            return await self._answer(theirs, writer, reader)
        finally:
            await _close(upstream)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        first = next(self._turns)
        for turn in ((first + step) % len(self.places) for step in range(len(self.places))):
            with suppress(OSError):
                opened = await asyncio.open_connection(*self.places[turn])
                self.served[turn] += 1
                return opened
        return None

    async def _answer(
        self, theirs: asyncio.StreamReader, writer: asyncio.StreamWriter, reader: asyncio.StreamReader
    ) -> bytes | None:
        """Passes on an answer as it comes, for as long as the client is there."""
        answering = asyncio.ensure_future(_pump(theirs, writer))
        following = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((answering, following), return_when=asyncio.FIRST_COMPLETED)
            if following.done() and not following.result():
                return None
            return (following.result() if following.done() else b"") if await answering else None
        finally:
            for task in (answering, following):
                task.cancel()
            await asyncio.gather(answering, following, return_exceptions=True)


@contextmanager
def round_robin(urls: Sequence[str], key: str | None = None) -> Iterator[str]:
    """The address of servers behind a proxy that runs in a thread; their path is that of the first."""
    loop, proxy = asyncio.new_event_loop(), RoundRobin(urls, key)
    port = loop.run_until_complete(proxy.start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}{urlsplit(urls[0]).path}"
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def _with(head: bytes, added: bytes) -> bytes:
    """A head with other lines in place of its Connection header."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    return b"\r\n".join([first, *kept]) + b"\r\n" + added + b"\r\n"


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if headers.get(b"transfer-encoding") != b"chunked":
        return await reader.readexactly(int(headers.get(b"content-length", 0)))
    parts, size = [], -1
    while size:
        line = await reader.readuntil(b"\r\n")
        size = int(line, 16)
        parts.append(line + await reader.readexactly(size + 2))
    return b"".join(parts)


async def _pump(theirs: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Passes on an answer until the server closes the connection; gives whether it was whole."""
    with suppress(*GONE):
        head = await theirs.readuntil(b"\r\n\r\n")
        writer.write(_with(head, b""))
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None)
        size, last = 0, b""
        while data := await theirs.read(65_536):
            size, last = size + len(data), (last + data)[-5:]
            writer.write(data)
            await writer.drain()
        return size == length if length is not None else last == b"0\r\n\r\n" or head.split(b" ", 2)[1] == b"204"
    return False


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(*GONE):
        await writer.wait_closed()  # else the collector finds it open, during some later test
