"""A proxy that puts a key on every request, for clients that can't: the conformance suite knows no headers of its own.

All else is passed on byte by byte, Host and Origin above all, because what a server makes of them is tested.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

GONE = (OSError, asyncio.IncompleteReadError)


@contextmanager
def keyed(url: str, key: str) -> Iterator[str]:
    """The same address behind the proxy."""
    parts, loop = urlsplit(url), asyncio.new_event_loop()
    proxy = _Proxy(parts.hostname or "", parts.port or 0, key)
    server = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{parts.path}"
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(server), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


class _Proxy:
    def __init__(self, host: str, port: int, key: str) -> None:
        self._host, self._port = host, port
        self._line = f"Authorization: Bearer {key}\r\n".encode()
        self._serving: set[asyncio.Task[None]] = set()

    async def stop(self, server: asyncio.Server) -> None:
        server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        upstream: asyncio.StreamWriter | None = None
        back: asyncio.Task[None] | None = None
        try:
            theirs, upstream = await asyncio.open_connection(self._host, self._port)
            back = asyncio.create_task(_pump(theirs, writer))
            with suppress(*GONE):
                while True:
                    await self._one(reader, upstream)
            upstream.close()
            await back
        except asyncio.CancelledError:
            pass  # the end of the proxy
        finally:
            if back is not None:
                back.cancel()
            for end in (upstream, writer):
                if end is not None:
                    end.close()
                    with suppress(*GONE):
                        await end.wait_closed()  # else the collector finds it open, during some later test
            self._serving.discard(task)

    async def _one(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, _, rest = head.partition(b"\r\n")
        upstream.write(first + b"\r\n" + self._line + rest)
        pairs = (line.partition(b":") for line in rest.split(b"\r\n"))
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if headers.get(b"transfer-encoding") == b"chunked":
            size = -1
            while size:
                line = await reader.readuntil(b"\r\n")
                size = int(line, 16)
                upstream.write(line + await reader.readexactly(size + 2))
        else:
            upstream.write(await reader.readexactly(int(headers.get(b"content-length", 0))))
        await upstream.drain()


async def _pump(theirs: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(*GONE):
        while data := await theirs.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
