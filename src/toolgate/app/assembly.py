"""Makes the parts of an App from its settings. Each part has one place here where it is made, so that nothing is made twice.

This is the only module that knows all rooms. It is imported when an App is made: a program that only names `App` does not
wait for everything that an App consists of.
"""

import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from toolgate.app.agent_runs import make_agents
from toolgate.app.argument_checks import ArgumentChecks
from toolgate.app.background import add_handlers, make_qstash, make_queue, make_scheduled_calls, make_schedules
from toolgate.app.document_library import make_documents
from toolgate.app.events import Events
from toolgate.app.language_models import make_models, make_prompts
from toolgate.app.learning import make_learning
from toolgate.app.local_tools import make_custom_tools
from toolgate.app.log_heads import open_heads
from toolgate.app.notifications import make_notifications, make_push_tokens
from toolgate.app.permitted_tools import PermittedTools
from toolgate.app.record_clock import record_clock
from toolgate.app.registration import dynamic_entry
from toolgate.app.schedule_check import ScheduleCheck
from toolgate.app.secrets import ServerSecrets
from toolgate.app.served_tools import ServedLists
from toolgate.app.server_parts import make_servers
from toolgate.app.services import make_npm_installer, make_package_sources, make_services
from toolgate.app.sync import PolicySync, StoreSync
from toolgate.app.team_sync import make_teams
from toolgate.app.telemetry import make_metrics, make_tracing
from toolgate.app.tool_health import ToolHealth
from toolgate.app.tool_index import ToolIndex
from toolgate.conversation.behaviours import BehaviourAdjustments
from toolgate.conversation.canvas import Canvas
from toolgate.coordination.notices import DATA, open_notices
from toolgate.coordination.redis import Redis
from toolgate.embeddings import Embedder
from toolgate.gates.approval.approvers import Approvers
from toolgate.gates.approval.consent import Consent
from toolgate.gates.approval.continuation import Continuations
from toolgate.gates.approval.records import ApprovalRoom
from toolgate.gates.cache import ResultCache
from toolgate.gates.flow.user_words import UserWords
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
from toolgate.llm.models import cost_of
from toolgate.mcp.server.session_records import SessionRecords
from toolgate.mcp.server.task_records import TaskRecords
from toolgate.memory import Memory
from toolgate.memory.note_embeddings import NoteEmbeddings
from toolgate.model import Actor, Tier
from toolgate.network.a2a import A2aClient
from toolgate.network.http_client import MAX_TENANT_LOOKUPS, HttpClient
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
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.npm.installer import NpmInstaller
from toolgate.sandbox.repository import CommitAuthors
from toolgate.sandbox.runner import SandboxRunner
from toolgate.sandbox.workspaces import Workspaces
from toolgate.services.call_checks import ToolLookup
from toolgate.services.http_runner import HttpRunner
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

if TYPE_CHECKING:
    from toolgate.app.registration import Registration
    from toolgate.events.calls import EventCalls
    from toolgate.mcp.catalog import McpTools
    from toolgate.mcp.client.servers import UpstreamServers
    from toolgate.mcp.endpoints import McpEndpoints
    from toolgate.openapi.catalog import OpenApiTools


class Clock(Protocol):
    """The part of the module `time` that an App goes by; what also has `now` (a datetime in UTC) is asked for that."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...


class Parts:
    """The parts of an App. Facets take from it what they use; tests and the doors of this package may look at it."""

    # made by `make_servers`
    servers_engine: "UpstreamServers"
    mcp_tools: "McpTools"
    openapi_tools: "OpenApiTools"
    mcp_endpoints: "McpEndpoints"
    registration: "Registration"
    event_calls: "EventCalls"

    def __init__(self, settings: Settings, clock: Clock = time, *, keeps_servers: bool = True) -> None:
        """Makes all parts; none of them is started. `keeps_servers`: whether MCP servers are listed and restarted without
        being asked; not where the App is closed again at once."""
        self.settings = settings
        self.monotonic = clock.monotonic
        self.wall_time = clock.time
        self.now = getattr(clock, "now", now)
        self.record_time = record_clock(clock, settings)
        self._make_storage()
        self._make_policy()
        self._make_catalog()
        self._make_sandbox()
        self.providers.everywhere[NpmInstaller] = make_npm_installer(self.sandbox, settings)
        self._make_network()
        self._make_memory()
        self._make_documents()
        self._make_secrets()
        self._make_services()
        self._make_conversation()
        self.prompt_files, self.prompts = make_prompts(self)
        self.models = make_models(self)
        self._make_workflows()
        make_servers(self, keeps_servers)
        self.local_tools, self.team_tools, self.team_sync = make_teams(self, keeps_servers)
        self._make_gates()
        self.learning = make_learning(self)
        self.jobs = make_queue(self)
        self.qstash = make_qstash(self)
        self.schedules = make_schedules(self)
        self._make_pipeline()
        self.scheduled_calls = make_scheduled_calls(self)
        self.run_takeover, self.agents = make_agents(self)
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
        self.ledger = Ledger(self.store, self.record_time)
        kept = settings.audit.details
        self.details = DetailArchive(self.store, days=kept.days, total_bytes=kept.total_bytes, clock=self.now)
        self.events = Events(self.store, self.ledger)
        self.journal = Journal(self.store, settings.home / "backups", limits.backup_bytes, limits.backup_days)

    def _make_policy(self) -> None:
        """The policy engine, and the readers of arguments that it needs."""
        settings, policy, refusal = self.settings, self.settings.policy, self.project.refusal
        self.guard = Guard(
            open_engine(policy, settings.opa_url, refusal),
            monotonic=self.monotonic, seconds=policy.permission_seconds, shared=self.redis,
        )  # fmt: skip
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
        self.kinds: dict[str, Tier] = {
            "sandbox": "execute",
            "http": "external_api",
            "mcp": "external_api",
            "workflow": "external_api",
        }
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
            costs=dict.fromkeys(("ask_model", "deep_reasoning"), cost_of(settings.model)),
            hosts={"npm": settings.npm.reach(settings.registries.npm)},
            sent_out=frozenset(name for name, tool in settings.tools.items() if tool.route == "events"),
        )
        self.catalog = Catalog(
            {name: tool.enabled for name, tool in settings.tools.items() if tool.enabled is not None},
            settings.enforcement.enforced_tools,
            lambda actor: guard.hidden_from(actor) if guard.native else (),
            settings.max_execution_time,
        )
        self.catalog_sync = CatalogSync(
            self.store,
            self.catalog,
            compile_dynamic=partial(
                dynamic_entry, rules=self.rules, n8n=settings.n8n, open_to=settings.registration.workflows
            ),
            forget=guard.forget,
        )
        self.store_sync = StoreSync(self)
        self.policy = PolicySync(self)
        self.permitted = PermittedTools(self)
        self.served = ServedLists(self)
        self.tool_index = ToolIndex(self)

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
        self.timezones = self.providers.everywhere[Timezones] = Timezones(settings.timezone, zones)
        self.checks = ArgumentChecks(self)
        self.local = LocalRunner(limits.threads)
        self.breakers = Breakers(settings.breaker.failures, settings.breaker.reset_seconds, self.monotonic, self.redis)
        has_docker = settings.sandbox.docker_image is not None
        sandboxed = SandboxRunner(
            self.sandbox,
            self.places,
            self.checks.may_run,
            docker=has_docker,
            has_model=lambda actor: self.models.is_configured(actor),
        )
        self.execution = Execution({"local": self.local, "sandbox": sandboxed}, self.breakers)
        self.custom = make_custom_tools(self)

    def _make_network(self) -> None:
        """The HTTP client of the built-in tools, and the services that they reach with it."""
        settings, network = self.settings, self.settings.network
        self.http = HttpClient(network.allow, network.ports)
        self.tenants_http = HttpClient(
            settings.registration.allow, network.ports, setting="registration.allow", lookups=MAX_TENANT_LOOKUPS
        )
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
        self.execution.runners["http"] = HttpRunner(self.http, self.tenants_http, self.secrets.lend)

    def _make_conversation(self) -> None:
        """What agents leave for people, and for their own next turn."""
        self.canvas = Canvas(self.store, self.sessions, self.redactor, self.events.tell)
        self.push_tokens = make_push_tokens(self)
        self.notifications = make_notifications(self)
        self.behaviours = BehaviourAdjustments(self.store, self.redactor)
        made = (self.canvas, self.notifications, self.behaviours)
        self.providers.everywhere.update({type(one): one for one in made})

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
        self.user_words = UserWords(self.store, self.checks.masked_text, self.now)
        room = ApprovalRoom(
            self.store,
            Approvers(settings.approvals, self.catalog.aliases),
            note=self.events.record,
            workspace=self.checks.workspace,
            policy_hash=lambda: self.guard.policy_hash,
            clock=self.now,
            user_messages=self.user_words.messages,
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
