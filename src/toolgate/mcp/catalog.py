"""Takes the accepted tools of MCP servers into the catalog, while calls go on.

Definitions are in the store, so that a server's tools are there before it is started, and in every process. What is new, or
other than it was accepted, is quarantined, where no caller finds it (`reconcile`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from toolgate.errors import CallError, DefinitionError, NotReached, SettingsError, not_found
from toolgate.mcp import definitions as table
from toolgate.mcp.catalog_entries import Upstream, entry_of, name_here
from toolgate.mcp.client.errors import Restarted
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.definitions import ITEM_KINDS, Comparison, DefinitionKey, DefinitionPin
from toolgate.mcp.method_tools import METHOD_CAPABILITIES
from toolgate.mcp.pins import AcceptedItems, cleaned, label
from toolgate.mcp.reconcile import Reconciler, RecordAudit
from toolgate.mcp.review import PendingDefinition
from toolgate.mcp.server_settings import completed, names_program, upstream_of
from toolgate.mcp.tool_names import ToolNames, is_wanted
from toolgate.model import Caller, Entry
from toolgate.registry.catalog import Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules
from toolgate.settings import SamplingSettings, ServerSettings
from toolgate.store.database import Store

GOVERNED = frozenset({"tools/call", *METHOD_CAPABILITIES})
"""Methods that have a tool of their own. The rest (tasks/get, for example) belongs to a call that was allowed."""

RENAME = "rename the server, or set another `prefix` for its tools"
MAX_FAULT_CHARS = 500
MAX_TURN_SECONDS = 0.005


class McpTools:
    """The tools of MCP servers, one object for each App: calls go through `request`."""

    def __init__(
        self,
        settings: Mapping[str, ServerSettings],
        engine: UpstreamServers,
        store: Store,
        catalog: Catalog,
        rules: DefinitionRules,
        *,
        register: Callable[[Entry], object],
        forget: Callable[[], object],
        note: RecordAudit,
        announce: Callable[[], Awaitable[None]],
        named: Container[str] = (),
        enabled: bool = True,
    ) -> None:
        """`register` puts an entry into the catalog and on record; `forget` drops earlier decisions; `announce` tells other
        processes that the store has changed. `named`: servers that the operator's settings name. `enabled`: False turns all
        servers off."""
        self.lists_by_itself = True
        """True: servers of the settings file that were never listed are started for that. One that was added never is: it
        waits for `refresh`. A command that ends at once sets it to False."""
        self.withheld: dict[str, str] = {}
        """Names of quarantined tools, and the reason."""
        self.items = AcceptedItems()
        self._settings = settings
        self._engine = engine
        self._store = store
        self._catalog = catalog
        self._rules = rules
        self._announce = announce
        self._named = named
        self._enabled = enabled
        self._publisher = Publisher(catalog, rules, register, forget)
        self._reconciler = Reconciler(engine, store, note=note, announce=announce, take=self.look, trusts=self._trusts)
        self.names = ToolNames()
        self._upstreams: dict[str, Upstream] = {}
        self._unlisted: set[str] = set()
        """Servers that were never listed, or only when another program had their name."""
        self._misread: dict[str, ToolProblem] = {}
        self._epoch = -1
        self._restarts: dict[str, int] = {}
        self._one_at_a_time = asyncio.Lock()

    # -- life

    async def start(self) -> None:
        """Loads what is on record. No server is started for it; unlisted ones of the settings are, in the background."""
        self._engine.listen(self._reconciler.heard)
        await self.look()
        if self.lists_by_itself:
            self._reconciler.spawn(self._reconciler.now_and_then())
            for server in self._unlisted & self._settings.keys():
                if names_program(self._settings[server]):
                    self._reconciler.soon(server)

    async def stop(self) -> None:
        await self._reconciler.stop()

    async def close(self) -> list[str]:
        """Stops comparing, and stops the servers."""
        await self.stop()
        return await self._engine.close()

    # -- what there is

    @property
    def upstreams(self) -> dict[str, Upstream]:
        """The servers by name, those of the settings file first."""
        return dict(self._upstreams)

    @property
    def problems(self) -> list[ToolProblem]:
        listed = [problem for problems in self._reconciler.no_definitions.values() for problem in problems]
        return [*self._misread.values(), *listed, *self._publisher.refused]

    def why_unusable(self, server: str) -> str | None:
        """The fault in the settings of a server; None: there is none, or no such server."""
        problem = self._misread.get(server)
        if problem is None:
            return None
        own = f"Server {server} "  # how most of the messages begin; it is put after the server's name
        return f"it {problem.why.removeprefix(own)}" if problem.why.startswith(own) else problem.why

    def unreachable(self) -> dict[str, str]:
        """Servers that can't be reached now, and why: their tools may be missing, or fail."""
        why = {
            status.name: status.failure
            for status in self._engine.statuses()
            if status.state in ("waiting", "resting") and status.failure
        }
        found = {**self._reconciler.failures, **why}
        return {name: words for name, words in sorted(found.items()) if name in self._upstreams}

    def is_listed(self, server: str) -> bool:
        return server not in self._unlisted

    async def waiting(self, server: str | None = None) -> list[PendingDefinition]:
        pins = await self._store.read(table.pins(server))
        there = (pin for pin in pins if pin.state == "quarantined")
        return [self._waiting(pin) async for pin in in_turns(there) if pin.server in self._upstreams]

    def _waiting(self, pin: DefinitionPin) -> PendingDefinition:
        upstream, text, wrong, tier = self._upstreams[pin.server], pin.found or "{}", None, None
        if pin.method not in ITEM_KINDS:
            wrong = self.names.fault(upstream, pin.key)
            try:
                tier = entry_of(upstream, pin.key, text, self._rules).tier
            except DefinitionError as error:
                wrong = faults(error)
        name = f"{pin.server}/{label(pin.key)}" if pin.method in ITEM_KINDS else name_here(upstream, pin.key)
        return PendingDefinition(
            pin.server, pin.method, pin.tool, name, pin.found_hash or "", orjson.loads(text),
            None if pin.accepted is None else orjson.loads(pin.accepted), pin.first_seen, pin.changed_at, wrong,
            tier,
        )  # fmt: skip

    def _trusts(self, upstream: Upstream, key: DefinitionKey) -> str | None:
        """The name of a tool that may be used when it is first seen; None: it has to be accepted."""
        return self._own_name(upstream, key) if upstream.settings.trust_first_seen else None

    def _own_name(self, upstream: Upstream, key: DefinitionKey) -> str | None:
        """The name that a tool has once it is accepted; None if it can't have it. Prompts and resources keep their own."""
        if key[0] in ITEM_KINDS:
            return key[1]
        return name_here(upstream, key) if self.names.fault(upstream, key) is None else None

    def keeps(self, name: str) -> bool:
        """True for names that only tools of servers may have."""
        return self.names.is_kept(name) or name in self.withheld

    async def accept(self, shown: Iterable[PendingDefinition], by: str) -> list[PendingDefinition]:
        """Accepts definitions as they were shown; returns those that have not changed since."""
        wanted = {(one.server, one.method, one.tool, one.hash): one for one in shown}
        named = {key: self._own_name(self._upstreams[one.server], one.key) for key, one in wanted.items()}
        taken = await self._store.transact(table.accept(named, by))
        if taken:
            await self._announce()
            await self.look()
        return [wanted[key] for key in taken]

    async def refresh(self, server: str) -> Comparison:
        return await self._reconciler.compare(server, anew=True)

    # -- calls

    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        seconds: float | None = None,
        entry: Entry | None = None,
    ) -> Mapping[str, Any]:
        """Sends a request to a server, if its definition is the accepted one: only the start of the server that was compared
        is asked, and a later one is compared first. `entry`: the tool that is called; a definition that was accepted after
        the call was allowed does not count for it."""
        is_retry = False
        while True:
            start = await self._checked_start(server, method, params, entry)
            try:
                return await self._engine[server].request(method, params, caller=caller, start=start, seconds=seconds)
            except Restarted:
                if self._reconciler.start_of(server) == start:  # else somebody has seen to it, or is about to
                    self._reconciler.doubt(server)
                if is_retry:
                    raise
                is_retry = True

    async def _checked_start(self, server: str, method: str, params: Mapping[str, Any], entry: Entry | None) -> int:
        """The start of the server that may be asked this. Raises if the definition is not the accepted one."""
        start = self._reconciler.start_of(server)
        if start is None:
            start = await self._reconciler.before_a_call(server)
        tool = params["name"] if method == "tools/call" else ""
        accepted = self._publisher.callable.get((server, method, tool))
        if method in GOVERNED and (entry is None or accepted != entry.fingerprint):
            name = (tool or method) if entry is None else entry.name  # not the server's own name, which nobody here has seen
            raise not_found(name, "its server's definition is not the accepted one, or is gone")
        if method in METHOD_CAPABILITIES and not self.items.may_ask(server, method, params):
            raise NotReached(
                "INVALID_INPUT",
                f"Server {server} has no accepted prompt or resource of this name.",
                reason="it was not accepted",
            )
        return start

    def mask_secrets(self, server: str, values: Iterable[str]) -> None:
        """Masks secrets that a call is about to hand a server, in whatever it says."""
        self._engine[server].masker.learn_call_secrets(values)

    def sampling_limits(self, server: str) -> SamplingSettings | None:
        """How much a server may ask the language model; None: not at all."""
        found = self._upstreams.get(server)
        return None if found is None else found.settings.sampling

    # -- from the store

    async def look(self) -> int:
        """Loads what is on record, if it has changed; returns its epoch."""
        if await self._store.read(table.epoch()) == self._epoch:
            return self._epoch
        async with self._one_at_a_time:
            recorded = await self._store.read(table.recorded())
            if recorded.epoch == self._epoch:
                return self._epoch
            wanted, names = self._without_clashes(self._read_servers(recorded), recorded.claims)
            unlisted = {name for name, upstream in wanted.items() if _is_unlisted(upstream, recorded.listings.get(name))}
            ready = {name: one for name, one in wanted.items() if one.settings.enabled and name not in unlisted}
            tools = [pin for pin in recorded.accepted if pin.method not in ITEM_KINDS]
            await self._publisher.prepare(ready, tools)
            self._use_servers(wanted, recorded)
            self._unlisted, self.names = unlisted, names
            self._publisher.use(names)
            self._use_items(ready, recorded.accepted)
            self.withheld = self._catalog.withheld = self._withheld(recorded)
            self._epoch = recorded.epoch
        return recorded.epoch

    def _use_items(self, servers: Container[str], accepted: list[DefinitionPin]) -> None:
        """Takes the accepted prompts and resources; if they are the same, the object stays."""
        items = AcceptedItems(pin for pin in accepted if pin.method in ITEM_KINDS and pin.server in servers)
        if items.differ(self.items):
            self.items = items

    def _use_servers(self, wanted: dict[str, Upstream], recorded: table.RecordedServers) -> None:
        before = self._upstreams
        for name in before.keys() - wanted.keys():
            self._reconciler.doubt(name)
            self._reconciler.spawn(self._engine.remove(name))
        for name, upstream in wanted.items():
            if name not in before or before[name].settings != upstream.settings:
                self._reconciler.doubt(name)
                self._engine.set(name, upstream.settings)
        self._upstreams = self._reconciler.upstreams = wanted
        for name, listing in recorded.listings.items():
            if self._restarts.setdefault(name, listing.restart_asked) != listing.restart_asked and name in wanted:
                self._restarts[name] = listing.restart_asked
                self._reconciler.spawn(self._restart(name))

    def _read_servers(self, recorded: table.RecordedServers) -> dict[str, Upstream]:
        """The servers of the settings, and those that were added. Of the same name, the settings' counts if it names a
        program or url; otherwise it completes the added one, if the operator added it: an actor may have done so in a
        process whose settings don't have the name."""
        read: dict[str, Upstream] = {}
        self._misread = {}
        added = {row.name: row for row in recorded.servers}
        for name in dict.fromkeys((*self._settings, *added)):
            said, listing = self._settings.get(name), recorded.listings.get(name)
            try:
                if said is not None and (name not in added or names_program(said)):
                    settings = said
                else:
                    if name in self._named and added[name].added_by != table.OPERATOR:
                        raise SettingsError(
                            f"Server {name} was added by {added[name].added_by}, and the settings name a server {name} of "
                            f"the operator's own: it is not used. `toolgate servers remove {name}` removes it"
                        )
                    settings = completed(ServerSettings.model_validate_json(added[name].settings), said)
                if not self._enabled:
                    settings = settings.model_copy(update={"enabled": False})
                read[name] = upstream_of(name, settings, None if listing is None else listing.jail)
            except (SettingsError, ValidationError) as error:
                words = error.message if isinstance(error, SettingsError) else "its stored settings are invalid"
                self._misread[name] = ToolProblem(f"server {name}", words)
        return read

    def _without_clashes(
        self, wanted: dict[str, Upstream], claims: list[table.NameClaim]
    ) -> tuple[dict[str, Upstream], ToolNames]:
        """The servers, without those that would take a name that was accepted of another."""
        names = ToolNames(wanted, claims)
        for upstream in list(wanted.values()):
            why = names.clash(upstream)
            if why is not None:
                self._misread[upstream.name] = ToolProblem(f"server {upstream.name}", f"it is not used: {why}; {RENAME}")
                del wanted[upstream.name]
        return wanted, names

    async def _restart(self, name: str) -> None:
        if any(status.name == name and status.state not in ("idle", "off") for status in self._engine.statuses()):
            with contextlib.suppress(CallError):
                await self._engine[name].restart()

    def _withheld(self, recorded: table.RecordedServers) -> dict[str, str]:
        withheld = {}
        for server, method, tool, was_accepted in recorded.quarantined:
            if server in self._upstreams and method not in ITEM_KINDS:
                why = "has changed and waits" if was_accepted else "is new and waits"
                withheld[name_here(self._upstreams[server], (method, tool))] = f"its definition {why} to be accepted"
        return withheld


def _is_unlisted(upstream: Upstream, listing: table.ListingRow | None) -> bool:
    """True if it was never listed, or was another program then."""
    return upstream.settings.enabled and (listing is None or listing.identity != upstream.identity)


# -- what is published


class BuiltEntry(NamedTuple):
    """The entry of an accepted definition, or why there is none."""

    upstream: Upstream
    pin: DefinitionPin
    entry: Entry | ToolProblem


@dataclass(eq=False)
class Publisher:
    """Publishes accepted tools in the catalog. Of two with the same name, one has it (`tool_names`)."""

    catalog: Catalog
    rules: DefinitionRules
    register: Callable[[Entry], object]
    forget: Callable[[], object]

    def __post_init__(self) -> None:
        self._made: dict[tuple[str, DefinitionKey], BuiltEntry] = {}
        self._held: dict[str, Entry] = {}
        self.callable: dict[tuple[str, str, str], str] = {}
        """By server, method and the server's own name, the fingerprint of all that may be called."""
        self.refused: list[ToolProblem] = []

    async def prepare(self, upstreams: Mapping[str, Upstream], accepted: Iterable[DefinitionPin]) -> None:
        """Builds the entries that `use` publishes, in turns, because many take seconds. One of the same definition stays."""
        order = {name: place for place, name in enumerate(upstreams)}
        pins = [pin for pin in accepted if pin.server in order and is_wanted(upstreams[pin.server], pin.key)]
        pins.sort(key=lambda pin: order[pin.server])
        self._made = {(pin.server, pin.key): self._build(upstreams[pin.server], pin) async for pin in in_turns(pins)}

    def _build(self, upstream: Upstream, pin: DefinitionPin) -> BuiltEntry:
        known = self._made.get((pin.server, pin.key))
        if known is not None and (known.pin.accepted_hash, known.upstream) == (pin.accepted_hash, upstream):
            return known
        try:
            return BuiltEntry(upstream, pin, entry_of(upstream, pin.key, pin.accepted or "{}", self.rules))
        except DefinitionError as error:
            return BuiltEntry(upstream, pin, _problem(pin, faults(error)))

    def use(self, names: ToolNames) -> None:
        """Publishes what was prepared. Nothing is awaited meanwhile: no call finds half of it."""
        wanted: dict[str, Entry] = {}
        self.refused, self.callable = [], {}
        for upstream, pin, entry in self._made.values():
            fault = names.fault(upstream, pin.key)
            if isinstance(entry, ToolProblem):
                self.refused.append(entry)
            elif fault is not None or entry.name in wanted:
                self.refused.append(_problem(pin, fault or f"the name {entry.name} is that of another tool"))
            else:
                wanted[entry.name] = entry
                self.callable[pin.server, pin.method, pin.tool] = entry.fingerprint
        self._put(wanted)

    def _put(self, wanted: dict[str, Entry]) -> None:
        """Replaces what was published before by these entries."""
        before = self._held
        self._held = {}
        for name, entry in before.items():
            if not self.catalog.holds(entry):  # a source with precedence has taken the name
                continue
            if wanted.get(name) is entry:
                self._held[name] = entry
            else:
                self.catalog.remove(name)
        for name, entry in wanted.items():
            if name in self._held:
                continue
            try:
                self.register(entry)
                self._held[name] = entry
            except DefinitionError as error:
                where = f"server {entry.implementation.server}, tool {name}"
                self.refused.append(ToolProblem(where, faults(error)))
        if self._held != before:
            self.forget()


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
