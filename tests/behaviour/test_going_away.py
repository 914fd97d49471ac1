"""Callers that are cancelled, wherever a call can wait: places come back, records are whole, finalize runs once."""

import asyncio
from typing import Any

import pytest

from toolgate import Hook, InvokeContext, tool
from toolgate.hooks import STAGES
from toolgate.store import log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("PIPE-5", "PIPE-11", "AUD-1")


@tool(tier="write", concurrency=1)
async def once(fail: bool = False) -> str:
    """One at a time."""
    await asyncio.sleep(0)
    if fail:
        raise ValueError("as asked")
    return "done"


class Linger(Hook):
    """Waits at one stage of a call that says so, and counts how often calls are finalized."""

    priority = -1

    def __init__(self) -> None:
        self.there = asyncio.Event()
        self.stage: str | None = None
        self.finalized: list[str] = []

    async def linger(self, stage: str) -> None:
        if stage == self.stage:
            self.stage = None
            self.there.set()
            await asyncio.sleep(60)


def _lingering(stage: str) -> Any:
    async def at(self: Linger, ctx: InvokeContext) -> None:
        if stage == "will_finalize_invoke":
            self.finalized.append(ctx.id)
        await self.linger(stage)

    return at


for _stage in STAGES:
    if _stage != "around_execute":
        setattr(Linger, _stage, _lingering(_stage))


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("stage", sorted({*STAGES} - {"around_execute", "did_cache_hit", "on_retry", "on_give_up"}))
async def test_a_caller_may_go_away_at_any_stage(stage: str, fail: bool) -> None:
    hook = Linger()
    async with memory_app(shutdown_seconds=1) as app:
        app.add_hook(hook)
        app.register(once)
        hook.stage = stage
        call = asyncio.ensure_future(app.invoke("once", {"fail": fail}))
        there = asyncio.ensure_future(hook.there.wait())
        await asyncio.wait((call, there), timeout=5, return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        if hook.there.is_set():
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(call, 5)
        else:
            assert stage in ("on_error", "did_execute") or stage.startswith("will_") or fail, "the stage was never reached"
        assert app.running.count == 0
        hook.stage = None
        again = await app.invoke("once")
        assert again.output == "done", "the place was not given back"
        await app.flush()
        rows = await app.store.read(log.latest(20, tool="once"))
        starts = {row[3] for row in rows if row[2] == "start"}
        ends = [row[3] for row in rows if row[2] == "end"]
        assert len(ends) == len(set(ends)) == 2
        assert starts <= set(ends)
        assert len(hook.finalized) == len(set(hook.finalized)) == 2
        assert (await app.verify_audit()).ok


async def test_a_caller_may_go_away_while_the_end_is_written() -> None:
    async with memory_app() as app:
        app.register(once)
        for delay in range(12):
            call = asyncio.ensure_future(app.invoke("once"))
            for _ in range(delay):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait((call,))
            assert (await app.invoke("once")).output == "done"
        assert app.running.count == 0
        await app.flush()
        rows = await app.store.read(log.latest(1000, tool="once"))
        assert {row[3] for row in rows if row[2] == "start"} <= {row[3] for row in rows if row[2] == "end"}
