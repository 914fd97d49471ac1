"""Everything that can be set, in one class."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from toolgate.model import TOOL_NAME, Tier
from toolgate.settings.agent import AgentSettings
from toolgate.settings.approvals import ApprovalSettings
from toolgate.settings.audit import AuditSettings
from toolgate.settings.auth import AuthSettings
from toolgate.settings.discovery import DiscoverySettings
from toolgate.settings.events import EventSettings
from toolgate.settings.git import GitSettings
from toolgate.settings.health import HealthSettings
from toolgate.settings.jobs import JobSettings
from toolgate.settings.layers import ARGUMENTS, Layer, validated
from toolgate.settings.learning import LearningSettings
from toolgate.settings.limits import BreakerSettings, BudgetSettings, LimitSettings, RateRule
from toolgate.settings.memory import MemorySettings
from toolgate.settings.model import ModelSettings
from toolgate.settings.network import A2aSettings, NetworkSettings, SearchSettings
from toolgate.settings.notify import NotifySettings
from toolgate.settings.npm import NpmSettings
from toolgate.settings.packages import AdvisorySettings, RegistrySettings
from toolgate.settings.policy import CommandSettings, EnforcementSettings, PathSettings, PolicySettings, ToolSettings
from toolgate.settings.qstash import QStashSettings
from toolgate.settings.registration import RegistrationSettings
from toolgate.settings.sandbox import SandboxSettings
from toolgate.settings.secrets import SecretSettings
from toolgate.settings.section import Section, anchored_path
from toolgate.settings.servers import McpSettings, ServerSettings, ServeSettings, SessionSettings
from toolgate.settings.services import ServicesSettings, plain_url
from toolgate.settings.teams import TeamSettings
from toolgate.settings.timezones import Timezone, TimezoneRule, each_once
from toolgate.settings.workflows import SYNC_SECONDS, N8nSettings, WorkflowSettings
from toolgate.trust import working_directory

SQLITE = "sqlite:///"


class Settings(Section):
    """Everything that can be set."""

    home: Path = Path(".toolgate")
    """Where data is kept: database, audit head, custom tools."""
    database_url: str | None = None
    """None: SQLite in `home`. `sqlite:///path/file.db`, `memory://`, or `postgresql://user:password@host/database`."""
    redis_url: str | None = None
    """`redis://host:6379/0`: limits, breakers, cached results and decisions are shared through it."""
    opa_url: str | None = None
    """`http://host:8181`: an OPA server decides in place of the policy engine in this process."""
    tools: dict[str, ToolSettings] = Field(default_factory=dict)
    """Per tool: `enabled`, and `route: events`, which has its calls run by way of the event stream."""
    python_tools: tuple[Path, ...] | None = None
    """Folders of Python files with tools; None: `tools` in `home`."""
    auto_load_custom_tools: bool = True
    """Whether to look into those folders."""
    entry_points: bool = True
    """Whether to load tools that installed packages offer under the entry point group `toolgate.tools`."""
    max_execution_time: float = Field(default=60, gt=0, le=86_400)
    """Seconds that a tool without a timeout of its own may take. `maxExecutionTime` is in milliseconds."""
    shutdown_seconds: float = Field(default=10, ge=0, le=3_600)
    """How long calls that are running when the App closes may take to end."""
    show_token_costs: bool = True
    """Whether lists of tools show what each costs a model to read."""
    token_price: float = Field(default=1.0, ge=0)
    """Dollars for a million tokens of system prompt, for the estimate that `toolgate tools tokens` shows."""
    list_aliases: bool = False
    """Whether models are shown both names of a tool that has two, such as read_file and file_read. Both work,
    unless the first is denied or disabled."""
    tier_overrides: dict[str, Tier] = Field(default_factory=dict)
    """Raise the tier of a tool: `{echo: write}`. A tier can't be lowered."""
    sensitive_keys: tuple[str, ...] = ()
    """More key names whose values are masked in records and outputs."""
    scan_secrets: bool = True
    """Whether values are searched for secrets as well (with kingfisher if it is installed)."""
    audit_head_file: Path | None = None
    """Where the head of the audit log is noted outside the database; None: `audit.head` in `home`."""
    metrics: bool = False
    """Count calls for Prometheus."""
    tracing: bool = False
    """Make OpenTelemetry spans."""
    otlp_url: Annotated[str, AfterValidator(plain_url)] | None = None
    """`http://127.0.0.1:4318`: a collector to which spans are sent by OTLP over HTTP, with `tracing` or without. None: the
    one that `OTEL_EXPORTER_OTLP_ENDPOINT` names, or the tracer provider of the program."""
    rate_limits: tuple[RateRule, ...] = ()
    """How often calls may be made, besides what tools declare: `[{tenant: acme, by: [user], per_minute: 60}]`."""
    timezone: Timezone = "UTC"
    """The time zone of callers who name none."""
    timezones: Annotated[tuple[TimezoneRule, ...], AfterValidator(each_once)] = ()
    """Of tenants and of their users: `[{tenant: acme, timezone: Asia/Tokyo}, {tenant: acme, user: u-1, timezone: UTC}]`."""
    model: ModelSettings = ModelSettings()
    enforcement: EnforcementSettings = EnforcementSettings()
    teams: TeamSettings = TeamSettings()
    limits: LimitSettings = LimitSettings()
    breaker: BreakerSettings = BreakerSettings()
    policy: PolicySettings = PolicySettings()
    approvals: ApprovalSettings = ApprovalSettings()
    budgets: BudgetSettings = BudgetSettings()
    paths: PathSettings = PathSettings()
    commands: CommandSettings = CommandSettings()
    secrets: SecretSettings = SecretSettings()
    npm: NpmSettings = NpmSettings()
    sandbox: SandboxSettings = SandboxSettings()
    git: GitSettings = GitSettings()
    network: NetworkSettings = NetworkSettings()
    search: SearchSettings = SearchSettings()
    a2a: A2aSettings = A2aSettings()
    servers: dict[str, ServerSettings] = Field(default_factory=dict)
    """MCP servers, by the name that their tools' names begin with. `toolgate servers add` keeps more in the store."""
    mcp: McpSettings = McpSettings()
    serve: ServeSettings = ServeSettings()
    auth: AuthSettings = AuthSettings()
    sessions: SessionSettings = SessionSettings()
    audit: AuditSettings = AuditSettings()
    notify: NotifySettings = NotifySettings()
    qstash: QStashSettings = QStashSettings()
    health: HealthSettings = HealthSettings()
    advisories: AdvisorySettings = AdvisorySettings()
    registries: RegistrySettings = RegistrySettings()
    discovery: DiscoverySettings = DiscoverySettings()
    memory: MemorySettings = MemorySettings()
    learning: LearningSettings = LearningSettings()
    jobs: JobSettings = JobSettings()
    agent: AgentSettings = AgentSettings()
    services: ServicesSettings = ServicesSettings()
    n8n: N8nSettings = N8nSettings()
    workflows: dict[str, WorkflowSettings] = Field(default_factory=dict)
    """Workflows of the n8n server that are tools, by the name of the tool. One that has the name of a workflow that Toolgate
    knows (send_email, create_calendar_event, send_notification) takes its place."""
    registration: RegistrationSettings = RegistrationSettings()
    events: EventSettings = EventSettings()

    _read_from: Path | None = None
    """The file that was read."""
    _read_digest: str | None = None
    """Of what was read from it, if nobody named it: it was found in the project folder."""
    _project: Path | None = None
    """The folder in which settings and data were looked for; None: the working directory."""
    _named: frozenset[str] | None = None
    """Which of the settings that lead to files (`names_in`) a person named, and not a file that was found; None: what is
    set."""

    @field_validator("servers")
    @classmethod
    def _named_servers(cls, servers: dict[str, ServerSettings]) -> dict[str, ServerSettings]:
        for name in servers:
            if not TOOL_NAME.match(name):
                raise ValueError(
                    f"{name[:80]!r} cannot be a server's name: a letter, then up to 63 letters, digits, _ and -"
                )
        return servers

    @field_validator("workflows")
    @classmethod
    def _callable_workflows(
        cls, workflows: dict[str, WorkflowSettings], info: ValidationInfo
    ) -> dict[str, WorkflowSettings]:
        n8n = info.data.get("n8n")
        for name, workflow in workflows.items():
            if not TOOL_NAME.match(name):
                raise ValueError(f"{name[:80]!r} cannot be a tool's name: a letter, then up to 63 letters, digits, _ and -")
            if workflow.waits_for_callback and n8n is not None and n8n.callback_url is None:
                raise ValueError(
                    f"{name} is not waited for (async, or a timeout of more than {SYNC_SECONDS} s), "
                    "so n8n.callback_url must say where its end is reported"
                )
        return workflows

    @field_validator("auth")
    @classmethod
    def _for_an_audience(cls, auth: AuthSettings, info: ValidationInfo) -> AuthSettings:
        serve = info.data.get("serve")
        for one in auth.issuers:
            if not one.audience and serve is not None and serve.public_url is None:
                raise ValueError(
                    f"issuer {one.issuer} has no audience: set its `audience`, or `serve.public_url`, whose /mcp is then "
                    "the audience"
                )
        return auth

    @field_validator("redis_url", "opa_url")
    @classmethod
    def _known_server(cls, url: str | None, info: ValidationInfo) -> str | None:
        schemes = ("redis://", "rediss://", "unix://") if info.field_name == "redis_url" else ("http://", "https://")
        if url is not None and not url.startswith(schemes):
            raise ValueError(f"must begin with {' or '.join(schemes)}")
        return url

    @classmethod
    def anchor_texts(cls, values: dict[str, Any], base: Path | None) -> None:
        """The file of an SQLite database."""
        url = values.get("database_url")
        if isinstance(url, str) and url.startswith(SQLITE):
            values["database_url"] = SQLITE + anchored_path(url.removeprefix(SQLITE), base)

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("sqlite:///", "memory://", "postgresql://", "postgres://")):
            raise ValueError("must begin with sqlite:///, memory:// or postgresql://")
        return url

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Settings":
        """These settings, with some of them changed; of a group, only what is named."""
        changed = validated(
            Settings, [Layer("the settings", self.model_dump(exclude_unset=True)), Layer(ARGUMENTS, overrides)]
        )
        changed._read_from, changed._read_digest, changed._project = self._read_from, self._read_digest, self._project
        changed._named = self.named | names_in(overrides)
        return changed

    @property
    def named(self) -> frozenset[str]:
        """The settings that lead to files (`names_in`) which a person named, in a file, a variable or in code."""
        return self._named if self._named is not None else names_in(self.model_dump(exclude_unset=True))

    @property
    def found_file(self) -> tuple[Path, str] | None:
        """The settings file and the digest of what was read from it, if it was found in the project folder."""
        return None if self._read_from is None or self._read_digest is None else (self._read_from, self._read_digest)

    @property
    def read_from(self) -> Path | None:
        """The settings file; None if there is none."""
        return self._read_from

    @property
    def project(self) -> Path:
        """The folder in which settings and data were looked for, without links."""
        return self._project or working_directory()

    @property
    def database(self) -> str:
        return self.database_url or f"{SQLITE}{self.home / 'toolgate.db'}"

    @property
    def in_memory(self) -> bool:
        return self.database.startswith("memory://")

    @property
    def own_files(self) -> list[Path]:
        """Toolgate's own files, wherever they are: no tool may open them."""
        database = Path(self.database.removeprefix(SQLITE)) if self.database.startswith(SQLITE) else None
        return [file for file in (self.secrets.file, self.audit_head_file, self.audit.place, database) if file is not None]

    @property
    def deciding_files(self) -> list[Path]:
        """The files that decide what tools may do, what tools there are, and what models are told: no tool may change
        them."""
        policies = (self.policy.file, *self.policy.observe)
        files = (*policies, self.agent.prompts, self._read_from, self.home / "tools", *self.python_folders)
        return [file for file in files if file is not None]

    @property
    def python_folders(self) -> tuple[Path, ...]:
        return self.python_tools if self.python_tools is not None else (self.home / "tools",)


def names_in(layer: Mapping[str, Any]) -> frozenset[str]:
    """The settings that a layer says, of those that lead to files which Toolgate obeys."""
    groups = {"policy": ("file", "observe"), "agent": ("prompts",)}
    said = {group: layer.get(group) for group in groups}
    inner = (
        f"{group}.{name}"
        for group, names in groups.items()
        for name in names
        if (values := said[group]) and (values.get(name) if isinstance(values, Mapping) else getattr(values, name, None))
    )
    return frozenset((*(name for name in ("home", "python_tools", "database_url") if layer.get(name)), *inner))
