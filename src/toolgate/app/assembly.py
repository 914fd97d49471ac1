"""Settings made into stores, engines, steps and one `Invoke`; and what the steps call back when something changes.

`App` is built on it. Everything has one place here where it is made, so that nothing is made twice.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import orjson

from toolgate.coordination.notices import DATA
from toolgate.errors import CallError, StoreError
from toolgate.extras import require
from toolgate.model import LOCAL, Actor, Call, Entry, Invoke, Tier, new_id
from toolgate.pipeline.context import InvokeContext, Providers
from toolgate.sessions import Sessions
from toolgate.settings import Settings
from toolgate.store.catalog import Flags
from toolgate.store.database import now
from toolgate.store.sqlite_leftovers import InUse
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.gates.ledger import telemetry
    from toolgate.gates.ledger.heads import Heads
    from toolgate.store.budgets import BudgetRow
    from toolgate.store.database import Store
    from toolgate.store.head_sinks import HeadSink

logger = logging.getLogger("toolgate")
Listener = Callable[[str, dict[str, Any]], None]


Acted = TypeVar("Acted")
Given = ParamSpec("Given")
_under_way: set[asyncio.Task[Any]] = set()


def to_the_end(act: Callable[Given, Coroutine[Any, Any, Acted]]) -> Callable[Given, Coroutine[Any, Any, Acted]]:
    """An act that is carried out and put on record as a whole, also if whoever asked for it goes away meanwhile."""

    @wraps(act)
    async def whole(*args: Given.args, **kwargs: Given.kwargs) -> Acted:
        task = asyncio.ensure_future(act(*args, **kwargs))
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)
        return await asyncio.shield(task)

    return whole


class Wired:
    """All parts of an App, put together and not yet opened."""

    def __init__(self, settings: Settings, *, time_source: Any = time) -> None:
        self.settings = settings
        self._monotonic = time_source.monotonic
        self._wall_time = time_source.time
        self._now = getattr(time_source, "now", now)
        self._opened = False
        self._flags = Flags()
        self._policy_watch: asyncio.Task[None] | None = None
        self._wire()

    def _wire(self) -> None:
        """Make all parts. They are imported here: whoever only names an App in a program should not wait for them."""
        from toolgate.coordination.open import open_notices
        from toolgate.coordination.redis import Redis
        from toolgate.gates.approval.approvers import Approvers
        from toolgate.gates.approval.consent import Consent
        from toolgate.gates.approval.continuation import Continuations
        from toolgate.gates.cache import ResultCache
        from toolgate.gates.idempotency import Idempotency
        from toolgate.gates.inputs import Inputs
        from toolgate.gates.ledger.artifacts import Artifacts
        from toolgate.gates.ledger.audit import Ledger
        from toolgate.gates.ledger.details import KeptStages
        from toolgate.gates.ledger.retention import DetailArchive
        from toolgate.gates.outputs import Outputs
        from toolgate.gates.policy.gate import PolicyGate
        from toolgate.gates.policy.guard import Guard
        from toolgate.gates.policy.observe import Observer
        from toolgate.gates.policy.open import open_engine
        from toolgate.gates.policy.shared import SharedDecisions
        from toolgate.gates.quota.budget import Budgets, SpendingLimits
        from toolgate.gates.quota.concurrency import Concurrency, Running
        from toolgate.gates.quota.rate import Rates
        from toolgate.gates.redaction import Redaction, Redactor
        from toolgate.gates.screening.tiers import TierRules, plan
        from toolgate.gates.secrets import Secrets, open_sources
        from toolgate.mcp.catalog import McpTools
        from toolgate.mcp.client.servers import UpstreamServers
        from toolgate.mcp.runner import McpRunner
        from toolgate.mcp.server_settings import named_servers
        from toolgate.pipeline.hooks import HookSet
        from toolgate.pipeline.invoke import Pipeline
        from toolgate.pipeline.offload import Offload
        from toolgate.pipeline.outcome import Ending
        from toolgate.pipeline.runner import Runner
        from toolgate.project import Project
        from toolgate.registry.catalog import Catalog
        from toolgate.registry.catalog_sync import Keeper
        from toolgate.registry.compile import Rules
        from toolgate.runners.breaker import Breakers
        from toolgate.runners.execution import Execution
        from toolgate.runners.local import LocalRunner
        from toolgate.sandbox.custom.catalog import CustomTools
        from toolgate.sandbox.custom.check import CompiledCode
        from toolgate.sandbox.custom.source import CustomFolder
        from toolgate.sandbox.engine import Sandbox
        from toolgate.sandbox.runner import SandboxRunner
        from toolgate.sandbox.workspaces import Workspaces
        from toolgate.store.chain import HeadFile
        from toolgate.store.open import open_store
        from toolgate.store.presence import Presence
        from toolgate.undo import Journal

        settings, limits = self.settings, self.settings.limits
        self.project = Project(settings)
        self._in_use: InUse | None = None
        self.project.check()
        head = None if settings.in_memory else settings.audit_head_file or settings.home / "audit.head"
        self._head_file = HeadFile(head) if head else None
        self.store: Store = open_store(settings.database, head)
        self.heads = self._sign_heads()
        self.redis = Redis(settings.redis_url) if settings.redis_url else None
        self.notices = open_notices(settings.database, self.redis)
        self.presence = Presence(self.store, limits.lease_seconds)
        offload = Offload()
        self.tiers = TierRules(
            sensitive=settings.paths.sensitive,
            own=[*settings.own_files, *([head] if head else []), *self.project.own_files],
            unwritable=settings.deciding_files,
            allowed=settings.paths.allowed,
            home=None if settings.in_memory else settings.home,
            allow=settings.commands.allow,
            deny=settings.commands.deny,
            folder=lambda call: self.places.known(call),
            offload=offload,
        )
        self._kinds: dict[str, Tier] = {"sandbox": "execute"}
        seconds = settings.max_execution_time
        self.redactor = Redactor(settings.sensitive_keys, settings.scan_secrets)
        details = settings.audit.details
        self.details = DetailArchive(self.store, days=details.days, total_bytes=details.total_bytes, clock=self._now)
        marks = KeptStages(settings, self.redactor.mask).marks
        self._rules = Rules(settings.tier_overrides, seconds, plan, self._kinds, settings.sandbox.seconds, marks)
        self.custom: CustomTools | None = None
        self.sessions = Sessions()
        for shared in settings.sessions.shared:
            self.sessions.share(shared.tenant, shared.name, shared.users)
        self.providers = Providers(self.sessions)
        self.hooks = HookSet(limits.hook_seconds)
        self.guard = Guard(
            open_engine(settings.policy, settings.opa_url, self.project.refusal),
            monotonic=self._monotonic,
            seconds=settings.policy.permission_seconds,
            shared=None if self.redis is None else SharedDecisions(self.redis),
        )
        observed, seconds = settings.policy.observe, settings.policy.permission_seconds
        self.observer = Observer(observed, self.guard, self._monotonic, seconds, self.project.refusal) if observed else None
        self.catalog = Catalog(
            {name: tool.enabled for name, tool in settings.tools.items() if tool.enabled is not None},
            settings.enforcement.enforced_tools,
            lambda actor: self.guard.hidden_from(actor) if self.guard.native else (),
        )
        self._keeper = Keeper(
            self.store, self.catalog, self._rules, self._use, self._announce_change,
            min(settings.policy.enabled_seconds, settings.policy.schema_seconds),
        )  # fmt: skip
        self.local = LocalRunner(limits.threads)
        self.breakers = Breakers(settings.breaker.failures, settings.breaker.reset_seconds, self._monotonic, self.redis)
        self.sandbox = self.providers.everywhere[Sandbox] = Sandbox(settings.sandbox)
        self.places = self.providers.everywhere[Workspaces] = Workspaces(
            settings.home,
            rules=lambda: self.tiers.paths,
            sessions=self.sessions,
            serves_here=settings.serve.workspace == "here",
            bring_in=settings.sandbox.bring_in,
        )
        runners: dict[str, Runner] = {
            "local": self.local,
            "sandbox": SandboxRunner(
                self.sandbox, self.places, self._may_run, docker=settings.sandbox.docker_image is not None
            ),
        }
        self.execution = Execution(runners, self.breakers)
        if settings.auto_load_custom_tools and not settings.enforcement.disable_local_tools:
            self.custom = CustomTools(
                CustomFolder(settings.home / "tools", self._rules, self.project.refusal),
                self.catalog,
                self._register,
                self.guard.forget,
                CompiledCode(self.sandbox, None if settings.in_memory else self.project.compiled_file).check,
            )
        self.artifacts = Artifacts(self.store, limits.artifact_days, limits.artifact_bytes)
        self.ledger = Ledger(self.store)
        sources = open_sources(
            None if settings.in_memory else settings.home,
            file=settings.secrets.file,
            keyring=settings.secrets.keyring,
            keyring_backend=settings.secrets.keyring_backend,
        )
        self.secrets = Secrets(*sources, use=settings.secrets.use)
        self.servers_engine = UpstreamServers(
            secrets=self._secret_of_servers,
            sandbox=self.sandbox,
            home=None if settings.in_memory else settings.home,
            keep=None if settings.in_memory else self._keep_for_servers,
            tokens=self._token_of_servers,
            rules=lambda: self.tiers.paths,
            places=self.places,
        )
        self.mcp_tools = McpTools(
            settings.servers,
            self.servers_engine,
            self.store,
            self.catalog,
            self._rules,
            register=self._register,
            forget=self.guard.forget,
            note=self._note,
            announce=self._announce_change,
            named=named_servers(settings),
            enabled=settings.mcp.enabled,
        )
        self.execution.runners["mcp"] = McpRunner(self.mcp_tools)
        self.journal = Journal(self.store, settings.home / "backups", limits.backup_bytes, limits.backup_days)
        self.providers.everywhere[Journal] = self.journal
        self.budgets = Budgets(
            self.store,
            self.presence,
            external_api_daily=settings.budgets.external_api_daily,
            timezone=settings.budgets.timezone,
            announce=self._tell,
            clock=self._now,
        )
        approvers = Approvers(settings.approvals)
        self.continuations = Continuations(
            self.store,
            self.presence,
            policy_hash=lambda: self.guard.policy_hash,
            workspace=self._workspace,
            approvers=approvers,
            announce=self._announce_change,
            clock=self._now,
        )
        self.consent = Consent(
            self.store,
            self.continuations,
            policy_hash=lambda: self.guard.policy_hash,
            settings=settings.approvals,
            approvers=approvers,
            note=self._note,
            workspace=self._workspace,
            validate=self._canonical,
            mask=self._masked,
            clock=self._now,
        )
        self.idempotency = Idempotency(self.store, self.presence, keep_days=limits.key_days, clock=self._now)
        self.running = Running()
        self._listeners: list[Listener] = []
        inputs = Inputs(limits.input_bytes, offload)
        pipeline = self._pipeline = Pipeline(
            running=self.running,
            notices=self.notices,
            refresh=self._keeper.refresh,
            providers=self.providers,
            hooks=self.hooks,
            catalog=self.catalog,
            policy=PolicyGate(
                self.guard, glance=inputs.glance, without_fields=self.redactor.without_fields, observer=self.observer
            ),
            inputs=inputs,
            screening=self.tiers,
            consent=self.consent,
            continuations=self.continuations,
            rates=Rates(
                self._monotonic,
                settings.rate_limits,
                self.redis,
                None if settings.in_memory else self.store,
                self._wall_time,
            ),
            budgets=self.budgets,
            spending=SpendingLimits(),
            concurrency=Concurrency(limits.tenant_concurrency, self.redis, limits.lease_seconds),
            idempotency=self.idempotency,
            redaction=Redaction(self.redactor, offload),
            cache=ResultCache(self._monotonic, redis=self.redis),
            secrets=self.secrets,
            execution=self.execution,
            outputs=Outputs(limits.output_string, limits.output_items, limits.output_bytes, self.artifacts.keep, offload),
            ledger=self.ledger,
            ending=Ending(self.redactor, self.budgets.charge, keeps_records=not settings.in_memory),
        )
        self._invoke: Invoke = pipeline.__call__
        self._observe()

    def _sign_heads(self) -> "Heads | None":
        """What signs the heads of the log; None: nothing does."""
        from toolgate.gates.ledger.heads import Heads
        from toolgate.store.head_keys import HeadKeys, KeyFile, KeyringKeys
        from toolgate.store.signed_heads import Witness, log_name

        settings = self.settings.audit
        if self.settings.in_memory or settings.key == "none":
            return None
        name = log_name(self.settings.database)
        keys: HeadKeys = KeyFile(settings.place / "key.json")
        if settings.key == "keyring":
            keys = KeyringKeys(name, self.settings.secrets.keyring_backend)
        return Heads(
            self.store,
            Witness(settings.place, name),
            keys,
            log_name=name,
            sinks=_sinks(settings.sinks),
            trusted=settings.trusted_keys,
            seconds=settings.sign_seconds,
        )

    def _observe(self) -> None:
        """Metrics and spans, if they are wanted. Off, nothing of them is even imported."""
        self.metrics: telemetry.CallMetrics | None = None
        if not (self.settings.metrics or self.settings.tracing):
            return
        require("telemetry")
        import toolgate.gates.ledger.telemetry as extra

        if self.settings.metrics:
            self.metrics = extra.CallMetrics()
            self.hooks.add(self.metrics)
        if self.settings.tracing:
            self.hooks.add(extra.Tracing())

    def _leave_database(self) -> None:
        if self._in_use is not None:
            self._in_use.end()

    async def _close(self) -> None:
        """Let go of everything, last made first. One that fails keeps none of the others from it, and is raised at last."""
        async with contextlib.AsyncExitStack() as closing:
            closing.callback(self._leave_database)
            closing.push_async_callback(self.store.close)
            closing.push_async_callback(self.details.close)
            if self.heads is not None:
                closing.push_async_callback(self.heads.close)
            if self.redis is not None:
                closing.push_async_callback(self.redis.close)
            if self.guard.engine.remote is True:
                closing.push_async_callback(self.guard.engine.close)
            closing.push_async_callback(self.notices.close)
            closing.push_async_callback(self.presence.leave)
            closing.push_async_callback(self._pipeline.concurrency.close)
            closing.push_async_callback(self.idempotency.close)
            closing.push_async_callback(self.consent.close)
            closing.push_async_callback(self.budgets.close)
            closing.push_async_callback(self._keeper.stop)
            closing.push_async_callback(self.mcp_tools.stop)
            if self.custom is not None:
                closing.push_async_callback(self.custom.stop)
            if self._policy_watch is not None:
                self._policy_watch.cancel()

    def _register(self, entry: Entry) -> None:
        """Put a tool into the catalog and, soon, on record."""
        self.catalog.add(entry)
        self.guard.forget()
        self._keeper.remember(entry)

    # -- what changes while it runs

    async def _use(self, found: Flags, limits: "list[BudgetRow]") -> None:
        """Take what the store says now."""
        await self.mcp_tools.look()
        await self.continuations.refresh()
        self._flags = found
        self._use_policy_data()
        self.budgets.use(limits)
        await self._push_policy()

    def _use_policy_data(self) -> None:
        from toolgate.gates.policy.documents import PolicyData

        found = self._flags
        self.policy_data = PolicyData(
            catalog=self.catalog.policy_entry,
            names=self.catalog.names,
            tenants=found.tenants,
            personas=found.personas,
            can_add_tools=found.can_add_tools,
            global_deny=found.global_deny,
            restricted_tenants=found.restricted_tenants,
            enforced=self.settings.enforcement.enforced_tools,
            tenant_names=self.catalog.tenant_names,
            epoch=found.epoch,
        )
        self.guard.use(self.policy_data)

    async def _push_policy(self) -> None:
        """Give an OPA server what it is to decide by. If it does not take it, it denies everything until it does."""
        from toolgate.gates.policy.documents import PolicyError
        from toolgate.gates.policy.open import pushed_text

        engine = self.guard.engine
        if not (self.settings.policy.push and engine.remote is True):
            return
        try:
            await engine.push(pushed_text(self.settings.policy, self.project.refusal), self.policy_data.whole())
        except PolicyError as error:
            logger.error("%s", error)
        self.guard.forget()

    async def _announce_change(self) -> None:
        await self.notices.announce(DATA)

    async def reload_policy(self) -> None:
        """Read the policy's file again. One that is wrong is refused, and the policy in force stays."""
        from toolgate.gates.policy.open import open_engine

        if self.guard.engine.remote is False:
            engine = await to_thread(open_engine, self.settings.policy, None, self.project.refusal)
            self.guard.set_engine(engine)
        await self._push_policy()

    async def _watch_policy(self) -> None:
        """Take a changed policy file without a restart, and push again what an OPA server did not take."""
        file, engine = self.settings.policy.file, self.guard.engine
        known = _stamp(file)
        while file is not None or self.settings.policy.push or self.observer is not None:
            await asyncio.sleep(1)
            if self.observer is not None:
                self.observer.reload_changed()
            if (found := _stamp(file)) != known:
                known = found
                try:
                    await self.reload_policy()
                except Exception as error:  # noqa: BLE001 - whatever it is, the next change must be seen
                    logger.error("the changed policy is not used, the one before stays in force: %s", error)
            elif engine.remote is True and not engine.is_ready:
                await self._push_policy()

    # -- what the steps ask for

    def _secret_of_servers(self, name: str) -> str | None:
        """A secret that the settings of an MCP server name. It is kept for servers alone: no caller can refer to it."""
        from toolgate.gates.secrets.names import OF_SERVERS

        return self.secrets.find_own(name, OF_SERVERS)

    def _token_of_servers(self, name: str) -> str | None:
        """What is kept of a server's login, for that server alone: settings can't name it, and no caller can."""
        from toolgate.gates.secrets.names import OF_LOGINS

        return self.secrets.find_own(name, OF_LOGINS)

    def _keep_for_servers(self, name: str, value: str) -> None:
        from toolgate.gates.secrets import Vault
        from toolgate.gates.secrets.names import OF_LOGINS, key_of

        vault = next((source for source in self.secrets.sources if isinstance(source, Vault)), None)
        if vault is None:
            raise StoreError("There is no place to keep a server's login in.")
        vault.set(key_of(name, OF_LOGINS), value)

    def _workspace(self, call: Call) -> str:
        """The folder that a call works in, without links, whether it is there yet or not. One of Toolgate's own is named
        from its home: processes that share a store may have theirs elsewhere."""
        folder = Path(os.path.realpath(self.places.known(call) or Path.cwd()))
        home = Path(os.path.realpath(self.settings.home))
        return str(folder.relative_to(home) if folder.is_relative_to(home) else folder)

    def _canonical(self, tool: str, tenant: str, workspace: str, arguments: dict[str, Any]) -> bytes:
        """Arguments that a person edited, as they would run in a folder; raises a CallError if they do not fit the tool."""
        entry = self.catalog.resolve(tool, tenant)
        ctx = InvokeContext(Call("", tool, arguments), self.providers, self._invoke, 0, 0.0)
        self._pipeline.inputs.accept(ctx, entry)
        if entry.guards is not None:
            self.tiers.check(entry, ctx.arguments, Path(os.path.realpath(self.settings.home)) / workspace)
        return ctx.canonical

    async def _may_run(self, ctx: InvokeContext, command: str, allow: tuple[str, ...] | None) -> bool:
        """Whether a command would be let through for the actor of a call; asking a person is not part of it."""
        actor, call = ctx.call.actor, ctx.call
        try:
            entry = self.catalog.resolve("execute_command", actor.tenant)
            decision = await self.guard.decide(
                actor, "tool.request", entry.name, tier=entry.tier, session=call.session, door=call.door
            )
            if entry.guards is not None:
                self.tiers.check(entry, {"command": command}, self.places.known(call), allow)
        except CallError:
            return False
        return decision.allow and self.catalog.why_off(entry, actor.tenant) is None

    async def _masked(self, tool: str, tenant: str, canonical: bytes) -> bytes:
        """Arguments as records may hold them."""
        arguments = orjson.loads(canonical)
        if not self.redactor.ready:
            await self.redactor.prepare(arguments)
        return self.redactor.arguments(canonical, arguments, self.catalog.resolve(tool, tenant).public_input, ())

    async def _note(self, action: str, actor: Actor, tool: str, details: dict[str, Any]) -> None:
        await self.ledger.act(action, actor, tool, details, at=time.time_ns(), id=new_id())

    def _tell(self, event: str, fields: dict[str, Any]) -> None:
        """Put something that happened on record, and tell who listens."""
        from toolgate.gates.ledger.audit import Act

        whose = (fields.get("scope") or {}).get("tenant")  # of a budget that is for everybody: nobody's
        actor = LOCAL if whose is None else Actor(whose, user=LOCAL.user)
        self.store.append(Act(time.time_ns(), new_id(), event, actor, "", fields))
        for listener in self._listeners:
            try:
                listener(event, fields)
            except Exception:  # somebody else's code
                logger.exception("a listener failed on %s", event)


def _sinks(places: "Sequence[str]") -> "list[HeadSink]":
    """Where signed heads go; what they need is imported only if there are any."""
    if not places:
        return []
    from toolgate.store.head_sinks import open_sink

    return [open_sink(place) for place in places]


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """What changes when a file does; None if there is none, or it can't be looked at."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
