"""What was agreed to as a free call is never billed, whichever way it comes back, and however many others came between."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from toolgate import Actor, App, Cost, InvokeContext, Outcome, ToolError, tool
from toolgate.model import NANO, Retry, SpendingLimit
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("COST-2", "TIER-3")
ANN, BOSS = Actor("acme", user="ann"), Actor("acme", user="local")
MAIL = Cost(fixed=Decimal("0.10"), free_tier_limit=1, free_tier_period="day")


@tool(tier="external_api", cost=MAIL)
async def asked_mail(to: str) -> str:
    """Send a letter, if a person agrees."""
    return to


@tool(tier="external_api", cost=MAIL)
async def careful_mail(ctx: InvokeContext, to: str) -> str:
    """Send a letter, if two people agree."""
    return str((await ctx.call_tool("confirm", to=to)).raise_for_status().output)


@tool(tier="external_api")
async def confirm(to: str) -> str:
    """Ask once more."""
    return to


@tool(tier="read_only", cost=MAIL)
async def mail(to: str) -> str:
    """Send a letter."""
    return to


@tool(tier="read_only")
async def program(ctx: InvokeContext) -> list[bool]:
    """Send letters side by side for at most 10 cents."""
    limit = SpendingLimit(NANO // 10)
    calls = (ctx.call_inside("mail", {"to": str(at)}, spending_limit=limit) for at in range(8))
    return [outcome.ok for outcome in await asyncio.gather(*calls)]


@tool(
    tier="read_only",
    cost=Cost(fixed=Decimal("0.10"), free_tier_limit=4, free_tier_period="day"),
    retry=Retry(max_attempts=3, backoff_ms=1, codes=("CONNECTION_ERROR",)),
)
async def failing_mail() -> str:
    """Send a letter, three times in vain."""
    raise ToolError("It did not answer.", code="CONNECTION_ERROR", retryable=True)


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.tools.register_many([asked_mail, careful_mail, confirm, mail, program, failing_mail])
        yield app


async def approved(app: App, outcome: Outcome) -> str:
    assert outcome.error is not None and outcome.error.details is not None
    id: str = outcome.error.details["approval"]
    await app.approvals.answer(id, True, actor=BOSS)
    return id


@pytest.mark.parametrize("arguments", [{"to": "2"}, None], ids=["again", "from the approval"])
async def test_an_approval_of_a_free_call_is_none_for_a_billed_one(app: App, arguments: dict[str, Any] | None) -> None:
    first, second = [await approved(app, await app.invoke("asked_mail", {"to": to}, actor=ANN)) for to in "12"]
    assert (await app.invoke("asked_mail", {"to": "1"}, actor=ANN, approval=first)).ok
    refused = await app.invoke("asked_mail", arguments, actor=ANN, approval=second)
    assert refused.error is not None and refused.error.code == "PERMISSION_DENIED"
    assert "no free call is left" in refused.error.message


async def test_the_same_call_is_asked_about_again_with_its_price(app: App) -> None:
    for to in "12":
        await approved(app, await app.invoke("asked_mail", {"to": to}, actor=ANN))
    assert (await app.invoke("asked_mail", {"to": "1"}, actor=ANN)).ok
    asked = await app.invoke("asked_mail", {"to": "2"}, actor=ANN)
    assert asked.error is not None and asked.error.code == "APPROVAL_REQUIRED"
    (waiting,) = await app.approvals.list(actor=BOSS)
    assert waiting.request.estimate_usd == 0.1


async def test_a_call_that_goes_on_is_not_billed_for_what_was_free_when_it_began(app: App) -> None:
    begun = await approved(app, await app.invoke("careful_mail", {"to": "1"}, actor=ANN))
    waits = await app.invoke("careful_mail", {"to": "1"}, actor=ANN, approval=begun)
    inner = await approved(app, waits)
    other = await approved(app, await app.invoke("careful_mail", {"to": "2"}, actor=ANN))
    last = await approved(app, await app.invoke("careful_mail", {"to": "2"}, actor=ANN, approval=other))
    assert (await app.approvals.resume(last, actor=BOSS)).ok
    refused = await app.approvals.resume(inner, actor=BOSS)
    assert refused.error is not None and "no free call is left" in refused.error.message
    assert refused.metrics.cost_usd == 0


async def test_a_program_does_not_spend_more_than_its_limit_because_calls_were_free_at_first(app: App) -> None:
    outcome = await app.invoke("program", {}, actor=ANN)
    assert sum(outcome.output) <= 2, "one free, one for 10 cents"


async def test_attempts_beyond_the_free_tier_are_not_free(app: App) -> None:
    costs = [(await app.invoke("failing_mail", {}, actor=ANN)).metrics.cost_usd for _ in range(2)]
    assert costs == [0, pytest.approx(0.3)], "four free calls, of which the first took three"
    at_once = await asyncio.gather(*(app.invoke("failing_mail", {}, actor=Actor("other", user="eve")) for _ in range(3)))
    assert all(outcome.metrics.cost_usd for outcome in at_once), "the account is everybody's"
