"""`toolgate mcp` as a process, and a client that writes exactly what it is told to into its stdin."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.serving import META

SCRIPT = Path(sys.executable).with_name("toolgate")
SECONDS = 60.0
MOST = 64 * 2**20
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Pipe:
    """A running `toolgate mcp`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._id = 0

    async def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        with suppress(ConnectionError):
            await self.process.stdin.drain()

    async def read(self) -> Any:
        """The next message; everything on stdout must be one."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            line = await self.process.stdout.readline()
        assert line, "it has ended"
        return json.loads(line)

    async def ask(self, method: str, params: Any = None, **more: Any) -> Any:
        """Send a request, and give its answer; what comes before that is passed over."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, **more}
        await self.write(json.dumps(message if params is None else {**message, "params": params}).encode())
        while (answer := await self.read()).get("id") != self._id:
            pass
        return answer

    async def modern(self, method: str, **params: Any) -> Any:
        return await self.ask(method, {**params, "_meta": META})

    async def hello(self) -> None:
        """The handshake of the older protocols."""
        assert (await self.ask("initialize", HELLO))["result"]["serverInfo"]["name"] == "toolgate"
        await self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def end(self) -> int:
        """Close its stdin, and wait until it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def piped(folder: Path, *words: str) -> AsyncIterator[Pipe]:
    """`toolgate mcp` in a folder, with what is there as its settings and tools."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_") or name == "TOOLGATE_TRUST"
    }
    with (folder / "stderr").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            SCRIPT, "mcp", *words, cwd=folder, env=environment, limit=MOST, stderr=errors,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
    try:
        yield Pipe(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()
