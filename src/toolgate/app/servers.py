"""`app.servers`: MCP servers are added, looked at and removed, and what they offer is accepted.

Whoever names no actor is the person who runs this installation, as with flags; for an actor, the policy is asked
(tool.enable). `operator` names that person where they are not at this machine, for the record: they give a server no secret
that they did not bring along, and none without a jail. Each change is on record, and holds for the next call in every
process.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from toolgate.app.facets import CallableFacet
from toolgate.app.server_status import ServerStatus, accept_record, definition_counts, is_down
from toolgate.errors import Denied, SettingsError, did_you_mean
from toolgate.extras import require
from toolgate.mcp import definitions as table
from toolgate.mcp.catalog_entries import Upstream
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.model import ConnectionStatus
from toolgate.mcp.definitions import Comparison, ServerRow
from toolgate.mcp.import_files import ImportedServer, read_servers
from toolgate.mcp.reconcile import ask
from toolgate.mcp.review import PendingDefinition
from toolgate.mcp.server_settings import (
    check_brought,
    completed,
    described,
    named_servers,
    names_program,
    preset_of,
    secrets_in,
    upstream_of,
    validated,
)
from toolgate.model import LOCAL, TOOL_NAME, Actor, Entry
from toolgate.openapi.records import METHOD, PIN_PREFIX
from toolgate.registry.catalog import ToolProblem
from toolgate.settings import ServerSettings
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.mcp.pins import AcceptedItems
    from toolgate.mcp.server.prompts_resources import UpstreamConnections

MAX_AUDITED_URI_CHARS = 2_048


class ServersFacet(CallableFacet):
    """The MCP servers of this installation."""

    @property
    def connections(self) -> "UpstreamConnections":
        """The lists of the servers as they are now, and the state of each connection; nothing can be called through it."""
        return self._parts.servers_engine

    def _status(
        self,
        upstream: Upstream,
        recorded: table.RecordedServers,
        counts: Mapping[tuple[bool, str], int],
        standing: ConnectionStatus | None,
        trouble: str | None,
    ) -> ServerStatus:
        name = upstream.name
        listing = recorded.listings.get(name) if self._parts.mcp_tools.is_listed(name) else None
        return ServerStatus(
            name,
            upstream.settings,
            "settings" if self._is_in_settings(name) else "store",
            standing,
            definition_counts(counts, items=False),
            definition_counts(counts, items=True),
            None if listing is None else listing.listed_at,
            {} if listing is None else orjson.loads(listing.about),
            trouble or (None if standing is None else standing.failure),
            None if upstream.settings.oauth is None else self._issuer_of(upstream),
            (None if standing is None else standing.jail) or upstream.jail,
            self._version_of(upstream),
        )

    def _version_of(self, upstream: Upstream) -> str | None:
        if upstream.settings.npm is None and upstream.settings.pypi is None:
            return None
        from toolgate.mcp.client.packages import installed

        home = None if self._parts.settings.in_memory else self._parts.settings.home
        with suppress(Unreachable):  # for what is not the name of a package
            found = installed(upstream.name, upstream.settings, home)
            return None if found is None else found.version
        return None

    def _issuer_of(self, upstream: Upstream) -> str | None:
        from toolgate.mcp.client.oauth.login import issuer_of

        return issuer_of(upstream.name, upstream.settings, self._parts.server_secrets.login)

    async def get(self, name: str) -> ServerStatus:
        """Gives one MCP server. Raises `SettingsError` if there is none of that name."""
        found = next((status for status in await self.list() if status.name == name), None)
        if found is None:
            raise self._no_server(name)
        return found

    def _is_in_settings(self, name: str) -> bool:
        """Tells a server that the settings make from one that was added, of which they may say more."""
        said = self._parts.settings.servers.get(name)
        return said is not None and names_program(said)

    async def _check_not_in_settings(self, name: str, actor: Actor | None, suggestion: str) -> None:
        """Refuses to change a server of the settings. An actor may not change one either of which they only say more: that
        was said of another program, and may name secrets. Nor one that only another process's settings have."""
        if self._is_in_settings(name) or (actor is not None and name in self._parts.settings.servers):
            why = "it is in the settings file"
        elif actor is not None and name in named_servers(self._parts.settings):
            why = "secrets.use names it in the settings file"
        elif actor is not None and await self._parts.store.read(table.is_of_settings(name)):
            why, suggestion = (
                "it is, or was, in the settings file of another process",
                "Use another name, or change it there.",
            )
        else:
            return
        raise SettingsError(f"Server {name} cannot be changed: {why}.", suggestion=suggestion, category="conflict")

    def _no_server(self, name: str) -> SettingsError:
        why = self._parts.mcp_tools.why_unusable(name)
        if why is not None:
            advice = f"Correct its settings (servers.{name}), or remove or replace it if it was added."
            return SettingsError(f"Server {name} cannot be used: {why.rstrip('.')}.", suggestion=advice, category="conflict")
        known = self._parts.mcp_tools.upstreams
        near = did_you_mean(name, known) if known else "`toolgate servers add NAME -- COMMAND …` adds one."
        words = f"There is no server named {name[:64]!r}: see toolgate servers list."
        return SettingsError(words, suggestion=near, category="missing")

    @uninterrupted
    async def add(
        self,
        name: str,
        settings: ServerSettings | Mapping[str, Any],
        *,
        secrets: Mapping[str, str] | None = None,
        actor: Actor | None = None,
        operator: Actor | None = None,
        replace: bool = False,
    ) -> ServerStatus:
        """Adds a server, or with `replace` changes the one of its name, and keeps the secrets that its settings name. It
        is not started yet, and none of its tools is there before it was listed (`refresh`) and they were accepted
        (`accept`)."""
        given, upstream, before = await self._checked_server(name, settings, secrets, actor, operator, replace=replace)
        whole = upstream.settings
        self._parts.server_secrets.keep(secrets or {}, () if before is None else secrets_in(before.settings))
        by = table.OPERATOR if actor is None else f"{actor.tenant}/{actor.user}"
        await self._parts.store_sync.change(table.set_server(ServerRow(name, given.model_dump_json(exclude_unset=True), by)))
        details = {"server": name, "what": described(whole), "isolation": whole.isolation, "replaced": replace}
        await self._parts.events.record("mcp.server_added", actor or operator or LOCAL, "", details)
        return await self.get(name)

    async def try_out(
        self,
        name: str,
        settings: ServerSettings | Mapping[str, Any],
        *,
        secrets: Mapping[str, str] | None = None,
        actor: Actor | None = None,
        operator: Actor | None = None,
        replace: bool = False,
    ) -> bool:
        """Starts a server that is about to be added, and asks it what it has: nothing of it is kept. Raises CallError if it
        can't be used; `details` has the last lines of its stderr. False: it can't be tried, since it is off or a secret is
        missing. Otherwise it runs, and `add` with the same settings takes it over."""
        _, upstream, _ = await self._checked_server(name, settings, secrets, actor, operator, replace=replace)
        brought, enabled = secrets or {}, upstream.settings.enabled and self._parts.settings.mcp.enabled
        if not enabled or any(one not in brought for one in self.missing_secrets(upstream.settings)):
            return False
        self._check_enabled(name)
        async with self._parts.servers_engine.trial(name, upstream.settings, brought):
            await ask(self._parts.servers_engine, upstream)
        return True

    async def _checked_server(
        self,
        name: str,
        settings: ServerSettings | Mapping[str, Any],
        secrets: Mapping[str, str] | None,
        actor: Actor | None,
        operator: Actor | None,
        *,
        replace: bool,
    ) -> tuple[ServerSettings, Upstream, Upstream | None]:
        """Settings that may be added under a name: as they were given, made whole, and what has the name now."""
        await self._may_connect(name, actor)
        require("mcp")
        if not TOOL_NAME.match(name):
            raise SettingsError("The name of a server is a letter, then letters, digits, _ and -, at most 64 in all.")
        await self._check_not_in_settings(name, actor, "Change it there.")
        if not replace and name in self._parts.mcp_tools.upstreams:
            raise SettingsError(
                f"There is a server named {name} already.",
                suggestion="Give this one another name, or say `--replace`.",
                category="conflict",
            )
        given = settings if isinstance(settings, ServerSettings) else validated(name, settings)
        given = self._reaching(given.with_whole_paths())
        upstream = upstream_of(name, completed(given, self._parts.settings.servers.get(name)))
        before = self._parts.mcp_tools.upstreams.get(name)
        self._check_names(upstream)
        if upstream.settings.command and not upstream.settings.command[0].strip() and not (given.npm or given.pypi):
            raise SettingsError(f"The command of server {name} is empty.", suggestion="Name a program, npm, pypi or url.")
        if operator is not None and upstream.settings.isolation == "none":
            raise SettingsError(
                "A server without a jail is not added from elsewhere.",
                suggestion="Add it on the machine itself: `toolgate servers add`.",
                category="forbidden",
            )
        if actor is not None or operator is not None:
            same = before is not None and before.identity == upstream.identity
            check_brought(
                upstream.settings, {*(secrets or ()), *(secrets_in(before.settings) if before is not None and same else ())}
            )
        return given, upstream, before

    def _check_names(self, upstream: Upstream) -> None:
        clash = self._parts.mcp_tools.names.clash(upstream)
        if clash is not None:
            raise SettingsError(
                f"Server {upstream.name} cannot be added: {clash}.",
                suggestion="Give it another name or another prefix (`--prefix`). The name of an accepted tool stays with "
                "its server until that is removed (`toolgate servers remove`).",
            )

    def _reaching(self, given: ServerSettings) -> ServerSettings:
        """Settings with the host that a preset works on, if its address is a secret that is set and no host is named."""
        preset = preset_of(given)
        address = self._parts.server_secrets.find(preset.reaches) if preset is not None and preset.reaches else None
        if address is None or given.domains or given.network is not None:
            return given
        try:
            parts = urlsplit(address)
            host = f"{parts.hostname}:{parts.port or 5432}" if parts.hostname else None
        except ValueError:
            host = None
        return given if host is None else given.model_copy(update={"domains": (host,)})

    @uninterrupted
    async def remove(self, name: str, *, actor: Actor | None = None, operator: Actor | None = None) -> None:
        """Removes a server that was added, with its tools and what was accepted of them."""
        await self._may_connect(name, actor)
        await self._check_not_in_settings(name, actor, "Take it out there.")
        if not await self._parts.store_sync.change(table.remove_server(name)):
            raise self._no_server(name)
        await self._parts.events.record("mcp.server_removed", actor or operator or LOCAL, "", {"server": name})

    @uninterrupted
    async def restart(self, name: str, *, actor: Actor | None = None, operator: Actor | None = None) -> None:
        """Restarts a server in every process that has it running."""
        await self._may_connect(name, actor)
        await self.get(name)
        await self._parts.store_sync.change(table.ask_restart(name))
        await self._parts.events.record("mcp.server_restarted", actor or operator or LOCAL, "", {"server": name})

    async def refresh(self, name: str) -> Comparison:
        """Asks a server what it has now, and compares that with what was accepted. It is started if need be."""
        await self.get(name)
        self._check_enabled(name)
        return await self._parts.mcp_tools.refresh(name)

    def _check_enabled(self, name: str) -> None:
        if not self._parts.settings.mcp.enabled:
            raise SettingsError(
                f"Server {name} is not used: the setting mcp.enabled is false.",
                suggestion="Set it to true: in the settings file, or in the variable TOOLGATE_MCP__ENABLED.",
            )
        require("mcp")

    async def quarantined(self, server: str | None = None) -> list[PendingDefinition]:
        """Gives the definitions that wait to be accepted: of a server or an OpenAPI document (`openapi:NAME`), or of all."""
        await self._parts.mcp_tools.look()
        await self._parts.openapi_tools.look()
        if server is not None and server.startswith(PIN_PREFIX):
            return self._parts.openapi_tools.waiting(server.removeprefix(PIN_PREFIX))
        found = await self._parts.mcp_tools.waiting(server)
        return found if server is not None else [*found, *self._parts.openapi_tools.waiting()]

    async def pinned(self, entry: Entry) -> table.DefinitionPin | None:
        """Gives the definition of a tool of a server as it was accepted, and by whom; None: it is no tool of a server."""
        return await self._parts.store.read(table.pin(entry.implementation)) if entry.tool.source == "mcp" else None

    @uninterrupted
    async def accept(
        self, shown: Iterable[PendingDefinition], *, actor: Actor | None = None, operator: Actor | None = None
    ) -> list[PendingDefinition]:
        """Accepts definitions as they were shown (`quarantined`); they can be called from now on, in every process. Gives
        those that were accepted: one that has changed since it was shown is not."""
        shown = list(shown)
        for name in dict.fromkeys(one.name for one in shown):
            await self._may_connect(name, actor)
        by = actor or operator or LOCAL
        of_documents = [one for one in shown if one.method == METHOD]
        accepted = await self._parts.mcp_tools.accept((one for one in shown if one.method != METHOD), by.user)
        accepted += await self._parts.openapi_tools.accept(of_documents, by.user)
        await asyncio.gather(*(self._parts.events.record(*accept_record(one, by)) for one in accepted))
        return accepted

    @uninterrupted
    async def import_from(
        self, document: Any, *, actor: Actor | None = None, replace: bool = False, use: Collection[str] = ()
    ) -> tuple[list[ImportedServer], list[ToolProblem]]:
        """Adds the servers of a file as desktop clients and editors have it. Credentials in it are kept as secrets; of those
        that are there already, a server is given only what `use` names. Gives those that were added, and why others were
        not."""
        found, problems = read_servers(document)
        added = []
        for one in found:
            try:
                self._check_needed(one, use)
                await self.add(one.name, one.settings, secrets=one.secrets, actor=actor, replace=replace)
                added.append(one)
            except SettingsError as error:
                problems.append(ToolProblem(f"server {one.name}", str(error)))
        return added, problems

    @uninterrupted
    async def log_in(
        self,
        name: str,
        show: Callable[[str], None],
        *,
        browser: bool = True,
        actor: Actor | None = None,
        accept_issuer: str | None = None,
    ) -> str | None:
        """Logs in to a remote server; `show` is given the address where a person does that. Tokens are kept as secrets.

        The authorization server is pinned by the first login, and given back; `accept_issuer` pins another."""
        from toolgate.mcp.client.oauth.login import login

        await self._may_connect(name, actor)
        require("mcp")
        settings = (await self.get(name)).settings
        self._check_enabled(name)
        keep = None if self._parts.settings.in_memory else self._parts.server_secrets.keep_login
        tokens = self._parts.server_secrets.login
        issuer = await login(
            name, settings, self._parts.server_secrets.find, keep, show,
            tokens=tokens, browser=browser, accept_issuer=accept_issuer,
        )  # fmt: skip
        await self._parts.store_sync.change(table.ask_restart(name))
        await self._parts.events.record("mcp.server_login", actor or LOCAL, "", {"server": name, "issuer": issuer})
        return issuer

    @property
    def accepted_items(self) -> "AcceptedItems":
        """The prompts and resources that were accepted; another object as soon as they are others."""
        return self._parts.mcp_tools.items

    @property
    def unreachable(self) -> list[str]:
        """The names of servers that can't be reached now: their tools may be missing, or fail."""
        return [*self._parts.mcp_tools.unreachable()]

    @property
    def problems(self) -> list[ToolProblem]:
        """Servers and tools of theirs that can't be used, and why."""
        return self._parts.mcp_tools.problems

    def is_listed(self, name: str) -> bool:
        """Tells whether it is known what a server has."""
        return self._parts.mcp_tools.is_listed(name)

    def why_unusable(self, name: str) -> str | None:
        """Gives what is wrong with the settings of a server; None: nothing is, or there is no such server."""
        return self._parts.mcp_tools.why_unusable(name)

    def has(self, name: str) -> bool:
        """Tells whether there is a server of this name, usable or not."""
        return name in self._parts.mcp_tools.upstreams or self.why_unusable(name) is not None

    def items(self, name: str) -> list[str]:
        """Gives the prompts and resources of a server that were accepted."""
        return [*self._parts.mcp_tools.items.labels(name)]

    async def subscribe(self, name: str, uri: str, *, tool: str, actor: Actor) -> None:
        """Has listeners of `connections` told when a resource changes, until as many have unsubscribed. The actor, who may
        read it with a tool, is on record."""
        details = {"server": name, "uri": uri[:MAX_AUDITED_URI_CHARS]}
        await self._parts.events.record("mcp.resource_watched", actor, tool, details)
        await self._parts.servers_engine[name].subscribe(uri)

    def on_step(self, name: str, tell: Callable[[str], None]) -> None:
        """Has a function called with each step of a server's installation and start."""
        self._parts.servers_engine.listen(
            lambda server, what, words: tell(words or "") if (server, what) == (name, "step") else None
        )

    def missing_secrets(self, settings: ServerSettings) -> list[str]:
        """Gives the names of the secrets that a server is to be given, and that are not set."""
        return [name for name in secrets_in(settings) if self._parts.server_secrets.find(name) is None]

    def _check_needed(self, one: ImportedServer, use: Collection[str]) -> None:
        """Refuses a secret that is there already: it was set for something else, and whoever wrote the file chose its names
        and where the values go."""
        for name in one.missing:
            if name not in use and self._parts.server_secrets.find(name) is not None:
                raise SettingsError(
                    f"It would be given the secret {name}, which is there already.",
                    suggestion=f"`--use-secret {name}` if that is meant for it.",
                )

    async def _may_connect(self, name: str, actor: Actor | None) -> None:
        """Refuses an actor who may not add tools, which is what all this comes to."""
        if actor is None:
            return
        decision = await self._parts.guard.decide(actor, "tool.enable", name)
        if not decision.allow:
            await self._parts.events.record("mcp.change_denied", actor, "", {"server": name, "reason": decision.reason})
            raise Denied(
                "PERMISSION_DENIED", f"Changing {name} is not permitted: {decision.reason}.", reason=decision.reason
            )

    def ready(self) -> tuple[int, int]:
        """Gives how many servers are not down, and how many there are: as this process knows them, without a look at the
        store."""
        standings = {standing.name: standing for standing in self._parts.servers_engine.statuses()}
        troubles, upstreams = self._parts.mcp_tools.unreachable(), self._parts.mcp_tools.upstreams
        down = [name for name, one in upstreams.items() if is_down(one.settings, standings.get(name), troubles.get(name))]
        return len(upstreams) - len(down), len(upstreams)

    async def list(self) -> list[ServerStatus]:
        """Gives every MCP server, those of the settings file first."""
        await self._parts.mcp_tools.look()
        recorded, counts = await self._parts.store.read(table.recorded_and_counted())
        standings = {standing.name: standing for standing in self._parts.servers_engine.statuses()}
        troubles = self._parts.mcp_tools.unreachable()
        return [
            self._status(upstream, recorded, counts.get(name, {}), standings.get(name), troubles.get(name))
            for name, upstream in self._parts.mcp_tools.upstreams.items()
        ]
