"""Limits per hour and per day outlast the process, and hold for all that share a database, without Redis."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from tests.till import call_of, opened_till
from tests.till import tool as priced
from toolgate import Actor, App, Outcome, RateLimit, tool
from toolgate.errors import Denied
from toolgate.gates.quota.rate import Rates
from toolgate.settings import RateRule

pytestmark = pytest.mark.requirement("COST-4")

ANN, BOB = Actor("acme", None, "ann"), Actor("acme", None, "bob")


@tool(tier="read_only", rate_limit=RateLimit(per_minute=50, per_day=3))
async def look() -> str:
    """May be called three times a day."""
    return "seen"


def code(outcome: Outcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


async def test_a_limit_per_day_holds_over_restarts_for_each_user(database: str, tmp_path: Path) -> None:
    ends = []
    for _ in range(2):
        async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
            app.register(look)
            ends += [code(await app.invoke("look", actor=ANN)) for _ in range(2)]
    assert ends == [None, None, None, "RATE_LIMITED"]
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(look)
        refused = await app.invoke("look", actor=ANN)
        assert refused.error is not None
        assert refused.error.details is not None
        assert 86_000 < refused.error.details["retry_after"] <= 86_400 + 900
        assert "3 calls a day" in refused.error.message
        explained = await app.explain("look", actor=ANN)
        assert "3 calls a day" in str(explained.to_dict())
        assert code(await app.invoke("look", actor=BOB)) is None


async def test_apps_that_share_a_database_count_together(database: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"database_url": database, "entry_points": False}
    async with (
        App.open(home=tmp_path / "one", **settings) as one,
        App.open(home=tmp_path / "two", **settings) as two,
    ):
        for app in (one, two):
            app.register(look)
        outcomes = await asyncio.gather(*(app.invoke("look", actor=ANN) for app in (one, two) for _ in range(20)))
    assert sum(outcome.ok for outcome in outcomes) == 3
    assert {code(outcome) for outcome in outcomes} == {None, "RATE_LIMITED"}


async def test_windows_slide_and_what_one_limit_refuses_no_other_counts(database: str) -> None:
    now = 1_800_000_000.0
    rules = [RateRule(by=("user",), per_hour=2), RateRule(by=("tenant",), per_day=5), RateRule(by=("tenant",), per_minute=9)]
    async with opened_till(database) as till:
        rates = Rates(lambda: now, rules, store=till.store, clock=lambda: now)
        entry = priced("0")

        async def wait(actor: Actor) -> float:
            """Seconds until the call may be made; 0: it was."""
            try:
                acquired = rates.enter(call_of(entry, actor), entry)
                if acquired is not None:
                    await acquired
            except Denied as error:
                assert error.code == "RATE_LIMITED"
                assert error.details is not None
                return float(error.details["retry_after"])
            return 0.0

        assert [await wait(ANN), await wait(ANN)] == [0, 0]
        for _ in range(20):  # refused by the hour: neither the day nor the minute counts it
            assert 3_600 <= await wait(ANN) <= 3_660
        assert [await wait(BOB), await wait(BOB)] == [0, 0]
        now += 3_599
        assert await wait(ANN) > 0
        now += 61
        assert await wait(ANN) == 0
        assert 80_000 < await wait(ANN) <= 86_400 + 900  # the tenant's day has five
        now += 86_400 + 900
        assert await wait(ANN) == 0


def test_commands_one_after_the_other_count_together(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.set("TOOLGATE_DATABASE_URL", database)
    terminal.set("TOOLGATE_RATE_LIMITS", '[{"tool": "echo", "per_day": 2}]')
    assert [terminal("call", "echo", "text=x").code for _ in range(3)] == [0, 0, 1]
    assert "RATE_LIMITED" in terminal("call", "echo", "text=x").err
    assert terminal("explain", "echo", "text=x").code == 1
    assert terminal("call", "echo", "text=x", "--user", "other").code == 0


async def test_a_call_without_such_a_limit_asks_the_store_nothing(database: str, tmp_path: Path) -> None:
    @tool(tier="read_only", rate_limit=RateLimit(per_minute=1000))
    async def quick() -> str:
        """Has a limit per minute only."""
        return "done"

    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(quick)
        await app.invoke("quick")
        asked: list[Any] = []
        transact = app.parts.store.transact

        async def watched(transaction: Any) -> Any:
            asked.append(transaction)
            return await transact(transaction)

        app.parts.store.transact = watched  # type: ignore[method-assign]
        assert (await app.invoke("quick")).ok
        assert asked == []
