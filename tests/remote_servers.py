"""Remote MCP servers for tests: the fixture upstream as a process of its own, and one that does all that bad ones do."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from uuid import uuid4

from tests.loopback import Asked, Said, Site, site

ROOT = Path(__file__).parent.parent
MODERN = "2026-07-28"
MANY = 50 * 1_048_576
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: "
JSON = {"content-type": "application/json"}


@contextmanager
def program(module: str, *arguments: str) -> Iterator[str]:
    """A server that is a program; gives its address, which it prints."""
    command = [sys.executable, "-m", module, *arguments]
    with Popen(command, stdout=PIPE, text=True, cwd=ROOT, env=dict(os.environ)) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Odd:
    """An MCP server whose tools misbehave, each in its own way, which its name says. `echo`, `slow` and `held` are good.

    `old`: speaks 2025-11-25, with sessions. `cookies`: sets one, which keeps Toolgate from going the quick way.
    """

    def __init__(self, *, old: bool = False, cookies: bool = False) -> None:
        self.old, self._cookies = old, cookies
        self.sessions: set[str] = set()
        self.elsewhere = ""
        self.let_go = asyncio.Event()
        """Set when the tool `held` may answer."""
        self.closed = asyncio.Event()
        """Set when a client has closed a connection on which an answer was still being written."""
        self.calls: list[str] = []
        self.cancelled: list[Any] = []
        self.key: str | None = None
        self.forgotten = 404
        """The status of a session that is not there."""
        self.farewell = ""
        self.written = 0

    async def __call__(self, asked: Asked) -> Said:
        if asked.method == "DELETE" and self.farewell:
            return Said(raw=getattr(self, self.farewell))
        if asked.method != "POST":
            return Said(405)
        if self.key is not None and asked.headers.get("authorization") != f"Bearer {self.key}":
            return Said(401)
        message = asked.json
        method = message["method"]
        if method == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        if "id" not in message:
            return Said(202)
        if self.old and method != "initialize" and asked.headers.get("mcp-session-id") not in self.sessions:
            status = self.forgotten if "mcp-session-id" in asked.headers else 400
            return Said(status, {**self._error(message, -32600, "Session not found"), "id": None})
        if method == "tools/call":
            return await self._call(message, asked)
        said = self._said(message)
        if said is None:
            return Said(404, self._error(message, -32601, "Method not found"))
        headers = {"set-cookie": "at=7; Path=/"} if self._cookies else {}
        if method == "initialize":
            self.sessions.add(session := uuid4().hex)
            headers["mcp-session-id"] = session
        return Said(200, {"jsonrpc": "2.0", "id": message["id"], "result": said}, headers)

    def _said(self, message: dict[str, Any]) -> dict[str, Any] | None:
        info = {"name": "odd", "version": "1"}
        match message["method"], self.old:
            case "server/discover", False:
                meta = {"io.modelcontextprotocol/serverInfo": info}
                has = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "_meta": meta}
                return {**has, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            case "initialize", True:
                return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "ping", True:
                return {}
            case "tools/list", _:
                tool = {"name": "echo", "inputSchema": {"type": "object"}}
                return {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return None

    def _error(self, message: dict[str, Any], code: int, words: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": words}}

    async def _call(self, message: dict[str, Any], asked: Asked) -> Said:
        name = message["params"]["name"]
        self.calls.append(name)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "here"}]}}
        if name == "slow":
            await asyncio.sleep(0.3)
        elif name == "held":
            await self.let_go.wait()
        if name in ("echo", "slow", "held") or (name == "same_origin" and asked.path == "/moved"):
            return Said(200, answer)
        if name == "lingering":
            return Said(raw=partial(self._lingering, answer))
        plain: dict[str, Said] = {
            "status_401": Said(401), "status_403": Said(403, "<h1>no</h1>"), "status_500": Said(500, "<h1>oh</h1>"),
            "status_502": Said(502, "<h1>gateway</h1>"), "status_503": Said(503), "accepted": Said(202),
            "garbage": Said(200, b"{not json", JSON), "array": Said(200, [1, 2]), "html": Said(200, "<h1>hello</h1>"),
            "text": Said(200, b"hello", {"content-type": "text/plain"}), "nothing": Said(200), "bare": Said(200, {"a": 1}),
            "other_id": Said(200, {**answer, "id": "another"}),
            "compressed": Said(200, answer, {"content-encoding": "gzip"}),
            "book": Said(400, self._error(message, -32000, "unknown training session 7")),
            "lost_book": Said(404, self._error(message, -32602, "unknown training session 7")),
            "elsewhere": Said(307, b"", {"location": self.elsewhere}),
            "same_origin": Said(307, b"", {"location": "/moved"}),
        }  # fmt: skip
        return plain[name] if name in plain else Said(raw=getattr(self, f"_{name}"))

    # -- answers that are not even whole

    async def _lingering(self, answer: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + f"text/event-stream\r\nconnection: close\r\n\r\ndata: {json.dumps(answer)}\n\n".encode())
        for _ in range(5):
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.write(b": still there\n\n")

    async def _cut(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b'application/json\r\ncontent-length: 1000\r\n\r\n{"jsonrpc":')
        await writer.drain()

    async def _cut_stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n10\r\ndata: {")
        await writer.drain()

    async def _ended_stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"text/event-stream\r\nconnection: close\r\n\r\n: nothing\n\n")
        await writer.drain()

    async def _dropped(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def _huge(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + f"application/json\r\ncontent-length: {MANY}\r\n\r\n".encode() + b'{"jsonrpc": "2.0", "x": "')
        await self._on_and_on(writer, b"x" * 65_536, 0.0)

    async def _huge_unsaid(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b'application/json\r\nconnection: close\r\n\r\n{"jsonrpc": "2.0", "x": "')
        await self._on_and_on(writer, b"x" * 65_536, 0.0)

    async def _huge_event(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"text/event-stream\r\nconnection: close\r\n\r\ndata: ")
        await self._on_and_on(writer, b"x" * 65_536, 0.0)

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"application/json\r\ncontent-length: 100000\r\n\r\n")
        await self._on_and_on(writer, b" ", 0.02)

    async def _endless(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"text/event-stream\r\nconnection: close\r\n\r\n")
        await self._on_and_on(writer, b": still there\n\n", 0.02)

    async def _endless_fast(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"text/event-stream\r\nconnection: close\r\n\r\n")
        await self._on_and_on(writer, b": still there\n\n" * 4_000, 0.0)

    async def _on_and_on(self, writer: asyncio.StreamWriter, part: bytes, pause: float) -> None:
        try:
            while self.written < MANY:
                writer.write(part)
                self.written += len(part)
                await writer.drain()
                await asyncio.sleep(pause)
        except OSError:
            self.closed.set()
            raise


@asynccontextmanager
async def odd(*, old: bool = False, cookies: bool = False) -> AsyncIterator[tuple[Odd, Site]]:
    """Such a server, running."""
    server = Odd(old=old, cookies=cookies)
    async with site(server) as running:
        yield server, running
