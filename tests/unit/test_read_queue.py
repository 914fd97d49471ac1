"""Reads that wait for one thread: each gets its own answer, whatever becomes of the others."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import SOON
from toolgate.errors import StoreError
from toolgate.store.database import Store, Transaction, open_store
from toolgate.store.read_queue import ReadQueue
from toolgate.store.sql import value


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'a.db'}")
    await opened.start()
    yield opened
    await opened.close()


class Desk:
    """A queue whose reads are done when a test lets them, and that notes its threads."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.begun: list[str] = []
        self.threads: set[int] = set()
        self.queue = ReadQueue("test-read", self._read, asyncio.get_running_loop())

    def _read(self, transaction: Transaction[Any]) -> Any:
        self.threads.add(threading.get_ident())
        sql, _ = next(transaction)
        self.begun.append(sql)
        if sql == "slow":
            assert self.may_go_on.wait(SOON)
        if sql == "wrong":
            raise StoreError("It is wrong.")
        return sql


def asking(sql: str) -> Transaction[Any]:
    return (yield sql, {})


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    made.may_go_on.set()
    await made.queue.close(lambda: None)


async def test_each_gets_its_own_answer_from_one_thread(desk: Desk) -> None:
    names = [f"read {number}" for number in range(200)]
    async with asyncio.timeout(SOON):
        assert await asyncio.gather(*(desk.queue.put(asking(name)) for name in names)) == names
        assert await desk.queue.put(asking("after")) == "after"
    assert desk.begun == [*names, "after"] and len(desk.threads) == 1


async def test_one_that_fails_fails_alone(desk: Desk) -> None:
    async with asyncio.timeout(SOON):
        found = await asyncio.gather(*(desk.queue.put(asking(name)) for name in ("a", "wrong", "b")), return_exceptions=True)
    assert found[0] == "a" and isinstance(found[1], StoreError) and found[2] == "b"


async def test_who_came_before_a_long_read_does_not_wait_for_it(desk: Desk) -> None:
    first, long, later = (desk.queue.put(asking(name)) for name in ("first", "slow", "later"))
    async with asyncio.timeout(SOON):
        assert await first == "first"
        assert not long.done()
        desk.may_go_on.set()
        assert (await long, await later) == ("slow", "later")


async def test_one_that_nobody_waits_for_any_more_is_not_read(desk: Desk) -> None:
    slow, given_up, last = (desk.queue.put(asking(name)) for name in ("slow", "given up", "last"))
    given_up.cancel()
    desk.may_go_on.set()
    async with asyncio.timeout(SOON):
        assert (await slow, await last) == ("slow", "last")
    assert desk.begun == ["slow", "last"]


async def test_after_the_end_nothing_is_read() -> None:
    desk, ended = Desk(), []
    waiting = desk.queue.put(asking("before"))
    await desk.queue.close(lambda: ended.append(threading.get_ident()))
    assert await waiting == "before" and set(ended) == desk.threads
    with pytest.raises(StoreError, match="closed"):
        desk.queue.put(asking("after"))
    await desk.queue.close(lambda: ended.append(0))
    assert len(ended) == 1


async def test_a_read_sees_what_was_written_before_it_though_others_wait(store: Store) -> None:
    def note(number: int) -> Transaction[None]:
        yield "UPDATE call_statistics_progress SET seq = :number WHERE id = 1", {"number": number}

    look = "SELECT seq FROM call_statistics_progress WHERE id = 1"
    for number in range(1, 20):
        early = [asyncio.ensure_future(store.read(value(look))) for _ in range(5)]
        await store.transact(note(number))
        assert await store.read(value(look)) == number
        assert set(await asyncio.gather(*early)) <= {number - 1, number}


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'a.db'}")
    with pytest.raises(StoreError, match="closed"):
        await store.read(value("SELECT 1"))
    await store.start()
    assert await store.read(value("SELECT 1")) == 1
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.read(value("SELECT 1"))
