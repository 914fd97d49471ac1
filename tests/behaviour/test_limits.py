"""What holds calls back or spares them: cache, circuit breaker, concurrency, declared rate limits."""

import asyncio
import itertools

import pytest

from tests.patience import until
from toolgate import Actor, CacheRule, RateLimit, ToolError, tool
from toolgate.testing import ManualClock, memory_app


@pytest.mark.requirement("PIPE-8")
async def test_the_cache_keeps_tenants_and_users_apart_and_forgets_in_time() -> None:
    counter = itertools.count(1)
    clock = ManualClock()

    @tool(tier="read_only", cache=60)
    async def count(n: int = 0) -> int:
        """Counts."""
        return next(counter) + 0 * n

    @tool(tier="read_only", cache=CacheRule(ttl=60, scope="user"))
    async def mine() -> int:
        """Counts for a user."""
        return next(counter)

    async with memory_app(clock=clock) as app:
        app.register(count)
        app.register(mine)
        ada, bob, other = Actor("acme", None, "ada"), Actor("acme", None, "bob"), Actor("globex", None, "ada")
        assert [(await app.invoke("count", {"n": n}, actor=ada)).output for n in (0, 0, 1)] == [1, 1, 2]
        assert (await app.invoke("count", actor=bob)).output == 1
        assert (await app.invoke("count", {"n": 0}, actor=other)).output == 3
        assert [(await app.invoke("mine", actor=who)).output for who in (ada, bob, ada)] == [4, 5, 4]
        clock.advance(61)
        assert (await app.invoke("count", actor=ada)).output == 6


@pytest.mark.requirement("PIPE-8")
async def test_nobody_can_change_what_the_next_caller_gets_from_the_cache_and_failures_are_not_kept() -> None:
    works = iter([False, True, True])

    @tool(tier="read_only", cache=60)
    async def rows() -> list[int]:
        """Rows."""
        if not next(works):
            raise ValueError("not now")
        return [1]

    async with memory_app() as app:
        app.register(rows)
        assert (await app.invoke("rows")).status == "failure"
        first = await app.invoke("rows")
        first.output.append(666)
        second = await app.invoke("rows")
        second.output.append(667)
        assert (await app.invoke("rows")).output == [1]


@pytest.mark.requirement("PIPE-10")
async def test_the_breaker_opens_after_five_failures_and_lets_one_call_try() -> None:
    clock = ManualClock()
    calls: list[str] = []
    healthy = False

    @tool(tier="read_only", target="shop", name="read")
    async def reads() -> str:
        """Reads from the shop."""
        calls.append("read")
        await asyncio.sleep(0)
        if not healthy:
            raise ConnectionError("down")
        return "goods"

    @tool(tier="read_only", target="shop")
    async def other() -> str:
        """The same shop."""
        return "other"

    async with memory_app(clock=clock) as app:
        app.register(reads)
        app.register(other)
        for _ in range(5):
            assert (await app.invoke("read")).error.code == "CONNECTION_ERROR"  # type: ignore[union-attr]
        shut = await app.invoke("other")
        assert shut.error is not None
        assert (shut.error.code, shut.error.retryable) == ("CIRCUIT_OPEN", True)
        assert shut.error.details == {"retry_after": 30.0, "target": "shop"}
        assert len(calls) == 5
        clock.advance(31)
        crowd = await asyncio.gather(*(app.invoke("read") for _ in range(20)))
        assert len(calls) == 6
        assert sorted({outcome.error.code for outcome in crowd if outcome.error}) == ["CIRCUIT_OPEN", "CONNECTION_ERROR"]
        assert (await app.invoke("read")).error.code == "CIRCUIT_OPEN"  # type: ignore[union-attr]
        clock.advance(31)
        healthy = True
        assert (await app.invoke("read")).output == "goods"
        assert (await app.invoke("other")).output == "other"


@pytest.mark.requirement("PIPE-10")
async def test_a_callers_bad_input_does_not_open_the_circuit() -> None:
    @tool(tier="read_only", target="shop")
    async def picky(n: int) -> int:
        """Refuses."""
        raise ToolError(f"not {n}", code="INVALID_INPUT")

    async with memory_app() as app:
        app.register(picky)
        codes = [(await app.invoke("picky", {"n": n})).error.code for n in range(8)]  # type: ignore[union-attr]
    assert codes == ["INVALID_INPUT"] * 8


@pytest.mark.requirement("PIPE-10")
async def test_an_impatient_caller_does_not_open_the_circuit_for_others() -> None:
    @tool(tier="read_only", target="shop", timeout=30)
    async def reads(slowly: bool) -> str:
        """Reads."""
        await asyncio.sleep(60 if slowly else 0)
        return "goods"

    async with memory_app() as app:
        app.register(reads)
        for _ in range(8):
            hasty = await app.invoke("reads", {"slowly": True}, timeout=0.001, actor=Actor(tenant="hasty"))
            assert hasty.status == "timeout"
        assert (await app.invoke("reads", {"slowly": False})).output == "goods"


@pytest.mark.requirement("PIPE-11")
async def test_a_tool_and_a_tenant_have_only_so_many_calls_at_once() -> None:
    gate = asyncio.Event()
    inside: list[str] = []

    @tool(tier="read_only", concurrency=2)
    async def narrow() -> str:
        """Waits."""
        inside.append("narrow")
        await gate.wait()
        return "in"

    @tool(tier="read_only")
    async def wide() -> str:
        """Waits."""
        inside.append("wide")
        await gate.wait()
        return "in"

    async with memory_app(limits={"tenant_concurrency": 3}) as app:
        app.register(narrow)
        app.register(wide)
        narrow_calls = [asyncio.ensure_future(app.invoke("narrow")) for _ in range(3)]
        await until(lambda: len(inside) == 2 and narrow_calls[2].done(), "two are inside, and one is refused")
        wide_calls = [asyncio.ensure_future(app.invoke("wide")) for _ in range(2)]
        elsewhere = asyncio.ensure_future(app.invoke("wide", actor=Actor(tenant="other")))
        await until(lambda: len(inside) == 4 and wide_calls[1].done(), "four are inside, and one more is refused")
        gate.set()
        results = [await call for call in [*narrow_calls, *wide_calls, elsewhere]]
        assert [r.error.code if r.error else r.output for r in results] == [
            "in", "in", "CAPACITY_EXCEEDED", "in", "CAPACITY_EXCEEDED", "in",
        ]  # fmt: skip
        assert results[2].error is not None
        assert results[2].error.details == {"retry_after": 1.0}
        again = [await app.invoke("narrow") for _ in range(3)]
        assert [r.output for r in again] == ["in"] * 3


@pytest.mark.requirement("COST-4")
async def test_a_declared_rate_limit_holds_for_each_user_and_says_when_to_come_again() -> None:
    clock = ManualClock()

    @tool(tier="read_only", rate_limit=RateLimit(per_minute=2, per_hour=3))
    async def rare() -> int:
        """Rarely."""
        return 1

    async with memory_app(clock=clock) as app:
        app.register(rare)
        assert [(await app.invoke("rare")).ok for _ in range(2)] == [True, True]
        clock.advance(20)
        third = await app.invoke("rare")
        assert third.error is not None
        assert (third.error.code, third.error.details) == ("RATE_LIMITED", {"retry_after": 40.0})
        assert (await app.invoke("rare", actor=Actor(user="someone-else"))).ok
        clock.advance(41)
        assert (await app.invoke("rare")).ok
        hourly = await app.invoke("rare")
        assert hourly.error is not None
        assert hourly.error.details == {"retry_after": 3600.0 - 61.0}
