"""What a call took is settled by what really happened: whether the tool was reached, and whether its effect is certain."""

import asyncio
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.patience import SOON, until
from toolgate import Actor, App, InvokeContext, Outcome, Retry, tool
from toolgate.store import audit_log
from toolgate.testing import memory_app

ADA = Actor("acme", "analyst", "ada")


def code(outcome: Outcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


@pytest.mark.requirement("PIPE-9", "TIER-7", "COST-2")
async def test_a_call_for_which_there_was_no_thread_has_used_nothing_up() -> None:
    release, held, ran = threading.Event(), threading.Event(), []

    @tool(tier="write")
    def hold() -> None:
        """Hold the only thread."""
        held.set()
        release.wait(60)

    @tool(tier="execute", cost="0.10")
    def act(number: int) -> int:
        """Do something."""
        ran.append(number)
        return number

    async with memory_app(limits={"threads": 1}) as app:
        app.tools.register_many([hold, act])
        app.approvals.add_approver(lambda _request: None)
        waiting = await app.invoke("act", {"number": 1}, actor=ADA, idempotency_key="once")
        assert waiting.pending is not None
        await app.approvals.answer(waiting.pending.id, True, actor=Actor(ADA.tenant, user="boss"))
        holding = asyncio.ensure_future(app.invoke("hold"))
        await until(held.is_set, "the only thread is taken")
        given = {"actor": ADA, "idempotency_key": "once", "approval": waiting.pending.id}
        full = await app.invoke("act", {"number": 1}, **given)  # type: ignore[arg-type]
        assert (code(full), full.metrics.cost_usd) == ("CAPACITY_EXCEEDED", 0.0)
        release.set()
        await holding
        again = await app.invoke("act", {"number": 1}, **given)  # type: ignore[arg-type]
        assert (again.ok, ran) == (True, [1])


@pytest.mark.requirement("PIPE-9", "COST-2")
async def test_an_attempt_that_may_have_had_its_effect_is_not_made_up_for_by_one_that_failed() -> None:
    effects = []

    @tool(tier="write", cost=Decimal("0.10"), timeout=0.05, retry=Retry(max_attempts=2, backoff_ms=1))
    async def pay(ctx: InvokeContext) -> None:
        """Pay, and then hear nothing."""
        if ctx.attempts == 1:
            effects.append("paid")
            await asyncio.sleep(5)
        raise ConnectionError("the line is dead")

    async with memory_app() as app:
        app.register(pay)
        first = await app.invoke("pay", actor=ADA, idempotency_key="k")
        assert (code(first), first.metrics.attempts, first.metrics.cost_usd) == ("CONNECTION_ERROR", 2, 0.2)
        assert code(await app.invoke("pay", actor=ADA, idempotency_key="k")) == "OUTCOME_UNKNOWN"
        assert effects == ["paid"]


@pytest.mark.requirement("PIPE-6", "PIPE-9")
@pytest.mark.parametrize("how", ["cyclic", "huge", "negative", "no number"])
async def test_whatever_a_tool_leaves_in_its_report_there_is_an_outcome_and_the_key_is_free_of_it(how: str) -> None:
    loop: list[Any] = []
    loop.append(loop)

    @tool(tier="write")
    async def odd(ctx: InvokeContext) -> str:
        """Report nonsense, past the checks."""
        ctx.used("file", cost_usd=0.0)
        assert ctx.report is not None
        if how == "cyclic":
            ctx.report.resources_used = (loop,)  # type: ignore[assignment]
        else:
            ctx.report.cost_usd = {"huge": 10**400, "negative": -1.0, "no number": "much"}[how]  # type: ignore[assignment]
        return "done"

    async with memory_app() as app:
        app.register(odd)
        outcome = await app.invoke("odd", actor=ADA, idempotency_key="k")
        assert outcome.ok or code(outcome) == "OUTCOME_UNKNOWN"
        again = await asyncio.wait_for(app.invoke("odd", actor=ADA, idempotency_key="k"), SOON)
        assert (again.ok, code(again)) == (outcome.ok, code(outcome))


@pytest.mark.requirement("PIPE-6")
@pytest.mark.parametrize(
    "report", [{"cost_usd": float("nan")}, {"cost_usd": -1}, {"cost_usd": "1"}, {"tokens": -1}, {"tokens": 1.5}]
)
async def test_a_report_that_makes_no_sense_is_told_to_its_author(report: dict[str, Any]) -> None:
    @tool(tier="read_only")
    async def odd(ctx: InvokeContext) -> None:
        """Report nonsense."""
        ctx.used(**report)

    async with memory_app() as app:
        app.register(odd)
        outcome = await app.invoke("odd")
        assert outcome.error is not None
        assert outcome.error.code == "INVOCATION_ERROR"
        assert "must be a" in outcome.error.message


async def denials(app: App) -> list[Any]:
    await app.flush()
    return [row for row in await app.parts.store.read(audit_log.latest(100)) if row[2] == "policy.global_deny"]


@pytest.mark.requirement("POL-4", "AUD-1")
async def test_an_act_is_done_and_recorded_as_a_whole_though_whoever_asked_goes_away() -> None:
    async with memory_app() as app:
        for steps in range(1, 12):
            acting = asyncio.ensure_future(app.policy.deny("echo", bool(steps % 2)))
            for _ in range(steps):
                await asyncio.sleep(0)
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            async with asyncio.timeout(SOON):
                while len(recorded := await denials(app)) < steps:
                    await asyncio.sleep(0.01)
            assert len(recorded) == steps
            assert (await app.policy.documents())["global_tool_deny"] == (["echo"] if steps % 2 else [])


@pytest.mark.requirement("AUD-3")
async def test_an_end_is_recorded_though_its_caller_went_away_and_the_store_failed_just_then(tmp_path: Path) -> None:
    async with App.open(home=tmp_path, entry_points=False) as app:
        store: Any = app.parts.store
        ran = asyncio.Event()

        @tool(tier="write")
        async def act() -> None:
            """Act, and then the disk fails."""
            store._connection.execute("PRAGMA query_only = ON")
            ran.set()

        app.register(act)
        await app.flush()
        calling = asyncio.ensure_future(app.invoke("act"))
        await ran.wait()
        await asyncio.sleep(0)  # the end record is with the writer now
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await asyncio.sleep(0.1)
        store._connection.execute("PRAGMA query_only = OFF")
        async with asyncio.timeout(SOON):
            while (
                len(rows := [row for row in await app.parts.store.read(audit_log.latest(10)) if row[2] in ("start", "end")])
                < 2
            ):
                await asyncio.sleep(0.05)
        assert [row[2] for row in rows] == ["start", "end"]
