"""Execution: attempts, each through the target's breaker to the runner of the tool's kind, within the time it has."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Protocol

from toolgate.errors import UNSURE, CallError, Failed, NotReached, TimedOut, timed_out
from toolgate.model import Entry, Retry
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.early_exit import Control
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.hooks import Stages
from toolgate.pipeline.stage_marks import ATTEMPT_FAILED, mark
from toolgate.runners.breaker import TROUBLE, TROUBLE_OF_SERVERS, Breakers, Pass, Target, Verdict, target_of
from toolgate.runners.local import understand
from toolgate.tasks import finish, start_task

SENT_OUT = "events"
"""The kind of the runner that sends calls out over the event stream, and the door that they come in by elsewhere."""


class Runner(Protocol):
    """Runs the tools of one kind: functions in this process, the sandbox, MCP servers. Each lives with its feature."""

    def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Gives what to await for the output, within `ctx.time_limit`. What the tool raises is raised here or there."""

    async def close(self) -> list[str]:
        """Lets go; gives what went wrong in doing so."""


class Execution:
    """The gate to the tool itself."""

    def __init__(self, runners: Mapping[str, Runner], breakers: Breakers) -> None:
        self.runners = dict(runners)
        self.breakers = breakers

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any], on: Stages) -> Any:
        """Runs the tool: most have one attempt, without a breaker and without hooks."""
        runner = self._runner(ctx, entry)
        if entry.target is not None or entry.retry is not None or not on.empty:
            return await self._run_attempts(runner, ctx, entry, arguments, on)
        if on.will_execute:  # a mark, where there are no hooks
            await on.will_execute(ctx)
        ctx.attempts += 1
        try:
            ctx.result = await runner.run(ctx, entry, arguments)
        except (Control, asyncio.CancelledError):
            raise
        except BaseException as raised:
            error = _understood(ctx, entry, raised)
            mark(ctx, (ATTEMPT_FAILED, error.code))
            raise error from _origin(error, raised)
        return ctx.result

    def _runner(self, ctx: InvokeContext, entry: Entry) -> Runner:
        kind = _kind_of(ctx, entry)
        runner = self.runners.get(kind)
        if runner is None:
            raise Failed("UNKNOWN_TOOL_TYPE", f"Nothing here can run a tool of kind {kind!r}.")
        return runner

    async def _run_attempts(
        self, runner: Runner, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any], on: Stages
    ) -> Any:
        """As many attempts as the retry rule allows, all within the time that the caller gives."""
        deadline = None
        if entry.retry is not None and ctx.call.timeout is not None:
            deadline = asyncio.get_running_loop().time() + ctx.call.timeout
        while True:
            if on.will_execute:
                await on.will_execute(ctx)
            ctx.attempts += 1
            try:
                ctx.result = await self._attempt(runner, ctx, entry, arguments, deadline)
            except (Control, asyncio.CancelledError):
                raise
            except BaseException as raised:
                error = _understood(ctx, entry, raised)
                mark(ctx, (ATTEMPT_FAILED, error.code))
                await self._retry_or_raise(ctx, entry, error, raised, on, deadline)
                continue
            if on.did_execute:
                await on.did_execute(ctx)
            return ctx.result

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        broken = await self.breakers.look(entry, ctx.call.actor.tenant)
        yield GateVerdict("breaker", "deny" if broken else "pass", broken or "circuit closed")
        kind = _kind_of(ctx, entry)
        runs = kind in self.runners
        words = f"kind {kind}" if runs else f"nothing here runs kind {kind}"
        if runs and kind == SENT_OUT:
            words = "sent out over the event stream, and run by a worker that takes it from there"
        yield GateVerdict("runner", "pass" if runs else "deny", words)

    async def _attempt(
        self, runner: Runner, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any], deadline: float | None
    ) -> Any:
        """One attempt. It gets its own copy of the arguments, for what it changes the next must not see."""
        given = arguments if entry.retry is None else deepcopy(arguments)
        if deadline is None or ctx.attempts == 1:  # the first has the whole time, which its runner watches
            return await self._through_breaker(runner, ctx, entry, given)
        try:
            async with asyncio.timeout_at(deadline) as time:
                return await self._through_breaker(runner, ctx, entry, given)
        except TimeoutError:
            if not time.expired():
                raise
            raise timed_out(ctx.call.timeout or 0.0, attempts=ctx.attempts) from None

    async def _through_breaker(self, runner: Runner, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:
        if entry.target is None:
            return await runner.run(ctx, entry, arguments)
        target = target_of(entry, entry.target, ctx.call.actor.tenant)
        entered = self.breakers.enter(target, ctx.call.id, ctx.time_limit)
        passed = entered if isinstance(entered, Pass) else await self._entered(target, ctx.call.id, entered)
        verdict: Verdict = "nothing"
        try:
            output = await runner.run(ctx, entry, arguments)
            verdict = "well"
            return output
        except (Control, asyncio.CancelledError):
            raise
        except BaseException as raised:
            error = understand(raised, getattr(entry.implementation, "instance", None))
            impatient = error.code == "TIMEOUT" and ctx.time_limit < entry.timeout
            trouble = TROUBLE_OF_SERVERS if entry.kind in ("mcp", "http") else TROUBLE
            if error.code in trouble and not impatient:  # a caller's own short limit says nothing of the target
                verdict = "trouble"
            if error is raised:
                raise
            raise error from raised
        finally:
            left = self.breakers.leave(target, passed, ctx.call.id, verdict)
            if left is not None:
                await left

    async def _entered(self, target: Target, id: str, entering: Awaitable[Pass]) -> Pass:
        """The breaker's answer, asked for in a task: a caller that goes away must not leave a trial behind."""
        asking = start_task(entering)
        try:
            return await finish(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(partial(self.breakers.abandon, target, id))
            raise

    async def _retry_or_raise(
        self,
        ctx: InvokeContext,
        entry: Entry,
        error: CallError,
        cause: BaseException,
        on: Stages,
        deadline: float | None,
    ) -> None:
        """Wait for the next attempt, or raise the error if there is none."""
        retry = entry.retry
        if retry is None or error.code not in retry.codes or _goes_on(entry, cause):
            raise error from _origin(error, cause)
        ctx.error = error
        wait = delay(retry, ctx.attempts)
        in_time = deadline is None or asyncio.get_running_loop().time() + wait < deadline
        if ctx.attempts >= retry.max_attempts or not in_time:
            if on.on_give_up and retry.max_attempts > 1:
                await on.on_give_up(ctx)
            raise error from _origin(error, cause)
        await asyncio.sleep(wait)
        if on.on_retry:
            await on.on_retry(ctx)
        ctx.error = None

    async def close(self) -> list[str]:
        """The runners last made first: what they start may be in the hands of those made before."""
        await self.breakers.close()
        return [trouble for runner in reversed(self.runners.values()) for trouble in await runner.close()]


def _kind_of(ctx: InvokeContext, entry: Entry) -> str:
    """The kind of runner that runs a call: the tool's; or the one that sends calls out, unless the call was sent here that
    way: then it is run here, with whatever it calls."""
    return SENT_OUT if entry.is_sent_out and ctx.call.door != SENT_OUT else entry.kind


def _understood(ctx: InvokeContext, entry: Entry, raised: BaseException) -> CallError:
    """The error of a failed attempt; the context is told whether the tool was reached, and may have had its effect."""
    error = understand(raised, getattr(entry.implementation, "instance", None))
    if isinstance(error, NotReached):
        ctx.refused += 1
        return error
    if error.code in UNSURE:
        ctx.unsure = True
    if error.charged is False:
        ctx.unpaid += 1
    return error


def _origin(error: CallError, raised: BaseException) -> BaseException | None:
    """The exception that the tool raised, where it is not the error itself, which keeps what it came from."""
    return error.__cause__ if raised is error else raised


def _goes_on(entry: Entry, raised: BaseException) -> bool:
    """True if the attempt is still running: a thread that overran can't be stopped, and a second beside it could have the
    effect twice. A tool that gave up waiting by itself raised something else first."""
    in_thread = getattr(entry.implementation, "mode", None) == "thread"
    return in_thread and isinstance(raised, TimedOut) and raised.__cause__ is None


def delay(retry: Retry, attempt: int, chance: float | None = None) -> float:
    """Seconds to wait after an attempt: exponential, with jitter between half and all of it, never over the maximum."""
    longest = min(retry.backoff_ms * retry.multiplier ** (attempt - 1), retry.max_delay_ms) / 1000
    return longest * (0.5 + 0.5 * (random.random() if chance is None else chance))
