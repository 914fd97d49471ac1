"""What a call holds is left in reverse, once, whatever happens meanwhile."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from toolgate.model import Call, Outcome
from toolgate.pipeline import held_resources as held
from toolgate.pipeline.context import InvokeContext, Providers


class Gate(held.HoldingGate):
    """Notes when it is left; may fail, or take a while."""

    def __init__(self, name: str, left: list[str], *, waits: asyncio.Event | None = None, fails: bool = False) -> None:
        self.name, self.left, self.waits, self.fails = name, left, waits, fails

    def leave(self, _ctx: InvokeContext, token: Any, _outcome: Outcome | None) -> Awaitable[None] | None:
        if self.waits is not None:
            return self._later(self.waits, token)
        self._leave(token)
        return None

    def _leave(self, token: Any) -> None:
        self.left.append(f"{self.name} {token}")
        if self.fails:
            raise OSError("no store")

    async def _later(self, event: asyncio.Event, token: Any) -> None:
        await event.wait()
        self._leave(token)


async def _invoke(_call: Call) -> Outcome:
    raise NotImplementedError


def holding(*gates: Gate) -> InvokeContext:
    ctx = InvokeContext(Call("c", "tool", {}), Providers(), _invoke, 0, 0.0, {}, None)
    assert ctx._held is None, "a call that takes nothing makes no list"
    for number, gate in enumerate(gates):
        held.hold(ctx, gate, number)
    return ctx


def words(_ctx: InvokeContext, error: BaseException) -> str:
    return type(error).__name__


async def test_what_is_held_is_left_in_reverse_and_once_though_one_fails() -> None:
    left: list[str] = []
    ctx = holding(Gate("a", left), Gate("b", left, fails=True), Gate("c", left))
    assert ctx._held is not None
    assert held.leave(ctx, ctx._held, None, words) is None, "nothing has to be waited for"
    assert left == ["c 2", "b 1", "a 0"]
    assert ctx._held is None


async def test_a_caller_that_is_cancelled_waits_until_all_is_left() -> None:
    left: list[str] = []
    event = asyncio.Event()
    ctx = holding(Gate("a", left), Gate("b", left, waits=event, fails=True), Gate("c", left, waits=event), Gate("d", left))
    assert ctx._held is not None
    leaving = held.leave(ctx, ctx._held, None, words)
    assert leaving is not None
    caller = asyncio.ensure_future(held.to_the_end(ctx, leaving))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert (left, caller.done()) == (["d 3"], False)
    event.set()
    await caller
    assert left == ["d 3", "c 2", "b 1", "a 0"]
    assert ctx.went_away
