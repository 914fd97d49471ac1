"""Marks of the stages that a call passes, for tools whose stages are kept with the record (setting `audit.details`).

Marks stand in the same places as users' hooks, so a tool whose stages are not kept pays nothing: its line has no marks to
look for. They are no hooks: `ctx.hooked` does not know of them, and a hook can't move them. One that meddles with the list
of marks loses the details of its call, never the record. What the marks mean is worked out by the ledger, in the writer's
thread. The list is flat, a name and a time in turn: a tuple for each mark would cost the caller more, and the collector.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, NamedTuple

import orjson

from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import LINE

TIMED = {"around_execute": "around hooks"} | {gate.mark or gate.stage: gate.timed for gate in LINE if gate.timed}
"""The mark with which the time of a gate begins; it ends where the next one begins. `catalog` begins with the call. Two that
share a stage with others, and can take long, are marked in the line, by calls that pass them (`mark`)."""
HOOKS_DONE = "hooks"
"""Users' hooks of the stage that was marked last have run."""
HOOKS_STOPPED = "stopped"
"""One of them, of the stage that stands beside it, ended the call, or answered it."""
ATTEMPT_FAILED = "failed"
"""The attempt that began last failed, with the code that stands beside it."""
NOT_JSON = b'"[left out: not JSON]"'
UNCHANGING = frozenset({str, int, float, bool, type(None)})

Composed = Callable[[InvokeContext], Awaitable[None]]


class CallEnded(NamedTuple):
    """The last of the marks: the call is over, and was settled. The caller leaves a plain tuple, which costs less."""

    finished_at: float
    started_at: float
    cached: bool
    """Whether it was answered from what is known."""
    output: Any
    """As JSON, or a value that nobody can change, which is written later."""
    output_bytes: int
    """How much of that is kept; 0: nothing."""


class StageMarks:
    """Has the stages of a tool's calls kept and, with `output_bytes`, that much of what they give out. A gate that has
    nothing to do for the tool (`without`) has no mark of its own: each costs the caller a tenth of a microsecond."""

    def __init__(self, output_bytes: int, mask: Callable[..., Any], without: frozenset[str] = frozenset()) -> None:
        self.output_bytes = output_bytes
        self._mask = mask
        self._without = without

    def put_into(self, stages: Any, names: tuple[str, ...]) -> None:
        """Put a mark before the hooks of each stage up to the end of the call."""
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        passed.set_result(None)  # awaiting it costs half of what a coroutine does
        for name in names:
            hooks = getattr(stages, name)
            if name == "around_execute" and hooks is not None:
                stages.around_execute = _around(hooks)
            elif name != "around_execute" and (hooks is not None or (name in TIMED and name not in self._without)):
                setattr(stages, name, _marked(name, hooks) if hooks is not None else _marker(name, passed))
        if stages.empty:  # then it is the first stage that the line looks at
            stages.will_authorize = _first("will_authorize", passed)
        else:
            stages.will_create_invoke_context = _begin(stages.will_create_invoke_context, passed)
        if stages.around_execute is not None:
            stages.did_execute = _back_to_around(stages.did_execute)
        stages.will_audit = self._end(stages.will_audit, passed)

    def _end(self, hooks: Composed | None, passed: Awaitable[None]) -> Composed:
        def keep(ctx: InvokeContext) -> Awaitable[None]:
            error = ctx.error
            if type(ctx.marks) is not list or (error is not None and error.code == "TOOL_NOT_FOUND"):
                ctx.marks = None  # what is hidden leaves as little behind as what is missing
                return passed
            output, most = ctx.result, self.output_bytes if error is None else 0
            if most and (type(output) not in UNCHANGING or ctx.injected):
                output = self._output(ctx)
            ctx.marks.append((ctx.finished_at, ctx.started_at, ctx.cached, output, most))
            return passed

        if hooks is None:
            return keep

        async def run(ctx: InvokeContext) -> None:
            await hooks(ctx)
            await keep(ctx)

        return run

    def _output(self, ctx: InvokeContext) -> bytes:
        """The output as it is given out. It is written now, for whoever gets it may change it; a hook may have put a secret
        back into it after it was masked."""
        try:
            output = ctx.result
            if ctx.injected:
                entry = ctx.entry
                output = self._mask(output, entry.public_output if entry is not None else frozenset(), ctx.injected)
            return orjson.dumps(output)
        except Exception:  # noqa: BLE001 - whatever a hook has left there, the record is written
            return NOT_JSON


def mark(ctx: InvokeContext, name: str | tuple[str, str]) -> None:
    """Mark what no stage begins: a gate, hooks that have run, an attempt that failed."""
    if ctx.marks is not None:
        ctx.marks += (name, perf_counter())


def _begin(hooks: Composed | None, passed: Awaitable[None]) -> Composed:
    def begin(ctx: InvokeContext) -> Awaitable[None]:
        ctx.marks = []
        return passed if hooks is None else hooks(ctx)

    return begin


def _first(stage: str, passed: Awaitable[None]) -> Composed:
    now = perf_counter

    def mark(ctx: InvokeContext) -> Awaitable[None]:
        ctx.marks = [stage, now()]
        return passed

    return mark


def _marker(stage: str, passed: Awaitable[None]) -> Composed:
    now = perf_counter  # a name of its own is found quicker than one of the module

    def mark(ctx: InvokeContext) -> Awaitable[None]:
        marks = ctx.marks
        marks.append(stage)
        marks.append(now())
        return passed

    return mark


def _marked(stage: str, hooks: Composed) -> Composed:
    async def run(ctx: InvokeContext) -> None:
        mark(ctx, stage)
        try:
            await hooks(ctx)
        except BaseException:
            mark(ctx, (HOOKS_STOPPED, stage))
            raise
        mark(ctx, HOOKS_DONE)

    return run


def _around(hooks: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    def run(ctx: InvokeContext, inner: Any) -> Awaitable[Any]:
        mark(ctx, "around_execute")
        return hooks(ctx, inner)

    return run


def _back_to_around(did_execute: Composed | None) -> Composed:
    """After an attempt, the time is that of the hooks around it again."""

    async def run(ctx: InvokeContext) -> None:
        if did_execute is not None:
            await did_execute(ctx)
        mark(ctx, "around_execute")

    return run
