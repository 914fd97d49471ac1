"""What calls have cost: recorded as usage, and summed by tool, user, persona, tenant and day."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from tests.till import CENT, Till, opened_till
from toolgate import Actor, App, Cost, InvokeContext, tool
from toolgate.gates.quota.budget_accounts import costs, counted_since, zone
from toolgate.model import UnitCost
from toolgate.store.budgets import By
from toolgate.store.database import LogRow, Transaction
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("COST-3")

ANN, EVE = Actor("acme", "analyst", "ann"), Actor("globex", None, "eve")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@tool(tier="write", cost=0.10)
async def buy(works: bool = True) -> str:
    """Costs ten cents if it works."""
    if not works:
        raise ValueError("sold out")
    return "bought"


@tool(tier="write", cost=Cost(per_unit=UnitCost(unit="token", price=Decimal("0.00000014"), field="text")))
async def think(ctx: InvokeContext, text: str, used: int | None = None) -> str:
    """Priced by the token."""
    ctx.used(tokens=used)
    return text


@tool(tier="read_only")
async def fetch(ctx: InvokeContext, cost: float | None = None) -> str:
    """Names no price, and reports one."""
    ctx.used(cost_usd=cost)
    return "fetched"


async def open_shop(app: App) -> None:
    for code in (buy, think, fetch):
        app.register(code)
    await app.flush()


async def usage(app: App) -> list[tuple[Any, ...]]:
    """Usage records: who spent what on which tool."""

    def look() -> Transaction[list[tuple[Any, ...]]]:
        return (
            yield (
                "SELECT tenant_id, user_id, tool_name, feature_code, quantity FROM tool_usage "
                "ORDER BY at, call_id, feature_code",
                {},
            )
        )

    await app.flush()
    return await app.parts.store.read(look())


async def test_each_call_that_ran_is_an_invocation_and_what_it_cost(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        await open_shop(app)
        paid = await app.invoke("buy", actor=ANN)
        assert paid.metrics.cost_usd == 0.1
        failed = await app.invoke("buy", {"works": False}, actor=ANN)
        assert (failed.status, failed.metrics.cost_usd) == ("failure", 0.1)  # it may have had its effect
        invalid = await app.invoke("buy", {"works": "perhaps"}, actor=ANN)
        assert invalid.metrics.attempts == 0
        await app.invoke("fetch", {"cost": 0.02}, actor=EVE)
        assert await usage(app) == [
            ("acme", "ann", "buy", "tool_cost", 10 * CENT),
            ("acme", "ann", "buy", "tool_invocations", 1),
            ("acme", "ann", "buy", "tool_cost", 10 * CENT),
            ("acme", "ann", "buy", "tool_invocations", 1),
            ("globex", "eve", "fetch", "tool_cost", 2 * CENT),
            ("globex", "eve", "fetch", "tool_invocations", 1),
        ]


@pytest.mark.requirement("COST-1")
async def test_a_metered_call_costs_what_it_used_or_else_what_was_estimated() -> None:
    async with memory_app() as app:
        await open_shop(app)
        guessed = await app.invoke("think", {"text": "a" * 4000})
        assert guessed.metrics.cost_usd == 0.00014
        counted = await app.invoke("think", {"text": "a" * 4000, "used": 5_000_000})
        assert (counted.metrics.cost_usd, counted.metrics.tokens_used) == (0.7, 5_000_000)


@pytest.mark.requirement("COST-1")
@pytest.mark.parametrize(
    ("unit", "work", "cost"),
    [
        ("token", "abcde", 0.03),
        ("character", "abcde", 0.06),
        ("record", [1, 2, 3], 0.04),
        ("record", 2, 0.03),
        ("second", 0, 0.31),
    ],
)
async def test_a_price_has_a_fixed_part_and_one_for_what_is_given(unit: Any, work: Any, cost: float) -> None:
    price = Cost(fixed=Decimal("0.01"), per_unit=UnitCost(unit=unit, price=Decimal("0.01"), field="work"))

    @tool(tier="read_only", cost=price, timeout=30)
    async def metered(work: Any) -> str:
        """Priced by what it is given."""
        return str(work)

    async with memory_app() as app:
        app.register(metered)
        assert (await app.invoke("metered", {"work": work})).metrics.cost_usd == cost


@pytest.mark.parametrize("reported", [float("nan"), float("inf"), -5.0])
async def test_a_tool_that_reports_nonsense_fails_and_costs_nothing(reported: float) -> None:
    @tool(tier="read_only")
    async def odd(ctx: InvokeContext) -> str:
        """Reports nonsense."""
        ctx.used(cost_usd=reported)
        return "odd"

    async with memory_app() as app:
        app.register(odd)
        outcome = await app.invoke("odd")
        assert outcome.error is not None
        assert (outcome.error.code, outcome.metrics.cost_usd) == ("INVOCATION_ERROR", 0.0)
        assert sum(line.nano for line in await app.budgets.costs("tool")) == 0


async def test_costs_are_summed_by_whatever_is_asked(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        await open_shop(app)
        for _ in range(3):
            await app.invoke("buy", actor=ANN)
        await app.invoke("buy", actor=EVE)
        await app.invoke("fetch", {"cost": 0.02}, actor=EVE)
        await app.invoke("fetch", {}, actor=EVE)

        async def lines(by: By, tenant: str | None = None) -> list[tuple[str | None, str | None, int, int]]:
            return [tuple(line) for line in await app.budgets.costs(by, since=LONG_AGO, tenant=tenant)]  # type: ignore[misc]

        assert await lines("tool") == [("buy", None, 4, 40 * CENT), ("fetch", None, 2, 2 * CENT)]
        assert await lines("tenant") == [("acme", None, 3, 30 * CENT), ("globex", None, 3, 12 * CENT)]
        assert await lines("persona") == [("analyst", None, 3, 30 * CENT), (None, None, 3, 12 * CENT)]
        assert await lines("user") == [("ann", "acme", 3, 30 * CENT), ("eve", "globex", 3, 12 * CENT)]
        assert await lines("tool", "globex") == [("buy", None, 1, 10 * CENT), ("fetch", None, 2, 2 * CENT)]
        assert await lines("tool", "nobody") == []
        assert sum(line[3] for line in await lines("day")) == 42 * CENT
        assert await app.budgets.costs("tool", since=datetime.now(UTC) + timedelta(hours=1)) == []


async def test_costs_begin_with_the_hour_and_those_of_users_with_the_day(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        moments = (today - timedelta(hours=20), today - timedelta(hours=19, minutes=50), today - timedelta(hours=18))
        for moment in moments:
            await app.parts.store.append_durably(Ended(moment))
        since = today - timedelta(hours=19, minutes=55)

        async def calls(by: By) -> int:
            return sum(line.calls for line in await app.budgets.costs(by, since=since))

        assert [await calls(by) for by in ("tool", "persona", "tenant", "day")] == [3] * 4
        assert sum(line.calls for line in await app.budgets.costs("tool", since=since + timedelta(hours=1))) == 1
        assert await calls("user") == 3
        assert [counted_since(since), counted_since(since, is_daily=True)] == [moments[0], today - timedelta(days=1)]


async def test_costs_that_are_not_counted_yet_are_said_to_be_missing(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        await open_shop(app)
        for _ in range(3):
            await app.invoke("buy", actor=ANN)
        await app.flush()
        assert await app.budgets.costs("tool", max_rows=0) == []
        assert (await app.statistics.up_to()).behind > 0
        assert [line.calls for line in await app.budgets.costs("tool")] == [3]
        assert (await app.statistics.up_to()).behind == 0


async def test_the_use_of_tenants_is_that_of_their_personas(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        await open_shop(app)
        for actor in (ANN, ANN, EVE, Actor("acme", user="bob")):
            await app.invoke("buy", actor=actor)
        await app.statistics.catch_up()
        since = datetime.now(UTC) - timedelta(days=3)
        found = await app.budgets.use_of_tenants(["globex", "acme", "nobody"], since=since)
        assert {(line.tenant, line.name): (line.calls, line.nano) for line in found} == {
            ("globex", None): (1, 10 * CENT), ("acme", "analyst"): (2, 20 * CENT), ("acme", None): (1, 10 * CENT),
        }  # fmt: skip
        assert await app.budgets.use_of_tenants([], since=since) == []


class Ended:
    """A call that ended at some moment and cost a cent."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def row(self) -> LogRow:
        body = b'{"persona":null,"user":"u","attempts":1,"cost":%d}' % CENT
        return int(self.at.timestamp() * 1_000_000), "end", f"call-{self.at.timestamp()}", "acme", "buy", "success", body


async def by_day(till: Till, place: str) -> list[tuple[str | None, int]]:
    return [(line.name, line.calls) for line in await costs(till.store, zone(place), "day", LONG_AGO, None, None)]


async def test_days_are_those_of_the_time_zone(database: str) -> None:
    async with opened_till(database) as till:
        for text in ("2026-03-28T22:59", "2026-03-28T23:00", "2026-03-29T21:59", "2026-03-29T22:00", "2026-03-29T18:14"):
            await till.store.append_durably(Ended(datetime.fromisoformat(f"{text}:00+00:00")))
        assert await by_day(till, "UTC") == [("2026-03-28", 2), ("2026-03-29", 3)]
        # in Berlin that Sunday has 23 hours
        assert await by_day(till, "Europe/Berlin") == [("2026-03-28", 1), ("2026-03-29", 3), ("2026-03-30", 1)]
        assert await by_day(till, "Asia/Kathmandu") == [("2026-03-29", 3), ("2026-03-30", 2)]


# -- the command


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.add_tools(
        """
        from toolgate import tool

        @tool(tier="write", cost=0.30)
        async def buy() -> str:
            "Costs thirty cents."
            return "bought"

        @tool(tier="write", cost=0.10)
        async def rent() -> str:
            "Costs ten cents."
            return "rented"
        """
    )
    terminal("call", "buy", "--tenant", "acme", "--user", "ann")
    terminal("call", "rent", "--tenant", "acme", "--user", "ann")
    terminal("call", "echo", "text=x")
    return terminal


def test_costs_are_a_table_with_bars(terminal: Terminal) -> None:
    lines = terminal("costs").lines
    assert lines[0].split() == ["tool", "calls", "cost", "share"]
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["buy", "1", "$0.30", "75.0%"],
        ["rent", "1", "$0.10", "25.0%"],
        ["echo", "1", "$0.00", "0.0%"],
    ]
    assert [line.split()[-1] for line in lines[1:4]] == ["█" * 40, "█" * 13 + "░" * 27, "0.0%"]
    assert lines[4].startswith("Total: 3 calls, $0.40")


def test_costs_for_programs(terminal: Terminal) -> None:
    told = terminal("costs", "--by", "user", "--tenant", "acme", "--since", "1h", "--json").json
    assert (told["by"], told["calls"], told["cost_usd"], told["tenant"]) == ("user", 2, 0.4, "acme")
    assert told["lines"] == [{"user": "ann", "calls": 2, "cost_usd": 0.4, "tenant": "acme", "share": 1.0}]
    assert [line["tool"] for line in terminal("costs", "--json").json["lines"]] == ["buy", "rent", "echo"]
    assert "acme/ann" in terminal("costs", "--by", "user").out


def test_where_nothing_cost_anything_there_are_no_bars(terminal: Terminal) -> None:
    terminal("call", "calculator", "expression=1+1")
    lines = terminal("costs", "--tenant", "default").lines
    assert sorted(line.split() for line in lines[1:3]) == [
        ["calculator", "1", "$0.00", "0.0%"],
        ["echo", "1", "$0.00", "0.0%"],
    ]


def test_where_nothing_ran_it_says_so(terminal: Terminal) -> None:
    done = terminal("costs", "--tenant", "nobody")
    assert (done.code, done.out) == (0, "")
    assert "Nothing of tenant nobody has run since" in done.err
    assert terminal("costs", "--tenant", "nobody", "--json").json["lines"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("--by", "moon"), ("--since", "yesterday"), ("--since", "-1d"), ("--since", "2999-01-01"), ("--since", ""),
        ("--since", "999999w"), ("--since", "1y"), ("--tenant", ""), ("--tenant", "\x1b"),
    ],
)  # fmt: skip
@pytest.mark.sample(4)
def test_a_question_that_makes_no_sense_is_usage(terminal: Terminal, words: tuple[str, ...]) -> None:
    done = terminal("costs", *words, "--json")
    assert (done.code, done.json["error"]["code"]) == (2, "USAGE_ERROR")
