"""Connections of clients that are hostile or broken: what they send, do not send and do not read costs others nothing."""

import asyncio
import json
import resource
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.serving import SECONDS, Site, read_answer, serving
from toolgate import Actor, App, tool
from toolgate.serve import connections, open_files
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-1", "DOOR-3")

INVOKE = "/v1/tools/add_up/invoke"
CALL = b'{"arguments": {"a": 1, "b": 2}}'
RAN: list[str] = []


@tool(tier="read_only")
async def add_up(a: int, b: int) -> int:
    """Add."""
    RAN.append("add_up")
    return a + b


@tool(tier="read_only")
async def long_text(size: int) -> list[str]:
    """Give long texts."""
    return ["x" * 10_000] * (size // 10_000)


@pytest.fixture
async def app() -> AsyncIterator[App]:
    RAN.clear()
    async with memory_app() as app:
        app.register(add_up)
        app.register(long_text)
        yield app


@pytest.fixture
async def site(app: App) -> AsyncIterator[Site]:
    """A server that must answer a proper call at the end, whatever came before, and that nothing is left of."""
    async with serving(app) as site:
        await site.with_key(app, Actor("acme", user="ann"))
        yield site
        assert (await site("POST", INVOKE, {}, CALL)).json["output"] == 3
        await app.keys.close()


def head(site: Site, *more: str, path: str = INVOKE, method: str = "POST", version: str = "1.1") -> bytes:
    lines = [
        f"{method} {path} HTTP/{version}", f"Host: {site.host}", f"Authorization: Bearer {site.key}",
        "Content-Type: application/json", *more, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode("latin-1")


async def everything(site: Site, *parts: bytes) -> bytes:
    """All that is answered to parts of bytes, sent one after another, until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    said = b""
    with suppress(OSError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write_eof()
    with suppress(ConnectionError):
        async with asyncio.timeout(SECONDS):
            while data := await reader.read(65_536):
                said += data
    writer.close()
    return said


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not true():
            await asyncio.sleep(0.01)


# -- one request is one request

SMUGGLED = b"POST /v1/tools/add_up/invoke HTTP/1.1\r\nHost: localhost\r\nX-Smuggled: 1\r\n"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n"),
        (("Transfer-Encoding: chunked", "Content-Length: 5"), b"0\r\n\r\n"),
        (("Content-Length: 5", "Content-Length: 6"), b"12345"), (("Content-Length: 5", "Content-Length: 5"), b"12345"),
        (("Content-Length: 5, 5",), b"12345"), (("Content-Length: +5",), b"12345"), (("Content-Length: -5",), b"12345"),
        (("Content-Length: 0x5",), b"12345"), (("Content-Length: 5 5",), b"12345"), (("Content-Length : 5",), b"12345"),
        (("Content-Length: ",), b""), (("Content-Length: 99999999999999999999",), b""),
        (("Transfer-Encoding: xchunked",), b"0\r\n\r\n"), (("Transfer-Encoding: gzip",), b"0\r\n\r\n"),
        (("Transfer-Encoding : chunked",), b"0\r\n\r\n"), (("Transfer-Encoding: chunked, gzip",), b"0\r\n\r\n"),
        (("Transfer-Encoding: identity", "Transfer-Encoding: chunked", "Content-Length: 4"), b"0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), b"-1\r\n\r\n"), (("Transfer-Encoding: chunked",), b"0x2\r\n{}\r\n0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), b"fffffffffffffffff\r\n"), (("Transfer-Encoding: chunked",), b"2\n{}\n0\n\n"),
        (("Transfer-Encoding: chunked",), b"2\r\n{}XX0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), b" 2\r\n{}\r\n0\r\n\r\n"),
        (("X: a\rb: c",), b""), (("X: a\nTransfer-Encoding: chunked",), b""), (("X: a\0b",), b""), (("X\0: b",), b""),
        ((" X: folded",), b""), (("X: a", "\tfolded: b"), b""), (("X y: b",), b""), ((": b",), b""),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.sample(8)
async def test_what_two_servers_could_read_differently_is_no_request(site: Site, headers: Any, body: bytes) -> None:
    said = await everything(site, head(site, *headers) + body + SMUGGLED + b"Content-Length: 2\r\n\r\n{}")
    assert b"HTTP/1.1 2" not in said
    assert said.count(b"HTTP/1.1 ") <= 2
    assert b"Traceback" not in said
    assert RAN == []


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /v1/tools HTTP/1.0", 200), (b"GET /v1/tools HTTP/0.9", 400), (b"GET /v1/tools HTTP/2.0", 400),
        (b"GET /v1/tools", 400), (b"get /v1/tools HTTP/1.1", 400), (b"BREW /v1/tools HTTP/1.1", 400),
        (b"X" * 5_000 + b" /v1/tools HTTP/1.1", 400), (b"CONNECT localhost:80 HTTP/1.1", 400),
        (b"GET v1/tools HTTP/1.1", 400),
        (b"OPTIONS * HTTP/1.1", 404), (b"GET /v1/tools HTTP/1.1 x", 400),
        (b"GET /v1/to\x00ols HTTP/1.1", 400), (b"GET /v1/tools\xff HTTP/1.1", 400), (b"TRACE /v1/tools HTTP/1.1", 405),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.sample(8)
async def test_first_lines(site: Site, line: bytes, status: int) -> None:
    rest = f"\r\nHost: {site.host}\r\nAuthorization: Bearer {site.key}\r\nConnection: close\r\n\r\n".encode()
    said = await everything(site, line + rest)
    assert (said == b"" and status == 400) or int(said.split()[1]) == status, said[:200]
    assert b"Traceback" not in said


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "TLS/1.0", "x"])
async def test_nothing_is_upgraded_and_nothing_after_it_is_a_request(site: Site, upgrade: str) -> None:
    asked = head(site, "Connection: Upgrade", f"Upgrade: {upgrade}", "Content-Length: 0", method="GET", path="/v1/tools")
    said = await everything(site, asked, SMUGGLED + b"Content-Length: 2\r\n\r\n{}")
    assert b" 101 " not in said
    assert RAN == []


@pytest.mark.parametrize("length", ["Content-Length: {}", "Transfer-Encoding: chunked"])
async def test_the_body_of_a_request_to_upgrade_is_not_taken_for_requests(site: Site, length: str) -> None:
    """A proxy that passes both on takes it for a body: what it holds must not be done in the name of who comes next."""
    inner = head(site, f"Content-Length: {len(CALL)}") + CALL
    body = inner if "{}" in length else b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)
    for asked in (("Connection: Upgrade", "Upgrade: h2c"), ("Upgrade: websocket", "Connection: keep-alive, upgrade")):
        outer = head(site, *asked, length.format(len(inner)), path="/v1/tools/none/invoke")
        for parts in ((outer, body), (outer + body,)):
            said = await everything(site, *parts)
            assert b"HTTP/1.1 2" not in said  # it may be nothing: who sends on after an answer is reset
            assert said.count(b"HTTP/1.1 ") <= 1
            assert RAN == []


async def test_a_request_to_upgrade_is_the_last_one_of_its_connection(site: Site) -> None:
    asked = head(site, "Connection: Upgrade", "Upgrade: h2c", method="GET", path="/v1/tools/add_up")
    assert (await site.raw(asked)).headers["connection"] == "close"
    await everything(site, asked, head(site, f"Content-Length: {len(CALL)}") + CALL)
    assert RAN == []


async def test_trailers_are_no_headers_and_have_an_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS", 600.0)  # it is not their time that ends them
    chunked = head(site, "Transfer-Encoding: chunked").replace(b"Authorization", b"X-None")
    good = b"%x\r\n%s\r\n0\r\n" % (len(CALL), CALL)
    said = await everything(site, chunked + good + f"Authorization: Bearer {site.key}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 401")
    assert RAN == []
    for flood in ([b"X: " + b"a" * 60_000] * 40, [b"X-1: a\r\n" * 7_000] * 40, [b"X: a\r\n"] + [b"b" * 60_000] * 40):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(chunked + good)
        assert (await read_answer(reader)).status == 401
        with pytest.raises(ConnectionError):
            for part in flood:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            async with asyncio.timeout(SECONDS):
                if await reader.read() == b"":
                    raise ConnectionResetError
        writer.close()
    full = head(site, "Transfer-Encoding: chunked", "Connection: close") + good + b"X-Sum: 1\r\n\r\n"
    assert b'"output":3' in await everything(site, full)


async def test_sizes_of_chunks_have_an_end(site: Site) -> None:
    said = await everything(site, head(site, "Transfer-Encoding: chunked") + b"1;" + b"x" * 70_000, b"x" * 70_000)
    assert b"HTTP/1.1 2" not in said
    tiny = b"".join(b"1\r\n%c\r\n" % one for one in CALL) + b"0\r\n\r\n"
    assert b'"output":3' in await everything(site, head(site, "Transfer-Encoding: chunked", "Connection: close") + tiny)


# -- who sends slowly, or without end


async def test_the_rest_of_a_body_that_nobody_reads_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused request keeps its connection only for a moment, however slowly its body comes."""
    monkeypatch.setattr(connections, "REST_SECONDS", 0.3)
    stranger = head(site, "Content-Length: 1000000000").replace(b"Authorization", b"X-None")
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(stranger)
    assert (await read_answer(reader)).status == 401
    with suppress(ConnectionError):
        async with asyncio.timeout(SECONDS):
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.01)
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    refused = head(site, f"Content-Length: {len(CALL)}").replace(b"Authorization", b"X-None")
    writer.write(refused)
    assert (await read_answer(reader)).status == 401
    writer.write(CALL + head(site, f"Content-Length: {len(CALL)}") + CALL)  # who sends all of it goes on
    assert (await read_answer(reader)).json["output"] == 3
    writer.close()


@pytest.mark.parametrize("with_length", [True, False])
async def test_a_hundred_megabytes_are_not_read(site: Site, with_length: bool) -> None:
    size = 100_000_000
    begun = head(site, f"Content-Length: {size}" if with_length else "Transfer-Encoding: chunked")
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    sent = 0
    tracemalloc.start()
    try:
        writer.write(begun)
        with suppress(ConnectionError):
            while sent < size:
                part = b"x" * 1_000_000
                writer.write(part if with_length else b"f4240\r\n" + part + b"\r\n")
                await writer.drain()
                sent += len(part)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 30_000_000
    with suppress(ConnectionError, AssertionError):
        assert (await asyncio.wait_for(read_answer(reader), SECONDS)).status == 413
    assert sent < size
    writer.close()


async def test_a_body_is_asked_for_only_of_those_who_may_send_it(site: Site) -> None:
    expecting = head(site, f"Content-Length: {len(CALL)}", "Expect: 100-continue", "Connection: close")
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(expecting)
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    await reader.readline()
    writer.write(CALL)
    assert (await read_answer(reader)).json["output"] == 3
    writer.close()
    stranger = expecting.replace(b"Authorization", b"X-None")
    assert (await site.raw(stranger)).status == 401
    assert (await site.raw(expecting.replace(b"Content-Length: 31", b"Content-Length: 999999999"))).status == 413


async def test_a_flood_of_pipelined_requests_is_answered_in_order_and_within_bounds(site: Site) -> None:
    one = head(site, path="/v1/tools/none", method="GET")
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(one * 2_000)
    async with asyncio.timeout(SECONDS):
        for _ in range(2_000):
            assert (await read_answer(reader)).status == 404
    writer.close()


# -- who does not read


async def test_a_client_that_does_not_read_its_answer_is_hung_up_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.3)
    body = json.dumps({"arguments": {"size": 900_000}}).encode()
    one = head(site, f"Content-Length: {len(body)}", path="/v1/tools/long_text/invoke") + body
    lost: list[Any] = []
    monkeypatch.setattr(connections.BoundedProtocol, "connection_lost", _noting(lost))
    with socket.create_connection(("127.0.0.1", site.port)) as client:
        client.sendall(one * 20)
        await until(lambda: bool(lost))  # it has read nothing of 18 MB
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(one)
    assert (await asyncio.wait_for(read_answer(reader), SECONDS)).status == 200
    writer.close()


def _noting(lost: list[Any]) -> Any:
    real = connections.BoundedProtocol.connection_lost

    def connection_lost(self: connections.BoundedProtocol, exc: Exception | None) -> None:
        lost.append(self)
        real(self, exc)

    return connection_lost


async def test_more_connections_than_there_are_files_for_are_not_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Any] = []
    monkeypatch.setattr(connections.BoundedProtocol, "connection_lost", _noting(lost))
    monkeypatch.setattr(connections, "max_connections", lambda: 20)
    opened = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(60)]
    gone = 0
    for reader, _ in opened[20:]:
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        gone += 1
    assert gone == 40
    _, writer = opened[0]
    writer.write(head(site, "Connection: close", path="/v1/tools", method="GET"))  # who was there first is served
    assert (await asyncio.wait_for(read_answer(opened[0][0]), SECONDS)).status == 200
    for _, writer in opened:
        writer.close()
    await until(lambda: len(lost) == 60)


def test_connections_leave_files_for_everything_else() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1_024, hard), hard))
        assert open_files.max_connections() == 1_024 - open_files.RESERVED_FILES
        open_files.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- who goes away


async def test_a_call_ends_with_its_connection_in_every_phase(app: App, site: Site) -> None:
    """And gives back what it held: its place among calls, its money and its idempotency key."""
    started, let_go, ended = asyncio.Event(), asyncio.Event(), []

    @tool(tier="read_only", cost=0.01, concurrency=1)
    async def hold_on() -> str:
        """Wait."""
        started.set()
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "done"

    app.register(hold_on)
    path = "/v1/tools/hold_on/invoke"
    for number, seconds in enumerate((0, 0, 0.001, 0.003, 0.01, None)):
        started.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(head(site, f"Idempotency-Key: k{number}", "Content-Length: 2", path=path) + b"{}")
        await writer.drain()
        if seconds is None:
            await asyncio.wait_for(started.wait(), SECONDS)
        else:
            await asyncio.sleep(seconds)
        writer.transport.abort()
    assert ended or started.is_set()
    let_go.set()
    async with asyncio.timeout(SECONDS):  # until it is seen that the last client has gone
        while (free := await site("POST", path, {}, b"{}")).status == 503:
            await asyncio.sleep(0.05)
    assert free.json["output"] == "done", free.body
    for number in range(6):
        answer = await site("POST", path, {"Idempotency-Key": f"k{number}"}, b"{}")
        # One that had reached the tool may have had its effect, and nobody makes it again.
        reached = answer.status == 409 and answer.json["error"]["code"] == "OUTCOME_UNKNOWN"
        assert reached or answer.json["output"] == "done", answer.body
