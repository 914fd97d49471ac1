"""Hooks have a time limit: before the output is decided one that overruns ends the call, after that it is dropped."""

import asyncio
import contextvars
import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import Answer, App, Hook, InvokeContext, Outcome, tool
from toolgate.pipeline.hooks import LATE, STAGES, Next
from toolgate.store import audit_log
from toolgate.store.budgets import BudgetRow
from toolgate.testing import memory_app
from toolgate.threads import DaemonExecutor

pytestmark = pytest.mark.requirement("PIPE-3", "PIPE-5")

PATIENCE = 30
"""Seconds in which a call ends that has not been held."""
FAILS_OPEN = LATE | {"will_write_cache"}
UNCOUNTED = {"will_finalize_invoke"}
"""Metrics are made up there."""
NOT_OF_A_SUCCESS = {"on_error", "on_retry", "on_give_up", "did_cache_hit"}
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@tool(tier="read_only", cost=0.25)
async def double(number: int) -> int:
    """Twice a number."""
    return number * 2


def hanging(stage: str, seconds: float | Mapping[str, float] | None = 0.05, *, stubborn: bool = False) -> Hook:
    """A hook that never ends at a stage; a stubborn one does not care for its cancellation either."""

    async def hang(*_: Any) -> None:
        while True:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    made: Hook = type("Hanging", (Hook,), {stage: staticmethod(hang), "timeout": seconds})()
    return made


async def called(app: App, number: int = 2) -> Outcome:
    return await asyncio.wait_for(app.invoke("double", {"number": number}), PATIENCE)


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in NOT_OF_A_SUCCESS])
@pytest.mark.sample(4)
async def test_a_hook_that_hangs_is_ended_and_leaves_nothing_held(stage: str, caplog: pytest.LogCaptureFixture) -> None:
    async with memory_app(limits={"tenant_concurrency": 1}, metrics=True) as app:
        await app.budgets.set(BudgetRow("b", "default", None, None, None, "day", 10_000_000_000, "UTC"))
        app.add_hook(hanging(stage))
        app.register(double)
        outcomes = [await called(app) for _ in range(2)]  # the second would wait for a place that the first holds
        for outcome in outcomes:
            if stage in FAILS_OPEN:
                assert (outcome.status, outcome.output) == ("success", 4), outcome.error
            else:
                assert outcome.error is not None
                assert (outcome.status, outcome.error.code, outcome.output) == ("timeout", "TIMEOUT", None)
                assert outcome.error.message == f"Hook Hanging failed at {stage}: it did not finish within 0.05 s."
                assert "limits.hook_seconds" in str(outcome.error.suggestion)
                ran = STAGES.index("did_execute") <= STAGES.index(stage) < STAGES.index("around_execute")
                assert outcome.error.retryable is not ran, "what has run is not to be tried again"
        budget = next(one for one in await app.budgets.list("default") if one.budget.id == "b")
        ran_calls = sum(outcome.metrics.attempts > 0 for outcome in outcomes)
        assert (budget.reserved, budget.spent) == (0, ran_calls * 250_000_000), "nothing stays reserved"
        if stage in FAILS_OPEN:
            assert f"hook Hanging failed at {stage}: HookTimeout: it did not finish within 0.05 s" in caplog.text
            assert app.parts.metrics is not None
            counted = f'toolgate_hook_errors_total{{hook="Hanging",stage="{stage}"}} 2.0'.encode()
            assert stage in UNCOUNTED or counted in app.parts.metrics.text()


@pytest.mark.parametrize("stage", ["will_authorize", "around_execute", "will_audit", "will_finalize_invoke"])
async def test_a_hook_that_ignores_its_cancellation_is_dropped(stage: str) -> None:
    async with memory_app() as app:
        app.add_hook(hanging(stage, stubborn=True))
        app.register(double)
        assert (await called(app)).status == ("success" if stage in FAILS_OPEN else "timeout")


async def test_one_that_ends_well_after_its_cancellation_is_late_all_the_same() -> None:
    class Late(Hook):
        timeout = 0.05

        async def will_authorize(self, _ctx: InvokeContext) -> None:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                return

    async with memory_app() as app:
        app.add_hook(Late())
        app.register(double)
        assert (await called(app)).status == "timeout"


async def test_a_filter_that_hangs_fails_closed() -> None:
    class Filtered(Hook):
        timeout = 0.05

        async def filter(self, _ctx: InvokeContext) -> bool:
            await asyncio.sleep(3_600)
            return False

        def will_authorize(self, _ctx: InvokeContext) -> None:
            """Take part."""

    async with memory_app() as app:
        app.add_hook(Filtered())
        app.register(double)
        assert (await called(app)).status == "timeout"


async def test_the_time_of_a_hook_that_wraps_stands_still_while_the_tool_runs() -> None:
    @tool(tier="read_only")
    async def slow() -> str:
        """Take longer than hooks may."""
        await asyncio.sleep(0.5)
        return "done"

    class Wraps(Hook):
        timeout = 0.3

        async def around_execute(self, _ctx: InvokeContext, inner: Next) -> Any:
            await asyncio.sleep(0)
            return await inner()

    class After(Wraps):
        async def around_execute(self, _ctx: InvokeContext, inner: Next) -> Any:
            await inner()
            await asyncio.sleep(3_600)

    async with memory_app() as app:
        app.add_hook(Wraps())
        app.register(slow)
        for _ in range(5):  # more than once only where the machine held the hook itself up for as long as it may take
            outcome = await app.invoke("slow")
            if outcome.ok:
                break
        assert outcome.output == "done", outcome.error
        app.add_hook(After())
        outcome = await asyncio.wait_for(app.invoke("slow"), PATIENCE)
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.retryable) == ("TIMEOUT", False)


async def test_limits_are_the_settings_the_hooks_or_a_stages() -> None:
    async with memory_app(limits={"hook_seconds": 0.05}) as app:
        app.add_hook(hanging("will_authorize", None))
        app.register(double)
        assert "within 0.05 s" in str((await called(app)).error)
    async with memory_app() as app:
        app.add_hook(hanging("will_authorize", {"will_authorize": 0.06, "will_audit": 9}))
        app.register(double)
        assert "within 0.06 s" in str((await called(app)).error)
        for wrong in (0, -1, "5", True, {"no_stage": 1}, {"will_audit": 0}, float("nan")):
            with pytest.raises(TypeError, match="timeout must be seconds"):
                app.add_hook(hanging("will_authorize", wrong))  # type: ignore[arg-type]


async def test_whoever_goes_away_while_a_hook_hangs_is_let_go_and_nothing_is_held() -> None:
    async with memory_app(limits={"tenant_concurrency": 1}) as app:
        hangs = hanging("will_execute", 3_600)
        app.add_hook(hangs)
        app.register(double)
        calling = asyncio.ensure_future(app.invoke("double", {"number": 2}))
        await asyncio.sleep(0.05)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(calling, PATIENCE)
        assert app.parts.running.count == 0


@pytest.mark.parametrize("stage", ["will_authorize", "will_execute", "around_execute", "will_redact_output", "will_audit"])
async def test_a_hook_that_ignores_that_its_caller_went_away_is_dropped_at_its_limit(stage: str) -> None:
    async with memory_app(limits={"tenant_concurrency": 1}) as app:
        await app.budgets.set(BudgetRow("b", "default", None, None, None, "day", 10_000_000_000, "UTC"))
        app.add_hook(hanging(stage, 0.2, stubborn=True))
        app.register(double)
        calling = asyncio.ensure_future(app.invoke("double", {"number": 2}))
        await asyncio.sleep(0.05)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(calling), PATIENCE)
        assert calling.cancelled(), "not the test that lost its patience"
        assert app.parts.running.count == 0
        assert sum(one.reserved for one in await app.budgets.list("default")) == 0


async def test_a_hook_runs_in_the_task_and_the_context_of_its_call() -> None:
    seen: list[str] = []

    class Sets(Hook):
        async def will_execute(self, _ctx: InvokeContext) -> None:
            async with asyncio.timeout(PATIENCE):  # which is bound to the task that it is entered in
                await asyncio.sleep(0)
                variable.set("set")

    @tool(tier="read_only")
    async def reads() -> None:
        """Read the variable."""
        seen.append(variable.get())

    async with memory_app() as app:
        app.add_hook(Sets())
        app.register(reads)
        assert (await app.invoke("reads")).ok
    assert seen == ["set"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_hook_that_blocks_the_loop_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Blocks(Hook):
        def will_authorize(self, _ctx: InvokeContext) -> None:
            time.sleep(1.05)

        async def will_audit(self, _ctx: InvokeContext) -> None:
            time.sleep(1.05)

    async with memory_app() as app:
        app.add_hook(Blocks())
        app.register(double)
        with caplog.at_level(logging.WARNING, "toolgate"):
            assert (await called(app)).ok
    for stage in ("will_authorize", "will_audit"):
        assert any(
            re.search(rf"hook Blocks blocked the event loop for \d+\.\d s at {stage}", line) for line in caplog.messages
        )


async def test_the_end_record_names_a_hook_that_was_dropped() -> None:
    async with memory_app() as app:
        app.add_hook(hanging("on_error"))
        app.register(double)
        assert (await asyncio.wait_for(app.invoke("double", {"number": "no"}), PATIENCE)).status == "failure"
        await app.flush()
        [end] = [json.loads(row[7]) for row in await app.parts.store.read(audit_log.latest(20)) if row[2] == "end"]
        assert [trouble["stage"] for trouble in end["hook_errors"]] == ["on_error"]


# -- threads, which can't be stopped


async def test_threads_of_hooks_that_never_return_are_none_that_toolgate_needs(tmp_path: Path) -> None:
    returns = threading.Event()

    class Stuck(Hook):
        timeout = 0.05

        async def will_execute(self, ctx: InvokeContext) -> None:
            if ctx.call.tool == "double":
                await asyncio.to_thread(returns.wait)

    with ThreadPoolExecutor(1) as others:
        asyncio.get_running_loop().set_default_executor(others)
        try:
            async with App.open(os.devnull, home=tmp_path / "home", entry_points=False) as app:
                app.register(double)
                app.add_hook(Stuck())
                app.sessions.work_in("s", tmp_path)
                app.approvals.add_approver(lambda _: Answer("approve"))
                assert [(await called(app)).status for _ in range(2)] == ["timeout", "timeout"]
                letter = {"path": "letter.txt", "content": "hello"}
                outcome = await asyncio.wait_for(app.invoke("write_file", letter, session="s"), PATIENCE)
                assert outcome.ok, outcome
        finally:
            returns.set()


def test_a_command_ends_although_a_thread_of_a_hook_does_not(terminal: Terminal) -> None:
    terminal.add_tools('''
        import asyncio, threading
        from toolgate import Hook, tool

        class Stuck(Hook):
            timeout = 0.05

            async def will_execute(self, ctx):
                await asyncio.to_thread(threading.Event().wait)

        @tool(tier="read_only", hooks=[Stuck()])
        async def stuck() -> int:
            """Never called."""
            return 1
    ''')
    done = terminal.run("call", "stuck")
    assert done.code == 1
    assert "TIMEOUT: Hook Stuck failed at will_execute" in done.err


async def test_work_that_nobody_waits_for_any_more_does_not_pile_up_behind_threads_that_hang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    returns, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(executor := DaemonExecutor(2))
    holding = [asyncio.ensure_future(asyncio.to_thread(returns.wait)) for _ in range(2)]
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(time.monotonic), 0.01)
    assert executor.backlog == 0
    assert [line for line in caplog.messages if "all 2 threads of asyncio.to_thread are taken" in line] == caplog.messages[
        -1:
    ]
    waits = asyncio.ensure_future(asyncio.to_thread(lambda: 7))
    returns.set()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*holding, waits) == [True, True, 7]
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
