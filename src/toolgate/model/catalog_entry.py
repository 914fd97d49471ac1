"""A tool in the catalog as a call finds it, with all that can be computed before the first call."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from toolgate.model.definition import TIERS, Auth, CacheRule, RateLimit, Retry, Tier, Tool, UnitCost


class Validator(Protocol):
    """A compiled JSON Schema."""

    def is_valid(self, instance: Any, /) -> bool: ...
    def iter_errors(self, instance: Any, /) -> Iterator[Any]: ...


Mode = Literal["inline", "task", "thread"]
"""The way a Python function is run: awaited in place (it can't suspend), as a task, or in a thread (it is not async)."""


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
    """True if the function can be awaited in place with the arguments as they are: none of the above is needed."""
    jails_commands: bool = False
    """True if the function runs the commands among its arguments in the sandbox, and nowhere else."""
    reaches: str | None = None
    """The setting whose hosts its programs in the sandbox reach."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A tool in the catalog, with all that can be computed before the first call.

    What a call reads of the definition stands here again: an attribute of a pydantic model costs ten times as much.
    """

    tool: Tool
    name: str
    implementation: Any
    """The data that the runner of the tool's kind needs: an `Implementation` for local tools."""
    tier: Tier
    destructive: bool
    confirms: bool
    """True if a capability asks for confirmation."""
    check_input: Validator
    check_output: Validator | None
    defaults: dict[str, Any]
    copies: bool
    """True if a call must run on a copy of its arguments that its caller does not hold: it may wait before it runs."""
    takes_text: bool
    """True if an argument can hold text, and so a secret or the name of one; false if the schema allows only numbers."""
    public_input: frozenset[str]
    public_output: frozenset[str]
    """Fields that the schemas mark as `x-public`: never masked by their name."""
    literal_input: frozenset[str]
    """Arguments that the schema marks as `x-literal`: `{{secret:NAME}}` in them is text like any other."""
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
    """True if a call can cost anything: what follows is zero or None for free tools."""
    fixed_nano: int
    unit_cost: UnitCost | None
    capability_nano: int
    """The largest estimate among its capabilities, in nano-dollars: what a call may cost if the tool names no price."""
    free_calls: int | None
    """Calls that cost nothing in each period of the service's free tier; None: it has none."""
    expected_ms: int | None
    asks: str | None
    """Why a person must be asked before each call; None if nobody has to be."""
    unasked: str
    """Why nobody is asked, where nobody is: for the record."""
    guards: Any
    """The arguments that are paths or commands, for the tier's rules; None if there are none."""
    fingerprint: str
    """Hash of the whole definition: what an approval or a pin is bound to."""
    hooks: tuple[Any, ...] = ()
    jails_commands: bool = False
    """True if commands among its arguments run in the sandbox, and nowhere else: a built-in tool that declares it."""
    hosts: tuple[str, ...] = ()
    """The hosts that its programs in the sandbox reach, whatever its arguments: of a built-in tool that declares it."""
    background: bool = False
    """True if a call of it is queued, and run by a worker."""
    operations: "dict[str, Entry] | None" = None
    """By value of the argument `operation`, the entry that governs such a call; None if the tool has no operations."""
    internal: bool = False
    """True if only Toolgate's own code may call it."""
    is_sent_out: bool = False
    """True if its calls are run by whoever takes them from the event stream."""

    def of_call(self, arguments: Any) -> "Entry":
        """The entry that governs a call with these arguments, which are valid: the tool's own, or that of its operation."""
        return self if self.operations is None else self.operations[arguments["operation"]]

    @property
    def governed_elsewhere(self) -> "Entry":
        """The entry for a call that another Toolgate asked about, counted and charged for: here it is only run. Policy,
        arguments, secrets, output and record are looked after as ever."""
        inner = self.operations
        return replace(
            self, asks=None, priced=False, fixed_nano=0, unit_cost=None, capability_nano=0, free_calls=None,
            rate_limit=None, cache=None, background=False, unasked="asked, counted and charged for where it was sent from",
            operations=None if inner is None else {name: one.governed_elsewhere for name, one in inner.items()},
        )  # fmt: skip

    @property
    def riskiest(self) -> "Entry":
        """The entry of the operation that risks most: what a tool is shown as to whoever must expect any of them."""
        if self.operations is None:
            return self
        return max(self.operations.values(), key=lambda one: (TIERS.index(one.tier), one.destructive, one.asks is not None))

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
        """Runs code or commands: tools of tier execute, and custom tools of any tier, whose code the sandbox runs. Of a tool
        with operations, if one of them does."""
        governing = (self,) if self.operations is None else self.operations.values()
        return self.kind == "sandbox" or any(one.tier == "execute" for one in governing)
