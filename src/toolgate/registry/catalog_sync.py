"""Keeps the catalog and its record in the store in step: tools that were registered go onto the record, flags and dynamic
tools that are on it come into the catalog. `app/sync.py` reads the record."""

import asyncio
import logging
from collections.abc import Callable, Iterable

import orjson

from toolgate.errors import DefinitionError, StoreError
from toolgate.model import Entry, Tool
from toolgate.registry.catalog import Catalog, ToolProblem
from toolgate.registry.compile import definition
from toolgate.registry.export import count_tokens, definition_text, is_exact
from toolgate.store import catalog as table
from toolgate.store.database import Store
from toolgate.tasks import start_task

logger = logging.getLogger("toolgate")


class CatalogSync:
    """One for each App. `forget` drops decisions about tools that were other ones before."""

    def __init__(
        self, store: Store, catalog: Catalog, *, compile_dynamic: Callable[[Tool], Entry], forget: Callable[[], None]
    ) -> None:
        """`compile_dynamic` gives the entry of a tool that was registered at run time."""
        self.compile_dynamic = compile_dynamic
        self._dynamic: dict[tuple[str, str], str] = {}
        """The definitions of dynamic tools that are in the catalog, as the record has them, by tenant and name."""
        self._store = store
        self._catalog = catalog
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

    def keep(self, entry: Entry) -> None:
        """Has a dynamic tool put on record among all tools before the next change of the store: flags refer to its row."""
        self._unsaved[entry.name] = entry

    def compile_again(self, kind: str) -> None:
        """Have dynamic tools of a kind follow what is said of it now."""
        for entry in self._catalog.dynamic():
            if entry.kind == kind:
                self._catalog.remove(entry.name, entry.tool.tenant)
                self._catalog.add(self.compile_dynamic(entry.tool))
        self._forget()

    # -- from the record

    def use(self, flags: table.Flags, dynamic: Iterable[table.DynamicRow]) -> None:
        """Takes over what the record says now."""
        self._use_dynamic([row for row in dynamic if row.enabled])
        self._catalog.use_flags(flags)

    def _use_dynamic(self, rows: list[table.DynamicRow]) -> None:
        """Takes in what is new or other than before, and removes what is gone."""
        recorded = {(row.registered_by_tenant, row.name): row.definition for row in rows}
        changed = {key for key, text in self._dynamic.items() if recorded.get(key) != text}
        for tenant, name in changed:
            self._catalog.remove(name, tenant)
            del self._dynamic[tenant, name]
        for (tenant, name), text in recorded.items():
            if (tenant, name) not in self._dynamic:
                try:
                    self._catalog.add(self.compile_dynamic(_recorded_tool(text, name, tenant)))
                    self._dynamic[tenant, name] = text
                except (DefinitionError, ValueError) as error:
                    self._catalog.note(ToolProblem(f"dynamic tool {name} of tenant {tenant}", str(error)))
        if changed:
            self._forget()

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


def _recorded_tool(text: str, name: str, tenant: str) -> Tool:
    """A tool of the record. Raises ValueError if its definition says another name or tenant than its row, or that it was not
    registered at run time: then somebody else than Toolgate wrote it."""
    fields = orjson.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("its definition is not an object")
    said = fields.get("name"), fields.get("tenant"), fields.get("source")
    if said != (name, tenant, "dynamic"):
        raise ValueError("its definition is of another name, tenant or source than its record")
    return definition(fields)


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
