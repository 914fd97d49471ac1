"""A store that can't be written when it is closed: it says so, in bounded time, and lets go of everything all the same."""

import asyncio
import contextlib
import gc
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.hostile.wire import wired
from tests.servers import postgres as a_server_of_ones_own
from tests.till import CENT, DOLLAR, Till, tool
from toolgate import App
from toolgate.errors import StoreError
from toolgate.gates.quota import budget
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.store import live_processes, postgres, writer
from toolgate.store.database import open_store
from toolgate.store.sql import column
from toolgate.testing.stores import Line

pytestmark = pytest.mark.requirement("AUD-2", "PIPE-6")

BUY = tool("0.10")


@pytest.fixture
def a_second_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "WRITER_CLOSE_SECONDS", 1)
    monkeypatch.setattr(postgres, "WRITER_CLOSE_SECONDS", 1)
    monkeypatch.setattr(budget, "SETTLE_CLOSE_SECONDS", 1)
    monkeypatch.setattr(live_processes, "LEAVE_SECONDS", 1)


def threads() -> list[str]:
    """The threads of stores; those that run tools are others' and end when they like."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("toolgate-sqlite", "toolgate-postgres"))]


async def test_a_file_that_can_not_be_written_is_let_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.db"
    store: Any = open_store(f"sqlite:///{path}", None)
    await store.start()
    await store.append_durably(Line(1))
    await store.ping()
    store._connection.execute("PRAGMA query_only = ON")  # as on a disk that has become read-only
    store.append(Line(2))
    with pytest.raises(StoreError, match="cannot be written"):
        await store.close()
    assert "1 records of the audit log are lost" in caplog.text
    assert threads() == []
    assert store._connection is None
    await store.close()  # again, it has no effect
    with pytest.raises(StoreError, match="closed"):
        await store.append_durably(Line(3))
    path.unlink()


@pytest.mark.matrix("waits for a lock")
@pytest.mark.usefixtures("a_second_is_long")
async def test_a_file_that_somebody_else_keeps_locked_is_let_go_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(f"sqlite:///{path}", None)
    await store.start()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.append(Line(1))
    with pytest.raises(StoreError, match="did not answer"):
        await store.close()
    other.execute("COMMIT")
    async with asyncio.timeout(30):
        while threads():
            await asyncio.sleep(0.02)
    other.close()


async def test_those_who_wait_are_told_that_the_store_was_closed(tmp_path: Path) -> None:
    store: Any = open_store(f"sqlite:///{tmp_path / 'a.db'}", None)
    await store.start()
    store._connection.execute("PRAGMA query_only = ON")
    waiting = [asyncio.ensure_future(store.append_durably(Line(number))) for number in range(20)]
    closing = asyncio.ensure_future(store.close())
    late = asyncio.ensure_future(store.append_durably(Line(99)))
    ended = await asyncio.wait_for(asyncio.gather(*waiting, late, closing, return_exceptions=True), 30)
    assert {type(each) for each in ended} == {StoreError}


@pytest.mark.matrix("starts processes that end in trouble")
async def test_what_is_handed_over_just_before_the_end_is_written(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.db"
        store = open_store(f"sqlite:///{path}", None)
        await store.start()
        closing = asyncio.ensure_future(store.close())
        taken = 0
        while not closing.done():
            try:
                store.append(Line(taken))
            except StoreError:
                break
            taken += 1
            await asyncio.sleep(0)
        await closing
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM audit_log").fetchone() == (taken,)


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.usefixtures("a_second_is_long")
@pytest.mark.parametrize("known", [False, True], ids=["while it writes", "while it connects again"])
async def test_a_server_that_does_not_answer_holds_nobody(postgres_database: str, known: bool) -> None:
    async with wired(postgres_database) as (wire, url):
        store: Any = open_store(url, None)
        await store.start()
        await store.append_durably(Line(1))
        if known:
            store._log.terminate()  # the next batch needs a new connection
        wire.freeze()
        store.append(Line(2))
        stuck = asyncio.ensure_future(store.ping())
        began = time.monotonic()
        with pytest.raises(StoreError, match="did not answer"):
            await store.close()
        assert time.monotonic() - began < 30
        with pytest.raises(StoreError):
            await asyncio.wait_for(stuck, 30)
        assert (store._pool, store._log, store._log_loop) == (None, None, None)
        assert threads() == []
    gc.collect()  # what was left open would be complained of


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.usefixtures("a_second_is_long")
async def test_money_and_presence_do_not_wait_for_a_server_that_does_not_answer(postgres_database: str) -> None:
    async with wired(postgres_database) as (wire, url):
        store = open_store(url, None)
        await store.start()
        till = Till(store, None, 60)
        await till.set(new_budget("day", DOLLAR))
        call = await till.reserve(BUY)
        wire.freeze()
        settling = asyncio.ensure_future(till.settle(call, BUY, 5 * CENT))
        await asyncio.sleep(0)
        began = time.monotonic()
        await till.budgets.close()
        await till.presence.leave()
        with pytest.raises(StoreError):
            await store.close()
        assert time.monotonic() - began < 30
        await asyncio.wait_for(settling, 30)
    server: Any = await asyncpg.connect(postgres_database)
    assert await server.fetchval("SELECT state FROM reservations") in ("held", "settled")
    await server.close()


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.usefixtures("a_second_is_long")
async def test_a_frozen_server_holds_nobody_who_waits_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "COMMAND_SECONDS", 1)
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 1)
    with a_server_of_ones_own() as server:
        store = postgres.PostgresStore(server.url(), connections=1)
        await store.start()
        processes = [int((server.home / "data" / "postmaster.pid").read_text().split()[0])]
        processes += await store.read(column("SELECT pid FROM pg_stat_activity"))
        send(processes, signal.SIGSTOP)
        try:
            late = asyncio.ensure_future(store.ping())
            await asyncio.wait([late], timeout=0.2)
            late.cancel()  # as who asks for readiness does: the connection is given back when the server has confirmed it
            waiting = [asyncio.ensure_future(store.ping()) for _ in range(60)]  # one after the other: a minute
            ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
            assert {type(each) for each in ended} == {StoreError}, ended
        finally:
            send(processes, signal.SIGCONT)
        async with asyncio.timeout(30):
            await asyncio.gather(late, return_exceptions=True)
            await store.ping()
        await store.close()


def send(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        os.kill(process, number)


@pytest.mark.requirement("AUD-3")
async def test_trouble_at_the_end_does_not_hide_what_went_wrong_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LookupError, match="of the body") as raised:
        async with App.open(home=tmp_path / "one") as app:
            store: Any = app.parts.store
            store._connection.execute("PRAGMA query_only = ON")
            store.append(Line(1))
            raise LookupError("of the body")
    assert any("cannot be written" in note for note in raised.value.__notes__)
    assert "was not closed in order" in caplog.text
    with pytest.raises(StoreError, match="cannot be written"):
        async with App.open(home=tmp_path / "two") as app:
            store = app.parts.store
            store._connection.execute("PRAGMA query_only = ON")
            store.append(Line(1))


@pytest.mark.requirement("AUD-3")
async def test_trouble_at_the_end_of_what_was_cancelled_is_raised(tmp_path: Path) -> None:
    """A cancellation is what `toolgate mcp` ends with when it is told to: it must not pass for an end in order."""
    opened = asyncio.Event()

    async def serve() -> None:
        async with App.open(home=tmp_path) as app:
            store: Any = app.parts.store
            store._connection.execute("PRAGMA query_only = ON")
            store.append(Line(1))
            opened.set()
            await asyncio.sleep(60)

    serving = asyncio.ensure_future(serve())
    await asyncio.wait_for(opened.wait(), 30)
    serving.cancel()
    with pytest.raises(StoreError, match="cannot be written"):
        await serving
