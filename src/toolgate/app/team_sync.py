"""Gets newer bundles of the organisation, when asked and on a schedule, and puts on record what they bring.

Of all processes one looks at a time: it takes the look that is due by planning the next. Nothing that a bundle brings is
used before a person has accepted it.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from toolgate.app.kept_names import why_kept
from toolgate.app.keys import SYNC_USER
from toolgate.app.local_tools import LocalTools
from toolgate.errors import BundleRefused, SettingsError
from toolgate.model import LOCAL, Actor
from toolgate.store import teams as table
from toolgate.store.teams import BundledTool, BundleRow, TeamToolRow
from toolgate.tasks import repeat, start_task, stop_tasks
from toolgate.teams.bundle import Bundle, open_bundle
from toolgate.teams.live_tools import LiveTools
from toolgate.teams.review import state_of
from toolgate.teams.sources import BundleSource
from toolgate.teams.tool_files import LOCAL_TOOLS_RULE, BundleItem, parse_tools

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

MAX_POLL_SECONDS = 15.0
SCHEDULE = Actor(LOCAL.tenant, user=SYNC_USER)

logger = logging.getLogger("toolgate.teams")


class ReceivedBundle(NamedTuple):
    """The changes that a bundle brought."""

    version: int
    is_new: bool
    """False: it is the one that was on record."""
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Tools that the organisation has no longer; they can't be called any more."""


def make_teams(parts: "Parts", on_schedule: bool) -> "tuple[LocalTools, LiveTools, TeamSync]":
    """The tools of local folders, which an organisation can refuse, its own in the catalog, and what gets newer ones."""
    local = LocalTools(parts)
    live = LiveTools(
        parts.settings.teams,
        parts.store,
        parts.catalog,
        parts.rules,
        register=parts.catalog_sync.register,
        forget=parts.guard.forget,
        refuse_local=local.refuse,
    )
    return local, live, TeamSync(parts, on_schedule=on_schedule)


class TeamSync:
    """One for each App."""

    def __init__(self, parts: "Parts", *, on_schedule: bool) -> None:
        """`on_schedule`: whether newer bundles are looked for without being asked; not where the App is closed at once."""
        self._parts = parts
        self._settings = parts.settings.teams
        self.source = BundleSource(self._settings, parts.http, parts.server_secrets.find)
        self._interval = timedelta(seconds=self._settings.sync_seconds)
        wanted = self._settings.uses_tools and self.source.place is not None and self._settings.sync_seconds > 0
        self._on_schedule = on_schedule and wanted
        self._task: asyncio.Task[None] | None = None

    # -- the schedule

    def start(self) -> None:
        if self._on_schedule:
            pause = min(self._interval.total_seconds() / 4, MAX_POLL_SECONDS)
            self._task = start_task(repeat(pause, self.sync_due, logger, "the bundle was not looked for", at_once=True))

    async def stop(self) -> None:
        await stop_tasks(self._task)

    async def sync_due(self) -> None:
        """Looks for a newer bundle if that is due."""
        now = self._parts.now()
        if await self._parts.store.transact(table.claim_sync(self._settings.org_id or "", now, now + self._interval)):
            try:
                await self.sync(SCHEDULE)
            except BundleRefused as refused:
                logger.warning("the bundle of the organisation was not taken: %s", refused)

    # -- one bundle

    async def sync(self, by: Actor) -> ReceivedBundle:
        """Gets the bundle from where the settings say, and puts on record what it brings. Raises BundleRefused."""
        org_id, _ = self.check_enabled()
        try:
            received = await self.receive(await self.source.fetch(), by)
        except BundleRefused as refused:
            await self._note(org_id, refused.message)
            raise
        await self._note(org_id, None)
        return received

    async def receive(self, content: bytes, by: Actor) -> ReceivedBundle:
        """Puts on record what a bundle brings; nothing if anything about it is wrong. Raises BundleRefused."""
        org_id, public_key = self.check_enabled()
        try:
            bundle = open_bundle(content, org_id=org_id, public_key=public_key, now=self._parts.now())
            items = parse_tools(bundle.manifest, bundle.files, self._parts.rules)
            self._check_names(items)
            return await self._keep(bundle, items, by)
        except BundleRefused as refused:
            await self._parts.events.record("teams.bundle_refused", by, "", {"org_id": org_id, "reason": refused.message})
            raise

    def check_enabled(self) -> tuple[str, str]:
        """The organisation's id and its key. Raises SettingsError if its tools are not used here."""
        settings = self._settings
        if not settings.uses_tools or settings.org_id is None or settings.public_key is None:
            raise SettingsError(
                "Organisation tools are not in use here.",
                suggestion="Set teams.enabled: true, with the teams.org_id and teams.public_key of the organisation.",
                category="conflict",
            )
        return settings.org_id, settings.public_key

    def _check_names(self, items: Iterable[BundleItem]) -> None:
        """Refuses a bundle that has the name of an operator's tool from elsewhere."""
        for item in items:
            allowed = self._settings.allowed_tools
            if item.name == LOCAL_TOOLS_RULE or (allowed is not None and item.name not in allowed):
                continue  # it can never be used, and takes nobody's name
            why = self._parts.team_tools.why_refused(item.name) or why_kept(self._parts, item.name)
            if why is not None:
                raise BundleRefused(
                    f"The bundle has a tool {item.name}, and {why}.",
                    suggestion="Rename one of the two, or remove the one here. Nothing was changed.",
                    category="conflict",
                )

    async def _keep(self, bundle: Bundle, items: list[BundleItem], by: Actor) -> ReceivedBundle:
        manifest, parts = bundle.manifest, self._parts
        before = {row.name: row for row in await parts.store.read(table.tools(manifest.org_id))}
        row = bundle_row(bundle, "received", by, parts)
        found = [BundledTool(item.name, item.text, item.hash, item.enforced) for item in items]
        try:
            is_new = await parts.store_sync.change(table.receive(row, found))
        except table.StaleBundle as stale:
            raise stale_refusal(manifest.version, stale.row) from None
        if not is_new:
            return ReceivedBundle(manifest.version, False)
        received = _difference(manifest.version, before, await parts.store.read(table.tools(manifest.org_id)))
        await parts.events.record("teams.bundle_received", by, "", {"org_id": manifest.org_id, **received._asdict()})
        return received

    async def _note(self, org_id: str, failure: str | None) -> None:
        now = self._parts.now()
        following = now + (self._interval or timedelta(days=1))
        await self._parts.store.transact(table.note_sync(org_id, now, failure, following))


def bundle_row(bundle: Bundle, role: table.BundleRole, by: Actor, parts: "Parts") -> BundleRow:
    manifest = bundle.manifest
    return BundleRow(
        manifest.org_id, role, manifest.version, bundle.digest, bundle.key_id, bundle.text, manifest.created,
        manifest.expires, parts.now(), f"{by.tenant}/{by.user}",
    )  # fmt: skip


def stale_refusal(version: int, known: BundleRow) -> BundleRefused:
    """The refusal of a bundle that is older than the one on record, or another one of its version."""
    if version == known.version:
        return BundleRefused(
            f"The bundle has version {version} and other content than the one received at {known.received_at:%F %T} UTC.",
            suggestion="Two contents of one version mean that it was packed twice, or that somebody signs what the "
            "organisation does not know of: ask it. A changed bundle has a higher version.",
            category="conflict",
        )
    return BundleRefused(
        f"The bundle has version {version}, and version {known.version} was received at {known.received_at:%F %T} UTC: an "
        "older one is not taken.",
        suggestion="To go back, the organisation packs the older tools again with a higher version.",
        category="conflict",
    )


def _difference(version: int, before: dict[str, TeamToolRow], rows: list[TeamToolRow]) -> ReceivedBundle:
    waiting = {row.name: state_of(row) for row in rows if before.get(row.name) is None or before[row.name] != row}
    named = {row.name for row in rows}
    return ReceivedBundle(
        version,
        True,
        tuple(name for name, state in waiting.items() if state == "new"),
        tuple(name for name, state in waiting.items() if state == "changed"),
        tuple(sorted(before.keys() - named)),
    )
