"""A tool: the definition that a person writes, with its parts. Its faults are named with their path: a pydantic model."""

import re
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from toolgate.errors import CODES
from toolgate.model.allowed_command import CommandEntry
from toolgate.model.frozen_model import FrozenModel
from toolgate.model.http_endpoint import HttpEndpoint

Tier = Literal["read_only", "write", "execute", "external_api"]
TIERS: tuple[Tier, ...] = ("read_only", "write", "execute", "external_api")
"""The four tiers, from the least risk to the most."""

Category = Literal[
    "filesystem", "code_analysis", "validation", "search", "api",
    "database", "service", "deployment", "development", "custom",
]  # fmt: skip
Source = Literal["builtin", "teams", "python", "workflow", "mcp", "openapi", "custom", "dynamic"]
SOURCES: tuple[Source, ...] = ("builtin", "teams", "python", "workflow", "mcp", "openapi", "custom", "dynamic")
"""The sources of tools, in the order in which a name is given: the later source of a taken name is refused."""

CALL_TOOL = "call_tool"
DISCOVERY_TOOLS = frozenset({"search_tools", "describe_tool", CALL_TOOL})
"""The built-in tools by which a model finds, reads and calls tools that it was not listed."""

TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")
_NUMBER, _LABEL = r"(?:0|[1-9][0-9]*)", r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_LABEL}(?:\.{_LABEL})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?\Z"
)
NANO = 1_000_000_000
"""Nano-dollars in a dollar."""
MAX_DOLLARS = Decimal(10**9)
"""The most that one call may be said to cost: the sum of a few still fits into 64 bits."""
EXACT = Context(prec=200, rounding=ROUND_CEILING, traps=[])
"""For sums of money: nothing is lost, and what is beyond it is infinite, hence the most that there is."""
PROPOSES = "its author proposes to let it run without asking from now on"
"""The words for a tool whose definition says auto_accept: people may grant it, nobody does it for them."""
DESTRUCTIVE = ("delete", "destroy", "erase", "purge", "uninstall")
"""Wherever in a name."""
DESTRUCTIVE_WORDS = frozenset(
    word + end for word in ("remove", "drop", "truncate", "wipe", "unlink") for end in ("", "s")
) | {"removing", "dropping", "truncating", "removed", "dropped"}
"""As words of their own."""
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Auth(FrozenModel):
    """The credential that a tool needs."""

    type: Literal["api_key", "oauth", "basic_auth", "bearer_token", "custom"] = "api_key"
    required: bool = True
    config_key: str = Field(min_length=1)
    setup_url: str | None = None


class UnitCost(FrozenModel):
    """A price that depends on the input: so much a token, character, record or second."""

    unit: Literal["token", "character", "record", "second"]
    price: Decimal = Field(ge=0, le=MAX_DOLLARS)
    field: str | None = None
    """The argument that is measured; for `second`, the tool's timeout counts."""


class Cost(FrozenModel):
    """The price of a call, in dollars."""

    model: Literal["free", "usage_based", "subscription", "one_time"] = "usage_based"
    fixed: Decimal = Field(default=Decimal(0), ge=0, le=MAX_DOLLARS)
    per_unit: UnitCost | None = None
    billing_url: str | None = None
    """Where people see what they pay."""
    free_tier_limit: int | None = Field(default=None, ge=0)
    """Calls that cost nothing in each period."""
    free_tier_period: Literal["day", "month"] = "month"


class Capability(FrozenModel):
    """One thing that a tool can do."""

    action: str = Field(min_length=1)
    description: str = ""
    requires_confirmation: bool = False
    estimated_cost: Decimal | None = Field(default=None, ge=0, le=MAX_DOLLARS)
    estimated_time_ms: int | None = Field(default=None, ge=0)

    @property
    def destructive(self) -> bool:
        """True if its action says that something is destroyed: delete, remove, drop …"""
        return _destroys(self.action)


class Retry(FrozenModel):
    """The way a failed attempt is repeated. `max_attempts` counts the first too."""

    max_attempts: int = Field(default=3, ge=1, le=20)
    backoff_ms: int = Field(default=200, ge=0, le=600_000)
    multiplier: float = Field(default=2.0, ge=1, le=100)
    max_delay_ms: int = Field(default=30_000, ge=0, le=3_600_000)
    codes: tuple[str, ...] = ("TIMEOUT", "CONNECTION_ERROR")

    @field_validator("codes")
    @classmethod
    def _known(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_known_code, codes))


class CacheRule(FrozenModel):
    """The time for which a result may be given out again, and to whom."""

    ttl: float = Field(gt=0)
    scope: Literal["tenant", "user"] | None = None
    """None: the user where the tool can see who calls, else the tenant."""


class RateLimit(FrozenModel):
    """The number of calls that one user may make of a tool."""

    per_minute: int | None = Field(default=None, ge=1)
    per_hour: int | None = Field(default=None, ge=1)
    per_day: int | None = Field(default=None, ge=1)


Runtime = Literal["typescript", "node", "python"]
Risk = Literal["low", "medium", "high", "critical"]


class Example(FrozenModel):
    """A call that shows what a tool does, and what must come of it."""

    name: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    output: Any = None
    """What the call must give. Compared only if it is said (`"output" in example.model_fields_set`)."""
    error: str | None = None
    """The code of the error that the call must end with, in place of an output."""


class ErrorCase(FrozenModel):
    """An error that a tool can end with: its code, when that happens, and what to do then."""

    code: str
    when: str = Field(min_length=1)
    advice: str = Field(min_length=1)

    def __init__(self, code: str, when: str, advice: str) -> None:
        super().__init__(**{"code": code, "when": when, "advice": advice})  # noqa: PIE804 - as mypy has it, the base takes none

    @field_validator("code")
    @classmethod
    def _known(cls, code: str) -> str:
        return _known_code(code)


class Operation(FrozenModel):
    """The risk of one operation of a tool that has several: its calls are governed by it in place of the tool's own tier."""

    tier: Tier
    destructive: bool = False
    """True: a person is asked each time, and no grant covers it. So it is for names such as `delete`, whatever this says."""
    requires_confirmation: bool = False


class ToolProgram(FrozenModel):
    """The code of a tool that runs in the sandbox, and what it may ask the host for."""

    runtime: Runtime = "typescript"
    code: str = Field(min_length=1)
    allowlist: tuple[CommandEntry, ...] | None = None
    """Commands that it may have run: beginnings, word by word; a word may end in *; perhaps with the hosts that each may
    reach. None: those of `commands.allow`."""
    auto_accept: bool | None = None
    """True: whoever is asked about it is offered to grant it once and for all. False: asks each time."""
    risk_level: Risk | None = None


class McpEndpoint(FrozenModel):
    """A tool of an MCP server at a URL, as it was when it was registered."""

    url: str = Field(max_length=2_000)
    tool: str = Field(min_length=1, max_length=256)
    """The server's own name of it."""
    sha256: str = Field(default="", max_length=64)
    """Of the server's definition. A server that has another by the time of a call is not called."""


class WorkflowEndpoint(FrozenModel):
    """A workflow of the n8n server of this installation."""

    webhook: str = Field(min_length=1, max_length=500)
    """The path of its webhook, after /webhook/."""


class Tool(FrozenModel):
    """One definition for tools of all sources. What runs it is kept apart, in `Entry`."""

    name: str
    version: str = "1.0.0"
    description: str = Field(min_length=1)
    category: Category = "custom"
    tier: Tier = "write"
    kind: str = "local"
    """The name of its runner in `execute` (local, mcp, workflow, sandbox, http)."""
    source: Source = "python"
    documentation: str | None = None
    requires_auth: Auth | None = None
    requires_permission: str | None = None
    cost: Cost = Cost(model="free")
    capabilities: tuple[Capability, ...] = ()
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: dict[str, Any] | None = None
    retry: Retry | None = None
    timeout: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Seconds; without it the setting `max_execution_time` holds."""
    cache: CacheRule | None = None
    rate_limit: RateLimit | None = None
    concurrency: Annotated[int, Field(ge=1)] | None = None
    target: str | None = None
    """The external system that the tool depends on: tools with the same target share one circuit breaker."""
    tags: tuple[str, ...] = ()
    errors: tuple[ErrorCase, ...] = ()
    """The errors that the tool itself ends with, for whoever calls it."""
    examples: tuple[Example, ...] = ()
    operations: dict[str, Operation] = Field(default_factory=dict)
    """By value of the argument `operation`, all of them: what each risks. `tier` is then what lists show."""
    alias_of: str | None = None
    """The tool that this is a second name of: it works, but models are shown the first alone."""
    internal: bool = False
    """True for a tool that only Toolgate's own code calls, for an actor: no list for models shows it, and whoever else calls
    it is told that there is no tool of its name."""
    background: bool = False
    """True if its calls always run in the background, as jobs: whoever calls it is given the job's id."""
    enabled: bool = True
    annotations: dict[str, Any] = Field(default_factory=dict)
    """Hints as MCP has them (readOnlyHint, destructiveHint, openWorldHint …): they can raise a tier, never lower it."""
    tenant: str | None = None
    """Set on dynamic tools: the only tenant that sees them."""
    pure: bool = False
    """True if its output is a function of its caller's text and nothing else. No secret is put into such a tool: it would
    come back in another form, and no masking knows them all."""
    declared_tokens: int | None = None
    program: ToolProgram | None = None
    """The code of a tool of kind sandbox."""
    http: HttpEndpoint | None = None
    """The request of a tool of kind http."""
    route: Literal["events"] | None = None
    """`events`: calls are not run here but published to the event stream, and their results awaited from it. Whoever takes
    them from there runs them."""
    mcp: McpEndpoint | None = None
    """Of a tool of kind mcp that was registered at run time: what its calls are sent to."""
    workflow: WorkflowEndpoint | None = None
    """Of a tool of kind workflow that was registered at run time: what its calls start."""

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not TOOL_NAME.match(name):
            raise ValueError("a letter, then letters, digits, _ and -, at most 64 characters in all")
        return name

    @field_validator("version")
    @classmethod
    def _version(cls, version: str) -> str:
        if not SEMVER.match(version):
            raise ValueError("not a semantic version such as 1.2.3")
        return version

    @property
    def destructive(self) -> bool:
        """True if its name, its HTTP method or the action of a capability says that something is destroyed. What only one
        operation does, that operation answers for."""
        if _destroys(self.name) or (self.http is not None and self.http.method == "DELETE"):
            return True
        return any(capability.destructive for capability in self.capabilities if capability.action not in self.operations)

    def destroys(self, operation: str) -> bool:
        """True if an operation destroys something."""
        return self.destructive or self.operations[operation].destructive or _destroys(operation)

    def confirms(self, operation: str | None = None) -> bool:
        """True if a capability, or this operation, asks for confirmation."""
        asking = {capability.action for capability in self.capabilities if capability.requires_confirmation}
        if operation is not None and (self.operations[operation].requires_confirmation or operation in asking):
            return True
        return bool(asking - self.operations.keys())


def _known_code(code: str) -> str:
    if code not in CODES:
        raise ValueError(f"unknown error code {code!r}")
    return code


def nano(amount: Decimal) -> int:
    """Dollars as whole nano-dollars, rounded up: what is counted is never less than what is owed."""
    if amount.is_nan():
        raise ValueError("an amount of money cannot be NaN")
    if amount >= MAX_DOLLARS:
        return int(MAX_DOLLARS) * NANO
    return int(EXACT.multiply(max(amount, Decimal(0)), Decimal(NANO)).to_integral_value(ROUND_CEILING, EXACT))


def must_ask(tier: Tier, *, destructive: bool, confirms: bool) -> str | None:
    """Gives the reason why a person must be asked before a call; None if nobody has to be."""
    if tier == "execute":
        return "tier execute asks for every run"
    if tier == "external_api":
        return "tier external_api asks for every call"
    if tier == "write" and destructive:
        return "it is destructive"
    return "its definition asks for confirmation" if confirms else None


@lru_cache(maxsize=4096)
def _destroys(name: str) -> bool:
    """Tells whether a name says that something is destroyed: delete_user, deleteUser, DELETEuser, drops; not dropdown."""
    words = {word.lower() for word in WORD.findall(name)}
    return any(word in name.lower() for word in DESTRUCTIVE) or not words.isdisjoint(DESTRUCTIVE_WORDS)
