"""Servers that answer in the smallest pieces there are: whoever waits for them does not keep others waiting."""

import asyncio

import pytest

from tests.loopback import Asked, Said, site
from toolgate.errors import TimedOut
from toolgate.network.http_client import HttpClient

pytestmark = pytest.mark.requirement("BUILTIN-4")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "piece"), [(CHUNKED, b"1\r\na\r\n"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")], ids=["chunks", "interim"]
)
async def test_others_have_their_turn_while_an_answer_comes_in_tiny_pieces(first: bytes, piece: bytes) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(piece * 5_000)
            await writer.drain()

    async def answer(_: Asked) -> Said:
        return Said(raw=endless)

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.005)
            turns += 1

    async with site(answer) as server:
        client = HttpClient([f"127.0.0.1:{server.port}"])
        waiting = asyncio.create_task(others())
        with pytest.raises(TimedOut):
            await client.request("GET", server.url, timeout=3)
        waiting.cancel()
        await client.close()
    assert turns > 5  # two hundred on a quiet machine
