"""Takes the tools of MCP servers into the catalog, while calls go on: those whose definition somebody accepted.

Definitions are in the store, so that a server's tools are there before it is started, and in every process. What is new, or
other than it was accepted, waits in quarantine, where no caller finds it; `mcp_comparing` finds out what is.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from toolgate.errors import CallError, DefinitionError, NotReached, SettingsError, not_found
from toolgate.mcp import definitions as table
from toolgate.mcp.client.errors import Restarted
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.definitions import ITEM_KINDS, Comparison, DefinitionPin
from toolgate.mcp.entries import DefinitionKey, Upstream, entry_of, name_here
from toolgate.mcp.method_tools import METHOD_CAPABILITIES
from toolgate.mcp.prompts_resources import AcceptedItems, label
from toolgate.mcp.publish import Publisher, faults, in_turns
from toolgate.mcp.reconcile import Reconciler, RecordAudit
from toolgate.mcp.review import PendingDefinition
from toolgate.mcp.server_settings import completed, names_program, upstream_of
from toolgate.mcp.tool_names import ToolNames
from toolgate.model import Caller, Entry
from toolgate.registry.catalog import Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules
from toolgate.settings import ServerSettings
from toolgate.store.database import Store

GOVERNED = frozenset({"tools/call", *METHOD_CAPABILITIES})
"""What has a tool of its own. The rest (how far a task has got, say) belongs to a call that was let through."""

RENAME = "give this server another name, or its tools another prefix"
Listener = Callable[[], None]


class McpTools:
    """One for each App, between the engine and the runner: calls go through `request`."""

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
        """`register` puts an entry into the catalog and on record; `forget` drops what was decided before; `announce` tells
        other processes that the store has changed. `named`: servers of which the operator's settings say anything.
        `enabled`: False turns all servers off."""
        self.lists_by_itself = True
        """Whether servers of the settings file that were never listed are started for that. One that was added never is: it
        waits until somebody asks what it has (`refresh`). A command that ends at once sets it to False."""
        self.withheld: dict[str, str] = {}
        """The names of tools that wait to be accepted, and why."""
        self.items = AcceptedItems()
        """The prompts and resources that were accepted."""
        self._settings = settings
        self._engine = engine
        self._store = store
        self._catalog = catalog
        self._rules = rules
        self._announce = announce
        self._named = named
        self._enabled = enabled
        self._offering = Publisher(catalog, rules, register, forget)
        self._comparing = Reconciler(engine, store, note=note, announce=announce, take=self.look, trusts=self._trusts)
        self._names = ToolNames()
        self._upstreams: dict[str, Upstream] = {}
        self._unlisted: set[str] = set()
        """Servers of which nothing is known, or only what another program of their name had."""
        self._misread: dict[str, ToolProblem] = {}
        """Servers whose settings are no good."""
        self._epoch = -1
        self._restarts: dict[str, int] = {}
        self._one_at_a_time = asyncio.Lock()
        self._listeners: list[Listener] = []

    # -- life

    async def start(self) -> None:
        """Take what is on record. No server is started for it; those of the settings that were never listed are, in the
        background."""
        self._engine.listen(self._comparing.heard)
        await self.look()
        if self.lists_by_itself:
            self._comparing.spawn(self._comparing.now_and_then())
            for server in self._unlisted & self._settings.keys():
                if names_program(self._settings[server]):
                    self._comparing.soon(server)

    async def stop(self) -> None:
        """Stop looking."""
        await self._comparing.stop()

    async def close(self) -> list[str]:
        """Stop looking, and stop the servers."""
        await self.stop()
        return await self._engine.close()

    def listen(self, listener: Listener) -> None:
        """Have something called whenever the tools of servers in the catalog have changed."""
        self._listeners.append(listener)

    # -- what there is

    @property
    def upstreams(self) -> dict[str, Upstream]:
        """The servers by name, those of the settings file first."""
        return dict(self._upstreams)

    @property
    def problems(self) -> list[ToolProblem]:
        """Servers and tools that can't be used, and why."""
        listed = [problem for problems in self._comparing.no_definitions.values() for problem in problems]
        return [*self._misread.values(), *listed, *self._offering.refused]

    def why_unusable(self, server: str) -> str | None:
        """Says what is wrong with the settings of a server; None: nothing is, or there is no such server."""
        problem = self._misread.get(server)
        if problem is None:
            return None
        own = f"Server {server} "  # how most of the messages begin; it is put after the server's name
        return f"it {problem.why.removeprefix(own)}" if problem.why.startswith(own) else problem.why

    def missing(self) -> list[ToolProblem]:
        """Servers that can't be reached now: what they have may be missing, or fail when it is called."""
        why = {
            standing.name: standing.failure
            for standing in self._engine.standings()
            if standing.state in ("waiting", "resting") and standing.failure
        }
        found = {**self._comparing.failures, **why}
        return [ToolProblem(f"server {name}", words) for name, words in sorted(found.items()) if name in self._upstreams]

    def is_listed(self, server: str) -> bool:
        """Whether it is known what a server has."""
        return server not in self._unlisted

    async def waiting(self, server: str | None = None) -> list[PendingDefinition]:
        """The definitions that wait to be accepted."""
        pins = await self._store.read(table.pins(server))
        there = (pin for pin in pins if pin.state == "quarantined")
        return [self._waiting(pin) async for pin in in_turns(there) if pin.server in self._upstreams]

    def _waiting(self, pin: DefinitionPin) -> PendingDefinition:
        upstream, text, wrong, tier = self._upstreams[pin.server], pin.found or "{}", None, None
        if pin.method not in ITEM_KINDS:
            wrong = self._names.fault(upstream, pin.key)
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
        """The name under which a tool that was never seen before may be used unasked: not one that is somebody else's."""
        return self._own_name(upstream, key) if upstream.settings.trust_first_seen else None

    def _own_name(self, upstream: Upstream, key: DefinitionKey) -> str | None:
        """The name that a tool has once it is accepted; None if it can't have it. Prompts and resources keep their own."""
        if key[0] in ITEM_KINDS:
            return key[1]
        return name_here(upstream, key) if self._names.fault(upstream, key) is None else None

    def keeps(self, name: str) -> bool:
        """Whether a name is for tools of servers alone."""
        return self._names.is_kept(name) or name in self.withheld

    def clash(self, upstream: Upstream) -> str | None:
        """Why a server can't be there under its name and with its settings; None: it can."""
        return self._names.clash(upstream)

    async def accept(self, shown: Iterable[PendingDefinition], by: str) -> list[PendingDefinition]:
        """Accept definitions as they were shown. Gives those that were accepted: one that has changed since is not."""
        wanted = {(one.server, one.method, one.tool, one.hash): one for one in shown}
        named = {key: self._own_name(self._upstreams[one.server], one.key) for key, one in wanted.items()}
        taken = await self._store.transact(table.accept(named, by))
        if taken:
            await self._announce()
            await self.look()
        return [wanted[key] for key in taken]

    async def refresh(self, server: str) -> Comparison:
        """Ask a server what it has now, and compare that with what was accepted."""
        return await self._comparing.compare(server, anew=True)

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
        """Ask a server, if what would run there is what was accepted: the very program that was compared is asked, and one
        that was started since is compared first. `entry`: the tool that is called. What was accepted in its place since the
        call was let through, it was not let through for."""
        is_retry = False
        while True:
            start = await self._checked_start(server, method, params, entry)
            try:
                return await self._engine.request(server, method, params, caller=caller, start=start, seconds=seconds)
            except Restarted:
                if self._comparing.start_of(server) == start:  # else somebody has seen to it, or is about to
                    self._comparing.doubt(server)
                if is_retry:
                    raise
                is_retry = True

    async def _checked_start(self, server: str, method: str, params: Mapping[str, Any], entry: Entry | None) -> int:
        """The start of the server that may be asked this. Raises if what is asked for was not accepted as it is there."""
        start = self._comparing.start_of(server)
        if start is None:
            start = await self._comparing.before_a_call(server)
        tool = params["name"] if method == "tools/call" else ""
        accepted = self._offering.callable.get((server, method, tool))
        if method in GOVERNED and (entry is None or accepted != entry.fingerprint):
            name = (tool or method) if entry is None else entry.name  # not the server's own name, which nobody here has seen
            raise not_found(name, "its server has another definition of it than was accepted, or none")
        if method in METHOD_CAPABILITIES and not self.items.may_ask(server, method, params):
            raise NotReached("INVALID_INPUT", f"There is no such thing at server {server}.", reason="nobody has accepted it")
        return start

    def conceal(self, server: str, values: Iterable[str]) -> None:
        """Mask what a call is about to hand a server in secret, wherever the server says it."""
        self._engine.conceal(server, values)

    # -- from the store

    async def look(self) -> int:
        """Take what is on record, if it has changed: servers, and what is accepted of theirs. Gives the number that changes
        with it."""
        if await self._store.read(table.epoch()) == self._epoch:
            return self._epoch
        async with self._one_at_a_time:
            recorded = await self._store.read(table.recorded())
            if recorded.epoch == self._epoch:
                return self._epoch
            wanted, names = self._without_clashes(self._read_servers(recorded), recorded.claims)
            unlisted = {name for name, upstream in wanted.items() if _is_unlisted(upstream, recorded.listings.get(name))}
            ready = [one for one in wanted.values() if one.settings.enabled and one.name not in unlisted]
            tools = [pin for pin in recorded.accepted if pin.method not in ITEM_KINDS]
            await self._offering.prepare(ready, tools)
            self._use_servers(wanted, recorded)
            self._unlisted, self._names = unlisted, names
            self._offering.use(ready, tools, self._names)
            self._use_items({one.name for one in ready}, recorded.accepted)
            self.withheld = self._catalog.withheld = self._withheld(recorded)
            self._epoch = recorded.epoch
        for listener in self._listeners:
            listener()
        return recorded.epoch

    def _use_items(self, servers: set[str], accepted: list[DefinitionPin]) -> None:
        """Take what is accepted of prompts and resources; what is the same stays the same object."""
        items = AcceptedItems(pin for pin in accepted if pin.method in ITEM_KINDS and pin.server in servers)
        if items.differ(self.items):
            self.items = items

    def _use_servers(self, wanted: dict[str, Upstream], recorded: table.RecordedServers) -> None:
        before = self._upstreams
        for name in before.keys() - wanted.keys():
            self._comparing.doubt(name)
            self._comparing.spawn(self._engine.remove(name))
        for name, upstream in wanted.items():
            if name not in before or before[name].settings != upstream.settings:
                self._comparing.doubt(name)
                self._engine.set(name, upstream.settings)
        self._upstreams = self._comparing.upstreams = wanted
        for name, listing in recorded.listings.items():
            if self._restarts.setdefault(name, listing.restart_asked) != listing.restart_asked and name in wanted:
                self._restarts[name] = listing.restart_asked
                self._comparing.spawn(self._restart(name))

    def _read_servers(self, recorded: table.RecordedServers) -> dict[str, Upstream]:
        """The servers of the settings, and those that were added. Of the same name, the settings' counts if it says what to
        start or to reach; otherwise it says more of the one that was added, if the operator has added it: an actor may have
        done so in a process whose settings don't have the name."""
        read: dict[str, Upstream] = {}
        self._misread = {}
        added = {row.name: row for row in recorded.servers}
        for name in dict.fromkeys((*self._settings, *added)):
            said, listing = self._settings.get(name), recorded.listings.get(name)
            try:
                if said is not None and (name not in added or names_program(said)):
                    settings = said
                else:
                    if name in self._named and not added[name].is_operators:
                        raise SettingsError(_not_the_operators(added[name]))
                    settings = completed(ServerSettings.model_validate_json(added[name].settings), said)
                if not self._enabled:
                    settings = settings.model_copy(update={"enabled": False})
                read[name] = upstream_of(name, settings, None if listing is None else listing.jail)
            except (SettingsError, ValidationError) as error:
                words = error.message if isinstance(error, SettingsError) else "its settings on record can't be read"
                self._misread[name] = ToolProblem(f"server {name}", words)
        return read

    def _without_clashes(
        self, wanted: dict[str, Upstream], claims: list[table.NameClaim]
    ) -> tuple[dict[str, Upstream], ToolNames]:
        """The servers, without those that would have a name that was accepted of another."""
        names = ToolNames(wanted, claims)
        for upstream in list(wanted.values()):
            why = names.clash(upstream)
            if why is not None:
                self._misread[upstream.name] = ToolProblem(f"server {upstream.name}", f"it is not used: {why}; {RENAME}")
                del wanted[upstream.name]
        return wanted, names

    async def _restart(self, name: str) -> None:
        if any(standing.name == name and standing.state not in ("idle", "off") for standing in self._engine.standings()):
            with contextlib.suppress(CallError):
                await self._engine.restart(name)

    def _withheld(self, recorded: table.RecordedServers) -> dict[str, str]:
        withheld = {}
        for server, method, tool, was_accepted in recorded.quarantined:
            if server in self._upstreams and method not in ITEM_KINDS:
                why = "has changed, and waits" if was_accepted else "is new, and waits"
                withheld[name_here(self._upstreams[server], (method, tool))] = f"its definition {why} to be accepted"
        return withheld


def _not_the_operators(row: table.ServerRow) -> str:
    return (
        f"Server {row.name} was added by {row.added_by}, and the settings name a server {row.name} of the operator's own: "
        f"it is not used. `toolgate servers remove {row.name}` removes it"
    )


def _is_unlisted(upstream: Upstream, listing: table.ListingRow | None) -> bool:
    """Whether it is not known what a server has: it was never asked, or it was another program then."""
    return upstream.settings.enabled and (listing is None or listing.identity != upstream.identity)
