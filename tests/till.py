"""Budgets on a real store, with a clock that can be set: for tests of money below the pipeline."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from toolgate.errors import Denied
from toolgate.gates.quota.budget import Budgets
from toolgate.gates.quota.money import estimate
from toolgate.model import LOCAL, Actor, Call, Cost, Entry, Tier, Tool, new_id
from toolgate.registry.compile import compile_entry
from toolgate.store import budgets as table
from toolgate.store.budgets import BudgetRow
from toolgate.store.database import Rows, Store, Transaction, open_store
from toolgate.store.live_processes import ProcessHeartbeat

CENT = 10_000_000
DOLLAR = 100 * CENT


def tool(price: str = "0.10", name: str = "buy", tier: Tier = "write") -> Entry:
    cost = Cost(fixed=Decimal(price)) if Decimal(price) else Cost(model="free")
    return compile_entry(Tool(name=name, description="Buys.", tier=tier, cost=cost), None)


def call_of(entry: Entry, actor: Actor = LOCAL) -> Call:
    return Call(new_id(), entry.name, {}, actor)


class Till:
    """The budgets of one process."""

    def __init__(self, store: Store, external_api_daily: Decimal | None, seconds: float) -> None:
        self.store = store
        self.presence = ProcessHeartbeat(store, seconds)
        self.alerts: list[dict[str, Any]] = []
        self.now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
        self.budgets = Budgets(
            store,
            self.presence,
            external_api_daily=external_api_daily,
            announce=lambda event, told: self.alerts.append({"event": event, **told}),
            clock=lambda: self.now,
        )

    async def set(self, *rows: BudgetRow) -> None:
        for row in rows:
            await self.store.transact(table.set_budget(row, await self.budgets.spent_already(row)))
        await self.refresh()

    async def remove(self, id: str) -> bool:
        removed = await self.store.transact(table.remove_budget(id))
        await self.refresh()
        return removed

    async def refresh(self) -> None:
        self.budgets.use(await self.store.read(table.list_budgets()))

    async def reserve(self, entry: Entry, actor: Actor = LOCAL, call: Call | None = None) -> Call:
        call = call or call_of(entry, actor)
        await self.budgets.reserve(call, entry, estimate(entry, {}))
        return call

    async def settle(self, call: Call, entry: Entry, actual: int) -> None:
        await self.budgets.settle(call, entry, estimate(entry, {}), actual)

    async def buy(self, entry: Entry, actor: Actor = LOCAL, actual: int | None = None) -> Denied | None:
        """A call from beginning to end; gives the refusal, if there is one."""
        try:
            call = await self.reserve(entry, actor)
        except Denied as refusal:
            return refusal
        await self.settle(call, entry, estimate(entry, {}).nano if actual is None else actual)
        return None

    async def rows(self, sql: str, **parameters: Any) -> Rows:
        def look() -> Transaction[Rows]:
            return (yield sql, parameters)

        return await self.store.read(look())

    async def sums(self) -> tuple[int, int]:
        """What is spent and what is reserved in all accounts together, once all that was begun is done."""
        await self.store.flush()
        rows = await self.rows("SELECT spent, reserved FROM spending")
        return sum(int(row[0]) for row in rows), sum(int(row[1]) for row in rows)


@asynccontextmanager
async def opened_till(
    url: str = "memory://", *, external_api_daily: Decimal | None = None, seconds: float = 60
) -> AsyncIterator[Till]:
    store = open_store(url, None)
    await store.start()
    till = Till(store, external_api_daily, seconds)
    try:
        yield till
        await till.budgets.close()
    finally:
        await till.presence.leave()
        await store.close()
