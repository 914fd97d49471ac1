"""Somebody is told when a budget is nearly used up, and when it is."""

import asyncio
from datetime import timedelta

import pytest

from tests.till import DOLLAR, opened_till, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import Actor

pytestmark = pytest.mark.requirement("COST-2")

ANN, BOB = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob")
EVE = Actor("globex", "analyst", "eve")


async def test_somebody_is_told_at_80_and_at_100_percent_once_for_each_period(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_till(database) as till, opened_till(database) as other:
        await till.set(new_budget("day", DOLLAR, tenant="*"))
        await other.refresh()
        buy = tool("0.10")
        for number in range(10):
            assert await (till, other)[number % 2].buy(buy, ANN) is None
        alerts = till.alerts + other.alerts
        assert sorted(alert["percent"] for alert in alerts) == [80, 100]
        assert {alert["event"] for alert in alerts} == {"budget.alert"}
        first = min(alerts, key=lambda alert: alert["percent"])
        assert (first["spent_usd"], first["limit_usd"]) == (0.8, 1.0)
        assert first["scope"] == {"tenant": "acme", "persona": None, "user": None, "tool": None}
        assert first["message"] == "the daily budget of tenant acme has reached 80 %: $0.80 of $1.00"
        assert first["message"] in caplog.text
        await till.buy(tool("0.90"), EVE)
        assert [alert["scope"]["tenant"] for alert in till.alerts if alert not in alerts] == ["globex"]
        till.now += timedelta(days=1)
        await till.buy(tool("1"), ANN)
        assert [alert["percent"] for alert in till.alerts][-1] == 100


async def test_crowds_are_told_once(database: str) -> None:
    async with opened_till(database) as till, opened_till(database) as other:
        await till.set(new_budget("day", DOLLAR))
        await other.refresh()
        buy = tool("0.01")
        await asyncio.gather(*(each.buy(buy) for each in (till, other) for _ in range(50)))
        assert sorted(alert["percent"] for alert in till.alerts + other.alerts) == [80, 100]


async def test_a_new_cap_has_thresholds_of_its_own() -> None:
    async with opened_till() as till:
        await till.set(new_budget("day", DOLLAR))
        await till.buy(tool("0.90"))
        await till.set(new_budget("day", DOLLAR))
        await till.buy(tool("0.01"))
        await till.set(new_budget("day", 2 * DOLLAR))
        await till.buy(tool("0.75"))
        assert [alert["limit_usd"] for alert in till.alerts] == [1.0, 2.0]


async def test_a_listener_that_fails_harms_no_call(caplog: pytest.LogCaptureFixture) -> None:
    async with opened_till() as till:
        await till.set(new_budget("day", DOLLAR))

        def fail(event: str, told: dict[str, object]) -> None:
            raise RuntimeError(f"no {event} for me: {len(told)}")

        till.budgets._announce = fail
        assert await till.buy(tool("1")) is None
        assert "a listener failed" in caplog.text
        assert await till.sums() == (DOLLAR, 0)
