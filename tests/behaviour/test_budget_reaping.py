"""What processes that died had reserved is settled by the others."""

import asyncio
from datetime import timedelta

import pytest

from tests.till import CENT, DOLLAR, Till, opened_till, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import Actor
from toolgate.store.database import now

pytestmark = pytest.mark.requirement("COST-2")

ANN, BOB = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob")
EVE = Actor("globex", "analyst", "eve")


async def kill(till: Till) -> None:
    """As if the process had been killed: it shows no more signs of life, and they are old."""
    assert till.presence._beating is not None
    till.presence._beating.cancel()
    till.presence._beating = None

    def age() -> object:
        yield (
            "UPDATE processes SET seen_at = :past WHERE id = :id",
            {
                "past": now() - timedelta(hours=1),
                "id": till.presence.id,
            },
        )

    await till.store.transact(age())  # type: ignore[arg-type]


class Written:
    """A record of a call."""

    def __init__(self, call: str, kind: str, status: str = "success", cost: int | None = None) -> None:
        self.call, self.kind, self.status, self.cost = call, kind, status, cost

    def row(self) -> tuple[int, str, str, str, str, str, bytes]:
        body = b"{}" if self.cost is None else b'{"attempts":1,"cost":%d}' % self.cost
        return 1, self.kind, self.call, "acme", "buy", self.status, body


async def test_what_the_dead_had_reserved_is_spent_if_the_call_began_and_free_if_it_did_not(database: str) -> None:
    async with opened_till(database) as dead, opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR))
        await dead.refresh()
        buy = tool("0.10")
        never, began, ended, failed, waits = [await dead.reserve(buy) for _ in range(5)]
        alive = await till.reserve(buy)
        for record in (
            Written(began.id, "start"),
            Written(ended.id, "start"),
            Written(ended.id, "end", cost=4 * CENT),
            Written(failed.id, "start"),
            Written(failed.id, "end", "failure"),
            Written(waits.id, "end", "pending"),
            Written(waits.id, "start"),
        ):
            await till.store.append_durably(record)
        assert await till.budgets.reap() == 0
        await kill(dead)
        assert await till.budgets.reap() == 5
        assert await till.budgets.reap() == 0
        assert await till.sums() == (24 * CENT, 10 * CENT)
        await till.settle(alive, buy, 10 * CENT)
        # it was not dead, its clock was wrong: what was assumed is put right
        for call, actual in ((never, 10 * CENT), (began, 2 * CENT), (ended, 4 * CENT), (failed, 0), (waits, 0)):
            await dead.settle(call, buy, actual)
            await dead.settle(call, buy, actual)
        assert await till.sums() == (26 * CENT, 0)


async def test_what_is_put_right_after_a_budget_was_removed_leaves_nothing_negative(database: str) -> None:
    async with opened_till(database) as dead, opened_till(database) as till:
        budget = new_budget("day", DOLLAR)
        await till.set(budget)
        await dead.refresh()
        buy = tool("0.40")
        call = await dead.reserve(buy)
        await till.store.append_durably(Written(call.id, "start"))
        await kill(dead)
        assert await till.budgets.reap() == 1
        await till.remove(budget.id)
        await till.set(budget)
        await till.buy(tool("0.10"))
        await dead.settle(call, buy, 0)
        assert await till.sums() == (0, 0)
        assert await till.buy(tool("1")) is None


async def test_before_a_call_is_refused_the_dead_are_settled(database: str) -> None:
    async with opened_till(database) as dead, opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT))
        await dead.refresh()
        await dead.reserve(tool("0.10"))
        assert await till.buy(tool("0.10")) is not None
        await kill(dead)
        assert await till.buy(tool("0.10")) is None
        assert await till.sums() == (10 * CENT, 0)


async def test_whoever_spends_looks_after_the_dead_from_time_to_time(database: str) -> None:
    async with opened_till(database) as dead, opened_till(database, seconds=0.2) as till:
        await till.set(new_budget("day", DOLLAR))
        await dead.refresh()
        await dead.reserve(tool("0.10"))
        await kill(dead)
        await till.buy(tool("0.20"))
        async with asyncio.timeout(30):
            while await till.sums() != (20 * CENT, 0):
                await asyncio.sleep(0.05)


async def test_several_reapers_count_each_dead_call_once(database: str) -> None:
    async with opened_till(database) as dead, opened_till(database) as till, opened_till(database) as other:
        await till.set(new_budget("day", 100 * DOLLAR), new_budget("month", 100 * DOLLAR))
        await dead.refresh()
        buy = tool("0.10")
        for _ in range(30):
            await till.store.append_durably(Written((await dead.reserve(buy)).id, "start"))
        await kill(dead)
        counts = await asyncio.gather(*(each.budgets.reap() for each in (till, other, till, other)))
        assert sum(counts) == 30
        assert await till.sums() == (2 * 30 * 10 * CENT, 0)


async def test_settled_reservations_are_forgotten_after_a_day_and_held_ones_never(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", DOLLAR))
        await till.buy(tool("0.10"))
        held = await till.reserve(tool("0.10"))

        def age() -> object:
            yield "UPDATE reservations SET created_at = :past", {"past": now() - timedelta(days=2)}

        await till.store.transact(age())  # type: ignore[arg-type]
        till.now += timedelta(hours=2)
        await till.budgets.reap()
        assert await till.rows("SELECT call_id, state FROM reservations") == [(held.id, "held")]
        assert await till.sums() == (10 * CENT, 10 * CENT)
