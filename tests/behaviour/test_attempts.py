"""Attempts and time: what the caller gives is for all attempts together, and none runs beside another."""

import asyncio
import threading
import time

import pytest

from tests.patience import SOON
from toolgate import Outcome, Retry, ToolError, tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("PIPE-7")


def code(outcome: Outcome) -> str:
    return outcome.error.code if outcome.error else "ok"


async def test_the_callers_time_is_for_all_attempts_together() -> None:
    @tool(tier="read_only", timeout=0.5, retry=Retry(max_attempts=20, backoff_ms=1, codes=("TIMEOUT",)))
    async def hangs() -> None:
        """Sleeps."""
        await asyncio.sleep(60)

    async with memory_app() as app:
        app.register(hangs)
        began = time.monotonic()
        outcome = await app.invoke("hangs", timeout=2)
        took = time.monotonic() - began
    assert (outcome.status, code(outcome)) == ("timeout", "TIMEOUT")
    assert took > 1
    attempts = outcome.metrics.attempts
    assert 2 <= attempts <= 4, "of the twenty that it would be given otherwise; fewer where the machine was held up"
    assert outcome.error is not None
    assert f"within 2 s, in {attempts} attempts" in outcome.error.message


async def test_an_attempt_that_could_only_begin_after_the_time_is_not_waited_for() -> None:
    @tool(tier="read_only", retry=Retry(max_attempts=5, backoff_ms=600_000, max_delay_ms=600_000))
    async def fails() -> None:
        """Fails."""
        raise ConnectionError("down")

    async with memory_app() as app:
        app.register(fails)
        began = time.monotonic()
        outcome = await app.invoke("fails", timeout=60)
        assert time.monotonic() - began < 50
    assert (code(outcome), outcome.metrics.attempts) == ("CONNECTION_ERROR", 1)


async def test_an_attempt_within_the_time_succeeds_and_is_let_end() -> None:
    results = iter([ConnectionError("down"), ConnectionError("down"), None])

    @tool(tier="read_only", retry=Retry(max_attempts=5, backoff_ms=1))
    async def recovers() -> str:
        """Recovers."""
        await asyncio.sleep(0.01)
        error = next(results)
        if error is not None:
            raise error
        return "fine"

    async with memory_app() as app:
        app.register(recovers)
        outcome = await app.invoke("recovers", timeout=30)
    assert (outcome.output, outcome.metrics.attempts) == ("fine", 3)


async def test_a_tools_own_timeout_error_in_a_later_attempt_is_its_own() -> None:
    @tool(tier="read_only", retry=Retry(max_attempts=3, backoff_ms=1))
    async def gives_up() -> None:
        """Gives up."""
        raise TimeoutError("no answer")

    async with memory_app() as app:
        app.register(gives_up)
        outcome = await app.invoke("gives_up", timeout=30)
    assert outcome.error is not None
    assert (code(outcome), outcome.metrics.attempts) == ("TIMEOUT", 3)
    assert "no answer" in outcome.error.message


async def test_a_caller_that_goes_away_in_a_later_attempt_is_let_go() -> None:
    second = asyncio.Event()
    attempts = 0

    @tool(tier="read_only", retry=Retry(max_attempts=3, backoff_ms=1))
    async def waits() -> None:
        """Fails, then waits."""
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError("down")
        second.set()
        await asyncio.sleep(60)

    async with memory_app() as app:
        app.register(waits)
        call = asyncio.ensure_future(app.invoke("waits", timeout=30))
        await asyncio.wait_for(second.wait(), SOON)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert attempts == 2


@pytest.mark.parametrize("target", [None, "shop"])
async def test_a_synchronous_tool_that_overran_is_not_run_beside_itself(target: str | None) -> None:
    release = threading.Event()
    running: list[int] = []

    @tool(tier="read_only", timeout=0.05, target=target, retry=Retry(max_attempts=3, backoff_ms=1, codes=("TIMEOUT",)))
    def overruns() -> None:
        """Blocks its thread."""
        running.append(1)
        release.wait(30)

    async with memory_app() as app:
        app.register(overruns)
        outcome = await app.invoke("overruns")
        release.set()
    assert (code(outcome), outcome.metrics.attempts, len(running)) == ("TIMEOUT", 1, 1)


@pytest.mark.parametrize("target", [None, "shop"])
@pytest.mark.parametrize("raised", [TimeoutError("no answer"), ToolError("no answer", code="TIMEOUT")], ids=repr)
async def test_a_synchronous_tool_that_gave_up_by_itself_is_tried_again(raised: Exception, target: str | None) -> None:
    @tool(tier="read_only", target=target, retry=Retry(max_attempts=3, backoff_ms=1))
    def gives_up() -> None:
        """Gives up."""
        raise raised

    async with memory_app() as app:
        app.register(gives_up)
        outcome = await app.invoke("gives_up")
    assert (code(outcome), outcome.metrics.attempts) == ("TIMEOUT", 3)
