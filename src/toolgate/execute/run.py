"""Execution: attempts, each through the target's breaker to the runner of the tool's kind, within the time it has."""

import asyncio
import random
from collections.abc import Awaitable, Mapping
from copy import deepcopy
from typing import Any, Protocol

from toolgate.context import Control, InvokeContext
from toolgate.errors import CallError, Failed
from toolgate.execute.breaker import Breakers
from toolgate.execute.local import understand
from toolgate.hooks import Stages
from toolgate.model import Entry, Retry


class Runner(Protocol):
    """Runs the tools of one kind."""

    def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Awaitable[Any]:
        """What to await for the output, within `ctx.time_limit`. Raises, or lets the awaited raise, what the tool raises."""

    async def close(self) -> list[str]:
        """Let go; gives what went wrong in doing so."""


class Execution:
    """The step."""

    def __init__(self, runners: Mapping[str, Runner], breakers: Breakers) -> None:
        self.runners = dict(runners)
        self.breakers = breakers

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any], on: Stages) -> Any:
        """Run the tool, as often as its retry rule allows."""
        runner = self.runners.get(entry.kind)
        if runner is None:
            raise Failed("UNKNOWN_TOOL_TYPE", f"Nothing here can run a tool of kind {entry.kind!r}.")
        while True:
            if on.will_execute:
                await on.will_execute(ctx)
            ctx.attempts += 1
            given = (
                arguments if entry.retry is None else deepcopy(arguments)
            )  # what an attempt changes, the next must not see
            try:
                if entry.target is None:
                    ctx.result = await runner.run(ctx, entry, given)
                else:
                    ctx.result = await self._through_breaker(entry.target, runner, ctx, entry, given)
            except (Control, asyncio.CancelledError):
                raise
            except BaseException as raised:
                error = understand(raised, getattr(entry.implementation, "instance", None))
                await self._retry_or_raise(ctx, entry, error, raised, on)
                continue
            if on.did_execute:
                await on.did_execute(ctx)
            return ctx.result

    async def _through_breaker(
        self, target: str, runner: Runner, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]
    ) -> Any:
        trial = self.breakers.enter(target)
        try:
            output = await runner.run(ctx, entry, arguments)
        except (Control, asyncio.CancelledError):
            raise
        except BaseException as raised:
            error = understand(raised, getattr(entry.implementation, "instance", None))
            impatient = error.code == "TIMEOUT" and ctx.time_limit < entry.timeout
            if not impatient:  # a caller's own short limit says nothing of the target
                self.breakers.leave(target, error)
            raise error from raised
        finally:
            if trial:
                self.breakers.end_trial(target)
        self.breakers.leave(target, None)
        return output

    async def _retry_or_raise(
        self, ctx: InvokeContext, entry: Entry, error: CallError, cause: BaseException, on: Stages
    ) -> None:
        """Wait for the next attempt, or raise the error if there is none."""
        retry = entry.retry
        if retry is None or error.code not in retry.codes:
            raise error from cause
        ctx.error = error
        if ctx.attempts >= retry.max_attempts:
            if on.on_give_up and retry.max_attempts > 1:
                await on.on_give_up(ctx)
            raise error from cause
        await asyncio.sleep(delay(retry, ctx.attempts))
        if on.on_retry:
            await on.on_retry(ctx)
        ctx.error = None

    async def close(self) -> list[str]:
        return [trouble for runner in self.runners.values() for trouble in await runner.close()]


def delay(retry: Retry, attempt: int, chance: float | None = None) -> float:
    """Seconds to wait after an attempt: exponential, with jitter between half and all of it, never over the maximum."""
    longest = min(retry.backoff_ms * retry.multiplier ** (attempt - 1), retry.max_delay_ms) / 1000
    return longest * (0.5 + 0.5 * (random.random() if chance is None else chance))
