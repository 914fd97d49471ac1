"""A process that stood still before its call began makes sure of its money: others may have taken it for dead."""

import asyncio
from datetime import timedelta

import pytest

from tests.till import CENT, Till, opened_till, tool
from toolgate.errors import Denied
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import Call
from toolgate.store.database import LogRow, Transaction, now
from toolgate.store.live_processes import alive_since
from toolgate.store.reservations import reap

pytestmark = pytest.mark.requirement("COST-2")

LEASE = 0.4
BUY = tool("0.10")


class Start:
    """The record that a call begins."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def row(self) -> LogRow:
        return 1, "start", self.call.id, "acme", "buy", "started", b"{}"


def stand_still(till: Till) -> None:
    """As if the process were stopped: it shows no more signs of life, and looks after nobody."""
    assert till.presence._beating is not None
    assert till.budgets._reaping is not None
    till.presence._beating.cancel()
    till.budgets._reaping.cancel()


async def until_reaped(till: Till) -> None:
    async with asyncio.timeout(30):
        while await till.rows("SELECT state FROM reservations") != [("reaped",)]:
            await asyncio.sleep(0.02)
            await till.budgets.reap()


def of_somebody_else() -> Transaction[None]:
    yield "UPDATE reservations SET process_id = 'somebody else'", {}


async def owners(till: Till) -> list[str]:
    return [row[0] for row in await till.rows("SELECT process_id FROM reservations")]


async def test_while_signs_of_life_are_fresh_the_store_is_not_asked(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT))
        call = await till.reserve(BUY)
        await till.store.transact(of_somebody_else())
        await till.budgets.confirm(call)
        assert await owners(till) == ["somebody else"], "it asked"
        till.presence.seconds = 0  # from now on no sign is fresh
        await till.budgets.confirm(call)
        assert await owners(till) == [till.presence.id]
        assert await till.sums() == (0, 10 * CENT)


async def test_a_call_that_reserved_nothing_has_nothing_to_make_sure_of(database: str) -> None:
    async with opened_till(database) as till:
        await till.budgets.confirm(await till.reserve(BUY))
        assert await till.rows("SELECT * FROM reservations") == []


@pytest.mark.parametrize("seen_again", [False, True], ids=["not seen since", "seen again"])
async def test_money_that_was_given_to_another_is_not_spent_twice(database: str, seen_again: bool) -> None:
    async with opened_till(database, seconds=LEASE) as still, opened_till(database, seconds=LEASE) as other:
        await other.set(new_budget("day", 10 * CENT))
        await still.refresh()
        call = await still.reserve(BUY)
        stand_still(still)
        await until_reaped(other)
        assert await other.buy(BUY) is None
        if seen_again:  # it wakes up, and its signs go on before its call does
            await still.presence._renew()
            assert still.presence.is_fresh
        await still.store.append_durably(Start(call))
        with pytest.raises(Denied, match="does not allow it"):
            await still.budgets.confirm(call)
        await still.settle(call, BUY, 0)
        assert await other.sums() == (10 * CENT, 0)


async def test_if_there_is_money_left_the_call_goes_on_and_is_counted_once(database: str) -> None:
    async with opened_till(database, seconds=LEASE) as still, opened_till(database, seconds=LEASE) as other:
        await other.set(new_budget("day", 20 * CENT))
        await still.refresh()
        call = await still.reserve(BUY)
        stand_still(still)
        await until_reaped(other)
        assert await other.sums() == (0, 0)
        await still.store.append_durably(Start(call))
        await still.budgets.confirm(call)
        assert await other.sums() == (0, 10 * CENT)
        await still.settle(call, BUY, 7 * CENT)
        assert await other.sums() == (7 * CENT, 0)


async def test_what_a_reaper_assumed_to_be_spent_is_not_taken_again(database: str) -> None:
    """It was reaped after its start was on record: all there is of the budget is counted for it already."""
    async with opened_till(database, seconds=LEASE) as still, opened_till(database, seconds=LEASE) as other:
        await other.set(new_budget("day", 10 * CENT))
        await still.refresh()
        call = await still.reserve(BUY)
        stand_still(still)
        await still.store.append_durably(Start(call))
        await until_reaped(other)
        assert await other.sums() == (10 * CENT, 0)
        await still.budgets.confirm(call)
        assert await other.sums() == (0, 10 * CENT)
        await still.settle(call, BUY, 4 * CENT)
        assert await other.sums() == (4 * CENT, 0)


async def test_a_refused_call_gives_back_what_a_reaper_assumed(database: str) -> None:
    async with opened_till(database, seconds=LEASE) as still, opened_till(database, seconds=LEASE) as other:
        await other.set(new_budget("day", 10 * CENT))
        await still.refresh()
        call = await still.reserve(BUY)
        stand_still(still)
        await still.store.append_durably(Start(call))
        await until_reaped(other)
        await other.set(new_budget("day", 5 * CENT))
        await still.refresh()
        still.budgets._begun[call.id] = still.budgets._begun[call.id]._replace(
            counted=tuple(still.budgets._book.counted(call.actor, BUY, still.now))
        )
        with pytest.raises(Denied):
            await still.budgets.confirm(call)
        assert await other.sums() == (10 * CENT, 0)
        await still.settle(call, BUY, 0)
        assert await other.sums() == (0, 0)


async def test_whoever_wins_of_a_reaper_and_a_call_that_begins_every_cent_is_counted_once(database: str) -> None:
    async with opened_till(database) as till, opened_till(database) as other:
        await till.set(new_budget("day", 40 * 10 * CENT), new_budget("month", 40 * 10 * CENT, tenant="*"))
        calls = [await till.reserve(BUY) for _ in range(40)]
        till.presence.seconds = 0  # no sign is fresh: each asks

        async def begin(call: Call) -> None:
            await till.store.append_durably(Start(call))
            await till.budgets.confirm(call)

        everybody_is_dead = alive_since(-86_400)
        reaping = [other.store.transact(reap(call.id, everybody_is_dead)) for call in calls for _ in range(2)]
        await asyncio.gather(*(begin(call) for call in calls), *reaping)
        await asyncio.gather(*(till.settle(call, BUY, 10 * CENT) for call in calls))
        assert await till.sums() == (2 * 40 * 10 * CENT, 0)
        till.presence.seconds = 60


async def test_a_process_that_died_with_its_clock_ahead_is_dead(database: str) -> None:
    async with opened_till(database) as dead, opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT))
        await dead.refresh()
        await dead.reserve(BUY)
        stand_still(dead)

        def ahead() -> Transaction[None]:
            yield (
                "UPDATE processes SET seen_at = :future WHERE id = :id",
                {"future": now() + timedelta(hours=8), "id": dead.presence.id},
            )

        await dead.store.transact(ahead())
        assert await till.budgets.reap() == 1
        assert await till.sums() == (0, 0)


async def test_a_clock_that_is_a_little_ahead_kills_nobody(database: str) -> None:
    async with opened_till(database) as alive, opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT))
        await alive.refresh()
        await alive.reserve(BUY)
        stand_still(alive)

        def ahead() -> Transaction[None]:
            yield "UPDATE processes SET seen_at = :future", {"future": now() + timedelta(seconds=20)}

        await alive.store.transact(ahead())
        assert await till.budgets.reap() == 0
