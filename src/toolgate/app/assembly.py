"""Makes the parts of an App from its settings. Each part has one place here where it is made, so that nothing is made twice.

This is the only module that knows all rooms. It is imported when an App is made: a program that only names `App` does not
wait for everything that an App consists of.
"""

import time
from functools import partial
from typing import Protocol

from toolgate.app.argument_checks import ArgumentChecks
from toolgate.app.background import add_handlers, make_qstash, make_queue, make_scheduled_calls, make_schedules
from toolgate.app.document_library import make_documents
from toolgate.app.events import Events
from toolgate.app.log_heads import open_heads
from toolgate.app.notifications import make_notifications, make_push_tokens
from toolgate.app.schedule_check import ScheduleCheck
from toolgate.app.secrets import ServerSecrets
from toolgate.app.services import make_package_sources, make_services
from toolgate.app.sync import PolicySync, StoreSync
from toolgate.app.telemetry import make_metrics, make_tracing
from toolgate.app.tool_health import ToolHealth
from toolgate.conversation.behaviours import BehaviourAdjustments
from toolgate.conversation.canvas import Canvas
from toolgate.coordination.notices import DATA, open_notices
from toolgate.coordination.redis import Redis
from toolgate.embeddings import Embedder
from toolgate.events.calls import EventCalls
from toolgate.gates.approval.approvers import Approvers
from toolgate.gates.approval.consent import Consent
from toolgate.gates.approval.continuation import Continuations
from toolgate.gates.approval.records import ApprovalRoom
from toolgate.gates.cache import ResultCache
from toolgate.gates.idempotency import Idempotency
from toolgate.gates.inputs import Inputs
from toolgate.gates.ledger.audit import Ledger
from toolgate.gates.ledger.details import DetailArchive, KeptStages
from toolgate.gates.outputs import Artifacts, Outputs
from toolgate.gates.policy.decisions import Guard
from toolgate.gates.policy.gate import Observer, PolicyGate
from toolgate.gates.policy.open import open_engine
from toolgate.gates.quota.budget import Budgets, SpendingLimits
from toolgate.gates.quota.concurrency import Concurrency, Running
from toolgate.gates.quota.free_tier import FreeTiers
from toolgate.gates.quota.rate import Rates
from toolgate.gates.redaction import Redaction, Redactor
from toolgate.gates.secrets.gate import Secrets
from toolgate.gates.secrets.sources import open_sources
from toolgate.gates.tier_rules.gate import TierRules, plan
from toolgate.jobs.tool_calls import CallQueue
from toolgate.llm.json_answers import JsonFinder
from toolgate.llm.models import LanguageModels, cost_of
from toolgate.mcp.catalog import McpTools
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.runner import McpRunner
from toolgate.mcp.server.session_records import SessionRecords
from toolgate.mcp.server.task_records import TaskRecords
from toolgate.mcp.server_settings import named_servers
from toolgate.memory import Memory
from toolgate.memory.note_embeddings import NoteEmbeddings
from toolgate.model import Actor, Tier
from toolgate.network.a2a import A2aClient
from toolgate.network.http_client import HttpClient
from toolgate.network.searxng import SearxngClient
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
from toolgate.sandbox.custom.folder import CompiledCode, CustomFolder, CustomTools
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.npm.installer import NpmInstaller
from toolgate.sandbox.repository import CommitAuthors
from toolgate.sandbox.runner import SandboxRunner
from toolgate.sandbox.workspaces import Workspaces
from toolgate.services.call_checks import ToolLookup
from toolgate.sessions import Sessions
from toolgate.settings import Settings
from toolgate.store.chain import HeadFile
from toolgate.store.database import now, open_store
from toolgate.store.live_processes import ProcessHeartbeat
from toolgate.threads import Offload
from toolgate.timezones import Timezones
from toolgate.undo import Journal
from toolgate.workflow.client import N8nClient
from toolgate.workflow.invocations import Invocations
from toolgate.workflow.runner import WorkflowRunner
from toolgate.workflow.source import output_fault


class Clock(Protocol):
    """The part of the module `time` that an App goes by; what also has `now` (a datetime in UTC) is asked for that."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...


class Parts:
    """The parts of an App. Facets take from it what they use; tests and the doors of this package may look at it."""

    def __init__(self, settings: Settings, clock: Clock = time, *, keeps_servers: bool = True) -> None:
        """Makes all parts; none of them is started. `keeps_servers`: whether MCP servers are listed and restarted without
        being asked; not where the App is closed again at once."""
        self.settings = settings
        self.monotonic = clock.monotonic
        self.wall_time = clock.time
        self.now = getattr(clock, "now", now)
        self._make_storage()
        self._make_policy()
        self._make_catalog()
        self._make_sandbox()
        self._make_npm()
        self._make_network()
        self._make_memory()
        self._make_documents()
        self._make_secrets()
        self._make_services()
        self._make_conversation()
        self._make_models()
        self._make_workflows()
        self._make_servers(keeps_servers)
        self._make_gates()
        self.jobs = make_queue(self)
        self.qstash = make_qstash(self)
        self.schedules = make_schedules(self)
        self._make_pipeline()
        self.scheduled_calls = make_scheduled_calls(self)
        add_handlers(self)
        self.health = ToolHealth(self, on_schedule=keeps_servers)
        self.metrics = make_metrics(self)
        self.span_export = make_tracing(self)

    def _make_storage(self) -> None:
        """The database, what is kept in it, and how other processes are told of a change."""
        settings, limits = self.settings, self.settings.limits
        self.project = Project(settings)
        self.project.check()
        head = None if settings.in_memory else settings.audit_head_file or settings.home / "audit.head"
        self.head_file = HeadFile(head) if head else None
        self.store = open_store(settings.database, self.head_file)
        self.heads = open_heads(settings, self.store)
        self.redis = Redis(settings.redis_url) if settings.redis_url else None
        self.notices = open_notices(settings.database, self.redis)
        self.announce = partial(self.notices.announce, DATA)
        """Tells all processes that data in the store has changed."""
        self.presence = ProcessHeartbeat(self.store, limits.lease_seconds)
        self.artifacts = Artifacts(self.store, limits.artifact_days, limits.artifact_bytes)
        self.mcp_tasks = TaskRecords(self.store, self.presence, self.notices, self.artifacts)
        self.mcp_sessions = SessionRecords(self.store, self.notices)
        self.ledger = Ledger(self.store)
        kept = settings.audit.details
        self.details = DetailArchive(self.store, days=kept.days, total_bytes=kept.total_bytes, clock=self.now)
        self.events = Events(self.store, self.ledger)
        self.journal = Journal(self.store, settings.home / "backups", limits.backup_bytes, limits.backup_days)

    def _make_policy(self) -> None:
        """The policy engine, and the readers of arguments that it needs."""
        settings, policy, refusal = self.settings, self.settings.policy, self.project.refusal
        self.guard = Guard(
            open_engine(policy, settings.opa_url, refusal),
            monotonic=self.monotonic,
            seconds=policy.permission_seconds,
            shared=self.redis,
        )
        self.observer: Observer | None = None
        if policy.observe:
            self.observer = Observer(policy.observe, self.guard, self.monotonic, policy.permission_seconds, refusal)
        self.offload = Offload()
        self.inputs = Inputs(settings.limits.input_bytes, self.offload)
        self.tiers = TierRules(
            sensitive=settings.paths.sensitive,
            own=[
                *settings.own_files,
                *([] if self.head_file is None else [self.head_file.path]),
                *self.project.own_files,
            ],
            unwritable=settings.deciding_files,
            allowed=settings.paths.allowed,
            home=None if settings.in_memory else settings.home,
            allow=settings.commands.allow,
            deny=settings.commands.deny,
            folder=lambda call: self.places.known(call),
            offload=self.offload,
        )

    def _make_catalog(self) -> None:
        """The catalog of tools, and what keeps it and the policy's data in step with the store."""
        settings, guard = self.settings, self.guard
        self.kinds: dict[str, Tier] = {"sandbox": "execute"}
        """The kinds of tools that can be registered at run time, and the least tier of each."""
        self.hooks = HookSet(settings.limits.hook_seconds)
        self.redactor = Redactor(settings.sensitive_keys, settings.scan_secrets)
        self.rules = DefinitionRules(
            settings.tier_overrides,
            settings.max_execution_time,
            plan,
            self.kinds,
            settings.sandbox.seconds,
            KeptStages(settings, self.redactor.mask).marks,
            self.hooks.instance,
            costs={"deep_reasoning": cost_of(settings.model)},
            hosts={"npm": settings.npm.reach(settings.registries.npm)},
            sent_out=frozenset(name for name, tool in settings.tools.items() if tool.route == "events"),
        )
        self.catalog = Catalog(
            {name: tool.enabled for name, tool in settings.tools.items() if tool.enabled is not None},
            settings.enforcement.enforced_tools,
            lambda actor: guard.hidden_from(actor) if guard.native else (),
        )
        self.catalog_sync = CatalogSync(self.store, self.catalog, self.rules, forget=guard.forget)
        self.store_sync = StoreSync(self)
        self.policy = PolicySync(self)

    def _make_sandbox(self) -> None:
        """The places where tools run: sessions, workspaces, the sandbox with its custom tools, and the runners."""
        settings, limits = self.settings, self.settings.limits
        self.sessions = Sessions()
        for shared in settings.sessions.shared:
            self.sessions.share(shared.tenant, shared.name, shared.users)
        self.sandbox = Sandbox(settings.sandbox)
        self.places = Workspaces(
            settings.home,
            rules=lambda: self.tiers.paths,
            sessions=self.sessions,
            serves_here=settings.serve.workspace == "here",
            bring_in=settings.sandbox.bring_in,
            folders={(one.tenant, one.persona, one.user): one.folder for one in settings.sessions.folders},
        )
        self.providers = Providers(self.sessions)
        self.providers.everywhere.update({Sandbox: self.sandbox, Workspaces: self.places, Journal: self.journal})
        self.providers.everywhere[CommitAuthors] = CommitAuthors(settings.git.author_name, settings.git.author_email)
        zones = [(rule.tenant, rule.user, rule.timezone) for rule in settings.timezones]
        self.providers.everywhere[Timezones] = Timezones(settings.timezone, zones)
        self.checks = ArgumentChecks(self)
        self.local = LocalRunner(limits.threads)
        self.breakers = Breakers(settings.breaker.failures, settings.breaker.reset_seconds, self.monotonic, self.redis)
        has_docker = settings.sandbox.docker_image is not None
        sandboxed = SandboxRunner(self.sandbox, self.places, self.checks.may_run, docker=has_docker)
        self.execution = Execution({"local": self.local, "sandbox": sandboxed}, self.breakers)
        self.custom: CustomTools | None = None
        if settings.auto_load_custom_tools and not settings.enforcement.disable_local_tools:
            self.custom = CustomTools(
                CustomFolder(settings.home / "tools", self.rules, self.project.refusal),
                self.catalog,
                self.catalog_sync.register,
                self.guard.forget,
                CompiledCode(self.sandbox, None if settings.in_memory else self.project.compiled_file).check,
            )

    def _make_npm(self) -> None:
        """The installer of npm's packages."""
        settings = self.settings
        self.providers.everywhere[NpmInstaller] = NpmInstaller(
            self.sandbox, settings.npm, settings.registries.npm, settings.home
        )

    def _make_network(self) -> None:
        """The HTTP client of the built-in tools, and the services that they reach with it."""
        settings, network = self.settings, self.settings.network
        self.http = HttpClient(network.allow, network.ports)
        searxng = SearxngClient(self.http, settings.search.searxng_url)
        agents = A2aClient(self.http, settings.a2a.agents)
        self.providers.everywhere.update({HttpClient: self.http, SearxngClient: searxng, A2aClient: agents})
        self.providers.everywhere.update(make_package_sources(settings, self.http, self.now))

    def _make_memory(self) -> None:
        """Search by meaning, and the notes that agents keep."""
        self.embedder = Embedder()
        self.memory = Memory(self.store, self.embedder, self.redactor, self.settings.memory)
        self.note_embeddings = NoteEmbeddings(self.store, self.memory, self.embedder)
        self.providers.everywhere.update({Embedder: self.embedder, Memory: self.memory})

    def _make_documents(self) -> None:
        """Documents that can be asked questions."""
        self.documents, self.attachments = made = make_documents(self)
        self.providers.everywhere.update({type(one): one for one in made})

    def _make_secrets(self) -> None:
        """The sources of secrets."""
        settings = self.settings
        sources = open_sources(
            None if settings.in_memory else settings.home,
            file=settings.secrets.file,
            keyring=settings.secrets.keyring,
            keyring_backend=settings.secrets.keyring_backend,
        )
        self.secrets = Secrets(*sources, use=settings.secrets.use)
        self.server_secrets = ServerSecrets(self.secrets)

    def _make_services(self) -> None:
        """The clients of external services."""
        self.services = make_services(self.settings.services, self.http, self.secrets.lend)
        self.providers.everywhere.update(self.services)
        self.providers.everywhere[ToolLookup] = ToolLookup(self.catalog.find)

    def _make_conversation(self) -> None:
        """What agents leave for people, and for their own next turn."""
        self.canvas = Canvas(self.store, self.sessions, self.redactor, self.events.tell)
        self.push_tokens = make_push_tokens(self)
        self.notifications = make_notifications(self)
        self.behaviours = BehaviourAdjustments(self.store, self.redactor)
        made = (self.canvas, self.notifications, self.behaviours)
        self.providers.everywhere.update({type(one): one for one in made})

    def _make_models(self) -> None:
        """The language model that tools ask."""
        self.models = LanguageModels(self.settings.model, self.http, self.secrets)
        self.providers.everywhere.update({LanguageModels: self.models, JsonFinder: JsonFinder()})

    def _make_workflows(self) -> None:
        """The n8n server, and what runs its workflows as tools."""
        n8n = self.settings.n8n
        self.invocations = Invocations(
            self.store,
            self.redactor,
            record=self.events.record,
            tell=self.events.tell,
            secrets=self._workflow_secrets,
            check_output=lambda workflow, tenant, output: output_fault(self.catalog.find(workflow, tenant), output),
            clock=self.now,
        )
        self.n8n = N8nClient(n8n.base_url, self.http, n8n.webhook_secret)
        self.execution.runners["workflow"] = WorkflowRunner(self.n8n, self.invocations, n8n.callback_url)

    def _workflow_secrets(self, actor: Actor, workflow: str) -> tuple[str, ...]:
        """The secrets that a workflow may have been given for an actor."""
        entry = self.catalog.find(workflow, actor.tenant)
        names = [self.settings.n8n.webhook_secret, *([] if entry is None else self.secrets.uses.names_for(entry))]
        found = (self.secrets.find(name, actor) for name in names)
        return tuple(value for value in found if value is not None)

    def _make_servers(self, keeps_servers: bool) -> None:
        """MCP servers, with their tools in the catalog, and the event stream."""
        settings = self.settings
        self.servers_engine = UpstreamServers(
            secrets=self.server_secrets.find,
            sandbox=self.sandbox,
            home=None if settings.in_memory else settings.home,
            keep=None if settings.in_memory else self.server_secrets.keep_login,
            tokens=self.server_secrets.login,
            rules=lambda: self.tiers.paths,
            places=self.places,
        )
        self.mcp_tools = McpTools(
            settings.servers,
            self.servers_engine,
            self.store,
            self.catalog,
            self.rules,
            register=self.catalog_sync.register,
            forget=self.guard.forget,
            note=self.events.record,
            announce=self.announce,
            named=named_servers(settings),
            enabled=settings.mcp.enabled,
        )
        self.mcp_tools.lists_by_itself = self.servers_engine.restarts_by_itself = keeps_servers
        self.event_calls = EventCalls(settings.events, self.server_secrets.find)
        self.execution.runners |= {"mcp": McpRunner(self.mcp_tools), "events": self.event_calls.runner}

    def _make_gates(self) -> None:
        """The gates that people govern: money, approvals, idempotency keys."""
        settings = self.settings
        self.budgets = Budgets(
            self.store,
            self.presence,
            external_api_daily=settings.budgets.external_api_daily,
            timezone=settings.budgets.timezone,
            announce=self.events.announce,
            clock=self.now,
        )
        self.free_tiers = FreeTiers(
            self.store,
            account=lambda entry, actor: "" if entry.auth is None else self.secrets.key_of(entry.auth.config_key, actor),
            timezone=settings.budgets.timezone,
            clock=self.now,
        )
        room = ApprovalRoom(
            self.store,
            Approvers(settings.approvals, self.catalog.aliases),
            note=self.events.record,
            workspace=self.checks.workspace,
            policy_hash=lambda: self.guard.policy_hash,
            clock=self.now,
        )
        self.continuations = Continuations(room, self.presence, self.announce)
        self.consent = Consent(
            room, self.continuations, settings.approvals, validate=self.checks.canonical, mask=self.checks.masked
        )
        self.idempotency = Idempotency(self.store, self.presence, keep_days=settings.limits.key_days, clock=self.now)

    def _make_pipeline(self) -> None:
        """The line that every call passes."""
        settings, limits = self.settings, self.settings.limits
        self.running = Running()
        rate_store = None if settings.in_memory else self.store
        redactor = self.redactor
        self.pipeline = Pipeline(
            running=self.running,
            notices=self.notices,
            refresh=self.store_sync.refresh,
            providers=self.providers,
            hooks=self.hooks,
            catalog=self.catalog,
            policy=PolicyGate(
                self.guard, glance=self.inputs.glance, without_fields=redactor.without_fields, observer=self.observer
            ),
            inputs=self.inputs,
            screening=self.tiers,
            consent=self.consent,
            continuations=self.continuations,
            rates=Rates(self.monotonic, settings.rate_limits, self.redis, rate_store, self.wall_time),
            budgets=self.budgets,
            free_tiers=self.free_tiers,
            spending=SpendingLimits(),
            queue=CallQueue(self.jobs, self.budgets.hand_over, ScheduleCheck(self.store, self.now).has_key),
            concurrency=Concurrency(limits.tenant_concurrency, self.redis, limits.lease_seconds),
            idempotency=self.idempotency,
            redaction=Redaction(redactor, self.offload),
            cache=ResultCache(self.monotonic, redis=self.redis),
            secrets=self.secrets,
            execution=self.execution,
            outputs=Outputs(limits.output_string, limits.output_items, limits.output_bytes, self.artifacts, self.offload),
            ledger=self.ledger,
            ending=Ending(redactor, self.budgets.charge, keeps_records=not settings.in_memory),
        )
