"""Free tiers: calls within them cost nothing, are counted for whoever pays, and people are told how many are left."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.terminal import Terminal
from toolgate import Actor, App, Auth, Cost, ToolError, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.testing import ManualClock, memory_app

ANN, BOB = Actor("acme", user="ann"), Actor("acme", user="bob")
URL = "https://mail.example.com/billing"
MAIL = Cost(fixed=Decimal("0.10"), free_tier_limit=2, free_tier_period="day", billing_url=URL)


@tool(tier="read_only", cost=MAIL)
async def mail(to: str) -> str:
    """Send a letter."""
    if to == "nobody":
        raise ToolError("There is no such person.", charged=False)
    return f"sent to {to}"


@tool(tier="external_api", cost=MAIL)
async def asked_mail(to: str) -> str:
    """Send a letter, if a person agrees."""
    return to


@tool(tier="read_only", cost=MAIL, requires_auth=Auth(config_key="MAIL_KEY"))
async def keyed_mail(to: str) -> str:
    """Send a letter on somebody's account."""
    return to


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.tools.register_many([mail, asked_mail, keyed_mail])
        yield app


async def cost_of(app: App, actor: Actor = ANN, name: str = "mail", to: str = "eve") -> float:
    outcome = await app.invoke(name, {"to": to}, actor=actor)
    assert outcome.metrics.cost_usd is not None
    return outcome.metrics.cost_usd


@pytest.mark.requirement("COST-1", "COST-2")
async def test_calls_within_the_free_tier_cost_nothing(app: App) -> None:
    assert [await cost_of(app) for _ in range(4)] == [0, 0, 0.1, 0.1]


@pytest.mark.requirement("COST-2")
async def test_parallel_calls_do_not_get_more_than_the_free_tier_has(app: App) -> None:
    costs = await asyncio.gather(*(cost_of(app) for _ in range(20)))
    assert sorted(costs) == [0, 0] + [0.1] * 18


@pytest.mark.requirement("COST-2")
async def test_a_call_that_did_not_reach_the_service_is_not_counted(app: App) -> None:
    for _ in range(3):
        assert await cost_of(app, to="nobody") == 0
    assert [await cost_of(app) for _ in range(3)] == [0, 0, 0.1]


@pytest.mark.requirement("COST-2")
async def test_a_free_call_runs_though_the_budget_is_spent(app: App) -> None:
    await app.budgets.set(new_budget("day", 0, tenant="acme", tool="mail"))
    assert (await app.invoke("mail", {"to": "eve"}, actor=ANN)).ok
    assert (await app.invoke("mail", {"to": "eve"}, actor=ANN)).ok
    refused = await app.invoke("mail", {"to": "eve"}, actor=ANN)
    assert refused.error is not None and refused.error.code == "BUDGET_EXCEEDED"


@pytest.mark.requirement("COST-2")
async def test_the_next_day_has_free_calls_again() -> None:
    clock = ManualClock()
    async with memory_app(clock=clock) as app:
        app.tools.register_many([mail])
        assert [await cost_of(app) for _ in range(3)] == [0, 0, 0.1]
        clock.advance(days=1)
        assert [await cost_of(app) for _ in range(3)] == [0, 0, 0.1]


@pytest.mark.requirement("COST-2")
async def test_each_account_has_its_own_free_calls(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MAIL_KEY", "key-of-everybody")
    assert [await cost_of(app, actor, "keyed_mail") for actor in (ANN, BOB, ANN)] == [0, 0, 0.1]
    assert [await cost_of(app, Actor("other", user="eve"), "keyed_mail")] == [0.1], "everybody's account, whoever calls"


@pytest.mark.requirement("COST-1", "TIER-3")
async def test_whoever_is_asked_is_told_how_many_are_left_and_where_the_bill_is(app: App) -> None:
    await app.invoke("asked_mail", {"to": "eve"}, actor=ANN)
    (asked,) = await app.approvals.list(actor=Actor("acme", user="local"))
    assert f"2 of 2 free calls of this day left; bill: {URL}" in asked.request.reason
    assert asked.request.estimate_usd == 0


@pytest.mark.requirement("COST-1")
async def test_explain_gives_the_estimate_and_takes_nothing(app: App) -> None:
    for _ in range(3):
        found = (await app.explain("mail", {"to": "eve"}, actor=ANN)).estimate
        assert found is not None
        assert (found.cost_usd, found.confidence, found.free_calls_left, found.billing_url) == (0, "exact", 2, URL)
    await cost_of(app)
    await cost_of(app)
    found = (await app.explain("mail", {"to": "eve"}, actor=ANN)).estimate
    assert found is not None
    assert (found.cost_usd, found.tokens, found.confidence, found.free_calls_left) == (0.1, None, "exact", 0)
    assert (found.latency_ms, found.limit_ms) == (60_000, 60_000)
    assert (await app.explain("mail", {}, actor=ANN)).estimate is None


@pytest.mark.requirement("COST-1")
def test_the_terminal_shows_the_estimate(terminal: Terminal) -> None:
    assert "estimate     $0.00, at most 60 s" in terminal.run("explain", "datetime", "operation=now").out
    told = terminal.run("tools", "info", "calculator", "--json").json
    assert told["estimate"]["cost_usd"] == 0 and told["estimate"]["confidence"] == "exact"
    assert "Estimate: $0.00" in terminal.run("tools", "info", "calculator").out
