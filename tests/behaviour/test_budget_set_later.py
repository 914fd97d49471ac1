"""A budget that is set in the middle of its period counts what was spent in it already."""

from datetime import datetime
from pathlib import Path

import msgspec
import orjson
import pytest

from tests.terminal import Terminal
from tests.till import CENT, DOLLAR, opened_till
from toolgate import Actor, App, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.store.database import LogRow

pytestmark = pytest.mark.requirement("COST-2")

ANN, BOB, EVE = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob"), Actor("globex", None, "eve")


@tool(tier="write", cost=0.10)
async def buy() -> str:
    """Costs ten cents."""
    return "bought"


@tool(tier="write", cost=0.25)
async def rent() -> str:
    """Costs a quarter."""
    return "rented"


async def stands(app: App, id: str) -> dict[tuple[str | None, ...], int]:
    """What is spent, by whom a budget counts, in cents."""
    return {
        tuple(value for value in one.scope.values()): one.spent // CENT
        for one in await app.budgets.list()
        if one.budget.id == id
    }


async def test_what_was_spent_in_the_period_counts_for_whom_the_budget_is(database: str, tmp_path: Path) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.tools.register_many([buy, rent])
        for actor, name in ((ANN, "buy"), (ANN, "rent"), (BOB, "buy"), (EVE, "rent")):
            assert (await app.invoke(name, actor=actor)).ok
        for budget, expected in (
            (new_budget("day", DOLLAR), {(None, None, None, None): 70}),
            (new_budget("month", DOLLAR, tenant="acme"), {("acme", None, None, None): 45}),
            (new_budget("day", DOLLAR, tenant="acme", user="ann"), {("acme", None, "ann", None): 35}),
            (new_budget("day", DOLLAR, persona="analyst"), {(None, "analyst", None, None): 35}),
            (new_budget("day", DOLLAR, tool="rent"), {(None, None, None, "rent"): 50}),
            (
                new_budget("day", DOLLAR, tenant="*", tool="*"),
                {
                    ("acme", None, None, "buy"): 20,
                    ("acme", None, None, "rent"): 25,
                    ("globex", None, None, "rent"): 25,
                },
            ),
            (new_budget("day", DOLLAR, tenant="*", persona="*"), {
                ("acme", "analyst", None, None): 35, ("acme", None, None, None): 10, ("globex", None, None, None): 25,
            }),
        ):  # fmt: skip
            await app.budgets.set(budget)
            assert await stands(app, budget.id) == expected
        exhausted = new_budget("day", 40 * CENT, tenant="acme")
        await app.budgets.set(exhausted)
        refused = await app.invoke("buy", actor=BOB)
        assert refused.error is not None
        assert refused.error.code == "BUDGET_EXCEEDED"
        assert (await app.invoke("rent", actor=EVE)).ok
        await app.budgets.set(new_budget("day", 60 * CENT, tenant="acme"))  # a new cap counts nothing twice
        assert await stands(app, exhausted.id) == {("acme", None, None, None): 45}
        assert await app.budgets.remove(exhausted.id)
        await app.budgets.set(exhausted)
        assert await stands(app, exhausted.id) == {("acme", None, None, None): 45}


class Ended(msgspec.Struct):
    """A call that ended at a moment, and cost ten cents."""

    at: datetime

    def row(self) -> LogRow:
        body = orjson.dumps({"persona": None, "user": "ann", "attempts": 1, "cost": 10 * CENT})
        return int(self.at.timestamp() * 1_000_000), "end", f"call-{self.at.timestamp()}", "acme", "buy", "success", body


@pytest.mark.parametrize(
    ("period", "place", "calls"),
    [("day", "UTC", 2), ("day", "Europe/Berlin", 3), ("day", "Asia/Tokyo", 1), ("month", "UTC", 4)],
)
async def test_the_period_is_the_budgets_own(database: str, period: str, place: str, calls: int) -> None:
    async with opened_till(database) as till:  # where it is 2026-11-15 12:00 UTC
        for text in ("10-31T23:30", "11-03T10:00", "11-14T23:30", "11-15T00:30", "11-15T11:30"):
            await till.store.append_durably(Ended(datetime.fromisoformat(f"2026-{text}:00+00:00")))
        if place == "Asia/Tokyo":
            till.now = datetime.fromisoformat("2026-11-15T16:00:00+00:00")
            await till.store.append_durably(Ended(datetime.fromisoformat("2026-11-15T15:00:00+00:00")))
        budget = new_budget(period, DOLLAR, timezone=place)  # type: ignore[arg-type]
        await till.set(budget)
        [status] = [one for one in await till.budgets.status() if one.budget.id == budget.id]
        assert status.spent == calls * 10 * CENT


def test_also_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.add_tools(
        """
        from toolgate import tool

        @tool(tier="read_only", cost=0.30)
        async def buy() -> str:
            "Costs thirty cents."
            return "bought"
        """
    )
    terminal("call", "buy", "--tenant", "acme")
    assert terminal("budgets", "set", "--tenant", "acme", "--daily", "0.50").code == 0
    assert "BUDGET_EXCEEDED" in terminal("call", "buy", "--tenant", "acme").err
