"""A real HTTP server for tests, in this process and on a free port, and a client that sends exactly what it is told to."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

from toolgate import App
from toolgate.model import LOCAL, Actor
from toolgate.serve.app import HttpApp
from toolgate.serve.http_server import serve

SECONDS = 60.0
VERSION = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
ACCEPT = "application/json, text/event-stream"


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    """A server under test."""

    def __init__(self, port: int, http: HttpApp | None = None) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self._http = http
        self.key: str | None = None

    @property
    def http(self) -> HttpApp:
        assert self._http is not None
        return self._http

    async def with_key(self, app: App, actor: Actor = LOCAL, **terms: Any) -> Self:
        """From now on requests have a key of this actor's."""
        self.key = (await app.keys.create(f"test {uuid.uuid4()}", actor, **terms))[1]
        return self

    async def raw(self, request: bytes) -> Answer:
        """Send bytes, and read the one answer that comes."""
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                with suppress(ConnectionError):  # the server may answer, and hang up, before it has read it all
                    writer.write(request)
                    await writer.drain()
                return await read_answer(reader)
            finally:
                writer.close()

    async def __call__(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        key: str | None = None,
    ) -> Answer:
        """One request. What is not among the headers is as a client would have it; "" leaves a header away."""
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        given = {name.lower() for name, _ in pairs}
        usual = [("Host", self.host), ("Connection", "close")]
        key = key or self.key
        if key is not None:
            usual.append(("Authorization", f"Bearer {key}"))
        if body:
            usual += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        lines = [(name, value) for name, value in usual if name.lower() not in given]
        lines += [(name, value) for name, value in pairs if value]
        head = "".join(f"{name}: {value}\r\n" for name, value in lines)
        return await self.raw(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    async def mcp(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        meta: Mapping[str, Any] = META,
        id: Any = 1,
    ) -> Answer:
        """One request of protocol 2026-07-28."""
        sent = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}
        named = {"Mcp-Name": str(params["name"])} if params and "name" in params else {}
        usual = {"Accept": ACCEPT, "MCP-Protocol-Version": VERSION, "Mcp-Method": method, **named}
        return await self("POST", "/mcp", {**usual, **(headers or {})}, json.dumps(sent).encode(), key=key)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    first = await reader.readline()
    assert first.startswith(b"HTTP/1.1 "), first
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        body = b"".join(parts)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(int(first.split()[1]), headers, body)


@asynccontextmanager
async def serving(app: App, port: int = 0) -> AsyncIterator[Site]:
    """The server of an open App."""
    up: asyncio.Future[Site] = asyncio.get_running_loop().create_future()

    async def ready(url: str, http: HttpApp) -> None:
        await asyncio.shield(http.mcp.by_sdk)
        up.set_result(Site(int(url.rpartition(":")[2]), http))

    app.settings = app.settings.with_overrides({"serve": {"port": port}})
    task = asyncio.ensure_future(serve(app, ready))
    await asyncio.wait((task, up), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield up.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


LAST_CHUNK = b"\r\n0\r\n\r\n"
"""The end of an answer."""


@asynccontextmanager
async def listening(site: Site, key: str) -> AsyncIterator[asyncio.StreamReader]:
    """A client that waits for news, once it has begun to."""
    body = {"notifications": {"toolsListChanged": True}, "_meta": META}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": body}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {key}\r\nAccept: {ACCEPT}\r\n"
        f"Content-Type: application/json\r\nMCP-Protocol-Version: {VERSION}\r\nMcp-Method: subscriptions/listen\r\n"
        f"Content-Length: {len(text)}\r\n\r\n"
    )
    writer.write(head.encode() + text)
    assert (await asyncio.wait_for(reader.readline(), SECONDS)).startswith(b"HTTP/1.1 200")
    yield reader
    writer.close()
