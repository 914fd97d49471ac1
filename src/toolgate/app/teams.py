"""`app.teams`: the tools of the organisation that this installation belongs to: got, reviewed, accepted, and published for
other installations.

They are for all tenants, so whoever reviews them is the person who runs this installation; `operator` names that person,
for the record, where they are not at this machine.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from toolgate.app.facets import Facet
from toolgate.app.kept_names import why_kept
from toolgate.app.team_sync import ReceivedBundle, bundle_row, stale_refusal
from toolgate.errors import BundleRefused, CallError, SettingsError, did_you_mean
from toolgate.model import LOCAL, Actor
from toolgate.sandbox.custom.folder import compiled
from toolgate.store import teams as table
from toolgate.store.head_keys import id_of
from toolgate.store.teams import BundleRow
from toolgate.tasks import uninterrupted
from toolgate.teams.bundle import open_bundle
from toolgate.teams.review import Reviewer, TeamTool, check_acceptable
from toolgate.teams.tool_files import parse_tool, parse_tools


class TeamStatus(NamedTuple):
    """The organisation, and how its bundle stands here."""

    enabled: bool
    org_id: str | None
    source: str | None
    """The address of its bundle; None: bundles are added by hand."""
    version: int | None
    """Of the newest bundle; None: none was received."""
    key_id: str | None
    created_at: datetime | None
    expires_at: datetime | None
    expired: bool
    """True: a newer one is overdue. What was accepted stays in use."""
    received_at: datetime | None
    tried_at: datetime | None
    """The last look for a newer one."""
    failure: str | None
    """The reason why that look gave nothing."""
    live: int
    waiting: int
    refuses_local_tools: bool

    def to_dict(self) -> dict[str, Any]:
        values = self._asdict()
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


class TeamsFacet(Facet):
    """The tools of the organisation."""

    async def status(self) -> TeamStatus:
        """Gives how the organisation's bundle stands here."""
        parts, settings = self._parts, self._parts.settings.teams
        org_id = settings.org_id or ""
        bundle = await parts.store.read(table.bundle(org_id, "received"))
        sync = await parts.store.read(table.sync_state(org_id))
        tools = await self.list() if settings.uses_tools else []
        return TeamStatus(
            enabled=settings.uses_tools,
            org_id=settings.org_id,
            source=parts.team_sync.source.place,
            version=None if bundle is None else bundle.version,
            key_id=None if bundle is None else bundle.key_id,
            created_at=None if bundle is None else bundle.created_at,
            expires_at=None if bundle is None else bundle.expires_at,
            expired=bundle is not None and bundle.expires_at <= parts.now(),
            received_at=None if bundle is None else bundle.received_at,
            tried_at=None if sync is None else sync.tried_at,
            failure=None if sync is None else sync.failure,
            live=sum(one.live for one in tools if one.kind == "tool"),
            waiting=sum(one.waits for one in tools),
            refuses_local_tools=parts.team_tools.refuses_local,
        )

    async def waiting(self) -> "list[TeamTool]":
        """Gives what of the newest bundle waits for a person."""
        return [one for one in await self.list() if one.waits] if self._parts.settings.teams.uses_tools else []

    async def get(self, name: str) -> TeamTool:
        """Gives one tool of the newest bundle. Raises `BundleRefused` if it has none of that name."""
        tools = {one.name: one for one in await self.list()}
        if name not in tools:
            raise BundleRefused(
                f"The organisation's bundle has no tool named {name[:64]!r}.",
                suggestion=did_you_mean(name, tools) or "`toolgate teams list` shows them.",
                category="missing",
            )
        return tools[name]

    @uninterrupted
    async def sync(self, *, operator: Actor | None = None) -> ReceivedBundle:
        """Gets the bundle from where the settings say. What it brings waits to be accepted; tools that it no longer has
        can't be called any more. Raises `BundleRefused`, with nothing changed."""
        return await self._parts.team_sync.sync(operator or LOCAL)

    @uninterrupted
    async def add(self, content: bytes, *, operator: Actor | None = None) -> ReceivedBundle:
        """Takes a bundle that came by another way, such as a file, as `sync` does."""
        return await self._parts.team_sync.receive(content, operator or LOCAL)

    @uninterrupted
    async def accept(self, shown: Iterable[TeamTool], *, operator: Actor | None = None) -> "list[TeamTool]":
        """Accepts tools as they were shown (`list`), all or none: they can be called from now on, in every process, as long
        as nobody rejects them or the organisation removes them. Gives those that were accepted: none, if one has changed
        since it was shown. Raises `BundleRefused` for what can't be used."""
        org_id, public_key = self._parts.team_sync.check_enabled()
        chosen, status = {one.name: one for one in shown}, await self.status()
        if chosen and status.key_id != id_of(public_key):
            raise BundleRefused(
                "The bundle is signed with another key than teams.public_key, and nothing of it is accepted any more.",
                suggestion="Get one that is signed with the new key first: `toolgate teams sync`.",
                category="conflict",
            )
        if chosen and status.expired:
            raise BundleRefused(
                "The bundle has expired, and nothing of it is accepted any more.",
                suggestion="Get the newest one first: `toolgate teams sync`.",
                category="conflict",
            )
        current = {one.name: one for one in await self.list()}
        check_acceptable([current[name] for name in chosen if name in current])
        for one in chosen.values():
            await self._check_compiles(one)
        who = operator or LOCAL
        hashes = {name: one.hash for name, one in chosen.items()}
        taken = await self._parts.store_sync.change(
            table.accept(org_id, hashes, f"{who.tenant}/{who.user}", self._parts.now())
        )
        for name in taken:
            details = {"org_id": org_id, "version": chosen[name].version, "hash": hashes[name]}
            await self._parts.events.record("teams.tool_accepted", who, name, details)
        return [chosen[name] for name in taken]

    async def _check_compiles(self, one: TeamTool) -> None:
        """Refuses code that does not compile, where there is a sandbox to tell."""
        if one.kind == "rule":
            return
        try:
            problem = await compiled(parse_tool(one.found, f"{one.name}.yml", self._parts.rules), self._parts.sandbox)
        except CallError:  # without a sandbox it does not run either, and says why
            return
        if problem is not None:
            raise BundleRefused(f"{one.name} cannot be accepted: {problem.where}: {problem.why}.", category="conflict")

    @uninterrupted
    async def reject(self, shown: Iterable[TeamTool], *, operator: Actor | None = None) -> "list[TeamTool]":
        """Rejects tools as they were shown. A change that waits is not taken, and what was accepted stays in use; what is
        accepted as it is, or whose change was rejected already, is used no more. Gives those that were rejected."""
        org_id, _ = self._parts.team_sync.check_enabled()
        chosen, who = {one.name: one for one in shown}, operator or LOCAL
        hashes = {name: one.hash for name, one in chosen.items()}
        done = await self._parts.store_sync.change(table.reject(org_id, hashes))
        for name in done:
            details = {"org_id": org_id, "version": chosen[name].version, "hash": hashes[name]}
            await self._parts.events.record("teams.tool_rejected", who, name, details)
        return [chosen[name] for name in done]

    @uninterrupted
    async def remove(self, *, operator: Actor | None = None) -> int:
        """Takes all tools of the organisation out of use, and forgets what was accepted of them. Gives how many there were.
        The version of its bundle stays known, so that no older one is taken later."""
        org_id = self._parts.settings.teams.org_id
        if org_id is None:
            raise SettingsError("No organisation is named in teams.org_id.", category="conflict")
        count = await self._parts.store_sync.change(table.remove(org_id))
        await self._parts.events.record("teams.removed", operator or LOCAL, "", {"org_id": org_id, "count": count})
        return count

    # -- for other installations

    @uninterrupted
    async def publish(self, content: bytes, *, org_id: str, public_key: str, operator: Actor | None = None) -> "BundleRow":
        """Publishes a bundle for installations that get theirs from this Toolgate. It is checked as they will check it.
        Raises `BundleRefused`, with nothing changed."""
        who = operator or LOCAL
        bundle = open_bundle(content, org_id=org_id, public_key=public_key, now=self._parts.now())
        parse_tools(bundle.manifest, bundle.files)
        row = bundle_row(bundle, "published", who, self._parts)
        try:
            is_new = await self._parts.store.transact(table.keep_bundle(row))
        except table.StaleBundle as stale:
            raise stale_refusal(bundle.manifest.version, stale.row) from None
        if is_new:
            details = {"org_id": org_id, "version": row.version, "digest": row.digest, "key_id": row.key_id}
            await self._parts.events.record("teams.published", who, "", details)
        return row

    async def published(self, org_id: str) -> "BundleRow | None":
        """Gives the bundle that is published here for an organisation; None: there is none."""
        return await self._parts.store.read(table.bundle(org_id, "published"))

    async def list(self) -> "list[TeamTool]":
        """Gives the tools of the newest bundle, with what waits, and the difference to what was accepted."""
        org_id, _ = self._parts.team_sync.check_enabled()
        parts = self._parts
        reviewer = Reviewer(
            parts.rules, parts.secrets.uses.names_for, self._why_not, parts.settings.teams.may_enforce,
            parts.team_tools.is_live,
        )  # fmt: skip
        return [reviewer.shown(row) for row in await parts.store.read(table.tools(org_id))]

    def _why_not(self, name: str) -> str | None:
        return self._parts.team_tools.why_not(name) or why_kept(self._parts, name)
