"""Budgets as callers meet them: through the whole pipeline, however a call ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.till import CENT, DOLLAR
from toolgate import Actor, App, InvokeContext, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("COST-2")

ANN, BOB = Actor("acme", None, "ann"), Actor("acme", None, "bob")


@tool(tier="write", cost=0.10, timeout=0.05)
async def buy(ctx: InvokeContext, how: str = "well") -> str:
    """Costs ten cents, unless it says otherwise."""
    if how == "fails":
        raise ValueError("sold out")
    if how == "hangs":
        await asyncio.sleep(60)
    if how == "cheap":
        ctx.used(cost_usd=0.03)
    if how == "cheap and fails":
        ctx.used(cost_usd=0.02)
        raise ValueError("sold out, for two cents")
    return how


async def held(app: App) -> tuple[int, int]:
    """What is spent and reserved of the one budget that was set."""
    [status] = [one for one in await app.budgets.list() if one.budget.tier is None]
    return status.spent, status.reserved


@pytest.mark.parametrize(
    ("how", "status", "cents"),
    [
        ("well", "success", 10),
        ("cheap", "success", 3),
        ("fails", "failure", 10),
        ("cheap and fails", "failure", 2),
        ("hangs", "timeout", 10),
    ],
)
async def test_what_is_reserved_is_spent_or_released_as_the_call_ends(how: str, status: str, cents: int) -> None:
    async with memory_app() as app:
        app.register(buy)
        await app.budgets.set(new_budget("day", DOLLAR))
        outcome = await app.invoke("buy", {"how": how})
        assert (outcome.status, outcome.metrics.cost_usd) == (status, cents / 100)
        assert await held(app) == (cents * CENT, 0)


async def test_what_is_refused_before_money_is_asked_for_costs_nothing() -> None:
    async with memory_app() as app:
        app.register(buy)
        await app.budgets.set(new_budget("day", DOLLAR))
        assert (await app.invoke("buy", {"how": 7})).status == "failure"
        await app.tools.set_enabled("buy", False)
        assert (await app.invoke("buy")).status == "failure"
        assert await held(app) == (0, 0)


async def test_a_call_over_the_budget_does_not_run(tmp_path: Path, database: str) -> None:
    ran: list[str] = []

    @tool(tier="write", cost=0.60)
    async def effect(ctx: InvokeContext) -> None:
        """Leaves a trace."""
        ran.append(ctx.id)

    async with App.open(home=tmp_path, database_url=database) as app:
        app.register(effect)
        await app.budgets.set(new_budget("day", DOLLAR, tenant="acme"))
        first, second = await app.invoke("effect", actor=ANN), await app.invoke("effect", actor=BOB)
        assert ran == [first.id]
        assert (second.status, second.metrics.attempts, second.metrics.cost_usd) == ("denied", 0, 0.0)
        assert second.error is not None
        assert (second.error.code, second.error.retryable) == ("BUDGET_EXCEEDED", False)
        assert second.error.details is not None
        assert second.error.details["scope"]["tenant"] == "acme"
        assert (await app.invoke("effect", actor=Actor("globex", None, "eve"))).ok


async def test_a_caller_that_goes_away_pays_for_what_began_and_holds_nothing(tmp_path: Path, database: str) -> None:
    began = asyncio.Event()

    @tool(tier="write", cost=0.10)
    async def slow() -> None:
        """Takes long."""
        began.set()
        await asyncio.sleep(60)

    async with App.open(home=tmp_path, database_url=database) as app:
        app.register(slow)
        await app.budgets.set(new_budget("day", DOLLAR))
        calls = [asyncio.ensure_future(app.invoke("slow")) for _ in range(3)]
        await asyncio.wait_for(began.wait(), 30)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        spent, reserved = await held(app)
        assert reserved == 0
        assert spent in (10 * CENT, 20 * CENT, 30 * CENT)


async def test_cancelled_at_any_moment_a_call_leaves_nothing_reserved() -> None:
    async with memory_app() as app:
        app.register(buy)
        await app.budgets.set(new_budget("day", 100 * DOLLAR))
        for steps in range(40):
            call = asyncio.ensure_future(app.invoke("buy"))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await app.parts.budgets.close()
        spent, reserved = await held(app)
        assert (spent % (10 * CENT), reserved) == (0, 0)


@pytest.mark.requirement("TIER-4")
async def test_ten_dollars_a_day_is_what_a_user_may_spend_on_external_calls(database: str, tmp_path: Path) -> None:
    @tool(tier="external_api", cost=6)
    async def order() -> str:
        """Orders."""
        return "ordered"

    async with App.open(home=tmp_path, database_url=database) as app:
        app.register(order)
        app.approvals.add_approver(lambda _request: True)
        assert (await app.invoke("order", actor=ANN)).ok
        refused = await app.invoke("order", actor=ANN)
        assert refused.error is not None
        assert refused.error.code == "BUDGET_EXCEEDED"
        assert (await app.invoke("order", actor=BOB)).ok


async def test_a_budget_set_in_one_app_holds_in_another(tmp_path: Path, database: str) -> None:
    async with (
        App.open(home=tmp_path / "one", database_url=database) as one,
        App.open(home=tmp_path / "two", database_url=database) as two,
    ):
        for app in (one, two):
            app.register(buy)
        await one.budgets.set(new_budget("day", 10 * CENT))
        await two.refresh()
        assert (await two.invoke("buy")).ok
        assert not (await one.invoke("buy")).ok
        await two.budgets.set(new_budget("day", 20 * CENT))
        await one.refresh()
        assert (await one.invoke("buy")).ok


async def test_listeners_and_the_log_hear_of_a_budget_that_is_nearly_used_up() -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    async with memory_app() as app:
        app.register(buy)
        app.add_listener(lambda event, told: heard.append((event, told)))
        await app.budgets.set(new_budget("day", 50 * CENT))
        for _ in range(5):
            assert (await app.invoke("buy")).ok
        assert [(event, told["percent"]) for event, told in heard] == [("budget.alert", 80), ("budget.alert", 100)]


async def test_the_money_of_an_inner_call_is_its_own() -> None:
    @tool(tier="write", cost=0.20)
    async def outer(ctx: InvokeContext) -> str:
        """Buys for somebody."""
        return (await ctx.call_tool("buy")).status

    async with memory_app() as app:
        app.register(buy)
        app.register(outer)
        await app.budgets.set(new_budget("day", 40 * CENT))
        assert (await app.invoke("outer")).output == "success"
        assert await held(app) == (30 * CENT, 0)
        assert (await app.invoke("buy")).ok
        assert not (await app.invoke("outer")).ok


async def test_a_cached_answer_costs_nothing() -> None:
    @tool(tier="read_only", cost=0.10, cache=60)
    async def look() -> str:
        """Looks."""
        return "seen"

    async with memory_app() as app:
        app.register(look)
        await app.budgets.set(new_budget("day", DOLLAR))
        outcomes = [await app.invoke("look") for _ in range(3)]
        assert [outcome.metrics.cost_usd for outcome in outcomes] == [0.1, 0.0, 0.0]
        assert await held(app) == (10 * CENT, 0)


async def test_a_tool_that_reports_costs_without_a_price_is_stopped_when_the_budget_is_used_up() -> None:
    @tool(tier="write")
    async def meter(ctx: InvokeContext) -> None:
        """Nobody knows beforehand what it costs."""
        ctx.used(cost_usd=0.60)

    async with memory_app() as app:
        app.register(meter)
        await app.budgets.set(new_budget("day", DOLLAR))
        ended = [(await app.invoke("meter")).status for _ in range(4)]
        assert ended == ["success", "success", "denied", "denied"]
        assert await held(app) == (120 * CENT, 0)
