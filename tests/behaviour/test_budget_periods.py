"""Days and months of budgets: time zones, summer time, and clocks that jump."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.till import CENT, DOLLAR, opened_till, tool
from toolgate.gates.quota.budget_accounts import new_budget, period_after, period_of
from toolgate.model import Actor
from toolgate.store.budgets import Period

pytestmark = pytest.mark.requirement("COST-2")

ANN, BOB = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob")
EVE = Actor("globex", "analyst", "eve")


async def test_a_day_begins_at_midnight_where_the_budget_is(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT, timezone="Asia/Tokyo"))
        till.now = datetime(2026, 11, 15, 14, 59, 59, tzinfo=UTC)
        assert await till.buy(tool("0.10")) is None
        refusal = await till.buy(tool("0.10"))
        assert refusal is not None
        assert "resets at 2026-11-16 00:00 Asia/Tokyo" in refusal.message
        till.now += timedelta(seconds=1)
        assert await till.buy(tool("0.10")) is None


async def test_a_month_begins_on_its_first_and_counts_beside_the_day(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT), new_budget("month", 25 * CENT))
        till.now = datetime(2028, 2, 27, 12, tzinfo=UTC)
        for _ in range(2):
            assert await till.buy(tool("0.10")) is None
            till.now += timedelta(days=1)
        assert till.now.date().isoformat() == "2028-02-29"
        refusal = await till.buy(tool("0.10"))
        assert refusal is not None
        assert refusal.details is not None
        assert refusal.details["resets_at"] == "2028-03-01T00:00:00+00:00"
        assert await till.buy(tool("0.05")) is None
        till.now += timedelta(days=1)
        assert await till.buy(tool("0.10")) is None


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("zone", "period", "moment", "starts", "ends"),
    [
        ("Europe/Berlin", "day", "2026-03-29T03:30+02:00", "2026-03-29", "2026-03-30T00:00+02:00"),
        ("Europe/Berlin", "day", "2026-03-29T00:00+01:00", "2026-03-29", "2026-03-30T00:00+02:00"),
        ("Europe/Berlin", "day", "2026-10-25T02:30+02:00", "2026-10-25", "2026-10-26T00:00+01:00"),
        ("Europe/Berlin", "day", "2026-10-25T23:59+01:00", "2026-10-25", "2026-10-26T00:00+01:00"),
        ("Europe/Berlin", "month", "2026-03-31T23:59+02:00", "2026-03-01", "2026-04-01T00:00+02:00"),
        ("Europe/Berlin", "month", "2026-12-31T23:59+01:00", "2026-12-01", "2027-01-01T00:00+01:00"),
        ("UTC", "month", "2027-01-31T12:00+00:00", "2027-01-01", "2027-02-01T00:00+00:00"),
        ("UTC", "month", "2028-02-29T12:00+00:00", "2028-02-01", "2028-03-01T00:00+00:00"),
        # midnight does not exist here: summer time begins at it
        ("Africa/Cairo", "day", "2026-04-23T12:00+02:00", "2026-04-23", "2026-04-24T01:00+03:00"),
        ("America/Havana", "day", "2026-03-08T12:00-04:00", "2026-03-08", "2026-03-09T00:00-04:00"),
        ("Pacific/Kiritimati", "day", "2026-11-15T11:00+00:00", "2026-11-16", "2026-11-17T00:00+14:00"),
        ("Asia/Kathmandu", "day", "2026-11-15T18:14+00:00", "2026-11-15", "2026-11-16T00:00+05:45"),
        # the day that the island skipped
        ("Pacific/Apia", "day", "2011-12-29T12:00-10:00", "2011-12-29", "2011-12-30T00:00-10:00"),
    ],
)
def test_days_and_months_are_those_of_the_calendar(zone: str, period: Period, moment: str, starts: str, ends: str) -> None:
    budget = new_budget(period, 1, timezone=zone)
    assert period_of(budget, at(moment)) == starts
    assert period_after(budget, starts) == at(ends)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "America/Asuncion"]
)
def test_every_moment_of_a_year_is_in_a_period_that_has_not_ended(zone: str) -> None:
    budgets = [new_budget(period, 1, timezone=zone) for period in ("day", "month")]
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    while moment.year == 2024:
        for budget in budgets:
            assert period_after(budget, period_of(budget, moment)) > moment
        moment += timedelta(minutes=30)


async def test_a_clock_that_jumps_back_gives_no_money_twice(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT), new_budget("month", DOLLAR))
        assert await till.buy(tool("0.10")) is None
        till.now += timedelta(days=1)
        assert await till.buy(tool("0.10")) is None
        for back in (timedelta(days=1), timedelta(days=40), timedelta(days=3000)):
            till.now -= back
            refusal = await till.buy(tool("0.10"))
            assert refusal is not None
            assert refusal.details is not None
            assert refusal.details["resets_at"] == "2026-11-17T00:00:00+00:00"
        assert len(await till.rows("SELECT * FROM spending")) == 3


async def test_what_is_reserved_before_midnight_is_spent_of_the_old_day(database: str) -> None:
    async with opened_till(database) as till:
        await till.set(new_budget("day", 10 * CENT))
        buy = tool("0.10")
        till.now = datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC)
        call = await till.reserve(buy)
        till.now += timedelta(seconds=2)
        other = await till.reserve(buy)
        await till.settle(call, buy, 10 * CENT)
        await till.settle(other, buy, 4 * CENT)
        rows = await till.rows("SELECT starts, spent, reserved FROM spending ORDER BY starts")
        assert [tuple(row) for row in rows] == [("2026-11-15", 10 * CENT, 0), ("2026-11-16", 4 * CENT, 0)]
