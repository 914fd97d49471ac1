"""Callers that are cancelled wherever a call can wait, and Apps that close: places come back, records are whole."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.patience import SOON, until
from toolgate import App, Hook, InvokeContext, Outcome, tool
from toolgate.model import Tier
from toolgate.pipeline.hooks import STAGES
from toolgate.store import audit_log
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
@pytest.mark.sample(9)
async def test_a_caller_may_go_away_at_any_stage(stage: str, fail: bool) -> None:
    hook = Linger()
    async with memory_app(shutdown_seconds=1) as app:
        app.add_hook(hook)
        app.register(once)
        hook.stage = stage
        call = asyncio.ensure_future(app.invoke("once", {"fail": fail}))
        there = asyncio.ensure_future(hook.there.wait())
        await asyncio.wait((call, there), timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        if hook.there.is_set():
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(call, SOON)
        else:
            assert stage in ("on_error", "did_execute") or stage.startswith("will_") or fail, "the stage was never reached"
        assert app.parts.running.count == 0
        hook.stage = None
        again = await app.invoke("once")
        assert again.output == "done", "the place was not given back"
        await app.flush()
        rows = await app.parts.store.read(audit_log.latest(20, tool="once"))
        starts = {row[3] for row in rows if row[2] == "start"}
        ends = [row[3] for row in rows if row[2] == "end"]
        assert len(ends) == len(set(ends)) == 2
        assert starts <= set(ends)
        assert len(hook.finalized) == len(set(hook.finalized)) == 2
        assert (await app.audit.verify()).ok


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
        assert app.parts.running.count == 0
        await app.flush()
        rows = await app.parts.store.read(audit_log.latest(1000, tool="once"))
        assert {row[3] for row in rows if row[2] == "start"} <= {row[3] for row in rows if row[2] == "end"}


@pytest.mark.requirement("PIPE-5", "AUD-3")
async def test_an_app_that_closes_lets_running_calls_end(tmp_path: Path) -> None:
    gate = asyncio.Event()
    inside: list[str] = []

    @tool(tier="write")
    async def slow() -> str:
        """Waits."""
        inside.append("one")
        await gate.wait()
        return "done"

    async with App.open(home=tmp_path / "home") as app:
        app.register(slow)
        calls = [asyncio.ensure_future(app.invoke("slow")) for _ in range(5)]
        await until(lambda: len(inside) == 5, "all are inside")
        asyncio.get_running_loop().call_later(0.1, gate.set)
    assert [(await call).output for call in calls] == ["done"] * 5
    async with App.open(home=tmp_path / "home") as app:
        assert [row[6] for row in await ends(app)] == ["success"] * 5


@pytest.mark.requirement("PIPE-5", "PIPE-6")
@pytest.mark.parametrize("tier", ["read_only", "write"])
async def test_an_app_that_closes_leaves_calls_behind_that_take_too_long(tmp_path: Path, tier: Tier) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    @tool(tier=tier)
    async def slow() -> str:
        """Takes its time."""
        begun.set()
        await closed.wait()
        return "done"

    async with App.open(home=tmp_path / "home", shutdown_seconds=0.05) as app:
        app.register(slow)
        call = asyncio.ensure_future(app.invoke("slow"))
        async with asyncio.timeout(30):
            await begun.wait()
    closed.set()
    outcome = await call
    assert outcome.error is not None
    assert outcome.error.code == "OUTCOME_UNKNOWN"


@pytest.mark.requirement("PIPE-5", "PIPE-11")
async def test_a_cancelled_caller_leaves_a_record_and_gives_its_place_back() -> None:
    started = asyncio.Event()
    cleaned: list[str] = []

    @tool(tier="write", concurrency=1)
    async def waits() -> None:
        """Waits."""
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cleaned.append("cleaned")
            raise

    async with memory_app() as app:
        app.register(waits)
        task = asyncio.ensure_future(app.invoke("waits"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == ["cleaned"]
        started.clear()
        again = asyncio.ensure_future(app.invoke("waits"))
        await asyncio.wait_for(started.wait(), SOON)
        again.cancel()
        await asyncio.wait((again,))
        assert [row[6] for row in await ends(app)] == ["failure", "failure"]


@pytest.mark.requirement("PIPE-5", "PIPE-11")
async def test_a_caller_that_goes_away_while_the_end_is_written_gives_its_place_back() -> None:
    finalized: list[str] = []

    class Last(Hook):
        def will_finalize_invoke(self, ctx: InvokeContext) -> None:
            finalized.append(ctx.id)

        async def will_audit(self, ctx: InvokeContext) -> None:
            if ctx.arguments["linger"]:
                asyncio.get_running_loop().call_soon(callers[0].cancel)

    @tool(tier="write", concurrency=1)
    async def once(linger: bool) -> bool:
        """Runs one at a time."""
        return linger

    callers: list[asyncio.Future[Outcome]] = []
    async with memory_app() as app:
        app.add_hook(Last())
        app.register(once)
        callers.append(asyncio.ensure_future(app.invoke("once", {"linger": True})))
        with pytest.raises(asyncio.CancelledError):
            await callers[0]
        assert (await app.invoke("once", {"linger": False})).ok
        assert len(finalized) == 2
        assert [row[6] for row in await ends(app)] == ["success", "success"]


async def ends(app: App) -> list[tuple[Any, ...]]:
    await app.flush()
    return [row for row in await app.parts.store.read(audit_log.latest(100)) if row[2] == "end"]
