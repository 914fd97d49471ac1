"""The end of a server: requests that come before it stops listening are answered, and who sends them is told to leave."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.mcp_handshakes import Session
from tests.serving import ACCEPT, META, VERSION, Answer, Site, read_answer
from tests.terminal import Terminal

pytestmark = pytest.mark.requirement("DOOR-5")
SOON = 30.0
TOOLS = """
    import asyncio
    from pathlib import Path

    from toolgate import tool

    FOLDER = Path({folder!r})

    @tool(tier="read_only")
    async def slow() -> str:
        "Take until it is let."
        (FOLDER / "running").touch()
        while not (FOLDER / "go").exists():
            await asyncio.sleep(0.02)
        return "at last"
"""


class Server:
    """A real server, with a tool that takes until it is let."""

    def __init__(self, folder: Path, process: forked.Forked, port: int, key: str) -> None:
        self.folder, self.process, self.key = folder, process, key
        self.site = Site(port)
        self.writers: list[asyncio.StreamWriter] = []
        self.site.key = key

    async def connect(self, made: socket.socket | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where: dict[str, Any] = {"host": "127.0.0.1", "port": self.site.port} if made is None else {"sock": made}
        reader, writer = await asyncio.open_connection(**where)
        self.writers.append(writer)
        return reader, writer

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, SOON)

    async def until(self, name: str) -> None:
        async with asyncio.timeout(SOON):
            while not (self.folder / name).exists():
                await asyncio.sleep(0.02)

    async def until_stopping(self) -> Answer:
        async with asyncio.timeout(SOON):
            while (told := await self.site("GET", "/readyz")).status == 200:
                await asyncio.sleep(0.02)
        return told


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@asynccontextmanager
async def a_server(terminal: Terminal, drain_seconds: float) -> AsyncIterator[Server]:
    terminal.add_tools(TOOLS.format(folder=str(terminal.folder)))
    terminal.settings(json.dumps({"serve": {"drain_seconds": drain_seconds}, "shutdown_seconds": SOON}))
    key = json.loads(terminal.run("keys", "create", "a", "--json").out)["key"]
    with forked.reading("serve", "--port", "0", "--json", folder=terminal.folder, errors=2) as (process, said):
        line = await asyncio.wait_for(asyncio.to_thread(said.readline), 60)
        server = Server(terminal.folder, process, int(json.loads(line)["url"].rpartition(":")[2]), key)
        try:
            yield server
        finally:
            for writer in server.writers:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()


def request(server: Server, tool: str, arguments: str = "{}") -> bytes:
    """A call on a connection that is to be kept."""
    params = f'{{"name":"{tool}","arguments":{arguments},"_meta":{json.dumps(META)}}}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()
    lines = {
        "Host": server.site.host, "Authorization": f"Bearer {server.key}", "Accept": ACCEPT, "Mcp-Method": "tools/call",
        "Mcp-Name": tool, "MCP-Protocol-Version": VERSION, "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }  # fmt: skip
    return (
        "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    ).encode() + body


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_that_is_to_stop_says_so_and_serves_on_until_it_is_left(terminal: Terminal) -> None:
    async with a_server(terminal, drain_seconds=2) as server:
        session = await Session.begin(server.site, server.key)
        kept, running = await server.connect(), await server.connect()
        running[1].write(request(server, "slow"))
        kept[1].write(request(server, "echo", '{"text":"x"}'))
        before = await read_answer(kept[0])
        assert before.status == 200 and "connection" not in before.headers
        await server.until("running")
        async with session.stream(server.site) as events:
            server.stop()
            told = await server.until_stopping()
            assert told.status == 503 and told.json == {"status": "stopping"}
            assert (await server.site.mcp("tools/call", {"name": "echo", "arguments": {"text": "x"}})).status == 200
            kept[1].write(request(server, "echo", '{"text":"x"}'))
            after = await read_answer(kept[0])
            assert after.status == 200 and after.headers["connection"] == "close" and await kept[0].read() == b""
            assert await events.next() is None  # ended in order, once it no longer listens
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", server.site.port)
        assert server.process.poll() is None  # the call still runs
        (server.folder / "go").touch()
        done = await read_answer(running[0])
        assert done.status == 200 and "at last" in done.body.decode() and done.headers["connection"] == "close"
        assert await server.ended() == 0


async def test_what_was_connected_or_is_on_its_way_when_it_stops_is_answered(terminal: Terminal) -> None:
    """Connections that nobody has accepted yet, and a request on a connection that was idle when the signal came."""
    async with a_server(terminal, drain_seconds=0) as server:
        idle = await server.connect()
        idle[1].write(request(server, "echo", '{"text":"x"}'))
        assert (await read_answer(idle[0])).status == 200
        server.process.send_signal(signal.SIGSTOP)
        waiting = [socket.create_connection(("127.0.0.1", server.site.port), SOON) for _ in range(20)]
        for one in waiting:
            one.sendall(request(server, "echo", '{"text":"x"}'))
        idle[1].write(request(server, "echo", '{"text":"x"}'))
        await idle[1].drain()
        server.stop()
        server.process.send_signal(signal.SIGCONT)
        assert (await read_answer(idle[0])).status == 200
        for one in waiting:
            reader, _ = await server.connect(one)
            answer = await read_answer(reader)
            assert answer.status == 200 and "x" in answer.body.decode()
        assert await server.ended() == 0


async def test_a_second_signal_ends_it_at_once(terminal: Terminal) -> None:
    async with a_server(terminal, drain_seconds=600) as server:
        server.stop()
        assert (await server.until_stopping()).status == 503
        server.stop()
        assert await server.ended() == 0
