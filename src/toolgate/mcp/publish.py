"""Publishes the accepted tools of MCP servers in the catalog, and nothing else of theirs.

Of two with the same name, one has it (`tool_names`). What can't be published is listed in `refused`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from time import monotonic
from typing import NamedTuple

from toolgate.errors import CallError, DefinitionError
from toolgate.mcp.definitions import DefinitionPin
from toolgate.mcp.entries import DefinitionKey, Upstream, cleaned, entry_of
from toolgate.mcp.tool_names import ToolNames, is_wanted
from toolgate.model import Entry
from toolgate.registry.catalog import Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules

MAX_FAULT_CHARS = 500
MAX_TURN_SECONDS = 0.005
"""Seconds for which the event loop is held."""


class BuiltEntry(NamedTuple):
    """An entry that was built from a definition, or why none could be; `of` is all that it was built from."""

    of: tuple[str | None, Upstream]
    entry: Entry | ToolProblem


class Publisher:
    def __init__(
        self, catalog: Catalog, rules: DefinitionRules, register: Callable[[Entry], object], forget: Callable[[], object]
    ) -> None:
        self._catalog = catalog
        self._rules = rules
        self._register = register
        self._forget = forget
        self._made: dict[tuple[str, DefinitionKey], BuiltEntry] = {}
        self._held: dict[str, Entry] = {}
        self.callable: dict[tuple[str, str, str], str] = {}
        """By server, method and the server's own name, the fingerprint of all that may be called."""
        self.refused: list[ToolProblem] = []

    async def prepare(self, upstreams: Iterable[Upstream], accepted: Iterable[DefinitionPin]) -> None:
        """Builds the entries that `use` will need, in turns, because many take seconds."""
        servers = {upstream.name: upstream for upstream in upstreams}
        async for pin in in_turns(accepted):
            upstream = servers.get(pin.server)
            if upstream is not None and is_wanted(upstream, pin.key):
                self._made[upstream.name, pin.key] = self._entry(upstream, pin)

    def use(self, upstreams: Iterable[Upstream], accepted: Iterable[DefinitionPin], names: ToolNames) -> None:
        """Publishes what is accepted of these servers. Nothing is awaited meanwhile: no call finds half of it."""
        pins: dict[str, list[DefinitionPin]] = {}
        for pin in accepted:
            pins.setdefault(pin.server, []).append(pin)
        wanted: dict[str, tuple[Entry, DefinitionPin]] = {}
        made: dict[tuple[str, DefinitionKey], BuiltEntry] = {}
        self.refused = []
        for upstream in upstreams:
            for pin in pins.get(upstream.name, ()):
                if is_wanted(upstream, pin.key):
                    made[upstream.name, pin.key] = found = self._entry(upstream, pin)
                    self._want(found.entry, pin, names.fault(upstream, pin.key), wanted)
        self._made = made
        self._put({name: entry for name, (entry, _) in wanted.items()})
        self.callable = {(pin.server, pin.method, pin.tool): entry.fingerprint for entry, pin in wanted.values()}

    def _entry(self, upstream: Upstream, pin: DefinitionPin) -> BuiltEntry:
        """Builds the entry of a pin, unless it is the same as before."""
        of = (pin.accepted_hash, upstream)
        known = self._made.get((upstream.name, pin.key))
        if known is not None and known.of == of:
            return known
        try:
            return BuiltEntry(of, entry_of(upstream, pin.key, pin.accepted or "{}", self._rules))
        except DefinitionError as error:
            return BuiltEntry(of, _problem(pin, faults(error)))

    def _want(
        self,
        entry: Entry | ToolProblem,
        pin: DefinitionPin,
        fault: str | None,
        wanted: dict[str, tuple[Entry, DefinitionPin]],
    ) -> None:
        if isinstance(entry, ToolProblem):
            self.refused.append(entry)
        elif fault is not None or entry.name in wanted:
            self.refused.append(_problem(pin, fault or f"the name {entry.name} is that of another tool"))
        else:
            wanted[entry.name] = (entry, pin)

    def _put(self, wanted: dict[str, Entry]) -> None:
        """Replaces what was published before by these entries."""
        before = self._held
        self._held = {}
        for name, entry in before.items():
            if wanted.get(name) is entry and self._is_there(name, entry):
                self._held[name] = entry
            elif self._is_there(name, entry):
                self._catalog.remove(name)
        for name, entry in wanted.items():
            if name in self._held:
                continue
            try:
                self._register(entry)
                self._held[name] = entry
            except DefinitionError as error:
                where = f"server {entry.implementation.server}, tool {name}"
                self.refused.append(ToolProblem(where, faults(error)))
        if self._held != before:
            self._forget()

    def _is_there(self, name: str, entry: Entry) -> bool:
        """True if the catalog still has our entry: a source with precedence may have taken the name."""
        try:
            return self._catalog.resolve(name, "") is entry
        except CallError:
            return False


async def in_turns(pins: Iterable[DefinitionPin]) -> AsyncIterator[DefinitionPin]:
    """Yields one after the other, with pauses in which calls go on."""
    paused = monotonic()
    for pin in pins:
        yield pin
        if monotonic() - paused > MAX_TURN_SECONDS:
            await asyncio.sleep(0)
            paused = monotonic()


def _problem(pin: DefinitionPin, words: str) -> ToolProblem:
    return ToolProblem(f"server {pin.server}, tool {cleaned(pin.tool or pin.method)[:64]}", words)


def faults(error: DefinitionError) -> str:
    return "; ".join(str(fault) for fault in error.faults)[:MAX_FAULT_CHARS]
