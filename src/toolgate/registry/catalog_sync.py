"""Keeps the catalog and its record in the store in step: tools that were registered go onto the record, flags and dynamic
tools that are on it come into the catalog, also when another process put them there.

Whoever changes the record announces it (`announce`), and all processes read it again before their next call. Should an
announcement be lost, a look at the epoch once a second finds the change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import TypeVar

import orjson

from toolgate.errors import DefinitionError, StoreError
from toolgate.model import Actor, Entry
from toolgate.registry.catalog import Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.registry.export import count_tokens, definition_text, is_exact
from toolgate.store import budgets
from toolgate.store import catalog as table
from toolgate.store.database import Store, Transaction
from toolgate.tasks import start_task

T = TypeVar("T")
EPOCH_POLL_SECONDS = 1.0
"""How often another process's changes are looked for."""

logger = logging.getLogger("toolgate")


class CatalogSync:
    """One for each App. `follow` is given what the store says whenever that has changed; `announce` tells other processes
    of a change; `forget` drops decisions about tools that were other ones before."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        rules: DefinitionRules,
        *,
        follow: Callable[[table.Flags, list[budgets.BudgetRow]], Awaitable[None]],
        announce: Callable[[], Awaitable[None]],
        forget: Callable[[], None],
        seconds: float,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._rules = rules
        self._follow = follow
        self._announce = announce
        self._forget = forget
        self._seconds = seconds
        """After this long all is read anew, even if nothing changed."""
        self._unsaved: dict[str, Entry] = {}
        self._one_save = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._epoch = 0
        self._read_at = 0.0

    # -- life

    async def start(self) -> None:
        await self.save()
        await self.refresh()
        self._polling = start_task(self._poll())

    async def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None

    # -- onto the record

    def register(self, entry: Entry) -> None:
        """Puts a tool into the catalog and, soon, on record."""
        self._catalog.add(entry)
        self._forget()
        self._unsaved[entry.name] = entry
        if self._polling is not None and (self._saving is None or self._saving.done()):
            self._saving = start_task(self._save_soon())

    async def _save_soon(self) -> None:
        await asyncio.sleep(0)
        try:
            await self.save()
        except StoreError as error:
            logger.warning("tools could not be put on record yet: %s", error)

    async def save(self) -> None:
        """Put registered tools on record, with what they cost a model to read; those that have not changed are let be."""
        async with self._one_save:
            if not self._unsaved:
                return
            unsaved, self._unsaved = self._unsaved, {}
            try:
                known = await self._store.read(table.known_tools())
                changed = [entry for name, entry in unsaved.items() if not _on_record(entry, known.get(name))]
                if changed:
                    await self._store.transact(table.seed([_row(entry) for entry in changed]))
            except BaseException:
                self._unsaved = unsaved | self._unsaved
                raise

    async def change(self, transaction: Transaction[T]) -> T:
        """Change what is on record; here and, as soon as they can be told, in all other processes."""
        result = await self._store.transact(transaction)
        await self._announce()
        await self.refresh()
        return result

    async def switch(
        self, entry: Entry, enabled: bool | None, *, tenant: str | None, persona: str | None, reason: str | None, by: str
    ) -> None:
        """Set a flag of a tool for everybody, a tenant or a persona; None takes it away again."""
        await self.save()
        if tenant is not None:
            await self.change(table.set_tenant_flags([(tenant, entry.name, enabled)]))
        elif persona is not None:
            await self.change(table.set_persona_restriction(persona, entry.name, enabled is not False, reason))
        elif enabled is None:
            await self.change(table.set_enabled(entry.name, entry.tool.enabled, None))
        else:
            await self.change(table.set_enabled(entry.name, enabled, by))

    async def switch_many(self, flags: Iterable[tuple[str, str, bool | None]]) -> None:
        """Flags of tenants: (tenant, tool, enabled)."""
        await self.save()
        await self.change(table.set_tenant_flags(flags))

    async def add_dynamic(self, entry: Entry, actor: Actor) -> None:
        """Put a tool that was registered at run time into the catalog and on record, or into neither."""
        tool = entry.tool
        self._catalog.add(entry)
        row = table.DynamicRow(
            tool.name, actor.tenant, actor.persona, tool.kind, tool.target,
            orjson.dumps(tool.input_schema).decode(), tool.model_dump_json(), tool.enabled,
        )  # fmt: skip
        try:
            self._unsaved[tool.name] = entry  # flags refer to a row of the catalog
            await self.save()
            await self.change(table.add_dynamic(row))
        except StoreError:
            self._catalog.remove(tool.name, actor.tenant)
            raise

    def compile_again(self, kind: str) -> None:
        """Have dynamic tools of a kind follow what is said of it now."""
        for entry in self._catalog.dynamic():
            if entry.kind == kind:
                self._catalog.remove(entry.name, entry.tool.tenant)
                self._catalog.add(compile_entry(entry.tool, None, (), self._rules))
        self._forget()

    # -- from the record

    async def refresh(self) -> None:
        """Take over what the store says now."""
        flags, dynamic, limits = await self._store.read(_all_of_it())
        if flags.epoch < self._epoch:
            return  # another refresh has overtaken this one
        self._epoch = flags.epoch
        self._read_at = monotonic()
        self._use_dynamic([row for row in dynamic if row.enabled])
        self._catalog.use_flags(flags)
        await self._follow(flags, limits)

    def _use_dynamic(self, rows: list[table.DynamicRow]) -> None:
        known = {(entry.tool.tenant, entry.name) for entry in self._catalog.dynamic()}
        for row in rows:
            if (row.tenant, row.name) not in known:
                try:
                    self._catalog.add(compile_entry(definition(orjson.loads(row.definition)), None, (), self._rules))
                except (DefinitionError, ValueError) as error:
                    self._catalog.note(ToolProblem(f"dynamic tool {row.name} of tenant {row.tenant}", str(error)))
        for tenant, name in known - {(row.tenant, row.name) for row in rows}:
            self._catalog.remove(name, tenant)

    async def _poll(self) -> None:
        """See what other processes change."""
        while True:
            await asyncio.sleep(EPOCH_POLL_SECONDS)
            try:
                old = monotonic() - self._read_at > self._seconds
                if old or await self._store.read(table.epoch()) != self._epoch:
                    await self.refresh()
            except Exception as error:  # noqa: BLE001 - whatever it is, it must be looked again
                logger.warning("flags could not be read: %s", error)

    async def token_costs(self, entries: Iterable[Entry]) -> dict[str, int]:
        """The token costs of definitions: as they are on record, or counted now."""
        await self.save()
        known = await self._store.read(table.known_tools())
        costs = {}
        for entry in entries:
            fingerprint, tokens = known.get(entry.name, ("", None))
            if tokens is None or fingerprint != entry.fingerprint:
                tokens = count_tokens(definition_text(entry.tool))
            costs[entry.name] = tokens
        return costs


def _all_of_it() -> Transaction[tuple[table.Flags, list[table.DynamicRow], list[budgets.BudgetRow]]]:
    """Reads the whole record, as it was at one moment."""
    flags = yield from table.flags()
    dynamic = yield from table.dynamic_tools()
    return flags, dynamic, (yield from budgets.list_budgets())


def _on_record(entry: Entry, known: tuple[str, int | None] | None) -> bool:
    """Tells whether the store knows a tool as it is now: its fingerprint, and its token cost if that can be counted."""
    return known is not None and known[0] == entry.fingerprint and (known[1] is not None or not is_exact())


def _row(entry: Entry) -> table.CatalogRow:
    tool = entry.tool
    return table.CatalogRow(
        name=tool.name,
        enabled=tool.enabled,
        description=tool.description,
        params=orjson.dumps(tool.input_schema).decode(),
        source=tool.source,
        version=tool.version,
        tier=entry.tier,
        category=tool.category,
        definition=tool.model_dump_json(),
        fingerprint=entry.fingerprint,
        token_cost=count_tokens(definition_text(tool)) if is_exact() else None,
    )
