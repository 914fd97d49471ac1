"""GET /v1/events: what happens, live, to whom it may be told, and nothing twice or lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.serving import SECONDS, Site, serving
from toolgate import Actor, App
from toolgate.app import log_tail
from toolgate.app.log_tail import LogTail
from toolgate.model.roles import Role
from toolgate.serve import streams
from toolgate.testing import memory_app

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


class Stream:
    """A client that reads events."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def __call__(self) -> dict[str, Any]:
        """The next event."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(SECONDS):
            while True:
                line = (await self._reader.readline()).decode()
                if line in ("", "0\r\n"):  # the last chunk of the answer
                    raise EOFError
                name, separator, text = line.strip().partition(": ")
                if separator and name in ("id", "event", "data"):
                    fields[name] = text
                elif not line.strip() and "data" in fields:
                    told: dict[str, Any] = orjson.loads(fields["data"])
                    assert (fields["id"], fields["event"]) == (str(told["seq"]), told["event"])
                    return told

    async def ended(self) -> dict[str, Any]:
        """The end of the next call."""
        while (told := await self())["event"] != "call.ended":
            pass
        return told


@asynccontextmanager
async def following(site: Site, key: str, path: str = "/v1/events", headers: str = "") -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    head = f"GET {path} HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {key}\r\n{headers}\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(SECONDS):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"retry: 2000")  # it follows from here on
    yield Stream(reader)
    writer.close()


@pytest.mark.requirement("DOOR-1")
async def test_calls_and_acts_are_told_as_they_happen(app: App, site: Site) -> None:
    async with following(site, await key_of(app, ANN, "viewer")) as stream:
        await app.tools.disable("echo", tenant="nobody", actor=ANN)
        assert (await stream())["event"] == "tool.disabled"
        outcome = await app.invoke("calculator", {"expression": "1+1"}, actor=BOB, session="s-1")
        ended = await stream.ended()
        assert (ended["call"], ended["tool"], ended["status"], ended["user"]) == (outcome.id, "calculator", "success", "bob")
        assert ended["details"]["session"] == "s-1"
        assert "1+1" not in str(ended)


@pytest.mark.requirement("DOOR-3")
async def test_nobody_is_told_of_what_is_not_theirs(app: App, site: Site) -> None:
    async with (
        following(site, await key_of(app, ANN, "caller")) as own,
        following(site, await key_of(app, ANN, "viewer")) as tenants,
        following(site, await key_of(app, EVE, "admin")) as others,
        following(site, await key_of(app, EVE, "operator"), "/v1/events?tenant=*") as everything,
    ):
        for actor in (BOB, ANN, EVE):
            await app.invoke("echo", {"text": "x"}, actor=actor)
        assert (await own.ended())["user"] == "ann"
        assert [(await tenants.ended())["user"] for _ in range(2)] == ["bob", "ann"]
        assert (await others.ended())["user"] == "eve"
        assert [(await everything.ended())["user"] for _ in range(3)] == ["bob", "ann", "eve"]


@pytest.mark.requirement("DOOR-1")
async def test_who_comes_back_misses_nothing(app: App, site: Site) -> None:
    key = await key_of(app, ANN, "caller")
    async with following(site, key) as stream:
        first = await app.invoke("echo", {"text": "1"}, actor=ANN)
        last = await stream.ended()
        assert last["call"] == first.id
    missed = [(await app.invoke("echo", {"text": str(number)}, actor=ANN)).id for number in range(5)]
    await app.flush()
    for path, header in (("/v1/events", f"Last-Event-ID: {last['seq']}\r\n"), (f"/v1/events?after={last['seq']}", "")):
        async with following(site, key, path, header) as stream:
            assert [(await stream.ended())["call"] for _ in missed] == missed
            live = await app.invoke("echo", {"text": "live"}, actor=ANN)
            assert (await stream.ended())["call"] == live.id
            missed.append(live.id)


@pytest.mark.requirement("DOOR-1")
async def test_filters_and_bad_numbers(app: App, site: Site) -> None:
    key = await key_of(app, ANN, "caller")
    async with following(site, key, "/v1/events?event=call.&tool=timestamp") as stream:
        await app.invoke("echo", {"text": "x"}, actor=ANN)
        await app.invoke("timestamp", {}, actor=ANN)
        assert (await stream())["tool"] == "timestamp"
    for header in ("x", "-1", "1" * 30):
        assert (await site("GET", "/v1/events", {"Last-Event-ID": header}, key=key)).status == 400
    assert (await site("GET", "/v1/events?after=-1", key=key)).status == 422


@pytest.mark.requirement("DOOR-3")
async def test_a_stream_ends_with_its_credential(app: App, site: Site) -> None:
    key, text = await app.keys.create("ending", ANN)
    async with following(site, text) as stream:
        await app.keys.revoke(key.id)
        with pytest.raises(EOFError):
            while True:
                await stream()
    async with asyncio.timeout(SECONDS):
        while len(site.http.streams):
            await asyncio.sleep(0.01)


@pytest.mark.requirement("DOOR-3")
async def test_one_credential_does_not_take_all_streams(app: App, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_CREDENTIAL_STREAMS", 1)
    key, other = await key_of(app, ANN, "caller"), await key_of(app, BOB, "caller")
    async with following(site, key):
        refused = await site("GET", "/v1/events", key=key)
        assert (refused.status, refused.json["code"]) == (429, "RATE_LIMITED")
        async with following(site, other):
            pass


# -- the tail itself


@pytest.mark.requirement("DOOR-5")
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_what_another_process_writes_is_told(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    terms: dict[str, Any] = {"home": tmp_path / "home", "entry_points": False}
    if backend == "postgres":
        terms["database_url"] = request.getfixturevalue("postgres_database")
    async with App.open(**terms) as app, App.open(**terms) as other, app.audit.tail.watching(tenant="acme") as watcher:
        made = [(await other.invoke("echo", {"text": "x"}, actor=ANN)).id for _ in range(3)]
        seen: list[str] = []
        async with asyncio.timeout(SECONDS):
            while len(seen) < 3:
                seen += [event.call for event in await watcher.take(1) if event.event == "call.ended"]
        assert seen == made
        await app.audit.tail.close()


@pytest.mark.requirement("DOOR-1")
async def test_who_comes_back_before_the_reader_has_got_so_far_is_told_nothing_twice(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client has seen in another process, the reader of this one may not have read yet."""
    monkeypatch.setattr(log_tail, "POLL_SECONDS", 0.5)
    tail = app.audit.tail
    async with tail.watching(tenant="acme"):
        await app.invoke("echo", {"text": "x"}, actor=ANN)
        await app.flush()
        async with tail.watching(0, tenant="acme") as first:
            last = (await first.take(SECONDS))[-1].seq
        assert tail.seq < last  # it has not polled since
        async with tail.watching(last, tenant="acme") as again, tail.watching(last + 100, tenant="acme") as ahead:
            made = await app.invoke("echo", {"text": "y"}, actor=ANN)
            await app.flush()
            for watcher in (again, ahead):
                told = await watcher.take(SECONDS)
                assert {event.call for event in told} == {made.id} and told[0].seq == last + 1
    await tail.close()


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"user": {"a": 1}, "persona": []}', "{"])
def test_a_row_that_somebody_has_spoiled_stops_nobody(body: bytes | str) -> None:
    event = log_tail.event_of((1, 0, "end", "c1", "acme", "echo", "success", body, ""))
    assert (event.user, event.persona, event.details) == (None, None, {})
    assert event.is_for("acme", None) and not event.is_for("acme", "ann")


Step = tuple[str, int]


@pytest.mark.requirement("DOOR-1")
@at_most(40)
@given(
    st.lists(st.tuples(st.sampled_from(["write", "take", "pause"]), st.integers(1, 40)), min_size=1, max_size=20),
    st.integers(0, 30),
)
async def test_a_watcher_gets_every_row_once_in_order(steps: list[Step], after: int) -> None:
    """However fast rows are written and taken, also by one who is so slow that it has to read the log again."""
    log: list[tuple[Any, ...]] = []

    def write(count: int) -> None:
        for _ in range(count):
            seq = len(log) + 1
            tenant = "acme" if seq % 3 else "other"
            log.append((seq, 0, "end", f"c{seq}", tenant, "echo", "success", b'{"user": "ann"}', ""))

    async def read(seq: int, *, tenant: str | None = None, limit: int = 10) -> list[tuple[Any, ...]]:
        await asyncio.sleep(0)
        return [row for row in log[seq:] if tenant in (None, row[4])][:limit]

    async def end() -> int:
        return len(log)

    write(20)
    tail = LogTail(read, end)
    patch = pytest.MonkeyPatch()
    for name, value in {"POLL_SECONDS": 0.0005, "MAX_WAITING_EVENTS": 5, "PAGE_EVENTS": 7}.items():
        patch.setattr(log_tail, name, value)
    try:
        async with tail.watching(after, tenant="acme") as watcher:
            seen: list[int] = []
            for step, count in steps:
                if step == "write":
                    write(count)
                elif step == "take":
                    seen += [event.seq for event in await watcher.take(0.002)]
                else:
                    await asyncio.sleep(0.0001 * count)
            async with asyncio.timeout(SECONDS):
                expected = [row[0] for row in log[min(after, 20) :] if row[4] == "acme"]
                while len(seen) < len(expected):
                    seen += [event.seq for event in await watcher.take(0.01)]
            seen += [event.seq for event in await watcher.take(0.005)]
            assert seen == expected
    finally:
        await tail.close()
        patch.undo()
