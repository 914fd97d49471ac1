"""Budgets: what is reserved before a call and settled after it, by any number of callers."""

import asyncio

import pytest

from tests.till import CENT, DOLLAR, call_of, opened_till, tool
from toolgate.errors import Denied, StoreError
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import Actor
from toolgate.store import reservations
from toolgate.store.database import open_store

pytestmark = pytest.mark.requirement("COST-2")

ANN, BOB = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob")
EVE = Actor("globex", "analyst", "eve")


# -- reserve and settle


async def test_the_estimate_is_reserved_and_the_actual_is_spent(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR))
        buy = tool("0.10")
        call = await till.reserve(buy)
        assert await till.sums() == (0, 10 * CENT)
        await till.settle(call, buy, 3 * CENT)
        assert await till.sums() == (3 * CENT, 0)
        failed = await till.reserve(buy)
        await till.settle(failed, buy, 0)
        assert await till.sums() == (3 * CENT, 0)


async def test_what_does_not_fit_is_refused_with_all_figures_and_takes_nothing(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR, tenant="acme"), new_budget("month", 100 * DOLLAR, tool="buy"))
        assert await till.buy(tool("0.75"), ANN) is None
        running = await till.reserve(tool("0.20"), ANN)
        refusal = await till.buy(tool("0.10"), ANN)
        assert refusal is not None
        assert (refusal.code, refusal.retryable) == ("BUDGET_EXCEEDED", False)
        assert refusal.details == {
            "limit_usd": 1.0,
            "spent_usd": 0.75,
            "reserved_usd": 0.2,
            "estimate_usd": 0.1,
            "resets_at": "2026-11-16T00:00:00+00:00",
            "scope": {
                "tenant": "acme", "persona": None, "user": None, "tool": None, "period": "day",
                "budget": new_budget("day", 0, tenant="acme").id,
            },
        }  # fmt: skip
        for words in ("The daily budget of tenant acme", "$0.10", "$1.00", "$0.75", "$0.20", "2026-11-16 00:00 UTC"):
            assert words in refusal.message
        assert await till.sums() == (150 * CENT, 40 * CENT)
        await till.settle(running, tool("0.20"), 0)
        assert await till.buy(tool("0.10"), ANN) is None
        assert await till.buy(tool("0.15"), ANN) is None
        assert await till.buy(tool("0.000000001"), ANN) is not None


async def test_a_call_is_never_reserved_or_settled_twice(database: str) -> None:
    async with opened_till(database) as till, opened_till(database) as other:
        await till.set(new_budget("day", DOLLAR))
        await other.refresh()
        buy = tool("0.40")
        call = await till.reserve(buy)
        await till.reserve(buy, call=call)
        await other.reserve(buy, call=call)
        assert await till.sums() == (0, 40 * CENT)
        await asyncio.gather(*(each.settle(call, buy, 30 * CENT) for each in (till, other, till)))
        await till.settle(call, buy, 30 * CENT)
        assert await till.sums() == (30 * CENT, 0)
        await till.reserve(buy, call=call)  # it is tried again: a call of its own, as far as money goes
        await till.settle(call, buy, 40 * CENT)
        assert await till.sums() == (70 * CENT, 0)


async def test_a_cost_that_only_the_tool_knew_is_counted_and_bars_the_next_call(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR))
        free = tool("0")
        assert not till.budgets.applies(free)
        call = call_of(free)
        await till.settle(call, free, 0)
        assert await till.rows("SELECT * FROM reservations") == []
        await till.settle(call, free, 120 * CENT)
        await till.settle(call, free, 120 * CENT)
        assert await till.sums() == (120 * CENT, 0)
        assert till.budgets.applies(free)
        refusal = await till.buy(free)
        assert refusal is not None
        assert refusal.details is not None
        assert refusal.details["spent_usd"] == 1.2


async def test_absurd_costs_fit_into_the_database(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR))
        free = tool("0")
        for _ in range(8):
            await till.settle(call_of(free), free, 10**30)
        spent, reserved = await till.sums()
        assert (spent, reserved) == (2**62, 0)
        with pytest.raises(Denied):
            await till.reserve(tool("1"))


async def test_a_free_call_and_one_that_falls_under_no_budget_touch_no_table(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 0, tenant="globex"))
        assert not till.budgets.applies(tool("0"))
        assert await till.buy(tool("5"), ANN) is None
        assert not till.presence.is_shown
        assert await till.rows("SELECT * FROM reservations") == []
        assert await till.buy(tool("5"), EVE) is not None


async def test_no_money_is_left_reserved_for_a_caller_that_goes_away(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 100 * DOLLAR))
        buy = tool("0.10")
        await till.buy(buy)
        tasks = [asyncio.create_task(till.reserve(buy)) for _ in range(40)]
        for number, task in enumerate(tasks):
            for _ in range(number % 8):
                await asyncio.sleep(0)
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for one in done:
            if not isinstance(one, BaseException):
                await till.settle(one, buy, 0)
        await till.budgets.close()
        assert await till.sums() == (10 * CENT, 0)


async def test_a_settlement_outlives_its_caller(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 100 * DOLLAR))
        buy = tool("0.10")
        calls = [await till.reserve(buy) for _ in range(20)]
        tasks = [asyncio.create_task(till.settle(call, buy, CENT)) for call in calls]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await till.budgets.close()
        assert await till.sums() == (20 * CENT, 0)


async def test_without_a_store_nothing_is_reserved_and_what_was_spent_is_counted_later(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR))
        buy = tool("0.10")
        call, failed = await till.reserve(buy), await till.reserve(buy)
        working, lost = till.store, open_store(database, None)
        await lost.start()
        await lost.close()
        till.budgets._store = lost
        with pytest.raises(StoreError):
            await till.reserve(buy)
        await till.settle(call, buy, 7 * CENT)
        await till.settle(failed, buy, 0)
        assert "cannot be counted yet and stays reserved" in caplog.text
        till.budgets._store = working
        assert await till.sums() == (0, 20 * CENT)
        await till.budgets.reap()
        assert await till.sums() == (7 * CENT, 0)


# -- crowds


async def test_many_that_pay_into_several_accounts_at_once_wait_for_nobody_for_ever(database: str) -> None:
    """Budgets that overlap in different ways, reserved, settled and reaped at the same time: no deadlock, exact sums."""
    async with opened_till(database) as till, opened_till(database) as other:
        await till.set(
            new_budget("day", 1000 * DOLLAR), new_budget("month", 1000 * DOLLAR, tenant="*"),
            new_budget("day", 1000 * DOLLAR, user="*"), new_budget("day", 1000 * DOLLAR, tool="*"),
        )  # fmt: skip
        await other.refresh()
        tools = [tool("0.01", name) for name in ("one", "two", "three")]
        work = [each.buy(tools[number % 3], (ANN, BOB, EVE)[number % 2]) for number in range(60) for each in (till, other)]
        done = await asyncio.wait_for(asyncio.gather(*work, till.budgets.reap(), other.budgets.reap()), 60)
        assert set(done) == {None, 0}
        assert await till.sums() == (4 * 120 * CENT, 0)


async def test_an_account_that_refuses_leaves_the_others_as_they_were(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 5 * CENT), new_budget("month", DOLLAR), new_budget("day", DOLLAR, tool="*"))
        accounts = [each.account for each in till.budgets._book.counted(ANN, tool(), till.now)]
        assert len(accounts) == 3
        with pytest.raises(reservations.BudgetExceeded):
            await till.store.transact(reservations.reserve("a call", "a process", 10 * CENT, accounts))
        assert await till.sums() == (0, 0)
        assert await till.rows("SELECT * FROM reservations") == []
