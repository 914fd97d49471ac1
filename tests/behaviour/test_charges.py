"""What a paid call costs that fails after its tool was reached: the estimate, unless the tool says that it did nothing."""

from decimal import Decimal
from pathlib import Path

import pytest

from tests.till import CENT, DOLLAR
from toolgate import App, InvokeContext, Retry, ToolError, tool
from toolgate.errors import InvalidInput
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("COST-2")


@tool(tier="write", cost=Decimal("0.10"))
async def pay(ctx: InvokeContext, how: str) -> str:
    """Pays, and then something happens."""
    if how == "crashes":
        raise ValueError("after it was paid")
    if how == "loses the line":
        raise ConnectionResetError("after it was paid")
    if how == "is refused":
        raise ToolError("declined by the bank")
    if how == "was refused for nothing":
        raise ToolError("declined before anything was done", charged=False)
    if how == "does not like it":
        raise InvalidInput("no such account")
    if how == "did not like it and charged":
        raise InvalidInput("no such account, a fee is due", charged=True)
    if how == "has no key":
        raise ToolError("no key for the bank", code="MISSING_AUTH")
    if how == "asks another":
        (await ctx.call_tool("pay", {"how": "does not like it"})).raise_for_status()
    return "paid"


async def held(app: App) -> tuple[int, int]:
    [status] = [one for one in await app.budgets.list() if one.budget.tier is None]
    return status.spent, status.reserved


@pytest.mark.parametrize(
    ("how", "cents"),
    [
        ("crashes", 10),
        ("loses the line", 10),
        ("is refused", 10),
        ("was refused for nothing", 0),
        ("does not like it", 0),
        ("did not like it and charged", 10),
        ("has no key", 0),
        ("asks another", 10),  # the inner call did nothing; of the outer one that says nothing
    ],
)
@pytest.mark.sample(4)
async def test_a_failure_after_the_tool_was_reached_is_paid_unless_the_tool_says_it_did_nothing(
    database: str, tmp_path: Path, how: str, cents: int
) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(pay)
        await app.budgets.set(new_budget("day", DOLLAR))
        outcome = await app.invoke("pay", {"how": how})
        assert (outcome.ok, outcome.metrics.cost_usd) == (False, cents / 100)
        assert await held(app) == (cents * CENT, 0)
        assert sum(line.nano for line in await app.budgets.costs("tool")) == cents * CENT


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize(
    ("ends", "cents", "attempts"),
    [
        (["crashes", "crashes", "crashes"], 30, 3),
        (["crashes", "free", "crashes"], 20, 3),
        (["free", "free", "well"], 10, 3),
        (["crashes", "well"], 20, 2),
        (["reports", "crashes", "well"], 23, 3),
        (["well"], 10, 1),
    ],
)
async def test_each_attempt_that_may_have_had_its_effect_counts(ends: list[str], cents: int, attempts: int) -> None:
    @tool(tier="write", cost=Decimal("0.10"), retry=Retry(max_attempts=3, backoff_ms=1, codes=("INVOCATION_ERROR",)))
    async def tries(ctx: InvokeContext) -> str:
        """Does something else each time."""
        how = ends[ctx.attempts - 1]
        if how == "reports":
            ctx.used(cost_usd=0.03)
        if how == "free":
            raise ToolError("nothing was done", charged=False)
        if how != "well":
            raise ValueError(how)
        return how

    async with memory_app() as app:
        app.register(tries)
        await app.budgets.set(new_budget("day", DOLLAR))
        outcome = await app.invoke("tries")
        assert (outcome.metrics.attempts, outcome.metrics.cost_usd) == (attempts, cents / 100)
        assert await held(app) == (cents * CENT, 0)


async def test_all_attempts_are_reserved_before_the_first() -> None:
    """Retries can't spend what nobody gave: a budget that has room for one attempt of three lets none begin."""
    ran = []

    @tool(tier="write", cost=Decimal("0.10"), retry=Retry(max_attempts=3, backoff_ms=1))
    async def tries() -> None:
        """May be tried three times."""
        ran.append(1)

    async with memory_app() as app:
        app.register(tries)
        await app.budgets.set(new_budget("day", 29 * CENT))
        refused = await app.invoke("tries")
        assert refused.error is not None
        assert (refused.error.code, ran) == ("BUDGET_EXCEEDED", [])
        assert refused.error.details is not None
        assert refused.error.details["estimate_usd"] == 0.3
        await app.budgets.set(new_budget("day", 30 * CENT))
        assert (await app.invoke("tries")).metrics.cost_usd == 0.1
