"""An HTTP server on loopback that answers exactly what a test says, down to the bytes: also what no good server would."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


Raw = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Said:
    """One answer. `raw`: written by the test itself; then the connection is closed."""

    status: int = 200
    body: bytes | str | dict[str, Any] | list[Any] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: Raw | None = None


Handler = Callable[[Asked], Awaitable[Said]]


class Site:
    """A server that can be stopped and started again at the same port."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handler, self._tls = handler, tls
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0
        self.asked: list[Asked] = []
        self.connections = 0

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._serving)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in list(self._serving):
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
                while await self._once(reader, writer):
                    pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        where = urlsplit(target)
        asked = Asked(method, where.path, dict(parse_qsl(where.query)), headers, body)
        self.asked.append(asked)
        said = await self._handler(asked)
        if said.raw is not None:
            await said.raw(writer)
            return False
        content, kind = _encoded(said.body)
        lines = {"content-type": kind, **said.headers, "content-length": str(len(content))}
        head_lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        phrase = HTTPStatus(said.status).phrase if said.status in set(HTTPStatus) else "Own"
        writer.write(f"HTTP/1.1 {said.status} {phrase}\r\n{head_lines}\r\n".encode() + content)
        await writer.drain()
        return True


def _encoded(body: bytes | str | dict[str, Any] | list[Any]) -> tuple[bytes, str]:
    if isinstance(body, bytes):
        return body, ""
    if isinstance(body, str):
        return body.encode(), "text/html"
    return json.dumps(body).encode(), "application/json"


@asynccontextmanager
async def site(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    """A server, which is gone afterwards."""
    made = Site(handler, tls)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
