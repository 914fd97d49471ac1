"""Lists of what people govern, page by page, and summaries of usage, on every database."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from toolgate import Actor, App, CallError, InvalidInput, tool
from toolgate.gates.approval.request import GrantTerms
from toolgate.store.database import now

ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("other", user="eve")


@tool(tier="read_only", cost=0.5)
async def ask(times: int = 1) -> int:
    """Ask an oracle."""
    if times < 0:
        raise InvalidInput("too few")
    return times


@tool(tier="external_api")
async def pay(amount: int) -> int:
    """Pay somebody."""
    return amount


def opened(database: str, home: Path) -> App:
    app = App.open(home=home, database_url=database, entry_points=False)
    app.register(ask)
    app.register(pay)
    return app


@pytest.mark.requirement("COST-3")
async def test_usage_is_counted_by_day_tool_and_user(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        for actor, times in ((ANN, 1), (ANN, -1), (BOB, 1), (EVE, 1)):
            await app.invoke("ask", {"times": times}, actor=actor)
        await app.invoke("pay", {"amount": 1}, actor=ANN)
        tools = {line.name: line for line in await app.budgets.usage("tool", tenant="acme")}
        assert tools["ask"][2:7] == (3, 2, 1, 0, 1_000_000_000)
        assert tools["pay"][2:6] == (1, 0, 0, 0)
        users = {(line.tenant, line.name): line.calls for line in await app.budgets.usage("user")}
        assert users == {("acme", "ann"): 3, ("acme", "bob"): 1, ("other", "eve"): 1}
        [day] = await app.budgets.usage("day", tenant="acme", user="bob")
        assert (day.calls, day.successes) == (1, 1)
        assert await app.budgets.usage("day", since=now() + timedelta(days=1)) == []


@pytest.mark.requirement("REG-4")
async def test_flags_are_listed_page_by_page_and_an_admin_leaves_an_operators_alone(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        await app.tools.set_enabled("ask", False, tenant="acme", actor=ANN, by_operator=False)
        await app.tools.disable("pay", tenant="acme")
        await app.tools.disable("ask", tenant="other")
        await app.tools.disable("pay", persona="intern", reason="too young")
        await app.tools.disable("calculator")
        first = await app.tools.flags(limit=2)
        rest = await app.tools.flags(limit=2, after=(first[-1].whose, first[-1].tool))
        listed = [(one.whose, one.tool, bool(one.by_operator)) for one in (*first, *rest)]
        assert listed == [("acme", "ask", False), ("acme", "pay", True), ("other", "ask", True)]
        assert [one.tool for one in await app.tools.flags("tenant", "other")] == ["ask"]
        assert [(one.whose, one.tool, one.reason) for one in await app.tools.flags("persona")] == [
            ("intern", "pay", "too young")
        ]
        assert [one.tool for one in await app.tools.flags("everybody")] == ["calculator"]
        for tool_name, enabled in (("pay", True), ("pay", None), ("calculator", True)):
            with pytest.raises(CallError) as refused:
                await app.tools.set_enabled(tool_name, enabled, tenant="acme", actor=ANN, by_operator=False)
            assert refused.value.code == "PERMISSION_DENIED"
        await app.tools.set_enabled("ask", None, tenant="acme", actor=ANN, by_operator=False)
        assert await app.tools.flags("tenant", "acme", tool="ask") == []


@pytest.mark.requirement("TIER-7")
async def test_grants_are_listed_page_by_page(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        made = [(await app.grants.create("pay", GrantTerms("user", 60), actor=who)).id for who in (ANN, BOB, ANN)]
        await app.grants.create("pay", GrantTerms("user", 60), actor=EVE)
        first = await app.grants.list(actor=ANN, limit=2)
        rest = await app.grants.list(actor=ANN, limit=2, after=first[-1].id)
        assert [one.id for one in (*first, *rest)] == made
        assert [one.id for one in await app.grants.list(actor=ANN, user="ann", tool="pay")] == [made[0], made[2]]
        assert len(await app.grants.list(all_tenants=True)) == 4
        await app.grants.revoke(made[0], actor=ANN)
        assert [one.id for one in await app.grants.list(actor=ANN)] == made[1:]


@pytest.mark.requirement("DOOR-3")
async def test_keys_are_listed_page_by_page(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        made = [(await app.keys.create(f"key {number}", ANN))[0].id for number in range(5)]
        await app.keys.create("other", EVE)
        found, after = [], None
        while page := await app.keys.list("acme", limit=2, after=after):
            found += [key.id for key in page]
            after = page[-1].id
        assert found == made


@pytest.mark.requirement("DOOR-1")
async def test_keys_and_schedules_are_found_by_state_and_by_any_text_in_their_name(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        keys = [(await app.keys.create(name, ANN))[0] for name in ("Mail 50", "mail_box", "third")]
        await app.keys.revoke(keys[2].id, by=ANN)
        await app.keys.create("brief", ANN, lasting=timedelta(milliseconds=1))
        await asyncio.sleep(0.002)

        async def named(text: str) -> list[str]:
            return [key.name for key in await app.keys.list("acme", named=text)]

        assert await named("MAIL") == ["Mail 50", "mail_box"]
        assert (await named("%"), await named("_"), await named("\\"), await named("l_b")) == (
            [], ["mail_box"], [], ["mail_box"],
        )  # fmt: skip
        for state, expected in (("valid", 2), ("revoked", 1), ("expired", 1)):
            assert len(await app.keys.list("acme", state=state)) == expected, state  # type: ignore[arg-type]
        assert [key.name for key in await app.keys.list("acme", state="valid", named="box", limit=5)] == ["mail_box"]
        for name in ("morning", "evening"):
            await app.schedules.add("@daily", "ask", {}, name=name, actor=ANN)
        await app.schedules.pause("morning", actor=ANN)
        assert [one.name for one in await app.schedules.list(actor=ANN, state="paused")] == ["morning"]
        assert [one.name for one in await app.schedules.list(actor=ANN, named="EVEN")] == ["evening"]
        assert await app.schedules.list(actor=ANN, state="paused", named="even") == []
        assert await app.schedules.list(actor=EVE, all_users=True, named="even") == []
