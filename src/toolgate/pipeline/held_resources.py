"""Resources that a call holds: an idempotency key, an approval, money, a place, secrets; each with the gate that took it.

A gate holds what it takes before it awaits anything: a caller that is cancelled meanwhile may have it all the same. The one
way out of the line leaves what is held in reverse, once, whatever happened. Hooks have the context in their hands, so what
is held is no flag in it that they could set: it stands in a slot that is the line's own.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from toolgate.model import Call, Outcome
from toolgate.tasks import outlast, start_task

if TYPE_CHECKING:
    from toolgate.pipeline.context import InvokeContext

T = TypeVar("T")
Held = list[tuple["HoldingGate", Any]]
Words = Callable[["InvokeContext", BaseException], str]

logger = logging.getLogger("toolgate")


class HoldingGate:
    """A gate that takes something for a call and gives it back, or settles it, when the call ends."""

    runs_once: ClassVar[bool] = False
    """A call that holds it runs once: hooks around the execution can't have it run again."""
    is_settled_by_start: ClassVar[bool] = False
    """After a crash it is settled by whether the call began: the start record has to be on disk before the effect."""
    is_agreed: ClassVar[bool] = False
    """A person agreed to the call, and with it to what the definition of its tool says that it may run."""

    def leave(self, ctx: "InvokeContext", token: Any, outcome: Outcome | None) -> Awaitable[None] | None:
        """Gives back or settles what is held; gives what has to be waited for. `outcome` is None if none could be made."""
        raise NotImplementedError

    async def confirm(self, call: Call) -> None:
        """Makes sure, once the start record is on disk, that what is held is still the call's. Raises if it is not."""


def hold(ctx: "InvokeContext", gate: HoldingGate, token: Any = None) -> None:
    """Notes that a call holds something of a gate; `token` is what the gate needs to know of it when it is left."""
    if ctx._held is None:
        ctx._held = []
    ctx._held.append((gate, token))


def holds(ctx: "InvokeContext", gate: HoldingGate) -> bool:
    return any(holder is gate for holder, _ in ctx._held or ())


def let_go(ctx: "InvokeContext", gate: HoldingGate) -> None:
    """Notes that what a call held of a gate is somebody else's from now on: it is not left when the call ends."""
    ctx._held = [(holder, token) for holder, token in ctx._held or () if holder is not gate]


def runs_once(ctx: "InvokeContext") -> bool:
    return any(gate.runs_once for gate, _ in ctx._held or ())


def is_agreed(ctx: "InvokeContext") -> bool:
    return any(gate.is_agreed for gate, _ in ctx._held or ())


def is_settled_by_start(held: Held) -> bool:
    for gate, _ in held:  # noqa: SIM110 - a generator costs every call that holds something
        if gate.is_settled_by_start:
            return True
    return False


async def confirm(ctx: "InvokeContext") -> None:
    """Makes sure of all that the call holds. Raises what keeps the tool from being run."""
    for gate, _ in ctx._held or ():
        await gate.confirm(ctx.call)


def leave(ctx: "InvokeContext", held: Held, outcome: Outcome | None, words: Words) -> Awaitable[None] | None:
    """Leaves what the call holds, the last first. From the first that has to be waited for on, the rest is returned to be
    awaited to its end. One that fails keeps none of the others from it; `words` says what a log may hold of that."""
    ctx._held = None
    while held:
        gate, token = held.pop()
        try:
            waiting = gate.leave(ctx, token, outcome)
        except Exception as error:  # noqa: BLE001 - whatever a gate raises
            logger.error("a call could not be settled: %s", words(ctx, error))
        else:
            if waiting is not None:
                return _leave_rest(ctx, waiting, held, outcome, words)
    return None


async def _leave_rest(
    ctx: "InvokeContext", waiting: Awaitable[None] | None, held: Held, outcome: Outcome | None, words: Words
) -> None:
    while waiting is not None:
        try:
            await waiting
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            logger.error("a call could not be settled: %s", words(ctx, error))
        waiting = leave(ctx, held, outcome, words)


async def to_the_end(ctx: "InvokeContext", settling: Awaitable[T]) -> T:
    """Settles what was taken, or records what happened: a caller that goes away meanwhile waits for it."""
    work = start_task(settling)
    if await outlast(work) is not None:
        ctx.went_away = True
    return work.result()
