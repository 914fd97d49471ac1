"""Keeps an App in step with what is decided elsewhere: the record in the store (flags, dynamic tools, MCP servers, budgets,
calls that wait) and the policy, with its file, the data that it decides by, and an OPA server.

Whoever changes the record announces it, and all processes read it again before their next call. Should an announcement be
lost, a look at the epoch once a second finds the change.
"""

import asyncio
import logging
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from toolgate.gates.policy.documents import AllowList, PolicyData, PolicyError
from toolgate.gates.policy.open import open_engine, pushed_text
from toolgate.learning.proposals import limits_of
from toolgate.store import budgets, learning
from toolgate.store import catalog as table
from toolgate.store.database import Transaction
from toolgate.store.learning import LimitRow
from toolgate.tasks import repeat, start_task
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

T = TypeVar("T")
EPOCH_POLL_SECONDS = 1.0
"""The time between two looks for another process's changes."""
WATCH_SECONDS = 1.0

logger = logging.getLogger("toolgate")


class StoreSync:
    """The record in the store, as this App has it."""

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
        flags, dynamic, limits, accepted = await self._store.read(_all_of_it())
        if flags.epoch < self._epoch:
            return  # another refresh has overtaken this one
        self._epoch = flags.epoch
        self._read_at = monotonic()
        parts.catalog.use_limits(limits_of(accepted))
        parts.catalog_sync.use(flags, dynamic)
        await parts.team_tools.look()
        await parts.mcp_tools.look()
        await parts.openapi_tools.look()
        await parts.continuations.refresh()
        parts.policy.use(flags)
        parts.budgets.use(limits)
        await parts.policy.push()

    async def _look(self) -> None:
        """Sees what other processes change."""
        old = monotonic() - self._read_at > self._seconds
        if old or await self._store.read(table.epoch()) != self._epoch:
            await self.refresh()


def _all_of_it() -> Transaction[tuple[table.Flags, list[table.DynamicRow], list[budgets.BudgetRow], list[LimitRow]]]:
    """Reads the whole record, as it was at one moment."""
    flags = yield from table.flags()
    dynamic = yield from table.dynamic_tools()
    limits = yield from budgets.list_budgets()
    return flags, dynamic, limits, (yield from learning.limits())


class PolicySync:
    """The policy in force."""

    data: PolicyData
    """The data that the policy decides by; known when the App is open."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._watching: asyncio.Task[None] | None = None
        self.use(table.Flags())

    def start(self) -> None:
        """Begins to watch the policy's file."""
        self._watching = start_task(self._watch())

    def stop(self) -> None:
        """Stops watching."""
        if self._watching is not None:
            self._watching.cancel()

    def use(self, flags: table.Flags) -> None:
        """Takes the flags of tools, tenants and personas that hold from now on."""
        catalog = self._parts.catalog
        off = {tenant: {name: on for name, on in said.items() if not on} for tenant, said in flags.tenants.items()}
        self.data = PolicyData(
            catalog=catalog.policy_entry,
            names=catalog.names,
            tenants={tenant: {**said, **catalog.with_second_names(off[tenant])} for tenant, said in flags.tenants.items()},
            personas={persona: catalog.with_second_names(denied) for persona, denied in flags.personas.items()},
            can_add_tools=flags.can_add_tools,
            global_deny=catalog.with_second_names(flags.global_deny),
            restricted_tenants=flags.restricted_tenants,
            allow_lists={tenant: AllowList.of_document(one) for tenant, one in flags.allow_lists.items()},
            enforced=catalog.enforced,
            tenant_names=catalog.tenant_names,
            epoch=flags.epoch,
        )
        self._parts.guard.use(self.data)

    async def push(self) -> None:
        """Gives an OPA server what it is to decide by. If it does not take it, it denies everything until it does."""
        engine = self._parts.guard.engine
        if not (self._parts.settings.policy.push and engine.remote is True):
            return
        try:
            await engine.push(pushed_text(self._parts.settings.policy, self._parts.project.refusal), self.data.whole())
        except PolicyError as error:
            logger.error("%s", error)
        self._parts.guard.forget()

    async def reload(self) -> None:
        """Reads the policy's file again. One that is wrong is refused, and the policy in force stays."""
        if self._parts.guard.engine.remote is False:
            engine = await to_thread(open_engine, self._parts.settings.policy, None, self._parts.project.refusal)
            self._parts.guard.set_engine(engine)
        await self.push()

    async def _watch(self) -> None:
        """Takes a changed policy file without a restart, and pushes again what an OPA server did not take."""
        file, engine = self._parts.settings.policy.file, self._parts.guard.engine
        known = _stamp(file)
        while file is not None or self._parts.settings.policy.push or self._parts.observer is not None:
            await asyncio.sleep(WATCH_SECONDS)
            if self._parts.observer is not None:
                self._parts.observer.reload_changed()
            if (found := _stamp(file)) != known:
                known = found
                try:
                    await self.reload()
                except Exception as error:  # noqa: BLE001 - whatever it is, the next change must be seen
                    logger.error("the changed policy is not used, the one before stays in force: %s", error)
            elif engine.remote is True and not engine.is_ready:
                await self.push()


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """A value that changes when a file does; None if there is none, or it cannot be looked at."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
