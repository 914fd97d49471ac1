"""The connections to a remote MCP server: once they are closed none is left, and none is opened."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.fast_http import HttpPool

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Listener:
    """A server that answers each request, and counts the connections that are open."""

    def __init__(self) -> None:
        self.open = 0
        self.changed = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        while await reader.read(65_536):
            writer.write(ANSWER)
        writer.close()
        self.open -= 1
        self.changed.set()


@pytest.fixture
async def listener() -> AsyncIterator[tuple[Listener, str]]:
    listener = Listener()
    server = await asyncio.start_server(listener, "127.0.0.1", 0)
    async with server:
        yield listener, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def test_they_are_closed_also_if_whoever_closes_them_is_cancelled(listener: tuple[Listener, str]) -> None:
    server, url = listener
    pool, released = HttpPool("far", url, 1_000), asyncio.Event()

    async def hold_on() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await released.wait()

    assert await pool.body(await pool.post(b"{}", {})) == b"{}"
    assert server.open == 1
    pool.later(hold_on())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(pool.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.wait_for(server.changed.wait(), 30)
    assert server.open == 0
    released.set()


async def test_none_is_opened_when_they_are_closed(listener: tuple[Listener, str]) -> None:
    server, url = listener
    pool = HttpPool("far", url, 1_000)
    await pool.close()
    with pytest.raises(Unreachable, match="is closed"):
        await pool.post(b"{}", {})
    assert await pool.resume({}) is None
    assert server.open == 0
