"""Keeps the catalog and its record in the store in step: tools that were registered go onto the record, flags and dynamic
tools that are on it come into the catalog. `app/sync.py` reads the record."""

import asyncio
import logging
from collections.abc import Callable, Iterable

import orjson

from toolgate.errors import DefinitionError, StoreError
from toolgate.model import Actor, Entry
from toolgate.registry.catalog import Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.registry.export import count_tokens, definition_text, is_exact
from toolgate.store import catalog as table
from toolgate.store.database import Store
from toolgate.tasks import start_task

logger = logging.getLogger("toolgate")


class CatalogSync:
    """One for each App. `forget` drops decisions about tools that were other ones before."""

    def __init__(self, store: Store, catalog: Catalog, rules: DefinitionRules, *, forget: Callable[[], None]) -> None:
        self._store = store
        self._catalog = catalog
        self._rules = rules
        self._forget = forget
        self._unsaved: dict[str, Entry] = {}
        self._one_save = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None
        self._saves_soon = False

    async def start(self) -> None:
        """Puts on record what was registered so far; what comes later is put there soon."""
        await self.save()
        self._saves_soon = True

    def stop(self) -> None:
        self._saves_soon = False

    # -- onto the record

    def register(self, entry: Entry) -> None:
        """Puts a tool into the catalog and, soon, on record."""
        self._catalog.add(entry)
        self._forget()
        self._unsaved[entry.name] = entry
        if self._saves_soon and (self._saving is None or self._saving.done()):
            self._saving = start_task(self._save_soon())

    async def _save_soon(self) -> None:
        await asyncio.sleep(0)
        try:
            await self.save()
        except StoreError as error:
            logger.warning("tools could not be put on record yet: %s", error)

    async def save(self) -> None:
        """Put registered tools on record; those that have not changed are let be."""
        async with self._one_save:
            if not self._unsaved:
                return
            unsaved, self._unsaved = self._unsaved, {}
            try:
                known = await self._store.read(table.known_tools())
                changed = [entry for name, entry in unsaved.items() if known.get(name, ("",))[0] != entry.fingerprint]
                if changed:
                    await self._store.transact(table.seed([_row(entry) for entry in changed]))
            except BaseException:
                self._unsaved = unsaved | self._unsaved
                raise

    def add_dynamic(self, entry: Entry, actor: Actor) -> table.DynamicRow:
        """Puts a tool that was registered at run time into the catalog; gives its row for the record."""
        tool = entry.tool
        self._catalog.add(entry)
        self._unsaved[tool.name] = entry  # flags refer to a row of the catalog
        return table.DynamicRow(
            tool.name, actor.tenant, actor.persona, tool.kind, tool.target,
            orjson.dumps(tool.input_schema).decode(), tool.model_dump_json(), tool.enabled,
        )  # fmt: skip

    def compile_again(self, kind: str) -> None:
        """Have dynamic tools of a kind follow what is said of it now."""
        for entry in self._catalog.dynamic():
            if entry.kind == kind:
                self._catalog.remove(entry.name, entry.tool.tenant)
                self._catalog.add(compile_entry(entry.tool, None, (), self._rules))
        self._forget()

    # -- from the record

    def use(self, flags: table.Flags, dynamic: Iterable[table.DynamicRow]) -> None:
        """Takes over what the record says now."""
        self._use_dynamic([row for row in dynamic if row.enabled])
        self._catalog.use_flags(flags)

    def _use_dynamic(self, rows: list[table.DynamicRow]) -> None:
        known = {(entry.tool.tenant, entry.name) for entry in self._catalog.dynamic()}
        for row in rows:
            if (row.registered_by_tenant, row.name) not in known:
                try:
                    self._catalog.add(compile_entry(definition(orjson.loads(row.definition)), None, (), self._rules))
                except (DefinitionError, ValueError) as error:
                    self._catalog.note(
                        ToolProblem(f"dynamic tool {row.name} of tenant {row.registered_by_tenant}", str(error))
                    )
        for tenant, name in known - {(row.registered_by_tenant, row.name) for row in rows}:
            self._catalog.remove(name, tenant)

    async def token_costs(self, entries: Iterable[Entry]) -> dict[str, int]:
        """The token costs of definitions: as they are on record, or counted now and kept there. Not before somebody asks: to
        load the tokenizer and count takes longer than to open an App."""
        await self.save()
        known = await self._store.read(table.known_tools())
        costs, counted = {}, []
        for entry in entries:
            fingerprint, tokens = known.get(entry.name, ("", None))
            if tokens is None or fingerprint != entry.fingerprint:
                tokens = count_tokens(definition_text(entry.tool))
                counted.append((entry.name, entry.fingerprint, tokens))
            costs[entry.name] = tokens
        if counted and is_exact():
            await self._store.transact(table.keep_token_costs(counted))
        return costs


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
    )
