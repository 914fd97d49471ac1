"""Servers' programs as Toolgate starts them, and a plain way to talk to one: a line of JSON there, a line of JSON back."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from tests.needs import need
from toolgate.mcp.client.launch import ServerProcess, launch_server
from toolgate.network.resolver import Resolve
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import SandboxSettings, ServerSettings

SECONDS = 60.0
"""The most that any answer may take."""


class Talk:
    """A conversation with a program."""

    def __init__(self, program: ServerProcess) -> None:
        self.program = program
        self._heard = b""
        self._number = 0

    async def line(self) -> str:
        """Its next line; empty at the end."""
        async with asyncio.timeout(SECONDS):
            while b"\n" not in self._heard:
                piece = await self.program.box.read(65_536)
                if not piece:
                    return self._heard.decode()
                self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    async def say(self, message: Any) -> None:
        await self.program.box.write(json.dumps(message).encode() + b"\n")

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request of MCP; what was answered, result or error."""
        self._number += 1
        await self.say({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        while True:
            line = await self.line()
            if not line:
                raise AssertionError(f"it ended: {await self.errors()}")
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._number:
                return answer

    async def initialize(self) -> dict[str, Any]:
        about = {"name": "test", "version": "1"}
        answer = await self.ask("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": about})
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        result: dict[str, Any] = answer["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text that a tool gives, be it a result or an error."""
        answer = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        if "error" in answer:
            return str(answer["error"]["message"])
        return "".join(part.get("text", "") for part in answer["result"]["content"])

    async def all(self) -> str:
        """What it says until it ends."""
        lines = []
        while line := await self.line():
            lines.append(line)
        return "\n".join(lines)

    async def errors(self) -> str:
        async with asyncio.timeout(SECONDS):
            said = b""
            while piece := await self.program.box.read_errors(65_536):
                said += piece
        return said.decode(errors="replace")


@asynccontextmanager
async def talking(
    home: Path,
    settings: ServerSettings,
    *,
    jail: Literal["auto", "bubblewrap", "namespaces", "landlock"] = "auto",
    secrets: dict[str, str] | None = None,
    resolve: Resolve | None = None,
) -> AsyncIterator[Talk]:
    """Start a server's program; at the end all of it must be gone."""
    sandbox = Sandbox(SandboxSettings(backend=jail))
    try:
        program = await launch_server("tested", settings, (secrets or {}).get, sandbox, home, resolve=resolve)
        try:
            yield Talk(program)
        finally:
            await program.close()
            assert not program.box.is_alive()
    finally:
        await sandbox.close()


def server(folder: Path, code: str, **more: Any) -> ServerSettings:
    """A Python program of the test's own as a server."""
    file = folder / "server.py"
    file.write_text(code)
    file.chmod(0o644)
    return ServerSettings(command=(python(), "-u", str(file)), **more)


def node_server(folder: Path, code: str, **more: Any) -> ServerSettings:
    """The same for Node."""
    need("npm")
    file = folder / "server.js"
    file.write_text(code)
    file.chmod(0o644)
    return ServerSettings(command=("node", str(file)), **more)


def python() -> str:
    """Our own interpreter, as a person would name it: that of a virtual environment, most likely."""
    import sys

    return os.path.abspath(sys.executable)  # noqa: PTH100 - links stay as they are
