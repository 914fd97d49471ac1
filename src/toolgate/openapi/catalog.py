"""Takes the accepted operations of OpenAPI documents into the catalog, in every process.

Definitions are in the store, so that the document itself is read only when it is added or read again. What is new, or other
than it was accepted, is quarantined as definitions of MCP servers are: no caller finds it until a person has accepted it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson

from toolgate.errors import DefinitionError
from toolgate.mcp import definitions as pins
from toolgate.mcp.catalog import faults, in_turns
from toolgate.mcp.definitions import Comparison, DefinitionPin, FoundDefinition
from toolgate.mcp.pins import DEFINITION_SHAPES, hashed
from toolgate.mcp.review import PendingDefinition
from toolgate.model import Entry
from toolgate.openapi import records
from toolgate.openapi.document import Document, DocumentError
from toolgate.openapi.document_settings import DocumentSettings
from toolgate.openapi.operations import ReadOperations, read_operations, tool_fields
from toolgate.openapi.records import METHOD, PIN_PREFIX, OpenApiRow, pin_server
from toolgate.registry.catalog import Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.store.database import Store
from toolgate.threads import to_thread


class OpenApiTools:
    """The tools of OpenAPI documents, one object for each App."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        rules: DefinitionRules,
        *,
        register: Callable[[Entry], object],
        forget: Callable[[], object],
        announce: Callable[[], Awaitable[None]],
    ) -> None:
        self._store, self._catalog, self._rules = store, catalog, rules
        self._register, self._forget, self._announce = register, forget, announce
        self.documents: dict[str, OpenApiRow] = {}
        self.withheld: dict[str, str] = {}
        """Names of quarantined tools, and the reason."""
        self.refused: list[ToolProblem] = []
        self.read_problems: dict[str, list[ToolProblem]] = {}
        """By document, the operations that could not be tools when this process read it."""
        self._pins: list[DefinitionPin] = []
        self._made: dict[tuple[str, str], tuple[str | None, Entry | ToolProblem]] = {}
        self._held: dict[str, Entry] = {}
        self._names: dict[str, tuple[str, str]] = {}
        self._epoch = -1
        self._one_at_a_time = asyncio.Lock()

    @property
    def problems(self) -> list[ToolProblem]:
        return [*(problem for listed in self.read_problems.values() for problem in listed), *self.refused]

    def keeps(self, name: str) -> bool:
        """True for names of documents' tools, accepted or not: nobody else may have one."""
        return name in self._names

    def counts(self, document: str) -> dict[str, int]:
        """Counts the definitions of a document by state."""
        counted = dict.fromkeys(("accepted", "quarantined", "gone"), 0)
        for pin in self._pins:
            if pin.server == pin_server(document):
                counted[pin.state] += 1
        return counted

    async def put(
        self, name: str, origin: str, document: Document, settings: DocumentSettings, base: str, by: str
    ) -> tuple[ReadOperations, Comparison]:
        """Reads the operations of a document, and compares them with what was accepted."""
        read, found = await to_thread(self._found, name, document, settings, base)
        compared = await self._store.transact(
            records.put(records.new_row(name, origin, document.title, settings, by), document.info, found)
        )
        self.read_problems[name] = read.problems
        await self._announce()
        await self.look()
        return read, compared

    def _found(
        self, name: str, document: Document, settings: DocumentSettings, base: str
    ) -> tuple[ReadOperations, dict[pins.DefinitionKey, FoundDefinition]]:
        """Reads the operations of a document; those that cannot be tools are problems. It takes seconds, and runs in a
        thread, so it changes nothing of this object."""
        read = read_operations(name, document, settings, base)
        found: dict[pins.DefinitionKey, FoundDefinition] = {}
        for key, fields in read.tools.items():
            try:
                compile_entry(definition(tool_fields(fields, name)), None, (), self._rules)
                found[METHOD, key] = hashed(fields, DEFINITION_SHAPES["tools"])
            except (DefinitionError, ValueError) as error:
                words = faults(error) if isinstance(error, DefinitionError) else str(error)
                read.problems.append(ToolProblem(f"{name}, {key[:120]}", words))
        if not found:
            raise DocumentError("paths", f"none of its operations can be a tool: {read.problems[0].why}")
        return read, found

    async def remove(self, name: str) -> bool:
        removed = await self._store.transact(records.remove(name))
        self.read_problems.pop(name, None)
        await self._announce()
        await self.look()
        return removed

    def waiting(self, document: str | None = None) -> list[PendingDefinition]:
        """The definitions that wait to be accepted."""
        wanted = None if document is None else pin_server(document)
        there = (pin for pin in self._pins if pin.state == "quarantined" and wanted in (None, pin.server))
        return [self._waiting(pin) for pin in there]

    def _waiting(self, pin: DefinitionPin) -> PendingDefinition:
        found = orjson.loads(pin.found or "{}")
        wrong, tier = self._why_not(found.get("name"), pin), None
        try:
            tier = self._entry(pin.server, found).tier
        except DefinitionError as error:
            wrong = faults(error)
        return PendingDefinition(
            pin.server, pin.method, pin.tool, str(found.get("name")), pin.found_hash or "", found,
            None if pin.accepted is None else orjson.loads(pin.accepted), pin.first_seen, pin.changed_at, wrong, tier,
        )  # fmt: skip

    async def accept(self, shown: Iterable[PendingDefinition], by: str) -> list[PendingDefinition]:
        """Accepts definitions as they were shown; gives those that have not changed since."""
        wanted = {(one.server, one.method, one.tool, one.hash): one for one in shown}
        taken = await self._store.transact(pins.accept({key: one.name for key, one in wanted.items()}, by))
        if taken:
            await self._announce()
            await self.look()
        return [wanted[key] for key in taken]

    # -- from the store

    async def look(self) -> None:
        """Takes over what is on record, if it has changed."""
        if await self._store.read(pins.epoch()) == self._epoch:
            return
        async with self._one_at_a_time:
            recorded = await self._store.read(records.recorded())
            if recorded.epoch == self._epoch:
                return
            documents = {row.name: row for row in recorded.documents}
            there = [pin for pin in recorded.definitions if pin.server.removeprefix(PIN_PREFIX) in documents]
            accepted = [pin for pin in there if pin.state == "accepted"]
            made = {(pin.server, pin.tool): self._build(pin) async for pin in in_turns(accepted)}
            self.documents, self._pins, self._made = documents, there, made
            self._names = {}
            for pin in there:  # the first that was seen has a name
                self._names.setdefault(_name_in(pin), (pin.server, pin.tool))
            for pin in there:  # after those that are in use, the names that changes wait for
                if pin.state == "quarantined":
                    self._names.setdefault(_found_name(pin), (pin.server, pin.tool))
            self.withheld = {_name_in(pin): _why_withheld(pin) for pin in there if pin.state == "quarantined"}
            self._publish()
            self._epoch = recorded.epoch

    def _build(self, pin: DefinitionPin) -> tuple[str | None, Entry | ToolProblem]:
        known = self._made.get((pin.server, pin.tool))
        if known is not None and known[0] == pin.accepted_hash:
            return known
        try:
            return pin.accepted_hash, self._entry(pin.server, orjson.loads(pin.accepted or "{}"))
        except DefinitionError as error:
            return pin.accepted_hash, ToolProblem(f"{pin.server}, {pin.tool[:120]}", faults(error))

    def _entry(self, server: str, given: dict[str, Any]) -> Entry:
        return compile_entry(definition(tool_fields(given, server.removeprefix(PIN_PREFIX))), None, (), self._rules)

    def _publish(self) -> None:
        """Puts the accepted tools into the catalog in place of those of before. Nothing is awaited meanwhile."""
        wanted: dict[str, Entry] = {}
        self.refused = []
        for (server, tool), (_, entry) in self._made.items():
            if isinstance(entry, ToolProblem):
                self.refused.append(entry)
            elif (why := self._why_taken(entry.name, server, tool)) is not None:
                self.refused.append(ToolProblem(f"{server}, {tool[:120]}", why))
            else:
                wanted[entry.name] = entry
        before, self._held = self._held, {}
        for name, entry in before.items():
            if not self._catalog.holds(entry):
                continue
            if wanted.get(name) is entry:
                self._held[name] = entry
            else:
                self._catalog.remove(name)
        for name, entry in wanted.items():
            if name not in self._held:
                self._register(entry)
                self._held[name] = entry
        self._forget()

    def _why_not(self, name: Any, pin: DefinitionPin) -> str | None:
        return self._why_taken(str(name), pin.server, pin.tool)

    def _why_taken(self, name: str, server: str, tool: str) -> str | None:
        """The reason why a tool cannot have a name: another document's has it, or any other tool, of any tenant."""
        holder = self._names.get(name)
        if holder is not None and holder != (server, tool):
            return f"the name {name} is that of another tool of {holder[0]}"
        entry = self._catalog.find(name, "")
        if entry is not None and entry.tool.source != "openapi":
            return f"the name {name} is that of a tool of source {entry.tool.source}"
        holders = [tenant for tenant, taken in self._catalog.tenant_names() if taken == name]
        if holders:
            return f"the name {name} is that of a tool that tenant {holders[0]} registered"
        return None


def _why_withheld(pin: DefinitionPin) -> str:
    return f"its definition {'is new' if pin.accepted_hash is None else 'has changed'} and waits to be accepted"


def _found_name(pin: DefinitionPin) -> str:
    """The name that a definition gives its tool as the document has it now."""
    return str(orjson.loads(pin.found or "{}").get("name"))


def _name_in(pin: DefinitionPin) -> str:
    """The name that a definition gives its tool."""
    return str(orjson.loads(pin.accepted or pin.found or "{}").get("name"))
