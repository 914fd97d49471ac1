"""Opens and closes the parts of an App, in the order in which they rely on each other."""

import contextlib
import logging
from typing import TYPE_CHECKING

from toolgate.app.record_clock import note_clock
from toolgate.errors import SettingsError, StoreError
from toolgate.registry.python_source import EntryPointSource, PackageSource
from toolgate.store import keys
from toolgate.store.data_folder import make_home
from toolgate.threads import to_thread
from toolgate.trust import Untrusted
from toolgate.workflow.source import WorkflowSource

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.app.tools import ToolsFacet

logger = logging.getLogger("toolgate")


class Lifecycle:
    """The life of one App's parts, from `start` to `end`."""

    def __init__(self, parts: "Parts", tools: "ToolsFacet") -> None:
        self._parts = parts
        self._tools = tools
        self._held = contextlib.AsyncExitStack()
        """The parts that `end` closes, last opened first."""

    async def start(self) -> None:
        """Opens the store, loads all tools and starts what runs in the background. What fails here is closed again."""
        try:
            await self._start()
        except BaseException:
            await self._held.aclose()
            raise

    async def _start(self) -> None:
        parts = self._parts
        await self._make_home()
        if parts.head_file is not None:
            with contextlib.suppress(OSError):
                parts.head_file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = parts.project.database is None or not parts.project.database.exists()
        if not parts.settings.in_memory and (in_use := parts.project.use_database()) is not None:
            self._held.callback(in_use.end)
        await parts.store.start()
        self._hold()
        await self._bind_database(fresh=fresh)
        await parts.notices.start()
        self._tools.load(PackageSource("toolgate.tools", "builtin", parts.rules))
        await parts.team_tools.look()  # before all that gives way to an organisation's names, or is refused by it
        if parts.settings.entry_points:
            self._tools.load(EntryPointSource(parts.rules))
        parts.local_tools.start(self._tools)
        self._tools.load(WorkflowSource(parts.settings.n8n, parts.settings.workflows, parts.rules, parts.catalog.names()))
        parts.local_tools.start_custom()
        parts.secrets.uses.check(parts.catalog.entries())
        await parts.mcp_tools.start()
        await parts.openapi_tools.look()
        await parts.store_sync.start()
        parts.policy.start()
        if parts.heads is not None:
            parts.heads.start()
        parts.details.start()
        parts.health.start()
        parts.team_sync.start()
        parts.learning.start()
        if any(one.waits_for_callback for one in parts.settings.workflows.values()):
            parts.invocations.start()
        await note_clock(parts, "demo.begun")

    async def end(self) -> None:
        """Waits for running calls, as long as the settings say, stops what runs tools, saves the catalog, and closes all
        parts, last opened first, after what is still to be written is. One that fails to close keeps none of the others
        from it; its error is raised at the end."""
        parts = self._parts
        async with self._held:
            await parts.agents.close(parts.settings.shutdown_seconds)
            await parts.running.wait(parts.settings.shutdown_seconds)
            if parts.running.count:
                logger.warning("%d calls still run and are left behind", parts.running.count)
            await parts.health.stop()  # before the tools are cleaned up
            for trouble in await parts.execution.close():
                logger.warning("%s", trouble)
            await parts.catalog_sync.save()
            await note_clock(parts, "demo.filled")

    def _hold(self) -> None:
        """Notes how the parts are closed: the store, which all others write to, last."""
        parts, held = self._parts, self._held.push_async_callback
        held(parts.store.close)
        if parts.span_export is not None:
            held(parts.span_export.close)
        held(parts.details.close)
        if parts.heads is not None:
            held(parts.heads.close)
        if parts.redis is not None:
            held(parts.redis.close)
        if parts.guard.engine.remote is True:
            held(parts.guard.engine.close)
        held(parts.notices.close)
        held(parts.presence.leave)
        held(parts.pipeline.concurrency.close)
        held(parts.idempotency.close)
        held(parts.consent.close)
        held(parts.budgets.close)
        held(parts.http.close)
        held(parts.tenants_http.close)
        held(parts.push_tokens.close)
        held(parts.learning.close)
        held(parts.event_calls.close)
        held(parts.health.stop)
        held(parts.team_sync.stop)
        held(parts.tool_index.close)
        held(parts.invocations.stop)
        held(parts.store_sync.stop)
        held(parts.mcp_tools.stop)
        if parts.custom is not None:
            held(parts.custom.stop)
        self._held.callback(parts.policy.stop)

    async def _make_home(self) -> None:
        """Makes the data folder, closed to others. With the database elsewhere it is not needed: a read-only one will do."""
        settings, project = self._parts.settings, self._parts.project
        if settings.in_memory:
            return
        try:
            await to_thread(make_home, settings.home)
            project.adopt()
        except StoreError as error:
            if settings.database_url is None:
                raise
            logger.warning("%s %s", error.message, error.suggestion)
        except (SettingsError, OSError) as error:  # where nothing can be recorded, a person is asked next time
            logger.warning("%s", error)

    async def _bind_database(self, *, fresh: bool) -> None:
        """Makes sure that the database in a data folder that was found is the one that Toolgate made there."""
        project, store = self._parts.project, self._parts.store
        if not project.judges_database:
            return
        mark = await store.read(keys.known_key("project"))
        if mark is None:
            mark = await store.transact(keys.key_for("project"))
        try:
            project.bind(mark, fresh=fresh)
        except Untrusted:
            raise
        except SettingsError as error:
            logger.warning("%s", error)
