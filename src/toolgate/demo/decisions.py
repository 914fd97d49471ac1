"""Decisions of people in the demo: approvals that wait, one that was rejected, a grant, and a budget near its end."""

from datetime import datetime, timedelta
from decimal import Decimal

from toolgate.app.app import App
from toolgate.demo.calls import PlannedCall, Week
from toolgate.demo.folder import DemoFolder
from toolgate.demo.people import ANALYST, LEAD, OPS, TENANT
from toolgate.gates.approval.request import Answer, GrantTerms
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.gates.quota.money import parse_dollars
from toolgate.model import NANO

SPENT = 84
"""Per cent of the month's budget that are spent."""
CENT = NANO // 100


async def reject_one(app: App, week: Week) -> None:
    """Has an order of parts asked for, and rejected with a reason."""
    outcome = await week.call(PlannedCall(OPS, "order_parts", {"article": "A-300", "pieces": 4000}))
    assert outcome.pending is not None
    why = "4,000 timing belts are two years of sales: ask for 40."
    await app.approvals.answer(outcome.pending.id, Answer("reject", why), actor=LEAD)


async def grant_refunds(app: App, week: Week) -> None:
    """Lets ops refund for a week without being asked each time, up to a sum and a number; two refunds use it."""
    terms = GrantTerms("user", timedelta(days=7).total_seconds(), Decimal(5), max_uses=20)
    await app.grants.create("refund", terms, actor=OPS, by=LEAD, reason="returns of the recalled batch")
    for order in (1017, 1042):
        await week.call(PlannedCall(OPS, "refund", {"order": order, "amount": 29.0}))


async def ask_two(week: Week, folder: DemoFolder) -> None:
    """Has two calls wait for a person: one changes a file, one costs money."""
    prices = (folder.workspace / "prices.csv").read_text("utf-8")
    changed = prices.replace("2.10", "2.35") + "A-400,V-belt,11.80\n"
    await week.call(PlannedCall(OPS, "write_file", {"path": "prices.csv", "content": changed}))
    await week.call(PlannedCall(OPS, "order_parts", {"article": "A-300", "pieces": 40}))


async def set_budgets(app: App, week: Week, now: datetime) -> None:
    """Sets the budget of acme for the month so that most of it is spent, and one for each analyst's day."""
    for customer in ("Ada", "Grace", "Linus"):  # so that there is something in a month that has just begun
        await week.call(PlannedCall(ANALYST, "credit_check", {"customer": customer}))
    await app.flush()
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = sum(line.nano for line in await app.budgets.costs("tenant", since=month, tenant=TENANT))
    cap = -(-spent * 100 // (SPENT * CENT)) * CENT
    await app.budgets.set(new_budget("month", cap, tenant=TENANT))
    await app.budgets.set(new_budget("day", parse_dollars("8"), tenant=TENANT, persona="analyst"))
