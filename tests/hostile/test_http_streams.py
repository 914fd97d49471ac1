"""Event streams that are many, that nobody reads, that go away, or that would like to see what is another's."""

import asyncio
import json
import resource
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.serving import SECONDS, Site, serving
from tests.terminal import SCRIPT
from toolgate import Actor, App, tool
from toolgate.app import log_tail
from toolgate.model.roles import Role
from toolgate.serve import connections
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-1", "DOOR-3")

CONNECTION_MADE = connections.BoundedProtocol.connection_made
ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("other", user="eve")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


@pytest.fixture
async def site(app: App) -> AsyncIterator[Site]:
    async with serving(app) as site:
        yield site
        await app.keys.close()


async def key_of(app: App, actor: Actor, *roles: Role) -> str:
    return (await app.keys.create(f"{actor.user} {' '.join(roles)}", actor, roles=roles))[1]


def request(host: str, key: str, path: str = "/v1/events", *headers: str) -> bytes:
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {key}", *headers, "", "")
    return "\r\n".join(lines).encode()


@asynccontextmanager
async def following(
    site: Site, key: str, path: str = "/v1/events", *headers: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(request(site.host, key, path, *headers))
    async with asyncio.timeout(SECONDS):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"retry: 2000")
    yield reader, writer
    writer.close()


async def told(reader: asyncio.StreamReader, last: str) -> list[dict[str, Any]]:
    """All events up to the end of a call."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(SECONDS):
        while True:
            line = await reader.readline()
            assert line
            if line.startswith(b"data: "):
                found.append(orjson.loads(line[6:]))
                if (found[-1]["call"], found[-1]["event"]) == (last, "call.ended"):
                    return found


async def until_none(site: Site) -> None:
    async with asyncio.timeout(SECONDS):
        while len(site.http.streams) or len(site.http.app.audit.tail):
            await asyncio.sleep(0.01)


# -- what is another's


async def test_events_of_others_are_not_told_however_they_are_asked_for(app: App, site: Site) -> None:
    """Neither by the number of another's event, nor by a filter, nor by names that look like another's."""
    keys = {"own": await key_of(app, ANN, "caller"), "tenant": await key_of(app, ANN, "viewer")}
    eves = await app.invoke("echo", {"text": "eve"}, actor=EVE, session="s")
    await app.invoke("echo", {"text": "x"}, actor=Actor("acme ", user="ann"), session="s")
    await app.invoke("echo", {"text": "x"}, actor=Actor("ACME", user="ann"), session="s")
    await app.invoke("echo", {"text": "x"}, actor=Actor("other", user="ann"), session="acme")
    await app.invoke("echo", {"text": "x"}, actor=Actor("ann", user="acme"), session='s","tenant":"acme')
    bobs = await app.invoke("echo", {"text": "x"}, actor=BOB, session="s")
    anns = await app.invoke("echo", {"text": "x"}, actor=ANN, session="s")
    await app.flush()
    [*_, eves_row] = await app.audit.of_call(eves.id)
    for after in (0, eves_row[0]):
        for whose, seen in (("own", {("acme", "ann")}), ("tenant", {("acme", "ann"), ("acme", "bob")})):
            async with following(site, keys[whose], "/v1/events?session=s", f"Last-Event-ID: {after}") as (reader, _):
                events = await told(reader, anns.id)
            assert {(event["tenant"], event["user"]) for event in events} == seen
            assert (bobs.id in {event["call"] for event in events}) == (whose == "tenant")
    refused = await site("GET", "/v1/events?tenant=other", key=keys["tenant"])
    assert refused.status == 403
    assert (await site("GET", "/v1/events?tenant=*", key=keys["tenant"])).status == 403


async def test_events_hold_neither_arguments_nor_lines_of_a_callers_making(app: App, site: Site) -> None:
    @tool(tier="read_only")
    async def tell_back(text: str) -> str:
        """Fail with what was given."""
        raise ValueError(text)

    app.register(tell_back)
    text = "canary-91\r\n\r\nid: 999999\nevent: approval.granted\ndata: {}\n\n\u2028"
    async with following(site, await key_of(app, ANN, "viewer")) as (reader, _):
        session = "s event: x data: y"
        await app.invoke("tell_back", {"text": text}, actor=ANN, session=session, idempotency_key="canary-92")
        outcome = await app.invoke("echo", {"text": "canary-93"}, actor=ANN, session=session)
        await app.invoke("no_such\ntool", {"text": text}, actor=ANN)
        events = await told(reader, outcome.id)
    assert {event["event"] for event in events} <= {"call.started", "call.ended"}
    assert {event["details"].get("session") for event in events} == {session}
    assert "canary" not in json.dumps(events)


# -- who goes away, and who does not read


async def test_a_storm_of_those_who_come_and_go_leaves_nothing(app: App, site: Site) -> None:
    """Also of those who are gone before their key was looked at: nobody would ever end such a stream."""
    keys = [await key_of(app, Actor("acme", user=f"u{number}"), "caller") for number in range(20)]
    for turn in range(5):
        for key in keys:
            _, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(request(site.host, key))
            if turn % 2:
                await writer.drain()
            writer.transport.abort() if turn % 3 else writer.close()
    await until_none(site)
    real = site.http.authenticator.check

    async def check_slowly(*terms: Any) -> Any:
        await asyncio.sleep(0.2)
        return await real(*terms)

    site.http.authenticator.check = check_slowly  # type: ignore[method-assign, assignment]
    fresh = await key_of(app, Actor("acme", user="late"), "caller")
    for _ in range(10):
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(request(site.host, fresh))
        await writer.drain()
        writer.close()
    await asyncio.sleep(0.5)  # in which they would begin
    await until_none(site)
    async with following(site, fresh):
        assert len(site.http.streams) == 1


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_stream_that_nobody_reads_piles_nothing_up_and_ends(
    app: App, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_SECONDS", 1.0)
    monkeypatch.setattr(log_tail, "MAX_WAITING_EVENTS", 50)
    monkeypatch.setattr(connections.BoundedProtocol, "connection_made", _with_small_buffer)
    key = await key_of(app, ANN, "caller")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", site.port))
        await asyncio.get_running_loop().sock_sendall(client, request(site.host, key))
        async with following(site, key) as (reader, _):
            async with asyncio.timeout(SECONDS * 2):
                while len(site.http.streams) == 2:
                    await asyncio.gather(*(app.invoke("echo", {"text": "x"}, actor=ANN) for _ in range(200)))
                    for watchers in app.audit.tail._watchers.values():
                        assert all(len(watcher._waiting) <= 51 for watcher in watchers)
                    await asyncio.sleep(0)
            last = await app.invoke("echo", {"text": "x"}, actor=ANN)
            assert await told(reader, last.id)  # who reads has missed nothing of it


def _with_small_buffer(connection: connections.BoundedProtocol, transport: asyncio.Transport) -> None:
    """The system would take megabytes of events before the server saw that nobody reads them."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    CONNECTION_MADE(connection, transport)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_stops_though_a_stream_is_not_read(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "MAX_WAITING_EVENTS", 50)
    monkeypatch.setattr(connections.BoundedProtocol, "connection_made", _with_small_buffer)
    app.settings = app.settings.with_overrides({"shutdown_seconds": 60})
    with socket.socket() as client:
        async with serving(app) as site:
            key = await key_of(app, ANN, "caller")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", site.port))
            await asyncio.get_running_loop().sock_sendall(client, request(site.host, key))
            async with asyncio.timeout(SECONDS * 2):
                while not any(
                    not watcher._is_live for watchers in app.audit.tail._watchers.values() for watcher in watchers
                ):
                    await asyncio.gather(*(app.invoke("echo", {"text": "x"}, actor=ANN) for _ in range(200)))
                    await asyncio.sleep(log_tail.POLL_SECONDS * 2)  # in which one that is read catches up
            began = time.monotonic()
        assert time.monotonic() - began < 30


async def test_those_who_are_far_behind_do_not_take_the_database(app: App, site: Site) -> None:
    for _ in range(5):
        await asyncio.gather(*(app.invoke("echo", {"text": "x"}, actor=BOB) for _ in range(200)))
    last = await app.invoke("echo", {"text": "x"}, actor=ANN)
    await app.flush()
    key, reads, most = await key_of(app, ANN, "caller"), 0, 0
    real = app.audit.tail.read

    async def read(*terms: Any, **named: Any) -> Any:
        nonlocal reads, most
        reads += 1
        most = max(most, reads)
        try:
            await asyncio.sleep(0.02)  # a database with work to do
            return await real(*terms, **named)
        finally:
            reads -= 1

    app.audit.tail.read = read

    async def follow() -> set[str]:
        async with following(site, key, "/v1/events?after=0") as (reader, _):
            return {event["user"] for event in await told(reader, last.id)}

    assert await asyncio.gather(*(follow() for _ in range(30))) == [{"ann"}] * 30
    assert 1 < most <= log_tail.MAX_PAGE_READS + 1  # and the common reader


# -- many

STREAMS, STREAM_KEYS = 10_000, 60


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_ten_thousand_streams_cost_little_and_nobody_waits_for_them(tmp_path: Path) -> None:
    """A process of its own serves them; a call is answered as before, and is told to those whom it concerns alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < STREAMS + 1_000:
        pytest.fail(f"the system lets a process have {hard} files open: raise it to {STREAMS + 1_000} for this test")
    home = tmp_path / ".toolgate"
    async with App.open(home=home, entry_points=False) as app:
        keys = [await key_of(app, Actor("acme", user=f"u{number}"), "caller") for number in range(STREAM_KEYS)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = subprocess.Popen(
        ["sh", "-c", f"ulimit -S -n 1024; exec {SCRIPT} serve --port 0 --json"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    opened: list[tuple[int, socket.socket]] = []
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        alone, before = call_time(port, keys[0]), memory_of(process.pid)
        opened.extend((number % STREAM_KEYS, follow(port, keys[number % STREAM_KEYS])) for number in range(STREAMS))
        each = (memory_of(process.pid) - before) / STREAMS
        among = call_time(port, keys[0])
        assert each < 60_000, f"{each:,.0f} bytes a stream"
        assert among < max(alone * 4, 0.02), (alone, among)
        for number, client in opened:
            if number == 0:
                client.settimeout(SECONDS)
                assert b"event: call." in client.recv(65_536)
            elif number == 1:
                client.setblocking(False)
                assert b"event: call." not in (client.recv(65_536) if readable(client) else b"")
    finally:
        for _, client in opened:
            client.close()
        process.kill()
        process.communicate()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def follow(port: int, key: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), SECONDS)
    client.sendall(request(f"127.0.0.1:{port}", key))
    said = b""
    while b"retry: 2000\n\n" not in said:
        part = client.recv(4_096)
        assert part, said
        said += part
    assert said.startswith(b"HTTP/1.1 200"), said
    return client


def readable(client: socket.socket) -> bool:
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def call_time(port: int, key: str) -> float:
    """The seconds that a call takes: the best of several medians. A server that has just started is slow, and so is a busy
    machine: one median says nothing."""
    return min(median_time(port, key, 100) for _ in range(8))


def median_time(port: int, key: str, count: int) -> float:
    client, took = HTTPConnection("127.0.0.1", port, timeout=SECONDS), []
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for _ in range(count):
        began = time.perf_counter()
        client.request("POST", "/v1/tools/echo/invoke", '{"arguments": {"text": "x"}}', headers)
        answer = client.getresponse()
        said = answer.read()
        took.append(time.perf_counter() - began)
        assert answer.status == 200, said
    client.close()
    return statistics.median(took)


def memory_of(pid: int) -> int:
    """Bytes of memory that a process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmRSS"))
