"""Makes the parts of an App from its settings. Each part has one place here where it is made, so that nothing is made twice.

This is the only module that knows all rooms. It is imported when an App is made: a program that only names `App` does not
wait for everything that an App consists of.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from toolgate.app.argument_checks import ArgumentChecks
from toolgate.app.events import Events
from toolgate.app.policy_sync import PolicySync
from toolgate.app.server_secrets import ServerSecrets
from toolgate.app.store_sync import StoreSync
from toolgate.coordination.notices import DATA, Notices
from toolgate.coordination.open import open_notices
from toolgate.coordination.redis import Redis
from toolgate.extras import require
from toolgate.gates.approval.approvers import Approvers
from toolgate.gates.approval.consent import Consent
from toolgate.gates.approval.continuation import Continuations
from toolgate.gates.approval.records import ApprovalRoom
from toolgate.gates.cache import ResultCache
from toolgate.gates.idempotency import Idempotency
from toolgate.gates.inputs import Inputs
from toolgate.gates.ledger.artifacts import Artifacts
from toolgate.gates.ledger.audit import Ledger
from toolgate.gates.ledger.details import KeptStages
from toolgate.gates.ledger.retention import DetailArchive
from toolgate.gates.outputs import Outputs
from toolgate.gates.policy.decisions import Guard
from toolgate.gates.policy.gate import Observer, PolicyGate
from toolgate.gates.policy.open import open_engine
from toolgate.gates.quota.budget import Budgets, SpendingLimits
from toolgate.gates.quota.concurrency import Concurrency, Running
from toolgate.gates.quota.rate import Rates
from toolgate.gates.redaction import Redaction, Redactor
from toolgate.gates.screening.tiers import TierRules, plan
from toolgate.gates.secrets.gate import Secrets
from toolgate.gates.secrets.sources import open_sources
from toolgate.mcp.catalog import McpTools
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.runner import McpRunner
from toolgate.mcp.server_settings import named_servers
from toolgate.model import Tier
from toolgate.pipeline.context import Providers
from toolgate.pipeline.hooks import HookSet
from toolgate.pipeline.invoke import Pipeline
from toolgate.pipeline.outcome import Ending
from toolgate.project import Project
from toolgate.registry.catalog import Catalog
from toolgate.registry.catalog_sync import CatalogSync
from toolgate.registry.compile import DefinitionRules
from toolgate.runners.breaker import Breakers
from toolgate.runners.execution import Execution
from toolgate.runners.local import LocalRunner
from toolgate.sandbox.custom.folder import CustomFolder
from toolgate.sandbox.custom.reload import CompiledCode, CustomTools
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.runner import SandboxRunner
from toolgate.sandbox.workspaces import Workspaces
from toolgate.sessions import Sessions
from toolgate.settings import Settings
from toolgate.store.chain import HeadFile
from toolgate.store.database import Store, now
from toolgate.store.open import open_store
from toolgate.store.presence import Presence
from toolgate.threads import Offload
from toolgate.undo import Journal

if TYPE_CHECKING:
    from toolgate.gates.ledger.heads import Heads
    from toolgate.gates.ledger.telemetry import CallMetrics


class Clock(Protocol):
    """The part of the module `time` that an App goes by; what also has `now` (a datetime in UTC) is asked for that."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...


class Parts:
    """The parts of an App. Facets take from it what they use; tests and the doors of this package may look at it."""

    settings: Settings
    project: Project
    store: Store
    head_file: HeadFile | None
    heads: "Heads | None"
    redis: Redis | None
    notices: Notices
    announce: Callable[[], Awaitable[None]]
    """Tells all processes that data in the store has changed."""
    presence: Presence
    artifacts: Artifacts
    ledger: Ledger
    details: DetailArchive
    events: Events
    journal: Journal

    offload: Offload
    inputs: Inputs
    tiers: TierRules
    kinds: dict[str, Tier]
    """The kinds of tools that can be registered at run time, and the least tier of each."""
    rules: DefinitionRules
    catalog: Catalog
    catalog_sync: CatalogSync
    store_sync: StoreSync
    custom: CustomTools | None

    guard: Guard
    observer: Observer | None
    policy: PolicySync
    redactor: Redactor
    secrets: Secrets
    server_secrets: ServerSecrets
    budgets: Budgets
    continuations: Continuations
    consent: Consent
    idempotency: Idempotency
    checks: ArgumentChecks

    sessions: Sessions
    providers: Providers
    hooks: HookSet
    metrics: "CallMetrics | None"
    sandbox: Sandbox
    places: Workspaces
    local: LocalRunner
    breakers: Breakers
    execution: Execution
    servers_engine: UpstreamServers
    mcp_tools: McpTools
    running: Running
    pipeline: Pipeline

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.monotonic = clock.monotonic
        self.wall_time = clock.time
        self.now = getattr(clock, "now", now)


def assemble(settings: Settings, clock: Clock = time, *, keeps_servers: bool = True) -> Parts:
    """Makes all parts; none of them is started. `keeps_servers`: whether MCP servers are listed and restarted without
    being asked; not where the App is closed again at once."""
    parts = Parts(settings, clock)
    _make_storage(parts)
    _make_policy(parts)
    _make_catalog(parts)
    _make_sandbox(parts)
    _make_secrets(parts)
    _make_servers(parts, keeps_servers)
    _make_gates(parts)
    _make_pipeline(parts)
    _make_telemetry(parts)
    return parts


def _make_storage(parts: Parts) -> None:
    """The database, what is kept in it, and how other processes are told of a change."""
    settings, limits = parts.settings, parts.settings.limits
    parts.project = Project(settings)
    parts.project.check()
    head = None if settings.in_memory else settings.audit_head_file or settings.home / "audit.head"
    parts.head_file = HeadFile(head) if head else None
    parts.store = open_store(settings.database, head)
    parts.heads = _signed_heads(settings, parts.store)
    parts.redis = Redis(settings.redis_url) if settings.redis_url else None
    parts.notices = open_notices(settings.database, parts.redis)
    parts.announce = partial(parts.notices.announce, DATA)
    parts.presence = Presence(parts.store, limits.lease_seconds)
    parts.artifacts = Artifacts(parts.store, limits.artifact_days, limits.artifact_bytes)
    parts.ledger = Ledger(parts.store)
    kept = settings.audit.details
    parts.details = DetailArchive(parts.store, days=kept.days, total_bytes=kept.total_bytes, clock=parts.now)
    parts.events = Events(parts.store, parts.ledger)
    parts.journal = Journal(parts.store, settings.home / "backups", limits.backup_bytes, limits.backup_days)


def _signed_heads(settings: Settings, store: Store) -> "Heads | None":
    """What signs the heads of the log; None: nothing does."""
    if settings.in_memory or settings.audit.key == "none":
        return None
    from toolgate.gates.ledger.heads import Heads
    from toolgate.store.head_keys import HeadKeys, KeyFile, KeyringKeys
    from toolgate.store.signed_heads import Witness, log_name

    audit, name, sinks = settings.audit, log_name(settings.database), []
    keys: HeadKeys = KeyFile(audit.place / "key.json")
    if audit.key == "keyring":
        keys = KeyringKeys(name, settings.secrets.keyring_backend)
    if audit.sinks:
        from toolgate.store.head_sinks import open_sink

        sinks = [open_sink(place) for place in audit.sinks]
    return Heads(
        store,
        Witness(audit.place, name),
        keys,
        log_name=name,
        sinks=sinks,
        trusted=audit.trusted_keys,
        seconds=audit.sign_seconds,
    )


def _make_policy(parts: Parts) -> None:
    """What decides which calls are permitted, and what reads their arguments for that."""
    settings, policy, refusal = parts.settings, parts.settings.policy, parts.project.refusal
    parts.guard = Guard(
        open_engine(policy, settings.opa_url, refusal),
        monotonic=parts.monotonic,
        seconds=policy.permission_seconds,
        shared=parts.redis,
    )
    parts.observer = None
    if policy.observe:
        parts.observer = Observer(policy.observe, parts.guard, parts.monotonic, policy.permission_seconds, refusal)
    parts.offload = Offload()
    parts.inputs = Inputs(settings.limits.input_bytes, parts.offload)
    parts.tiers = TierRules(
        sensitive=settings.paths.sensitive,
        own=[
            *settings.own_files,
            *([] if parts.head_file is None else [parts.head_file.path]),
            *parts.project.own_files,
        ],
        unwritable=settings.deciding_files,
        allowed=settings.paths.allowed,
        home=None if settings.in_memory else settings.home,
        allow=settings.commands.allow,
        deny=settings.commands.deny,
        folder=lambda call: parts.places.known(call),
        offload=parts.offload,
    )


def _make_catalog(parts: Parts) -> None:
    """The catalog of tools, and what keeps it and the policy's data in step with the store."""
    settings, guard = parts.settings, parts.guard
    parts.kinds = {"sandbox": "execute"}
    parts.hooks = HookSet(settings.limits.hook_seconds)
    parts.redactor = Redactor(settings.sensitive_keys, settings.scan_secrets)
    parts.rules = DefinitionRules(
        settings.tier_overrides,
        settings.max_execution_time,
        plan,
        parts.kinds,
        settings.sandbox.seconds,
        KeptStages(settings, parts.redactor.mask).marks,
        parts.hooks.instance,
    )
    parts.catalog = Catalog(
        {name: tool.enabled for name, tool in settings.tools.items() if tool.enabled is not None},
        settings.enforcement.enforced_tools,
        lambda actor: guard.hidden_from(actor) if guard.native else (),
    )
    parts.catalog_sync = CatalogSync(parts.store, parts.catalog, parts.rules, forget=guard.forget)
    parts.store_sync = StoreSync(parts)
    parts.policy = PolicySync(settings, parts.project, guard, parts.catalog, parts.observer)


def _make_sandbox(parts: Parts) -> None:
    """Where tools run: sessions and their workspaces, the sandbox and its custom tools, and the runners."""
    settings, limits = parts.settings, parts.settings.limits
    parts.sessions = Sessions()
    for shared in settings.sessions.shared:
        parts.sessions.share(shared.tenant, shared.name, shared.users)
    parts.sandbox = Sandbox(settings.sandbox)
    parts.places = Workspaces(
        settings.home,
        rules=lambda: parts.tiers.paths,
        sessions=parts.sessions,
        serves_here=settings.serve.workspace == "here",
        bring_in=settings.sandbox.bring_in,
    )
    parts.providers = Providers(parts.sessions)
    parts.providers.everywhere.update({Sandbox: parts.sandbox, Workspaces: parts.places, Journal: parts.journal})
    parts.checks = ArgumentChecks(
        parts.catalog, parts.guard, parts.tiers, parts.places, parts.redactor, parts.inputs, settings.home
    )
    parts.local = LocalRunner(limits.threads)
    parts.breakers = Breakers(settings.breaker.failures, settings.breaker.reset_seconds, parts.monotonic, parts.redis)
    has_docker = settings.sandbox.docker_image is not None
    sandboxed = SandboxRunner(parts.sandbox, parts.places, parts.checks.may_run, docker=has_docker)
    parts.execution = Execution({"local": parts.local, "sandbox": sandboxed}, parts.breakers)
    parts.custom = None
    if settings.auto_load_custom_tools and not settings.enforcement.disable_local_tools:
        parts.custom = CustomTools(
            CustomFolder(settings.home / "tools", parts.rules, parts.project.refusal),
            parts.catalog,
            parts.catalog_sync.register,
            parts.guard.forget,
            CompiledCode(parts.sandbox, None if settings.in_memory else parts.project.compiled_file).check,
        )


def _make_secrets(parts: Parts) -> None:
    """The sources of secrets."""
    settings = parts.settings
    sources = open_sources(
        None if settings.in_memory else settings.home,
        file=settings.secrets.file,
        keyring=settings.secrets.keyring,
        keyring_backend=settings.secrets.keyring_backend,
    )
    parts.secrets = Secrets(*sources, use=settings.secrets.use)
    parts.server_secrets = ServerSecrets(parts.secrets)


def _make_servers(parts: Parts, keeps_servers: bool) -> None:
    """MCP servers, and their tools in the catalog."""
    settings = parts.settings
    parts.servers_engine = UpstreamServers(
        secrets=parts.server_secrets.find,
        sandbox=parts.sandbox,
        home=None if settings.in_memory else settings.home,
        keep=None if settings.in_memory else parts.server_secrets.keep_login,
        tokens=parts.server_secrets.login,
        rules=lambda: parts.tiers.paths,
        places=parts.places,
    )
    parts.mcp_tools = McpTools(
        settings.servers,
        parts.servers_engine,
        parts.store,
        parts.catalog,
        parts.rules,
        register=parts.catalog_sync.register,
        forget=parts.guard.forget,
        note=parts.events.record,
        announce=parts.announce,
        named=named_servers(settings),
        enabled=settings.mcp.enabled,
    )
    parts.mcp_tools.lists_by_itself = parts.servers_engine.restarts_by_itself = keeps_servers
    parts.execution.runners["mcp"] = McpRunner(parts.mcp_tools)


def _make_gates(parts: Parts) -> None:
    """The gates that people govern: money, approvals, idempotency keys."""
    settings = parts.settings
    parts.budgets = Budgets(
        parts.store,
        parts.presence,
        external_api_daily=settings.budgets.external_api_daily,
        timezone=settings.budgets.timezone,
        announce=parts.events.announce,
        clock=parts.now,
    )
    room = ApprovalRoom(
        parts.store,
        Approvers(settings.approvals),
        note=parts.events.record,
        workspace=parts.checks.workspace,
        policy_hash=lambda: parts.guard.policy_hash,
        clock=parts.now,
    )
    parts.continuations = Continuations(room, parts.presence, parts.announce)
    parts.consent = Consent(
        room, parts.continuations, settings.approvals, validate=parts.checks.canonical, mask=parts.checks.masked
    )
    parts.idempotency = Idempotency(parts.store, parts.presence, keep_days=settings.limits.key_days, clock=parts.now)


def _make_pipeline(parts: Parts) -> None:
    """The line that every call passes."""
    settings, limits = parts.settings, parts.settings.limits
    parts.running = Running()
    rate_store = None if settings.in_memory else parts.store
    redactor = parts.redactor
    parts.pipeline = Pipeline(
        running=parts.running,
        notices=parts.notices,
        refresh=parts.store_sync.refresh,
        providers=parts.providers,
        hooks=parts.hooks,
        catalog=parts.catalog,
        policy=PolicyGate(
            parts.guard, glance=parts.inputs.glance, without_fields=redactor.without_fields, observer=parts.observer
        ),
        inputs=parts.inputs,
        screening=parts.tiers,
        consent=parts.consent,
        continuations=parts.continuations,
        rates=Rates(parts.monotonic, settings.rate_limits, parts.redis, rate_store, parts.wall_time),
        budgets=parts.budgets,
        spending=SpendingLimits(),
        concurrency=Concurrency(limits.tenant_concurrency, parts.redis, limits.lease_seconds),
        idempotency=parts.idempotency,
        redaction=Redaction(redactor, parts.offload),
        cache=ResultCache(parts.monotonic, redis=parts.redis),
        secrets=parts.secrets,
        execution=parts.execution,
        outputs=Outputs(limits.output_string, limits.output_items, limits.output_bytes, parts.artifacts.keep, parts.offload),
        ledger=parts.ledger,
        ending=Ending(redactor, parts.budgets.charge, keeps_records=not settings.in_memory),
    )


def _make_telemetry(parts: Parts) -> None:
    """Metrics and spans, if they are wanted. Off, nothing of them is even imported."""
    parts.metrics = None
    if not (parts.settings.metrics or parts.settings.tracing):
        return
    require("telemetry")
    from toolgate.gates.ledger import telemetry

    if parts.settings.metrics:
        parts.metrics = telemetry.CallMetrics()
        parts.hooks.add(parts.metrics)
    if parts.settings.tracing:
        parts.hooks.add(telemetry.Tracing())
