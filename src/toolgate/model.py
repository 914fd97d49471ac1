"""The words of Toolgate: what a tool, a call, an actor and an outcome are. No I/O; only `errors` is below.

Two kinds of values. What a person writes (a `Tool` and its parts) is a pydantic model, because its faults must be
named with their path. What travels with every call (`Call`, `Actor`, `Outcome`, `Metrics`) is a frozen msgspec struct,
because making one costs 0.1 µs where a frozen dataclass costs 0.8 (docs/decisions/0002-hot-values.md).
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from decimal import ROUND_CEILING, Context, Decimal
from typing import Annotated, Any, Literal, Protocol, get_type_hints

import msgspec
import orjson
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, field_validator
from pydantic_core import core_schema
from uuid_utils import uuid7

from toolgate.errors import CODES, Pending, Status, call_error, shortened
from toolgate.screening.mask import MASK as MASK

Tier = Literal["read_only", "write", "execute", "external_api"]
TIERS: tuple[Tier, ...] = ("read_only", "write", "execute", "external_api")
"""The four tiers, from the least risk to the most."""

Category = Literal[
    "filesystem", "code_analysis", "validation", "search", "api",
    "database", "service", "deployment", "development", "custom",
]  # fmt: skip
Source = Literal["builtin", "teams", "python", "workflow", "mcp", "openapi", "custom", "dynamic"]
SOURCES: tuple[Source, ...] = ("builtin", "teams", "python", "workflow", "mcp", "openapi", "custom", "dynamic")
"""Where a tool can come from, in the order in which a name is given: the later source of a taken name is refused."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")
_NUMBER, _LABEL = r"(?:0|[1-9][0-9]*)", r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_LABEL}(?:\.{_LABEL})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?\Z"
)
NANO = 1_000_000_000
"""Nano-dollars in a dollar."""
MOST_DOLLARS = Decimal(10**9)
"""What one call may be said to cost: the sum of a few still fits into 64 bits."""
EXACT = Context(prec=200, rounding=ROUND_CEILING, traps=[])
"""For sums of money: nothing is lost, and what is beyond it is infinite, hence the most that there is."""
PROPOSES = "its author proposes to let it run without asking from now on"
"""What a person is told of a tool whose definition says auto_accept: they may grant it, nobody does it for them."""
DESTRUCTIVE = ("delete", "destroy", "erase", "purge", "uninstall")
"""Wherever in a name."""
DESTRUCTIVE_WORDS = frozenset(
    word + end for word in ("remove", "drop", "truncate", "wipe", "unlink") for end in ("", "s")
) | {"removing", "dropping", "truncating", "removed", "dropped"}
"""As words of their own."""
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


# ---------------------------------------------------------------------------------------------- what a person writes


class Definition(BaseModel):
    """Common to all parts of a definition: closed to unknown fields, never changed after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=100_000, defer_build=True)


class Auth(Definition):
    """The credential that a tool needs."""

    type: Literal["api_key", "oauth", "basic_auth", "bearer_token", "custom"] = "api_key"
    required: bool = True
    config_key: str = Field(min_length=1)
    setup_url: str | None = None


class UnitCost(Definition):
    """A price that depends on the input: so much a token, character, record or second."""

    unit: Literal["token", "character", "record", "second"]
    price: Decimal = Field(ge=0, le=MOST_DOLLARS)
    field: str | None = None
    """The argument that is measured; for `second`, the tool's timeout counts."""


class Cost(Definition):
    """What a call costs, in dollars."""

    model: Literal["free", "usage_based", "subscription", "one_time"] = "usage_based"
    fixed: Decimal = Field(default=Decimal(0), ge=0, le=MOST_DOLLARS)
    per_unit: UnitCost | None = None
    billing_url: str | None = None
    free_tier_limit: int | None = Field(default=None, ge=0)


class Capability(Definition):
    """One thing that a tool can do."""

    action: str = Field(min_length=1)
    description: str = ""
    requires_confirmation: bool = False
    estimated_cost: Decimal | None = Field(default=None, ge=0, le=MOST_DOLLARS)
    estimated_time_ms: int | None = Field(default=None, ge=0)

    @property
    def destructive(self) -> bool:
        """True if its action says that something is destroyed: delete, remove, drop …"""
        return _destroys(self.action)


class Retry(Definition):
    """How a failed attempt is repeated. `max_attempts` counts the first too; `codes` are the errors after which it is."""

    max_attempts: int = Field(default=3, ge=1, le=20)
    backoff_ms: int = Field(default=200, ge=0, le=600_000)
    multiplier: float = Field(default=2.0, ge=1, le=100)
    max_delay_ms: int = Field(default=30_000, ge=0, le=3_600_000)
    codes: tuple[str, ...] = ("TIMEOUT", "CONNECTION_ERROR")

    @field_validator("codes")
    @classmethod
    def _known(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [code for code in codes if code not in CODES]
        if unknown:
            raise ValueError(f"unknown error code {unknown[0]!r}")
        return codes


class CacheRule(Definition):
    """How long a result may be given out again, and to whom."""

    ttl: float = Field(gt=0)
    scope: Literal["tenant", "user"] | None = None
    """None: the user where the tool can see who calls, else the tenant."""


class RateLimit(Definition):
    """How often a tool may be called by one user."""

    per_minute: int | None = Field(default=None, ge=1)
    per_hour: int | None = Field(default=None, ge=1)
    per_day: int | None = Field(default=None, ge=1)


Runtime = Literal["typescript", "node", "python"]
Risk = Literal["low", "medium", "high", "critical"]


class Example(Definition):
    """A call that shows what a custom tool does, and what must come of it."""

    name: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    output: Any = None
    """What the call must give. Compared only if it is said (`"output" in example.model_fields_set`)."""
    error: str | None = None
    """The code of the error that the call must end with, in place of an output."""


class Program(Definition):
    """The code of a tool that runs in the sandbox, and what it may ask the host for (document E)."""

    runtime: Runtime = "typescript"
    code: str = Field(min_length=1)
    allowlist: tuple[str, ...] | None = None
    """Commands that it may have run: beginnings, word by word; a word may end in *. None: those of `commands.allow`."""
    auto_accept: bool | None = None
    """True: whoever is asked about it is offered to grant it once and for all. False: asks each time."""
    risk_level: Risk | None = None
    examples: tuple[Example, ...] = ()


class Tool(Definition):
    """One definition for tools of all sources. What runs it is kept apart, in `Entry`."""

    name: str
    version: str = "1.0.0"
    description: str = Field(min_length=1)
    category: Category = "custom"
    tier: Tier = "write"
    kind: str = "local"
    """How it runs: the name of a runner in `execute` (local, mcp, workflow, sandbox, job)."""
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
    enabled: bool = True
    annotations: dict[str, Any] = Field(default_factory=dict)
    """Hints as MCP has them (readOnlyHint, destructiveHint, openWorldHint …): they can raise a tier, never lower it."""
    tenant: str | None = None
    """Set on dynamic tools: the only tenant that sees them."""
    pure: bool = False
    """Whether its output is a function of its caller's text and nothing else. No secret is put into such a tool: it would
    come back in another form, and no masking knows them all."""
    declared_tokens: int | None = None
    program: Program | None = None
    """The code of a tool of kind sandbox."""

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not NAME.match(name):
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
        """True if its name, or the action of a capability, says that something is destroyed."""
        return _destroys(self.name) or any(capability.destructive for capability in self.capabilities)


def nano(amount: Decimal) -> int:
    """Dollars as whole nano-dollars, rounded up: what is counted is never less than what is owed."""
    if amount.is_nan():
        raise ValueError("an amount of money can't be NaN")
    if amount >= MOST_DOLLARS:
        return int(MOST_DOLLARS) * NANO
    return int(EXACT.multiply(max(amount, Decimal(0)), Decimal(NANO)).to_integral_value(ROUND_CEILING, EXACT))


def must_ask(tier: Tier, *, destructive: bool, confirms: bool) -> str | None:
    """Why a person must be asked before a call; None if nobody has to be."""
    if tier == "execute":
        return "tier execute asks for every run"
    if tier == "external_api":
        return "tier external_api asks for every call"
    if tier == "write" and destructive:
        return "it is destructive"
    return "its definition asks for confirmation" if confirms else None


def _destroys(name: str) -> bool:
    """Whether a name says that something is destroyed: delete_user, deleteUser, DELETEuser, drops; not airdrop, dropdown."""
    words = {word.lower() for word in WORD.findall(name)}
    return any(word in name.lower() for word in DESTRUCTIVE) or not words.isdisjoint(DESTRUCTIVE_WORDS)


# ------------------------------------------------------------------------------------------ what travels with a call


class Actor(msgspec.Struct, frozen=True, gc=False):
    """Who calls: a user of a tenant, in the role of a persona."""

    tenant: str = "default"
    persona: str | None = None
    user: str = "local"
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, value in (("tenant", self.tenant), ("user", self.user), ("persona", self.persona)):
            if value is None and field == "persona":
                continue
            if not isinstance(value, str) or not value or len(value) > 256 or not _clean(value):
                raise ValueError(f"Actor.{field} must be 1 to 256 printable characters, not {value!r:.80}")


def _clean(text: str) -> bool:
    return text.isprintable() and not any("\ud800" <= char <= "\udfff" for char in text)


def new_id() -> str:
    """An id for a call: unique, and later ones sort after earlier ones."""
    return str(uuid7())


LOCAL = Actor()
"""The actor of a call that names none: the person at this machine."""


class SpendingLimit(msgspec.Struct):
    """Money that the calls of one program share, in nano-dollars, whatever budgets say."""

    left: int


class Caller(Protocol):
    """What the door that a call came through can do for it while it runs. Only doors that keep in touch with whoever called
    have one (MCP); the methods never raise, except that `ask` raises a CallError where there is no answer."""

    capabilities: Mapping[str, Any]
    """What the client says it can be asked for: elicitation, sampling, roots, as MCP spells them."""
    input_responses: Mapping[str, Any] | None
    """Answers to what the tool asked when it was called before with the same arguments (protocol 2026-07-28)."""
    request_state: str | None
    """And what the tool wanted to be reminded of."""
    log_level: str | None
    """The least severe messages that the client wants to see; None: none at all."""
    can_come_again: bool
    """Whether the client, told what a tool needs to know, calls again with the answers; otherwise it has to be asked."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call has got."""

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Pass on a message of the tool's."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put a request of the tool's to the client (elicitation/create, sampling/createMessage, roots/list)."""

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        """What the tool wants to know, and to have back when it is called again with the answers."""

    def goes_on(self) -> None:
        """The tool takes long: whoever called need not wait for it."""


RARE = frozenset({"artifact", "resources_used"})
"""What an outcome as JSON leaves out where there is none."""
SHOWN = 100
"""Characters of an output or a message in the repr of an outcome: pytest shows 240 in all."""
LOCAL_DOORS = frozenset({"python", "cli"})
"""The doors that only whoever runs Toolgate's own process comes through. Over any other, known or not, a call comes from
somebody whose tenant and user are names in a credential: what belongs to the person at this machine is not theirs."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request to run one tool."""

    id: str
    tool: str
    arguments: Any
    actor: Actor = LOCAL
    session: str | None = None
    idempotency_key: str | None = None
    approval: str | None = None
    timeout: float | None = None
    parent: str | None = None
    """The call from inside which this one is made."""
    depth: int = 0
    door: str = "python"
    allow: tuple[str, ...] | None = None
    """Commands that the definition of the tool which makes this call lets it run, in place of those of the settings. Said by
    no door."""
    covered: bool = False
    """Whether a person agreed to the call that makes this one, knowing what it may run (`allow`). Said by no door."""
    from_code: bool = False
    """Whether code in the sandbox made this call."""
    spending_limit: SpendingLimit | None = None
    """What is left to the program that makes this call, and to all that it calls in turn."""
    whole: bool = False
    """Whether the output goes to a program: then it is not cut to what a model can read."""
    caller: Caller | None = None
    """How to reach whoever called while the call runs, where that can be done."""
    place: Any = None
    """Where it stands among the calls inside its outer call (`call_tree.CallNode`). Said by no door."""


class Told(msgspec.Struct, frozen=True, gc=False):
    """Part of an outcome. Pydantic knows its JSON, so that a FastAPI route can return an outcome and describe it."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(hint), required=name not in RARE)
            for name, hint in get_type_hints(cls).items()
        }
        return core_schema.typed_dict_schema(fields, ref=f"{cls.__module__}.{cls.__qualname__}:{id(cls)}")


class ErrorInfo(Told, frozen=True, gc=False):
    """Why a call did not succeed, for programs (code, retryable) and for people (message, suggestion)."""

    code: str
    message: str
    retryable: bool = False
    suggestion: str | None = None
    details: dict[str, Any] | None = None


class PendingInfo(Told, frozen=True, gc=False):
    """What a pending call waits for."""

    kind: str
    id: str


class Metrics(Told, frozen=True, gc=False):
    """What a call took."""

    duration_ms: float = 0.0
    attempts: int = 0
    cached: bool = False
    tokens_used: int | None = None
    cost_usd: float = 0.0
    resources_used: tuple[str, ...] | None = None


class Artifact(Told, frozen=True, gc=False):
    """What was too long to give out whole: kept under an id, with a list of what was cut."""

    id: str
    bytes: int
    cut: tuple[str, ...]


class Outcome(Told, frozen=True, gc=False):
    """How a call ended: `output` if `status` is success, else `error`, with `pending` if it waits. Every door gives this."""

    id: str
    tool: str
    status: Status
    output: Any = None
    error: ErrorInfo | None = None
    pending: PendingInfo | None = None
    metrics: Metrics = Metrics()
    artifact: Artifact | None = None

    @property
    def ok(self) -> bool:
        """True if the call succeeded."""
        return self.status == "success"

    def to_dict(self) -> dict[str, Any]:
        """Gives the outcome as plain JSON values; artifact and resources_used only where there are any."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if self.artifact is None:
            del plain["artifact"]
        else:
            plain["artifact"]["cut"] = list(self.artifact.cut)
        plain["metrics"]["duration_ms"] = round(self.metrics.duration_ms, 4)
        if self.metrics.resources_used is None:
            del plain["metrics"]["resources_used"]
        else:
            plain["metrics"]["resources_used"] = list(self.metrics.resources_used)
        return plain

    def to_json(self) -> bytes:
        """`to_dict` as JSON."""
        return orjson.dumps(self.to_dict())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        told = super().__get_pydantic_core_schema__(source, handler)
        as_json = core_schema.plain_serializer_function_ser_schema(lambda outcome: outcome.to_dict(), return_schema=told)
        return core_schema.is_instance_schema(cls, serialization=as_json)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Has `dict(outcome)` give what `to_dict` does, as with a pydantic model."""
        return iter(self.to_dict().items())

    def __repr__(self) -> str:
        """What a failed assertion shows: how the call ended, in one line. The rest is in `to_dict`."""
        if self.status == "success":
            ended = f"success, output={shortened(repr(self.output), SHOWN)}"
        elif self.pending is not None:
            ended = f"pending, {self.pending.kind} {self.pending.id}"
        else:
            ended = self.status
        why = f", {self.error.code}: {shortened(self.error.message, SHOWN)}" if self.error is not None else ""
        return f"Outcome({self.tool}: {ended}{why}, id={self.id})"

    def raise_for_status(self) -> "Outcome":
        """Raises the `CallError` that matches a call which did not succeed; gives the outcome itself if it did."""
        if self.status == "success":
            return self
        __tracebackhide__ = True  # pytest shows the line that called this
        error = self.error or ErrorInfo("UNEXPECTED_ERROR", CODES["UNEXPECTED_ERROR"].message)
        rest: dict[str, Any] = {
            "retryable": error.retryable, "suggestion": error.suggestion, "details": error.details,
        }  # fmt: skip
        if self.pending is not None:
            raise Pending(error.code, error.message, kind=self.pending.kind, id=self.pending.id, **rest)
        raise call_error(error.code, error.message, **rest) from self._cause()

    def _cause(self) -> BaseException | None:
        return None


class Crash:
    """A tool's exception, so wrapped that nothing that displays an outcome (rich, a debugger, a log) shows its words, which
    may hold secrets: only `raise_for_status` does."""

    __slots__ = ("exception",)

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception

    def __repr__(self) -> str:
        return f"<{type(self.exception).__name__}>"


class CrashedOutcome(Outcome, frozen=True, gc=True):
    """An outcome of a call whose tool raised something of its own, in this process: `raise_for_status` raises from it. It is
    no part of the outcome as JSON. The garbage collector looks at it, for the exception's frames may refer to it."""

    crash: Crash | None = None

    def _cause(self) -> BaseException | None:
        return None if self.crash is None else self.crash.exception

    def _told(self) -> Outcome:
        return Outcome(*(getattr(self, field) for field in Outcome.__struct_fields__))

    def to_dict(self) -> dict[str, Any]:
        return self._told().to_dict()


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A gate's answer, never without its reason."""

    allow: bool
    reason: str
    sure: bool = True
    """False for a denial because nobody could be asked: what should have decided is out of reach or broken."""


Invoke = Callable[[Call], Awaitable[Outcome]]
"""The architecture in one line: whoever wants a tool run is handed one of these, and has no other way."""

Arguments = Mapping[str, Any]


# ------------------------------------------------------------------------------------------- what a call finds ready


class Validator(Protocol):
    """A compiled JSON Schema."""

    def is_valid(self, instance: Any, /) -> bool: ...
    def iter_errors(self, instance: Any, /) -> Iterator[Any]: ...


Mode = Literal["inline", "task", "thread"]
"""How a Python function is run: awaited in place (it can't suspend), as a task, or in a thread (it is not async)."""


class Implementation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The Python code behind a local tool."""

    function: Callable[..., Any]
    mode: Mode
    bind: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Turns validated JSON into what the function's hints ask for (models, dates, enums); None where JSON will do."""
    context_parameter: str | None = None
    instance: Any = None
    """The object of a class-based tool, for its validate, handle_error, initialize, cleanup and health_check."""
    plain: bool = False
    """Whether the function can be awaited in place with the arguments as they are: none of the above is needed."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A tool in the catalog, with all that can be computed before the first call.

    What a call reads of the definition stands here again: an attribute of a pydantic model costs ten times as much.
    """

    tool: Tool
    name: str
    implementation: Any
    """What the runner of the tool's kind needs: an `Implementation` for local tools."""
    tier: Tier
    destructive: bool
    confirms: bool
    """Whether a capability asks for confirmation."""
    check_input: Validator
    check_output: Validator | None
    defaults: dict[str, Any]
    copies: bool
    """Whether a call must run on a copy of its arguments that its caller does not hold: it may wait before it runs."""
    takes_text: bool
    """Whether an argument can hold text, and so a secret or the name of one; false if the schema allows only numbers."""
    public_input: frozenset[str]
    public_output: frozenset[str]
    """Fields that the schemas mark as `x-public`: never masked by their name."""
    kind: str
    target: str | None
    timeout: float
    """Seconds that an attempt may take, with what it waits for before it runs."""
    run_seconds: float | None
    """Seconds that its code or command may take in the sandbox, where the setting sandbox.seconds says that."""
    retry: Retry | None
    cache: CacheRule | None
    auth: Auth | None
    rate_limit: RateLimit | None
    concurrency: int | None
    priced: bool
    """Whether a call can cost anything: what follows is zero or None for free tools."""
    fixed_nano: int
    unit_cost: UnitCost | None
    capability_nano: int
    """The largest estimate among its capabilities, in nano-dollars: what a call may cost if the tool names no price."""
    expected_ms: int | None
    asks: str | None
    """Why a person must be asked before each call; None if nobody has to be."""
    guards: Any
    """Which arguments are paths or commands, as the tier's rules want to know; None if there are none."""
    fingerprint: str
    """Hash of the whole definition: what an approval or a pin is bound to."""
    hooks: tuple[Any, ...] = ()

    @property
    def time_limit(self) -> float | None:
        """Seconds after which an attempt is ended; None for a function that never awaits: nothing can interrupt it."""
        if getattr(self.implementation, "mode", None) == "inline":
            return None
        return self.timeout if self.run_seconds is None else min(self.timeout, self.run_seconds)

    @property
    def longest(self) -> float:
        """Seconds that all attempts may take together, with the pauses between them."""
        retry = self.retry
        if retry is None:
            return self.timeout
        return self.timeout * retry.max_attempts + (retry.max_attempts - 1) * retry.max_delay_ms / 1000

    @property
    def runs_code(self) -> bool:
        """Runs code or commands: tools of tier execute, and custom tools of any tier, whose code the sandbox runs."""
        return self.tier == "execute" or self.kind == "sandbox"
