"""`app.budgets`: what may be spent, and what was."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from toolgate.model import LOCAL, Actor
from toolgate.store import budgets as table
from toolgate.store.budgets import BudgetRow, By, CostLine
from toolgate.store.database import now
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.gates.quota.report import BudgetStatus


class BudgetsFacet:
    """The budgets of this installation."""

    def __init__(self, parts: "Parts") -> None:
        self._budgets = parts.budgets
        self._store_sync = parts.store_sync
        self._events = parts.events
        self._store = parts.store

    async def limits(self) -> list[BudgetRow]:
        """Gives the budgets as they are on record."""
        return await self._store.read(table.list_budgets())

    @uninterrupted
    async def remove(self, id: str, *, actor: Actor | None = None) -> bool:
        """Removes a budget; gives whether there was one."""
        removed = await self._store_sync.change(table.remove_budget(id))
        if removed:
            await self._events.record("budget.removed", actor or LOCAL, "", {"budget": id})
        return removed

    async def costs(self, by: By = "tool", *, since: datetime | None = None, tenant: str | None = None) -> "list[CostLine]":
        """Gives what calls have cost: by tool, user, persona, tenant or day; without `since`, in the last thirty days."""
        return await self._budgets.costs(by, since or now() - timedelta(days=30), tenant)

    @uninterrupted
    async def set(self, budget: BudgetRow, *, actor: Actor | None = None) -> None:
        """Sets a budget, or changes the one of the same id. A new one counts what was spent in its period already."""
        already = await self._budgets.spent_already(budget)
        await self._store_sync.change(table.set_budget(budget, already))
        await self._events.record("budget.set", actor or LOCAL, budget.tool or "", {"budget": budget._asdict()})

    async def list(self, tenant: str | None = None) -> "list[BudgetStatus]":
        """Gives what of every budget is spent and reserved; of one tenant, or of all."""
        return await self._budgets.status(tenant)
