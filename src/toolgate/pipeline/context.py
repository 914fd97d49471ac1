"""The state of one call in the pipeline: identity, input and output with their histories, providers, and the means to
answer early. Hooks and tools are given it; `invoke` makes it. It knows nothing of steps or stores.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from toolgate.errors import CallError, Failed, described, said, shortened
from toolgate.model import Actor, Artifact, Call, CommandEntry, Entry, Invoke, Outcome, SpendingLimit, Tool, new_id
from toolgate.pipeline.call_tree import CallNode, CallStep, CallTree
from toolgate.pipeline.early_exit import Abort, Halt, Respond, RetryAfter
from toolgate.pipeline.held_resources import Held, is_agreed
from toolgate.pipeline.usage import UNPRICED, Estimate, UsageReport
from toolgate.screening.secret_patterns import masker
from toolgate.sessions import SessionKey, Sessions

T = TypeVar("T")
Scope = Literal["request", "session"]
MAX_SESSIONS = 10_000
LogLevel = Literal["debug", "info", "warn", "error"]
MAX_LOG_LINES = 100
"""Lines that a tool may write into its call's record."""
MAX_LOG_CHARS = 2_000
MAX_CALL_DEPTH = 16
"""Tools may call tools, this far."""


class Providers:
    """Instances that tools and hooks find by token, for all calls and for the calls of one session."""

    def __init__(self, sessions: Sessions | None = None) -> None:
        self.everywhere: dict[Any, Any] = {}
        self.every_session: dict[Any, Any] = {}
        self._whose = sessions or Sessions()
        self._sessions: OrderedDict[SessionKey, dict[Any, Any]] = OrderedDict()

    def session(self, actor: Actor, name: str) -> dict[Any, Any]:
        """The providers of a session, which callers name as they like, so each user has their own. Of the sessions unused
        for longest, those past MAX_SESSIONS are forgotten."""
        key = self._whose.key(actor, name)
        found = self._sessions.get(key)
        if found is None:
            found = self._sessions[key] = dict(self.every_session)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(key)
        return found


class Scratch(msgspec.Struct):
    """State that few calls have: made when first needed."""

    input_history: list[Any] = msgspec.field(default_factory=list)
    output_history: list[Any] = msgspec.field(default_factory=list)
    data: dict[Any, Any] = msgspec.field(default_factory=dict)
    request: dict[Any, Any] = msgspec.field(default_factory=dict)
    hook_errors: list[dict[str, str]] = msgspec.field(default_factory=list)
    logs: list[dict[str, str]] = msgspec.field(default_factory=list)
    observed: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """The answers of candidate policies."""
    hit_declined: bool = False
    """True if a hook would have the tool run although the cache has an answer."""
    traceback: str | None = None
    """Of the crash that ended the call: masked, for the end record."""


class InvokeContext(msgspec.Struct, eq=False):
    """One call on its way.

    Steps read and write `arguments` and `result`; hooks use `input` and `output`, which remember what was there before.
    """

    call: Call
    _providers: Providers
    _invoke: Invoke
    at: int
    """When the call came in: nanoseconds since 1970. `started_at` and `finished_at` are for durations only."""
    started_at: float
    arguments: Any
    node: CallNode | None
    """The place of the call among those of its outer call; an outer call has one once it calls another."""
    finished_at: float = 0.0
    entry: Entry | None = None
    canonical: bytes = b""
    """The validated arguments in the one form that is hashed: sorted keys, no white space."""
    recorded: bytes = b""
    """The arguments as records may hold them: secrets masked."""
    sealed: bool = False
    """Once true, `input` can only be read: what was validated and approved is what runs."""
    injected: tuple[str, ...] = ()
    """Values of secrets that were put into the arguments, of this call or of the one that made it: masked everywhere."""
    inherits_secrets: bool = False
    credential: str | None = None
    """The value of what the tool's `requires_auth` names."""
    decision: tuple[str, ...] = ()
    """The reasons why the gates let the call through."""
    estimate: Estimate = UNPRICED
    """The cost that the call may have."""
    cost: int = 0
    """The cost that it had, in nano-dollars."""
    hooked: bool = False
    """True if any hook takes part in this call."""
    cached: bool = False
    start: Any = None
    """The start record, once there is one."""
    attempts: int = 0
    refused: int = 0
    """Attempts that did not get as far as the tool: an open circuit, no thread."""
    unpaid: int = 0
    """Attempts of which the tool said that they did nothing that costs anything."""
    unsure: bool = False
    """True if an attempt failed and may have had its effect all the same."""
    result: Any = None
    artifact: Artifact | None = None
    report: UsageReport | None = None
    error: CallError | None = None
    went_away: bool = False
    """True if the caller was cancelled; it is let go when the call is settled."""
    outcome: Outcome | None = None
    step: CallStep | None = None
    """The step that it is there, once its arguments are known."""
    resumed: bool = False
    """True if it goes on, having been stopped before because of a call inside it."""
    agreed_with: str | None = None
    """The approval that it was agreed to with."""
    hosts: tuple[str, ...] = ()
    """The hosts that its command may reach from the sandbox: whoever is asked about the call is told of them."""
    marks: Any = None
    """The marks of the stages that were passed (`stage_marks`), if they are kept."""
    _held: Held | None = None
    """The resources that it took and owes, the gates' own (`held_resources`). Most calls take none."""
    _released: tuple[Callable[["InvokeContext"], Awaitable[None]], ...] = ()
    """Stages that are owed to a call which has passed those where places and quota are taken, once all is left."""
    _scratch: Scratch | None = None

    __repr__ = object.__repr__  # nothing that displays a context shows the secrets in it

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("call", self.call.id)]

    # -- identity

    @property
    def id(self) -> str:
        """The id of the call, as in the outcome and in the audit log."""
        return self.call.id

    @property
    def actor(self) -> Actor:
        """The caller."""
        return self.call.actor

    @property
    def user(self) -> str:
        """The user of the actor."""
        return self.call.actor.user

    @property
    def session(self) -> str | None:
        """The session that the caller named."""
        return self.call.session

    @property
    def tool(self) -> Tool | None:
        """The definition; None only while the name has not been found."""
        return self.entry.tool if self.entry else None

    @property
    def time_limit(self) -> float:
        """Seconds that the tool has: its own, or less if the caller said so."""
        own = self.entry.timeout if self.entry is not None else 0.0
        return own if self.call.timeout is None else min(own, self.call.timeout)

    @property
    def ran(self) -> bool:
        """True if the tool was reached, whatever came of it."""
        return self.attempts > self.refused

    @property
    def charged(self) -> int:
        """Attempts that may have had their effect, and are paid for."""
        return self.attempts - self.refused - self.unpaid

    # -- input and output, with what they were before

    @property
    def scratch(self) -> Scratch:
        if self._scratch is None:
            self._scratch = Scratch()
        return self._scratch

    @property
    def input(self) -> Any:
        """The arguments. A hook may set them until they are validated; later that raises `RuntimeError`."""
        return self.arguments

    @input.setter
    def input(self, value: Any) -> None:
        if self.sealed:
            raise RuntimeError("the arguments cannot change any more: they are validated, and may have been approved")
        self.scratch.input_history.append(self.arguments)
        self.arguments = value

    @property
    def output(self) -> Any:
        """The result. A hook may set it after the tool ran."""
        return self.result

    @output.setter
    def output(self, value: Any) -> None:
        if self.result is not None and self.result is not value:
            self.scratch.output_history.append(self.result)
        self.result = value

    @property
    def input_history(self) -> tuple[Any, ...]:
        """Former values of `input`, which hooks replaced, oldest first."""
        return tuple(self._scratch.input_history) if self._scratch else ()

    @property
    def output_history(self) -> tuple[Any, ...]:
        """Former values of `output`, which hooks replaced, oldest first."""
        return tuple(self._scratch.output_history) if self._scratch else ()

    @property
    def data(self) -> dict[Any, Any]:
        """Space that hooks share during one call."""
        return self.scratch.data

    # -- providers: request, then session, then global

    @property
    def global_providers(self) -> Mapping[Any, Any]:
        """The instances that `App.provide` offers to all calls."""
        return MappingProxyType(self._providers.everywhere)

    def bind(self, token: Any, instance: Any, scope: Scope = "request") -> None:
        """Offers an instance under a token to the rest of this call, or of this session."""
        if scope == "request":
            self.scratch.request[token] = instance
        elif scope == "session":
            if self.call.session is None:
                raise ValueError("bind(scope='session') needs a call with a session")
            self._providers.session(self.call.actor, self.call.session)[token] = instance
        else:
            raise ValueError(f"scope must be 'request' or 'session', not {scope!r}: a call cannot change global providers")

    def bind_all(self, providers: Any, scope: Scope = "request") -> None:
        """Binds a mapping, pairs of (token, instance), or the public attributes of an object."""
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(providers, Mapping):
            pairs = providers.items()
        elif isinstance(providers, Iterable) and not isinstance(providers, str | bytes):
            pairs = providers
        else:
            pairs = ((name, value) for name, value in vars(providers).items() if not name.startswith("_"))
        for token, instance in pairs:
            self.bind(token, instance, scope)

    def try_get(self, token: Any, default: Any = None) -> Any:
        """Gives what is bound to a token for this call, its session, or all calls; `default` if nothing is."""
        if self._scratch is not None and token in self._scratch.request:
            return self._scratch.request[token]
        if self.call.session is not None:
            session = self._providers.session(self.call.actor, self.call.session)
            if token in session:
                return session[token]
        return self._providers.everywhere.get(token, default)

    def get(self, token: Any) -> Any:
        """Gives what is bound to a token; raises `LookupError` if nothing is."""
        missing = object()
        found = self.try_get(token, missing)
        if found is missing:
            raise LookupError(f"no provider is bound for {token!r}")
        return found

    # -- ways out

    def respond(self, value: Any) -> NoReturn:
        """Ends the tool's part of the call with this value: it is not run (or not waited for), the output stages follow."""
        raise Respond(value)

    def abort(self, reason: str, code: str = "PERMISSION_DENIED", http_status: int | None = None) -> NoReturn:
        """Ends the call with this error code."""
        raise Abort(reason, code, http_status)

    def retry_after(self, milliseconds: float, reason: str | None = None) -> NoReturn:
        """Ends the call as RATE_LIMITED and says when to come again."""
        raise RetryAfter(milliseconds, reason)

    def decline_cache_hit(self) -> None:
        """In `did_cache_hit`: has the tool run although the cache has an answer."""
        self.scratch.hit_declined = True

    # -- calling other tools

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Outcome:
        """Calls another tool as the same actor, through the same pipeline; the log links the two calls."""
        return await self.call_inside(name, {**(arguments or {}), **more}, from_code=False)

    async def call_inside(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        allow: tuple[CommandEntry, ...] | None = None,
        spending_limit: SpendingLimit | None = None,
        whole: bool = False,
        from_code: bool = True,
        internal: bool = False,
        goes_on: bool = True,
    ) -> Outcome:
        """`call_tool` for code that runs in the sandbox. `allow`: the commands that its definition lets it run, to which
        whoever agreed to this call agreed with it; `whole`: its output goes to a program, not to a model: it is not cut.
        `internal`: the tool may be an internal one; for our own code alone, never with a name that somebody gave. `goes_on`
        False: where a person must be asked, the outcome is pending, and this call does not wait for the answer."""
        covered = bool(allow) and is_agreed(self)
        inner = self.inner_call(name, arguments, spending_limit)
        inner = replace(inner, allow=allow, covered=covered, from_code=from_code, whole=whole, internal=internal)
        return await self.make_inner_call(inner if goes_on else replace(inner, place=None))

    def inner_call(self, name: str, arguments: Mapping[str, Any], spending_limit: SpendingLimit | None = None) -> Call:
        """A call that is made from inside this one: as the same actor, in its session, for the same money."""
        call = self.call
        if call.depth >= MAX_CALL_DEPTH:
            raise Failed("CAPACITY_EXCEEDED", f"Tools call tools more than {MAX_CALL_DEPTH} deep here.", retryable=False)
        node = self.place()
        return Call(
            id=new_id(),
            tool=name,
            arguments=dict(arguments),
            actor=call.actor,
            session=call.session,
            parent=call.id,
            depth=call.depth + 1,
            door=call.door,
            spending_limit=spending_limit or call.spending_limit,
            caller=call.caller,
            place=None if node is None else CallNode(node.tree, node),
            workspace=call.workspace,
            here=call.here,
            connection=call.connection,
            on_behalf_of=call.on_behalf_of,
        )

    async def make_inner_call(self, inner: Call) -> Outcome:
        """Makes it; where it can't go on, neither can this one."""
        node, place, from_code = self.node, inner.place, inner.from_code
        if node is None or place is None:
            return await self._invoke(inner)
        if node.tree.halted is None:
            outcome = await node.call(self._invoke, inner, place)
            if node.tree.halted is None:
                return outcome
        await node.halts()
        if from_code:
            await asyncio.get_running_loop().create_future()  # `running` ends it, with the code that asked
        raise Halt(node.tree.stop())

    def place(self) -> CallNode | None:
        """From where the tool's calls are made. None before and after it runs: what hooks call then is told as it is."""
        if self.finished_at or not self.attempts:
            return None
        if self.node is None:
            self.node = CallNode(CallTree(self.call.id, self.call.tool))
        return self.node

    async def running(self, work: Awaitable[T]) -> T:
        """Awaits code in the sandbox that makes calls by `call_inside`, and stops it where one of them can't go on."""
        node = self.place()
        ran = await work if node is None else await node.running(work)
        if ran is None and node is not None:
            raise Halt(node.tree.stop())
        return ran  # type: ignore[return-value]

    # -- what a tool may report

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tells the caller how far the call has got, if they can be told while it runs. Secrets are masked."""
        if self.call.caller is not None:
            if message is not None and self.injected:
                message = masker(self.injected).text(message, on_loop=True)
            await self.call.caller.progress(progress, total, message)

    def used(self, *resources: str, tokens: int | None = None, cost_usd: float | None = None) -> None:
        """Reports what the call took: resources that it accessed, tokens, dollars. Shown in the outcome's metrics."""
        if cost_usd is not None and not (isinstance(cost_usd, int | float) and 0 <= cost_usd < 1e9):
            raise ValueError(f"cost_usd must be a number of dollars, not {cost_usd!r:.40}")
        if tokens is not None and not (isinstance(tokens, int) and 0 <= tokens < 10**15):
            raise ValueError(f"tokens must be a whole number, not {tokens!r:.40}")
        if not all(isinstance(resource, str) for resource in resources):
            raise TypeError("resources are named by text")
        report = self.report = self.report or UsageReport()
        if resources:
            report.resources_used = (*(report.resources_used or ()), *resources)
        if tokens is not None or cost_usd is not None:
            report.count(self.attempts)
        if tokens is not None:
            report.tokens_used = (report.tokens_used or 0) + tokens
        if cost_usd is not None:
            report.cost_usd = (report.cost_usd or 0.0) + cost_usd

    @property
    def hook_errors(self) -> tuple[dict[str, str], ...]:
        """Errors of hooks after the call was decided: stage, hook, error."""
        return tuple(self._scratch.hook_errors) if self._scratch else ()

    @property
    def logs(self) -> tuple[dict[str, str], ...]:
        """The lines that `log` wrote."""
        return tuple(self._scratch.logs) if self._scratch else ()

    @property
    def observed(self) -> list[dict[str, Any]]:
        """The answers of the policies that are only observed."""
        return self._scratch.observed if self._scratch else []

    def log(self, message: str, level: LogLevel = "info") -> None:
        """Writes a line into the call's record, masked as everything in it. After 100 lines they are only counted."""
        logs = self.scratch.logs
        if len(logs) < MAX_LOG_LINES:
            logs.append({"level": level, "message": shortened(said(message), MAX_LOG_CHARS)})
        elif logs[-1]["level"] == "more":
            logs[-1]["message"] = str(int(logs[-1]["message"]) + 1)
        else:
            logs.append({"level": "more", "message": "1"})

    def note_hook_error(self, stage: str, hook: str, error: BaseException) -> None:
        """Note what a hook did wrong after the call was decided; the end record and the program's log show it, masked."""
        self.scratch.hook_errors.append({"stage": stage, "hook": hook, "error": described(error)})


async def runs_nothing(call: Call) -> Outcome:
    """The `Invoke` of a context in which arguments or credentials are only checked."""
    raise NotImplementedError(call.tool)
