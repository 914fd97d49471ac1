"""Keeps an App in step with what is on record in the store: flags, dynamic tools, MCP servers, budgets, calls that wait.

Whoever changes the record announces it, and all processes read it again before their next call. Should an announcement be
lost, a look at the epoch once a second finds the change.
"""

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from toolgate.store import budgets
from toolgate.store import catalog as table
from toolgate.store.database import Transaction
from toolgate.tasks import repeat, start_task

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

T = TypeVar("T")
EPOCH_POLL_SECONDS = 1.0
"""How often another process's changes are looked for."""

logger = logging.getLogger("toolgate")


class StoreSync:
    """One for each App."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._store = parts.store
        policy = parts.settings.policy
        self._seconds = min(policy.enabled_seconds, policy.schema_seconds)
        """After this long all is read anew, even if nothing changed."""
        self._polling: asyncio.Task[None] | None = None
        self._epoch = 0
        self._read_at = 0.0

    async def start(self) -> None:
        await self._parts.catalog_sync.start()
        await self.refresh()
        self._polling = start_task(repeat(EPOCH_POLL_SECONDS, self._look, logger, "flags could not be read"))

    async def stop(self) -> None:
        self._parts.catalog_sync.stop()
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def change(self, transaction: Transaction[T]) -> T:
        """Changes what is on record; here and, as soon as they can be told, in all other processes. Tools that were
        registered go on record before: flags refer to them."""
        await self._parts.catalog_sync.save()
        result = await self._store.transact(transaction)
        await self._parts.announce()
        await self.refresh()
        return result

    async def refresh(self) -> None:
        """Takes over what the store says now."""
        parts = self._parts
        flags, dynamic, limits = await self._store.read(_all_of_it())
        if flags.epoch < self._epoch:
            return  # another refresh has overtaken this one
        self._epoch = flags.epoch
        self._read_at = monotonic()
        parts.catalog_sync.use(flags, dynamic)
        await parts.mcp_tools.look()
        await parts.continuations.refresh()
        parts.policy.use(flags)
        parts.budgets.use(limits)
        await parts.policy.push()

    async def _look(self) -> None:
        """Sees what other processes change."""
        old = monotonic() - self._read_at > self._seconds
        if old or await self._store.read(table.epoch()) != self._epoch:
            await self.refresh()


def _all_of_it() -> Transaction[tuple[table.Flags, list[table.DynamicRow], list[budgets.BudgetRow]]]:
    """Reads the whole record, as it was at one moment."""
    flags = yield from table.flags()
    dynamic = yield from table.dynamic_tools()
    return flags, dynamic, (yield from budgets.list_budgets())
