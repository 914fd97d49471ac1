"""Every stage that a user can hook, one line each, and how the hooks of a stage become one callable.

The order of the stages is `invoke`'s business; the context that hooks are given is `context`'s. A stage without hooks is
None and costs `invoke` one look.
"""

from asyncio import CancelledError, current_task
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from toolgate.errors import CallError, Failed, TimedOut, described
from toolgate.model import Actor, Call, Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.early_exit import Control
from toolgate.pipeline.hook_limits import Awaited, HookTimeout, HookTimer, begun, check_limits, limit_of
from toolgate.pipeline.stage_marks import StageMarks
from toolgate.pipeline.usage import Estimate

Stage = Callable[[InvokeContext], Awaitable[None]] | None
Next = Callable[[], Awaitable[Any]]


class Stages:
    """The hooks of one tool (its own and the global ones), composed. Stages are listed in the order of a plain success."""

    will_create_invoke_context: Stage  # a call has arrived
    did_create_invoke_context: Stage  # its context is complete, but for providers
    will_bind_providers: Stage  # bind providers, or return a mapping, pairs or an object of them
    will_authorize: Stage  # before policy is asked
    will_check_feature_flags: Stage  # before the flags of tool and tenant
    will_parse_input: Stage  # the raw arguments, as the caller sent them
    will_validate_input: Stage  # before the schema
    will_normalize_input: Stage  # valid; from here on arguments can't change
    will_check_consent: Stage  # before tier and approval
    will_acquire_quota: Stage  # before rate and budget
    will_acquire_semaphore: Stage  # before a place among the running calls
    will_redact_input: Stage  # before the copy is made that records will hold
    will_read_cache: Stage  # before the result cache
    did_cache_hit: Stage  # found; the call goes on to will_audit unless the hit is declined
    did_cache_miss: Stage  # not found, declined, or the tool has no cache
    will_inject_secrets: Stage  # before references to secrets become values
    will_execute: Stage  # before every attempt
    did_execute: Stage  # after an attempt that succeeded
    on_retry: Stage  # before every attempt but the first
    on_give_up: Stage  # the last attempt failed too
    will_validate_output: Stage  # the raw output
    will_redact_output: Stage  # valid; a hook that fails here ends the call, without output
    will_transform_output: Stage  # before the limits
    will_write_cache: Stage  # what will be given out
    on_error: Stage  # the call did not succeed, ctx.error says why (not for pending)
    will_audit: Stage  # before the end record
    did_audit: Stage  # after it
    on_metrics: Stage  # ctx.outcome is complete
    did_release_semaphore: Stage  # the place is free again; only if the call got as far as taking one
    did_release_quota: Stage  # what was reserved is settled; only if the call got as far as that
    will_finalize_invoke: Stage  # last, whatever happened

    around_execute: Callable[[InvokeContext, Next], Awaitable[Any]] | None  # wraps all attempts

    def __init__(self) -> None:
        self.any = False
        """True if there is any hook at all."""
        self.empty = True
        """True if no hook runs at any stage: then the line need not look at each. Marks stand only at stages that it does
        not leave out for the tool."""
        for stage in STAGES:
            setattr(self, stage, None)


STAGES: tuple[str, ...] = tuple(Stages.__annotations__)

REDACTION = "will_redact_output"
"""A hook that fails here, in whatever way, ends the call: what it was to remove would go out."""

POST = frozenset({"did_execute", "will_validate_output", "will_transform_output", "will_write_cache"})
"""The tool has run: a hook that raises is recorded and the outcome stands; abort and retry_after still count."""

OBSERVES = frozenset({"will_write_cache"})
"""Of these, the stages that can't change what is given out. At the others a hook that runs out of time ends the call: it may
have been about to mask or refuse the output."""

SEE_TRACEBACK = "Correct the hook: the program's log, and the end record of the call, say where it failed."

PROMPT = "system_prompt"
"""The method of a hook that is given the system prompt of an agent. It is no stage of a call."""

LATE = frozenset(STAGES[STAGES.index("on_error") : STAGES.index("will_finalize_invoke") + 1])
"""The outcome is decided: whatever a hook raises is recorded."""


class Hook:
    """Subclass it and define methods named like stages; each takes the context and may be async.

    `around_execute(ctx, next)` wraps the execution: `await next()` gives the output, and what it returns (unless None)
    becomes the output. A hook with a higher `priority` runs earlier, at did_* stages later. `filter(ctx)`, if
    defined, is asked at every stage whether the hook takes part in it. `timeout` is how many seconds it may take at a stage,
    or a mapping of stages to seconds; without it, the setting limits.hook_seconds counts.

    `system_prompt(prompt)` is no stage: it is given a `PromptDraft` whenever the system prompt of an agent is made, and
    what it returns (unless None) becomes the text. Only hooks of the App take part in it, not those of a tool or a call.
    """

    priority: int = 0
    timeout: float | Mapping[str, float] | None = None


class Explains:
    """A hook of a built-in tool that takes part in no stage: its method `explain` adds a line to `toolgate explain`."""


class Estimates(Hook):
    """A hook of a built-in tool that says what a call may cost, where price and arguments alone do not tell."""

    async def estimate(self, ctx: InvokeContext) -> Estimate | None:
        """The most that the call may cost; None: what its definition says."""
        raise NotImplementedError


class HookPart(NamedTuple):
    name: str
    method: Callable[..., Any]
    filter: Callable[..., Any] | None
    seconds: float


class PromptDraft(msgspec.Struct, frozen=True):
    """The system prompt of an agent, as a hook is given it."""

    text: str
    actor: Actor
    session: str | None
    style: Literal["native", "json"]
    """json: the definitions of tools are in the text."""
    tools: tuple[str, ...]
    """The names of the tools that the model is told of."""


class HookSet:
    """All hooks of an App. Gives each tool its composed stages, made once and again when a global hook is added."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._global: list[Any] = []
        self._composed: dict[tuple[Any, ...], Stages] = {}
        self.resolver: Callable[[type], Any] = lambda kind: kind()
        """Makes a hook of one that is given as a class."""
        self.common = Stages()
        """The stages of a tool without hooks of its own."""

    def add(self, hook: Any) -> None:
        self._global.append(self.instance(hook, (*STAGES, PROMPT)))
        self._composed.clear()
        self.common = compose(self._global, self._seconds)

    def of_call(self, entry: Entry, call: Call) -> tuple[Stages, Entry]:
        """The stages of a call with hooks of its tool or of its own. With its own it has no cache: what they make of an
        output is for nobody else."""
        if not call.hooks:
            return self._composed.get(entry.hooks) or self.stages(entry.hooks), entry
        stages = compose([*self._global, *entry.hooks, *call.hooks], self._seconds)
        return stages, entry if entry.cache is None else replace(entry, cache=None)

    def stages(self, own: tuple[Any, ...]) -> Stages:
        found = self._composed.get(own)
        if found is None:
            found = self._composed[own] = compose([*self._global, *own], self._seconds)
        return found

    def instance(self, hook: Any, methods: tuple[str, ...] = STAGES) -> Any:
        """A hook itself; of one that is given as a class, what the resolver makes. `methods`: those of which it has one."""
        return checked(self.resolver(hook) if isinstance(hook, type) else hook, methods)

    async def system_prompt(self, prompt: PromptDraft) -> str:
        """The text of a system prompt, as the hooks leave it. Raises CallError if one fails: what it was to put in or take
        out would be missing."""
        for hook in sorted(self._global, key=_priority, reverse=True):
            if callable(getattr(hook, PROMPT, None)):
                part = _part(hook, PROMPT, self._seconds)
                prompt = replace(prompt, text=await _prompt_text(part, prompt))
        return prompt.text


async def _prompt_text(part: HookPart, prompt: PromptDraft) -> str:
    try:
        if part.filter is not None and not await _chosen(part.filter, PROMPT, part, prompt):
            return prompt.text
        given = begun(part.name, PROMPT, part.method(prompt), part.seconds, perf_counter())
        if type(given) is Awaited:
            given = await given
        if given is not None and not isinstance(given, str):
            raise TypeError(f"it gave a {type(given).__name__} and not text")
    except Exception as error:
        raise broken(PROMPT, part.name, error, ran=False) from error
    return prompt.text if given is None else given


def checked(made: Any, methods: tuple[str, ...] = STAGES) -> Any:
    """A hook, if it is one. Raises `TypeError` or `ValueError` otherwise."""
    hash(made)
    check_limits(made, (*STAGES, PROMPT))
    if not isinstance(made, Explains) and not any(callable(getattr(made, method, None)) for method in methods):
        raise TypeError(f"{_name(made)} is no hook: it has no method named like a stage, such as will_execute")
    return made


def compose(hooks: Iterable[Any], seconds: float) -> Stages:
    stages = Stages()
    given = list(hooks)
    ordered = sorted((hook for hook in given if not isinstance(hook, StageMarks)), key=_priority, reverse=True)
    for stage in STAGES:
        taking_part = [_part(hook, stage, seconds) for hook in ordered if callable(getattr(hook, stage, None))]
        if not taking_part:
            continue
        stages.any, stages.empty = True, False
        if stage == "around_execute":
            stages.around_execute = _around(taking_part)
        else:
            setattr(stages, stage, _sequence(stage, taking_part[::-1] if stage.startswith("did_") else taking_part))
    for marks in given:
        if isinstance(marks, StageMarks):
            marks.put_into(stages, tuple(stage for stage in STAGES if stage not in LATE))
    return stages


def _part(hook: Any, stage: str, seconds: float) -> HookPart:
    return HookPart(_name(hook), getattr(hook, stage), getattr(hook, "filter", None), limit_of(hook, stage, seconds))


def _sequence(stage: str, parts: list[HookPart]) -> Callable[[InvokeContext], Awaitable[None]]:
    async def run(ctx: InvokeContext) -> None:
        for part in parts:
            try:
                if part.filter is not None and not await _chosen(part.filter, stage, part, ctx):
                    continue
                since = perf_counter()
                given = begun(part.name, stage, part.method(ctx), part.seconds, since)
                if type(given) is Awaited:
                    given = await given
                if given is not None and stage == "will_bind_providers":
                    ctx.bind_all(given)
            except BaseException as error:
                _judge(stage, part.name, error, ctx)

    return run


def _judge(stage: str, hook: str, error: BaseException, ctx: InvokeContext) -> None:
    """Raise what ends the call; note what does not."""
    if isinstance(error, CancelledError):
        if stage not in LATE:
            raise error
        if caller_is_cancelled():
            ctx.went_away = True
        else:
            ctx.note_hook_error(stage, hook, error)
    elif _is_dropped(stage, error):
        ctx.note_hook_error(stage, hook, error)
    elif isinstance(error, Control):
        raise error
    else:
        raise broken(stage, hook, error, ran=ctx.ran) from error


def _is_dropped(stage: str, error: BaseException) -> bool:
    """True if a hook's error is only recorded, and the outcome stands."""
    if isinstance(error, HookTimeout):
        return stage in LATE or stage in OBSERVES
    return stage in LATE or (stage in POST and not isinstance(error, Control))


def caller_is_cancelled() -> bool:
    """True if somebody cancelled the task that makes this call; if not, a tool or a hook raised CancelledError by itself."""
    task = current_task()
    return task is not None and task.cancelling() > 0


def _around(parts: list[HookPart]) -> Callable[[InvokeContext, Next], Awaitable[Any]]:
    async def run(ctx: InvokeContext, inner: Next) -> Any:
        return await _wrapped(ctx, parts, 0, inner)

    return run


async def _wrapped(ctx: InvokeContext, parts: list[HookPart], index: int, inner: Next) -> Any:
    """Run around hook `index` with the rest as its `next`; errors of the rest pass, its own are named as its own. Its time
    stands still while the rest runs."""
    if index == len(parts):
        return await inner()
    part = parts[index]
    from_inside: list[BaseException] = []
    timer = HookTimer(part.seconds)

    async def rest() -> Any:
        timer.pause()
        try:
            ctx.output = await _wrapped(ctx, parts, index + 1, inner)
            return ctx.output
        except BaseException as error:
            from_inside.append(error)
            raise
        finally:
            timer.resume()

    try:
        if part.filter is not None and not await _chosen(part.filter, "around_execute", part, ctx):
            return await rest()
        since = perf_counter()
        given = begun(part.name, "around_execute", part.method(ctx, rest), timer, since)
        if type(given) is Awaited:
            given = await given
        return ctx.output if given is None else given
    except BaseException as error:
        if isinstance(error, Control | CancelledError) or any(error is inner_error for inner_error in from_inside):
            raise
        raise broken("around_execute", part.name, error, ran=ctx.ran) from error


async def _chosen(choose: Callable[..., Any], stage: str, part: HookPart, ctx: InvokeContext | PromptDraft) -> bool:
    since = perf_counter()
    chosen = begun(part.name, stage, choose(ctx), part.seconds, since)
    return bool(await chosen if type(chosen) is Awaited else chosen)


def broken(stage: str, hook: str, error: BaseException, *, ran: bool) -> CallError:
    """The error of a call whose hook fails. `ran`: the tool may have had its effect, so it is not to be tried again."""
    details = {"hook": hook, "stage": stage}
    if not isinstance(error, HookTimeout):
        if stage == REDACTION:  # the error's own words may quote what was to be removed
            words = f"Hook {hook} failed at {stage}: {type(error).__name__}. The output is withheld."
            return Failed("UNEXPECTED_ERROR", words, suggestion=SEE_TRACEBACK, details=details)
        return Failed("UNEXPECTED_ERROR", f"Hook {hook} failed at {stage}: {described(error)}", details=details)
    return TimedOut(
        message=f"Hook {hook} failed at {stage}: {error}.",
        retryable=not ran,
        suggestion="Its limit is its `timeout`, or the setting limits.hook_seconds.",
        details=details,
    )


def _priority(hook: Any) -> float:
    given = getattr(hook, "priority", 0)
    return float(given() if callable(given) else given)


def _name(hook: Any) -> str:
    return type(hook).__name__
