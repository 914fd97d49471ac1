"""Money in the store, where a connection is lost, a budget is removed under a call, or something unexpected fails."""

import asyncio
import gc
from typing import Any

import asyncpg
import pytest

from tests.till import CENT, DOLLAR, opened_till, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.store import budgets as table
from toolgate.store import live_processes, reservations
from toolgate.store.database import Store, Transaction, now, open_store
from toolgate.store.postgres import _drive
from toolgate.store.reservations import Account, BudgetExceeded

pytestmark = pytest.mark.requirement("COST-2")

BUY = tool("0.10")


async def numbers(store: Store) -> list[tuple[int, int]]:
    def look() -> Transaction[list[tuple[int, int]]]:
        rows = yield "SELECT spent, reserved FROM spending", {}
        return [(int(spent), int(reserved)) for spent, reserved in rows]

    return await store.read(look())


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.parametrize("actual", [0, 60])
async def test_a_settlement_waits_for_a_reservation_that_still_commits(postgres_database: str, actual: int) -> None:
    """The connection of `reserve` is lost while the server commits: the call is settled before the server is through."""
    store = open_store(postgres_database, None)
    await store.start()
    accounts = [Account('["b"]', "2026-01-01", DOLLAR)]
    lost: Any = await asyncpg.connect(postgres_database)
    committing = lost.transaction()
    await committing.start()
    await _drive(lost, reservations.reserve("call", "process", 100, accounts))
    settling = asyncio.ensure_future(store.transact(reservations.settle("call", "process", actual, accounts)))
    async with asyncio.timeout(30):
        while not await lost.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)
    await committing.commit()
    await settling
    assert await numbers(store) == [(actual, 0)]
    await store.transact(reservations.settle("call", "process", actual, accounts))
    assert await numbers(store) == [(actual, 0)]
    await lost.close()
    await store.close()


@pytest.mark.matrix("needs PostgreSQL")
async def test_money_is_reserved_in_a_budget_that_is_removed_meanwhile(postgres_database: str) -> None:
    """The account is gone when `reserve` comes to it, though it was there a statement before."""
    store = open_store(postgres_database, None)
    await store.start()
    budget = new_budget("day", DOLLAR)
    account = Account(table.account_name(budget.id, []), "2026-11-15", DOLLAR)
    await store.transact(table.set_budget(budget))
    await store.transact(reservations.settle("first", "process", CENT, [account]))

    reserving: Any = await asyncpg.connect(postgres_database)
    async with reserving.transaction():
        transaction = reservations.reserve("call", "process", CENT, [account])
        statement = next(transaction)
        while "max(starts)" not in statement[0]:
            statement = transaction.send(await said(reserving, statement))
        looked = await said(reserving, statement)
        assert await store.transact(table.remove_budget(budget.id))

        def rest() -> Transaction[None]:
            following = transaction.send(looked)
            while True:
                rows = yield following
                try:
                    following = transaction.send(rows)
                except StopIteration:
                    return

        await _drive(reserving, rest())
    assert await numbers(store) == [(0, CENT)]
    await store.transact(reservations.settle("call", "process", CENT, [account]))
    assert await numbers(store) == [(CENT, 0)]
    await reserving.close()
    await store.close()


async def said(connection: Any, statement: tuple[str, Any]) -> list[tuple[Any, ...]]:
    def ask() -> Transaction[list[tuple[Any, ...]]]:
        return (yield statement)

    found: list[tuple[Any, ...]] = await _drive(connection, ask())
    return found


async def test_a_budget_that_is_removed_under_a_call_forgets_all_but_that_call(database: str) -> None:
    async with opened_till(database) as till:
        budget = new_budget("day", DOLLAR)
        await till.set(budget)
        for _ in range(5):
            assert await till.buy(BUY) is None
        call = await till.reserve(BUY)
        assert await till.remove(budget.id)
        await till.set(budget)
        assert await till.sums() == (0, 10 * CENT)
        await till.settle(call, BUY, 10 * CENT)
        assert await till.sums() == (10 * CENT, 0)
        assert await till.buy(tool("0.90")) is None
        assert await till.buy(tool("0.01")) is not None


async def test_refused_calls_leave_nothing_in_memory(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 0))
        for _ in range(500):
            assert await till.buy(BUY) is not None
        gc.collect()
        left = [thing for thing in gc.get_objects() if isinstance(thing, BudgetExceeded)]
        assert len(left) < 5


async def test_an_error_in_a_transaction_says_where_and_holds_no_frames() -> None:
    def fails() -> Transaction[None]:
        yield "SELECT 1", {}
        raise ValueError("changed my mind")

    async with opened_till() as till:
        gc.disable()
        try:
            with pytest.raises(ValueError, match="changed my mind") as failed:
                await till.store.transact(fails())
        finally:
            gc.enable()
        assert any("fails, line" in note for note in failed.value.__notes__)
        functions = [entry.name for entry in failed.traceback]
        assert "_alone" not in functions


@pytest.fixture
def broken_clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whoever asks what time it is gets an error that nobody has thought of, twice."""
    asked: list[int] = []
    real = now

    def ask() -> Any:
        asked.append(1)
        if len(asked) in (2, 3):
            raise RuntimeError("the clock stands still")
        return real()

    monkeypatch.setattr(live_processes, "now", ask)
    return asked


async def test_signs_of_life_go_on_after_an_error_that_nobody_expected(
    broken_clock: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_till(seconds=0.1) as till:
        await till.presence.show()
        async with asyncio.timeout(30):
            while len(broken_clock) < 5:
                await asyncio.sleep(0.01)
        assert till.presence._beating is not None
        assert not till.presence._beating.done()
    assert "cannot show that it is alive" in caplog.text


async def test_the_dead_are_looked_after_even_after_an_error_that_nobody_expected(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    def what_the_dead_hold() -> Transaction[None]:
        yield "INSERT INTO reservations VALUES ('c', 'dead', 5, '[]', 'held', :moment)", {"moment": now()}

    async with opened_till(database, seconds=0.1) as till:
        await till.set(new_budget("day", DOLLAR))
        assert await till.buy(BUY) is None
        noon = till.now
        del till.now  # its clock fails
        async with asyncio.timeout(30):
            while "cannot be settled yet" not in caplog.text:
                await asyncio.sleep(0.02)
        till.now = noon
        await till.store.transact(what_the_dead_hold())
        async with asyncio.timeout(30):
            while await till.rows("SELECT state FROM reservations WHERE call_id = 'c'") != [("reaped",)]:
                await asyncio.sleep(0.02)


async def test_a_cost_that_can_not_be_counted_for_an_unknown_reason_is_counted_later(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR))
        call = await till.reserve(BUY)
        real = till.store.transact
        till.store.transact = None  # type: ignore[assignment, method-assign]
        await till.settle(call, BUY, 3 * CENT)
        till.store.transact = real  # type: ignore[method-assign]
        assert await till.sums() == (0, 10 * CENT)
        await till.budgets.reap()
        assert await till.sums() == (3 * CENT, 0)
