"""Running tools: whatever they do, the caller gets a clean outcome and the process goes on."""

import asyncio
import threading
from typing import Any

import pytest

from tests.patience import SOON, until
from toolgate import InvokeContext, Outcome, Retry, ToolError, tool
from toolgate.errors import CallError, NotOpen, Pending, TimedOut
from toolgate.registry.compile import compile_entry, definition
from toolgate.runners.execution import delay
from toolgate.testing import memory_app


@tool(tier="read_only")
async def fine() -> str:
    """Works."""
    return "fine"


class Odd(BaseException):
    """Not an Exception."""


async def outcome_of(code: Any, arguments: dict[str, Any] | None = None, **settings: Any) -> Outcome:
    """How a call of a tool ends; afterwards, another one must still work."""
    async with memory_app(**settings) as app:
        declared = app.register(code)
        app.register(fine)
        outcome = await app.invoke(declared.name, arguments)
        assert (await app.invoke("fine")).output == "fine"
        assert (await app.audit.verify()).ok
    return outcome


@pytest.mark.requirement("PIPE-6")
@pytest.mark.parametrize("error", [ValueError("no"), Odd("odd"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
@pytest.mark.sample(4)
async def test_a_tool_that_raises_anything_gives_a_failure(error: BaseException, mode: str) -> None:
    @tool(tier="read_only", name="raises")
    async def inline() -> None:
        """Raises at once."""
        raise error

    @tool(tier="read_only", name="raises")
    async def task() -> None:
        """Raises after a while."""
        await asyncio.sleep(0)
        raise error

    @tool(tier="read_only", name="raises")
    def thread() -> None:
        """Raises in a thread."""
        raise error

    outcome = await outcome_of({"inline": inline, "task": task, "thread": thread}[mode])
    assert outcome.status == "failure"
    assert outcome.error is not None
    assert outcome.error.code == "INVOCATION_ERROR"
    assert type(error).__name__ in outcome.error.message


@pytest.mark.requirement("PIPE-6", "PIPE-7")
async def test_a_tool_that_hangs_is_timed_out() -> None:
    @tool(tier="read_only", timeout=0.05)
    async def hangs() -> None:
        """Sleeps."""
        await asyncio.sleep(3600)

    outcome = await outcome_of(hangs)
    assert (outcome.status, outcome.error and outcome.error.code) == ("timeout", "TIMEOUT")
    assert outcome.error is not None
    assert outcome.error.retryable


@pytest.mark.requirement("PIPE-7")
async def test_a_tool_that_ignores_its_cancellation_is_left_behind() -> None:
    stop = asyncio.Event()

    @tool(tier="read_only", timeout=0.05)
    async def stubborn() -> None:
        """Does not listen."""
        while not stop.is_set():
            try:
                await asyncio.wait_for(stop.wait(), 30)
            except asyncio.CancelledError:
                continue

    async with memory_app() as app:
        app.register(stubborn)
        outcome = await app.invoke("stubborn")
        assert outcome.status == "timeout"
        assert len(app.parts.local.runaways) == 1
        stop.set()
        await asyncio.wait(app.parts.local.runaways, timeout=SOON)
        assert not app.parts.local.runaways


@pytest.mark.requirement("PIPE-7")
async def test_a_synchronous_tool_that_overruns_is_counted_and_does_not_stop_others() -> None:
    release = threading.Event()

    @tool(tier="read_only", timeout=0.05)
    def overruns() -> None:
        """Blocks its thread."""
        release.wait(100)

    async with memory_app(limits={"threads": 2}) as app:
        app.register(overruns)
        assert (await app.invoke("overruns")).status == "timeout"
        assert app.parts.local.threads.overrunning == 1
        assert (await app.invoke("overruns")).status == "timeout"
        full = await app.invoke("overruns")
        assert full.error is not None
        assert full.error.code == "CAPACITY_EXCEEDED"
        release.set()
        await until(lambda: app.parts.local.threads.overrunning == 0, "the threads have ended")


@pytest.mark.requirement("TOOL-2")
async def test_a_synchronous_tool_does_not_hold_up_the_event_loop() -> None:
    names: list[str] = []
    go_on = threading.Event()

    @tool(tier="read_only", timeout=100)
    def blocks() -> bool:
        """Blocks."""
        names.append(threading.current_thread().name)
        return go_on.wait(SOON)

    async with memory_app() as app:
        app.register(blocks)
        pending = asyncio.ensure_future(app.invoke("blocks"))
        await until(lambda: names, "it runs")
        go_on.set()
        assert (await pending).output is True, "the event loop let it go on"
    assert names == ["toolgate-tool"]


@pytest.mark.requirement("PIPE-7")
async def test_a_caller_may_shorten_the_time_but_not_lengthen_it() -> None:
    @tool(tier="read_only", timeout=0.1)
    async def hangs() -> None:
        """Sleeps."""
        await asyncio.sleep(3600)

    async with memory_app() as app:
        app.register(hangs)
        shorter = await app.invoke("hangs", timeout=0.01)
        longer = await app.invoke("hangs", timeout=50)
    assert shorter.error is not None
    assert "0.01 s" in shorter.error.message
    assert longer.error is not None
    assert "0.1 s" in longer.error.message


@pytest.mark.requirement("PIPE-6")
@pytest.mark.parametrize(
    "value", [object(), {1: 2}, float("nan"), {"deep": [float("inf")]}, 2**70, b"bytes", "\ud800", {"a": {"b": lambda: 1}}]
)
async def test_an_output_that_is_no_json_is_invalid(value: Any) -> None:
    @tool(tier="read_only")
    async def odd() -> Any:
        """Returns something odd."""
        return value

    outcome = await outcome_of(odd)
    assert (outcome.status, outcome.error and outcome.error.code) == ("failure", "OUTPUT_INVALID")


@pytest.mark.requirement("PIPE-6")
async def test_a_tool_that_returns_a_cycle_or_floods_gives_a_clean_outcome() -> None:
    @tool(tier="read_only")
    async def cycle() -> Any:
        """A list that holds itself."""
        items: list[Any] = []
        items.append(items)
        return items

    @tool(tier="read_only")
    async def flood() -> Any:
        """Far too much."""
        return {"rows": ["x" * 50_000] * 400}

    outcome = await outcome_of(cycle)
    assert outcome.error is not None
    assert outcome.error.code == "OUTPUT_INVALID"
    flooded = await outcome_of(flood)
    assert flooded.status == "success"
    assert flooded.artifact is not None
    assert len(flooded.to_json()) < 1_100_000


@pytest.mark.matrix("floods for a while")
@pytest.mark.requirement("PIPE-6")
async def test_a_flood_does_not_stop_the_event_loop() -> None:
    @tool(tier="read_only")
    async def flood() -> Any:
        """Too much."""
        return {"rows": ["key1 = value2 " * 400] * 2_000}

    async with memory_app() as app:
        app.register(flood)
        pending = asyncio.ensure_future(app.invoke("flood"))
        ticks = 0
        while not pending.done():
            await asyncio.sleep(0.001)
            ticks += 1
        assert (await pending).artifact is not None
    assert ticks > 3


@pytest.mark.requirement("PIPE-6")
async def test_a_tools_own_error_keeps_its_code_words_and_advice() -> None:
    @tool(tier="read_only")
    async def refuses(code: str) -> None:
        """Refuses."""
        raise ToolError("can't", code=code, suggestion="try 4", details={"n": 5}, retryable=True)

    known = (await outcome_of(refuses, {"code": "CONNECTION_ERROR"})).error
    assert known is not None
    assert (known.code, known.message, known.suggestion, known.details) == ("CONNECTION_ERROR", "can't", "try 4", {"n": 5})
    assert known.retryable
    own = (await outcome_of(refuses, {"code": "TOO_PINK"})).error
    assert own is not None
    assert (own.code, own.details) == ("INVOCATION_ERROR", {"n": 5, "tool_code": "TOO_PINK"})
    pending = (await outcome_of(refuses, {"code": "APPROVAL_REQUIRED"})).error
    assert pending is not None
    assert pending.code == "INVOCATION_ERROR"


@pytest.mark.requirement("PIPE-6")
async def test_raise_for_status_raises_the_matching_error() -> None:
    @tool(tier="execute")
    async def asks() -> None:
        """Asks."""

    @tool(tier="read_only", timeout=0.01)
    async def hangs() -> None:
        """Sleeps."""
        await asyncio.sleep(60)

    async with memory_app() as app:
        app.register(asks)
        app.register(hangs)
        app.register(fine)
        assert (await app.invoke("fine")).raise_for_status().output == "fine"
        with pytest.raises(Pending) as pending:
            (await app.invoke("asks")).raise_for_status()
        assert pending.value.kind == "approval"
        with pytest.raises(TimedOut):
            (await app.invoke("hangs")).raise_for_status()
        with pytest.raises(CallError) as missing:
            (await app.invoke("nothing")).raise_for_status()
        assert missing.value.code == "TOOL_NOT_FOUND"


@pytest.mark.requirement("PIPE-6")
async def test_a_closed_app_is_misuse() -> None:
    app = memory_app()
    with pytest.raises(NotOpen):
        await app.invoke("echo", {"text": "x"})
    async with app:
        assert (await app.invoke("echo", {"text": "x"})).ok
    with pytest.raises(NotOpen):
        await app.invoke("echo", {"text": "x"})


@pytest.mark.requirement("PIPE-7")
def test_the_delay_between_attempts_grows_and_is_bounded() -> None:
    retry = Retry(max_attempts=9, backoff_ms=100, multiplier=3, max_delay_ms=1000)
    longest = [delay(retry, attempt, 1.0) for attempt in range(1, 6)]
    assert longest == pytest.approx([0.1, 0.3, 0.9, 1.0, 1.0])
    assert [delay(retry, attempt, 0.0) for attempt in range(1, 6)] == pytest.approx([each / 2 for each in longest])


@pytest.mark.requirement("PIPE-6")
async def test_a_kind_that_nothing_can_run_is_a_clean_failure() -> None:
    async with memory_app() as app:
        app.register(
            compile_entry(definition({"name": "alien", "description": "x", "kind": "alien", "tier": "read_only"}), None)
        )
        outcome = await app.invoke("alien")
    assert outcome.error is not None
    assert outcome.error.code == "UNKNOWN_TOOL_TYPE"


@pytest.mark.requirement("PIPE-6")
async def test_a_tool_reports_what_it_took() -> None:
    @tool(tier="read_only", cost=0.25)
    async def costly(ctx: InvokeContext, free: bool) -> int:
        """Costs."""
        ctx.used("db:orders", tokens=7)
        if free:
            ctx.used(cost_usd=0.0)
        return 1

    assert (await outcome_of(costly, {"free": False})).to_dict()["metrics"] | {"duration_ms": 0} == {
        "duration_ms": 0, "attempts": 1, "cached": False,
        "tokens_used": 7, "cost_usd": 0.25, "resources_used": ["db:orders"],
    }  # fmt: skip
    assert (await outcome_of(costly, {"free": True})).metrics.cost_usd == 0.0
