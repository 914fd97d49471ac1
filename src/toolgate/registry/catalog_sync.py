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
MAX_BUILTIN_ROWS = 4096
_builtin_rows: dict[tuple[str, bool], table.CatalogRow] = {}
"""By fingerprint, and by whether the tokens in it are counted exactly: for all Apps of a process."""


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


def _on_record(entry: Entry, known: tuple[str, int | None] | None) -> bool:
    """Tells whether the store knows a tool as it is now: its fingerprint, and its token cost if that can be counted."""
    return known is not None and known[0] == entry.fingerprint and (known[1] is not None or not is_exact())


def _row(entry: Entry) -> table.CatalogRow:
    """The row of a tool. Of a built-in one it is made once: the fingerprint covers the definition and the tier."""
    if entry.tool.source != "builtin":
        return _made_row(entry)
    key = entry.fingerprint, is_exact()
    row = _builtin_rows.get(key)
    if row is None:
        if len(_builtin_rows) == MAX_BUILTIN_ROWS:
            _builtin_rows.clear()
        row = _builtin_rows[key] = _made_row(entry)
    return row


def _made_row(entry: Entry) -> table.CatalogRow:
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
