"""Whom budgets count, how they are set, and what people who look are shown of them."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tests.till import CENT, DOLLAR, call_of, opened_till, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.gates.quota.money import estimate
from toolgate.model import Actor
from toolgate.pipeline.usage import Estimate
from toolgate.store.budgets import BudgetRow
from toolgate.store.database import now

pytestmark = pytest.mark.requirement("COST-2")

ANN, BOB = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob")
EVE = Actor("globex", "analyst", "eve")


# -- whom a budget counts


@pytest.mark.parametrize(
    ("scope", "third", "fourth"),
    [
        ({}, True, True),
        ({"tenant": "acme"}, False, True),
        ({"tenant": "*"}, False, True),
        ({"tenant": "globex"}, True, False),
        ({"persona": "analyst"}, True, False),
        ({"persona": "*"}, True, False),
        ({"tenant": "acme", "user": "ann"}, False, False),
        ({"user": "*"}, False, False),
        ({"tool": "buy"}, True, True),
        ({"tool": "*"}, True, True),
        ({"tool": "sell"}, False, False),
        ({"user": "ann"}, False, False),
        ({"tenant": "*", "persona": "*", "user": "*", "tool": "*"}, False, False),
    ],
)
async def test_a_budget_counts_whom_its_scope_names(scope: dict[str, str], third: bool, fourth: bool) -> None:
    """Ann has spent it all. Is Eve of another tenant and the same persona refused, and Bob of the same tenant?"""
    async with opened_till() as till:
        await till.set(new_budget("day", 10 * CENT, **scope))  # type: ignore[arg-type]
        buy = tool("0.10")
        counts_ann = scope not in ({"tool": "sell"}, {"user": "ann"}, {"tenant": "globex"})
        await till.buy(buy, ANN)
        assert (await till.buy(buy, ANN) is not None) == counts_ann
        if scope == {"tenant": "globex"}:
            await till.buy(buy, EVE)
        assert (await till.buy(buy, EVE) is not None) == third
        assert (await till.buy(buy, BOB) is not None) == fourth


async def test_a_user_without_a_tenant_is_one_of_the_default_tenant() -> None:
    assert new_budget("day", 1, user="ann").tenant == "default"
    assert new_budget("day", 1, user="*").tenant == "*"
    assert new_budget("day", 1, user="ann") == new_budget("day", 1, user="ann", tenant="default")


@pytest.mark.requirement("TIER-4")
async def test_each_user_has_ten_dollars_a_day_for_external_calls_and_only_for_those(database: str) -> None:
    async with opened_till(database, external_api_daily=Decimal(10)) as till:
        fetch, write = tool("6", "fetch", "external_api"), tool("6", "write", "write")
        assert await till.buy(fetch, ANN) is None
        refusal = await till.buy(fetch, ANN)
        assert refusal is not None
        assert "The daily budget of tenant acme, user ann, tier external_api" in refusal.message
        assert await till.buy(fetch, BOB) is None
        assert await till.buy(fetch, Actor("globex", None, "ann")) is None
        assert await till.buy(write, ANN) is None
        assert await till.buy(tool("4", "other", "external_api"), ANN) is None
        assert await till.buy(tool("0.01", "other", "external_api"), ANN) is not None


async def test_of_ten_thousand_tenants_a_call_pays_into_its_own() -> None:
    async with opened_till() as till:
        till.budgets.use([new_budget("day", DOLLAR, tenant=f"t{number}") for number in range(10_000)])
        assert await till.buy(tool("0.60"), Actor("t77", None, "u")) is None
        assert await till.buy(tool("0.60"), Actor("t77", None, "u")) is not None
        assert await till.buy(tool("0.60"), Actor("t78", None, "u")) is None
        assert len(await till.rows("SELECT * FROM spending")) == 2


# -- setting budgets


async def test_setting_a_budget_again_changes_it_and_removing_it_frees(database: str) -> None:
    async with opened_till(database) as till:
        small, large = new_budget("day", 10 * CENT, tenant="acme"), new_budget("day", 30 * CENT, tenant="acme")
        await till.set(small)
        assert await till.buy(tool("0.10"), ANN) is None
        assert await till.buy(tool("0.10"), ANN) is not None
        before = (await till.rows("SELECT value FROM catalog_epoch"))[0][0]
        await till.set(large)
        assert (await till.rows("SELECT value FROM catalog_epoch"))[0][0] > before
        assert await till.rows("SELECT count(*) FROM budgets") == [(1,)]
        assert await till.buy(tool("0.20"), ANN) is None
        assert await till.buy(tool("0.10"), ANN) is not None
        assert await till.remove(large.id)
        assert not await till.remove(large.id)
        assert await till.buy(tool("99"), ANN) is None
        assert await till.sums() == (0, 0)


async def test_removing_a_budget_while_a_call_runs_leaves_nothing_negative(database: str) -> None:
    async with opened_till(database) as till:
        budget = new_budget("day", DOLLAR)
        await till.set(budget)
        buy = tool("0.10")
        call = await till.reserve(buy)
        await till.remove(budget.id)
        await till.set(budget)
        other = await till.reserve(buy)
        await till.settle(call, buy, 10 * CENT)
        assert await till.sums() == (10 * CENT, 10 * CENT)
        await till.settle(other, buy, 0)
        assert await till.sums() == (10 * CENT, 0)


async def test_a_budget_is_read_as_it_was_set(database: str) -> None:
    async with opened_till(database) as till:
        end = datetime(2030, 1, 1, tzinfo=UTC)
        rows = [
            new_budget("day", DOLLAR, tenant="acme", user="ann", tool="buy", timezone="Europe/Berlin", until=end, by="root"),
            new_budget("month", 0, persona="*"),
        ]
        await till.set(*rows)
        assert sorted(till.budgets._book.budgets.values(), key=lambda row: row.period) == rows


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"cap": -1}, "between"),
        ({"cap": 2**63}, "between"),
        ({"timezone": "Mars/Olympus"}, "time zone"),
        ({"timezone": "../../etc/passwd"}, "time zone"),
        ({"timezone": "Europe"}, "time zone"),
        ({"timezone": ""}, "time zone"),
        ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "past"),
        ({"tenant": ""}, "tenant"),
        ({"user": "a\nb"}, "user"),
        ({"tool": "x" * 257}, "tool"),
        ({"period": "year"}, "day or a month"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        new_budget(**{"period": "day", "cap": 1, **wrong})  # type: ignore[arg-type]


async def test_a_budget_of_nothing_lets_only_what_is_free_through() -> None:
    async with opened_till() as till:
        await till.set(new_budget("day", 0))
        assert await till.buy(tool("0.000000001")) is not None
        assert not till.budgets.applies(tool("0"))


async def test_a_budget_past_its_end_is_not_in_force() -> None:
    async with opened_till() as till:
        await till.set(new_budget("day", 0, until=now() + timedelta(days=1)))
        till.now = now()
        assert await till.buy(tool("1")) is not None
        assert len(await till.budgets.status()) == 1
        till.now += timedelta(days=2)
        assert await till.buy(tool("1")) is None
        assert await till.budgets.status() == []


# -- looking


async def test_looking_says_what_each_budget_would_say_and_takes_nothing(database: str) -> None:
    async with opened_till(database, external_api_daily=Decimal(10)) as till:
        await till.set(new_budget("day", DOLLAR, tenant="acme"), new_budget("month", 50 * DOLLAR))
        fetch = tool("0.80", "fetch", "external_api")
        await till.buy(fetch, ANN)
        looks = {look.budget: look for look in await till.budgets.look(call_of(fetch, ANN), fetch, estimate(fetch, {}))}
        assert {words: look.passes for words, look in looks.items()} == {
            "the daily budget of tenant acme": False,
            "the monthly budget of everybody": True,
            "the daily budget of tenant acme, user ann, tier external_api": True,
        }
        assert looks["the daily budget of tenant acme"].reason == "$0.20 of $1.00 left, the call may cost $0.80"
        assert (await till.sums())[1] == 0
        assert [look.passes for look in await till.budgets.look(call_of(fetch, ANN), fetch, Estimate(0, "unknown"))] == [
            True
        ] * 3


async def test_the_status_lists_every_budget_and_for_whom_it_counts(database: str) -> None:
    async with opened_till(database, external_api_daily=Decimal(10)) as till:
        await till.set(new_budget("day", DOLLAR, tenant="*"), new_budget("month", 50 * DOLLAR, tenant="globex"))
        await till.buy(tool("0.30"), ANN)
        await till.reserve(tool("0.20"), ANN)
        await till.buy(tool("0.40"), EVE)

        async def seen(tenant: str | None) -> list[tuple[str, str | None, int, int, int]]:
            found = await till.budgets.status(tenant)
            return sorted((one.budget.period, one.scope["tenant"], one.spent, one.reserved, one.left) for one in found)

        of_acme = ("day", "acme", 30 * CENT, 20 * CENT, 50 * CENT)
        of_globex = [("day", "globex", 40 * CENT, 0, 60 * CENT), ("month", "globex", 40 * CENT, 0, 4960 * CENT)]
        built_in = ("day", "*", 0, 0, 10 * DOLLAR)
        assert await seen(None) == sorted([built_in, of_acme, *of_globex])
        assert await seen("acme") == sorted([built_in, of_acme])
        till.now += timedelta(days=1)
        assert ("day", "*", 0, 0, DOLLAR) in await seen(None)


async def test_a_status_is_plain_json(database: str) -> None:
    async with opened_till(database) as till:
        budget: BudgetRow = new_budget("day", DOLLAR, tenant="acme", timezone="Europe/Berlin")
        await till.set(budget)
        await till.buy(tool("0.30"), ANN)
        assert [one.to_dict() for one in await till.budgets.status()] == [
            {
                "id": budget.id, "tenant": "acme", "persona": None, "user": None, "tool": None, "tier": None,
                "period": "day", "limit_usd": 1.0,
                "spent_usd": 0.3, "reserved_usd": 0.0, "left_usd": 0.7, "timezone": "Europe/Berlin",
                "resets_at": "2026-11-15T23:00:00+00:00", "until": None,
            }
        ]  # fmt: skip
