"""The Python client and servers that answer as no Toolgate does: it says so, in bounded time and memory, and its key goes
nowhere else."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolgate import SettingsError
from toolgate.client import AsyncClient, Client, RequestRefused, ServerUnreachable, connection, event_lines

pytestmark = pytest.mark.requirement("DOOR-3")
KEY = "tg_0123456789_abcdefghijklmnop"
Use = Callable[[AsyncClient], Awaitable[Any]]


def answer(body: bytes, *more: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *more, "", ""]
    return "\r\n".join(lines).encode() + body


@asynccontextmanager
async def hostile(said: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers everything with these bytes; its address, and what it was sent."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            if callable(said):
                await said(writer)
            else:
                writer.write(said)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
    finally:
        server.close()
        await server.wait_closed()


async def followed(client: AsyncClient) -> list[Any]:
    return [event async for event in client.events()]


USES: dict[str, Use] = {
    "invoke": lambda client: client.invoke("add"),
    "list": lambda client: client.tools.list(),
    "get": lambda client: client.approvals.get("x"),
    "artifact": lambda client: client.audit.artifact("x"),
    "events": followed,
}
DEEP = b"[" * 200_000
WRONG: dict[str, bytes] = {
    "no JSON": answer(b"<html>"),
    "not UTF-8": answer(b'"\xff\xfe"'),
    "deep": answer(DEEP),
    "deep within": answer(b'{"items":[{"output_schema":' + DEEP),
    "deep refusal": answer(b'{"detail":' + DEEP, status="400 Bad Request"),
    "compressed": answer(gzip.compress(b"[]" * 1_000_000), "Content-Encoding: gzip"),
    "said to be compressed": answer(b"nonsense", "Content-Encoding: gzip"),
    "cut off": answer(b"{}", "Content-Length: 500"),
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "head without end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
    "redirect": answer(b"", "Location: http://127.0.0.1:1/", status="307 Temporary Redirect"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("use", USES)
@pytest.mark.sample(22)
async def test_answers_that_are_none_are_said_to_be(use: str, wrong: str) -> None:
    async with hostile(WRONG[wrong]) as (url, _), AsyncClient.open(url, key=KEY, timeout=20) as client:
        with pytest.raises((ServerUnreachable, RequestRefused)) as refused:
            await USES[use](client)
        assert KEY not in str(refused.value)


async def test_nothing_where_something_is_expected() -> None:
    async with hostile(answer(b"", status="204 No Content")) as (url, _), AsyncClient.open(url, key=KEY) as client:
        for use in ("invoke", "list", "get", "events"):
            with pytest.raises(ServerUnreachable):
                await USES[use](client)


async def test_the_key_does_not_follow_a_redirect() -> None:
    async with hostile(answer(b"{}")) as (other, heard):
        for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
            moved = answer(b"", f"Location: {other}/v1/tools", status=status)
            async with hostile(moved) as (url, _), AsyncClient.open(url, key=KEY) as client:
                with pytest.raises(RequestRefused):
                    await client.tools.list()
        assert heard == []


@pytest.mark.parametrize("use", ["get", "events"])
async def test_an_answer_without_end_is_given_up(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 2_000_000)
    monkeypatch.setattr(event_lines, "MAX_EVENT_BYTES", 2_000_000)
    sent = 0

    async def for_ever(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        kind = "text/event-stream" if use == "events" else "application/json"
        writer.write(answer(b'data: "' if use == "events" else b'"', kind=kind))
        while True:
            writer.write(b"x" * 65_536)
            sent += 65_536
            await writer.drain()

    async with hostile(for_ever) as (url, _), AsyncClient.open(url, key=KEY) as client:
        with pytest.raises(ServerUnreachable, match="larger than 2,000,000 bytes"):
            await USES[use](client)
    assert sent < 40_000_000  # with what lies in buffers of sockets


async def test_an_answer_that_comes_drop_by_drop_is_given_up() -> None:
    async def drop(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b'"'))
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with hostile(drop) as (url, _), AsyncClient.open(url, key=KEY, timeout=0.5) as client:
        async with asyncio.timeout(20):
            with pytest.raises(ServerUnreachable, match="in time"):
                await client.tools.get("add")


@pytest.mark.parametrize(
    "page", [b'{"items":[],"next":"a"}', b'{"items":[{"pattern":"*"},{"pattern":"*"}],"next":"a"}'], ids=["empty", "same"]
)
async def test_a_list_without_end_is_given_up(page: bytes) -> None:
    async with hostile(answer(page)) as (url, heard), AsyncClient.open(url, key=KEY) as client:
        async with asyncio.timeout(20):
            with pytest.raises(ServerUnreachable):
                await client._connection.pages("/v1/tools", dict)
        assert len(heard) <= 2


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../keys", "a/../../keys", "%2e%2e", "..;", "a?tenant=x", "a#b", "\r\nX: y"]
)
async def test_names_stay_within_their_segment(name: str) -> None:
    async with hostile(answer(b"{}")) as (url, heard), AsyncClient.open(url, key=KEY) as client:
        for use in (client.keys.revoke(name), client.jobs.cancel(name), client.invoke(name)):
            with pytest.raises((RequestRefused, ServerUnreachable)):
                await use
    for head in heard:
        path = head.split()[1].decode()
        assert path.startswith(("/v1/keys/", "/v1/jobs/", "/v1/tools/")) and "?" not in path and "/../" not in path, path
        assert path.count("/") == (3 if path.startswith("/v1/keys") else 4)
        assert b"\r\nX: y" not in head


@pytest.mark.parametrize(
    "url", ["http://user:hunter2@127.0.0.1:1", "ftp://127.0.0.1", "127.0.0.1:1", "http://", "http://[", "http://a?b=hunter2"]
)
def test_addresses_that_are_none_are_refused_without_being_told(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(SettingsError) as refused:
            kind.open(url, key=KEY)
        assert "hunter2" not in str(refused.value)
        wanted = "Put http:// or https:// before it." if "://" not in url else "An example: http://"
        assert wanted in (refused.value.suggestion or "")


def test_a_key_that_is_none_is_refused_without_being_told() -> None:
    with pytest.raises(ServerUnreachable) as refused:
        Client.open("http://127.0.0.1:1", key=f"{KEY}\n{KEY}")
    assert KEY not in str(refused.value)
    with Client.open("http://127.0.0.1:1", key=f" {KEY}\n") as client, pytest.raises(ServerUnreachable) as unreachable:
        client.tools.list()  # as it is read from a file
    assert KEY not in str(unreachable.value)
