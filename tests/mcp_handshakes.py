"""A client with a handshake session, over raw HTTP: the test says which server gets each of its messages."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.serving import ACCEPT, Answer, Site

VERSION = "2025-11-25"
SECONDS = 60.0


class Session:
    """A session, wherever it was begun."""

    def __init__(self, id: str, key: str) -> None:
        self.id, self.key = id, key
        self._ids = itertools.count(2)

    @classmethod
    async def begin(cls, site: Site, key: str, capabilities: Mapping[str, Any] | None = None) -> "Session":
        params = {
            "protocolVersion": VERSION,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        begun = await site("POST", "/mcp", {"Accept": ACCEPT}, message("initialize", params, id=1), key=key)
        assert begun.status == 200, begun
        session = cls(begun.headers["mcp-session-id"], key)
        assert (await session.send(site, message("notifications/initialized"))).status == 202
        return session

    @property
    def headers(self) -> dict[str, str]:
        return {"Accept": ACCEPT, "MCP-Protocol-Version": VERSION, "Mcp-Session-Id": self.id}

    async def send(self, site: Site, body: bytes = b"", *, method: str = "POST", key: str | None = None) -> Answer:
        return await site(method, "/mcp", self.headers, body, key=key or self.key)

    async def ask(self, site: Site, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request, or its error."""
        answer = await self.send(site, message(method, params, id=next(self._ids)))
        assert answer.status == 200, answer
        [told] = [json.loads(line[5:]) for line in answer.body.splitlines() if line.startswith(b"data:")][-1:]
        found: dict[str, Any] = told.get("result", told.get("error"))
        return found

    async def call(self, site: Site, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask(site, "tools/call", name=tool, arguments=arguments)

    @asynccontextmanager
    async def stream(self, site: Site, body: bytes = b"") -> AsyncIterator["Events"]:
        """What a server sends, as it comes: with a body, in answer to that; without, what it has to say by itself."""
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        try:
            lines = {**self.headers, "Host": site.host, "Authorization": f"Bearer {self.key}", "Connection": "close"}
            if body:
                lines |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"{'POST' if body else 'GET'} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            async with asyncio.timeout(SECONDS):
                first = await reader.readline()
                while await reader.readline() not in (b"\r\n", b""):
                    pass
            yield Events(int(first.split()[1]), reader)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class Events:
    """A stream of events."""

    def __init__(self, status: int, reader: asyncio.StreamReader) -> None:
        self.status = status
        self._reader = reader

    async def next(self) -> dict[str, Any] | None:
        """The next message; None: the stream has ended, in order."""
        async with asyncio.timeout(SECONDS):
            while line := await self._reader.readline():
                if line.startswith(b"data:") and line[5:].strip():
                    found: dict[str, Any] = json.loads(line[5:])
                    return found
                if line == b"0\r\n":
                    return None
        raise ConnectionError("the stream was broken off")

    async def until(self, method: str) -> dict[str, Any]:
        """The next message of a method."""
        while (found := await self.next()) is not None:
            if found.get("method") == method:
                return found
        raise AssertionError(f"the stream ended without {method}")


def message(method: str, params: Mapping[str, Any] | None = None, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {}), **more}).encode()


def answer(id: Any, result: Mapping[str, Any]) -> bytes:
    """A client's answer to a server's request."""
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
