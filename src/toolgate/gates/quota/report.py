"""How budgets stand, and what calls have cost: for people who look, taking nothing."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple

import msgspec

from toolgate.gates.quota.ledger_accounts import (
    EACH,
    CountedBudget,
    described,
    is_in_force,
    period_after,
    period_of,
    scope_of,
)
from toolgate.gates.quota.money import reservable
from toolgate.model import NANO
from toolgate.pipeline.usage import Estimate, dollars
from toolgate.store import budgets as table
from toolgate.store import reservations
from toolgate.store.budgets import BUCKET, BudgetRow, By, CostLine, whose
from toolgate.store.database import Store
from toolgate.store.reservations import AccountBalance


class Look(NamedTuple):
    """What one budget would say to a call."""

    budget: str
    passes: bool
    reason: str


class BudgetStatus(msgspec.Struct, frozen=True):
    """How a budget stands, for one of those whom it counts separately."""

    budget: BudgetRow
    scope: dict[str, str | None]
    spent: int
    reserved: int
    resets_at: datetime

    @property
    def left(self) -> int:
        return max(self.budget.cap - self.spent - self.reserved, 0)

    def to_dict(self) -> dict[str, Any]:
        budget = self.budget
        return {
            "id": budget.id,
            **self.scope,
            "tier": budget.tier,
            "period": budget.period,
            "limit_usd": budget.cap / NANO,
            "spent_usd": self.spent / NANO,
            "reserved_usd": self.reserved / NANO,
            "left_usd": self.left / NANO,
            "timezone": budget.timezone,
            "resets_at": self.resets_at.isoformat(),
            "until": None if budget.until is None else budget.until.isoformat(),
        }


async def look(store: Store, counted: Sequence[CountedBudget], estimate: Estimate) -> list[Look]:
    """What each of these budgets would say to a call."""
    holds = await store.read(reservations.balances([each.account for each in counted]))
    looks = []
    for (budget, account), held in zip(counted, holds, strict=True):
        left = budget.cap - held.spent - held.reserved
        reason = f"{dollars(max(left, 0))} of {dollars(budget.cap)} left, the call may cost {dollars(estimate.nano)}"
        looks.append(Look(described(budget, scope_of(budget, account.name)), reservable(estimate) <= left, reason))
    return looks


async def status(store: Store, budgets: Iterable[BudgetRow], at: datetime, tenant: str | None) -> list[BudgetStatus]:
    """How every budget that is in force stands, for each of those whom it counts separately; of one tenant, or of all."""
    periods = {budget: period_of(budget, at) for budget in budgets if is_in_force(budget, at)}
    holds: dict[str, list[AccountBalance]] = {}
    for held in await store.read(table.holdings_of([(budget.id, starts) for budget, starts in periods.items()])):
        holds.setdefault(whose(held.account)[0], []).append(held)
    found = [
        BudgetStatus(
            budget, scope_of(budget, held.account or None), held.spent, held.reserved, period_after(budget, held.starts)
        )
        for budget, starts in periods.items()
        for held in holds.get(budget.id, [AccountBalance("", starts, 0, 0)])
    ]
    return [one for one in found if tenant is None or one.scope["tenant"] in (None, EACH, tenant)]


async def costs(store: Store, zone: tzinfo, by: By, since: datetime, tenant: str | None) -> list[CostLine]:
    """What calls have cost since then: the most expensive first, or day by day as the zone counts days."""
    await store.flush()
    lines = await store.read(table.usage(by, since, tenant))
    if by != "day":
        return sorted(lines, key=lambda line: (-line.nano, -line.calls, line.tenant or "", line.name or ""))
    days: dict[str, CostLine] = {}
    for line in lines:
        at = datetime.fromtimestamp(int(line.name or 0) * BUCKET / 1_000_000, UTC)
        day = at.astimezone(zone).date().isoformat()
        before = days.get(day, CostLine(day, None, 0, 0))
        days[day] = CostLine(day, None, before.calls + line.calls, before.nano + line.nano)
    return [days[day] for day in sorted(days)]
