"""Circuit breakers whose state processes share through Redis."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis as client_library

from tests.patience import until
from tests.servers import Redis as RedisServer
from toolgate import Actor, App, InvokeContext, Outcome, ToolError, tool
from toolgate.errors import Failed
from toolgate.model import Entry
from toolgate.runners.breaker import Breakers, Pass
from toolgate.testing import ManualClock, memory_app

pytestmark = pytest.mark.requirement("PIPE-10")

ROOT = Path(__file__).resolve().parents[2]


class Shop:
    """An external system that may be down, and a tool that needs it."""

    def __init__(self) -> None:
        self.healthy = False
        self.calls = 0
        self.open = asyncio.Event()
        """Until it is set, calls wait inside."""
        self.open.set()

        @tool(tier="read_only", target="shop", timeout=60)
        async def buy() -> str:
            """Buys."""
            self.calls += 1
            await self.open.wait()
            if not self.healthy:
                raise ConnectionError("down")
            return "goods"

        self.tool = buy


def app_with(shop: Shop, url: str, reset: float = 30, **settings: Any) -> App:
    app = memory_app(redis_url=url, breaker={"failures": 3, "reset_seconds": reset}, **settings)
    app.register(shop.tool)
    return app


def let_rest(url: str) -> None:
    """Let the circuit's time be over, without waiting for it."""
    with client_library.Redis.from_url(url) as client:
        [name] = client.keys("toolgate:breaker:*")
        client.hset(name, "opened", 0)


def code(outcome: Outcome) -> str:
    return outcome.error.code if outcome.error else "ok"


@pytest.mark.matrix("needs Redis")
async def test_failures_seen_by_several_apps_open_the_circuit_for_all(redis_url: str) -> None:
    shop = Shop()
    async with app_with(shop, redis_url, 300) as one, app_with(shop, redis_url, 300) as other:
        codes = [code(await app.invoke("buy")) for app in (one, other, one, one, other)]
        assert codes == ["CONNECTION_ERROR"] * 3 + ["CIRCUIT_OPEN"] * 2
        assert shop.calls == 3
        refused = await other.invoke("buy")
        assert refused.error is not None
        assert "shop failed 3 times in a row" in refused.error.message
        assert refused.error.details is not None
        assert 200 < refused.error.details["retry_after"] <= 300
        assert await other.parts.breakers.open_everywhere() == [("", "shop")]


@pytest.mark.matrix("needs Redis")
async def test_a_success_in_between_begins_the_count_anew(redis_url: str) -> None:
    shop = Shop()
    async with app_with(shop, redis_url) as one, app_with(shop, redis_url) as other:
        for _ in range(3):
            shop.healthy = False
            assert [code(await app.invoke("buy")) for app in (one, other)] == ["CONNECTION_ERROR"] * 2
            shop.healthy = True
            assert code(await other.invoke("buy")) == "ok"
        assert await one.parts.breakers.open_everywhere() == []


async def all_but_one(calls: list[asyncio.Task[Outcome]]) -> None:
    await until(lambda: sum(call.done() for call in calls) >= len(calls) - 1, "all but the trial are refused")


@pytest.mark.matrix("needs Redis")
async def test_of_a_crowd_in_many_apps_one_call_tries(redis_url: str) -> None:
    shop = Shop()
    apps = [app_with(shop, redis_url, reset=300) for _ in range(5)]
    for app in apps:
        await app.__aenter__()
    try:
        for app in apps[:3]:
            await app.invoke("buy")
        for healthy in (False, True):
            let_rest(redis_url)
            shop.healthy, shop.calls = healthy, 0
            shop.open.clear()
            calls = [asyncio.ensure_future(app.invoke("buy")) for app in apps for _ in range(10)]
            await all_but_one(calls)
            shop.open.set()
            crowd = await asyncio.gather(*calls)
            assert shop.calls == 1
            tried = "ok" if healthy else "CONNECTION_ERROR"
            assert sorted(code(outcome) for outcome in crowd) == sorted(["CIRCUIT_OPEN"] * 49 + [tried])
        assert code(await apps[4].invoke("buy")) == "ok"
    finally:
        for app in apps:
            await app.__aexit__(None, None, None)


TRIES = """
import asyncio, sys
from toolgate import tool
from toolgate.testing import memory_app
@tool(tier='read_only', target='shop', timeout=60)
async def buy() -> str:
    'Buys.'
    print('called', flush=True)
    await asyncio.sleep(0.1)
    raise ConnectionError('down')
async def main():
    async with memory_app(redis_url=sys.argv[1], breaker={'failures': 3, 'reset_seconds': 300}) as app:
        app.register(buy)
        await asyncio.gather(*(app.invoke('buy') for _ in range(20)))
asyncio.run(main())
"""


@pytest.mark.matrix("needs Redis")
async def test_of_a_crowd_in_two_processes_one_call_tries(redis_url: str) -> None:
    shop = Shop()
    async with app_with(shop, redis_url, reset=300) as app:
        for _ in range(3):
            await app.invoke("buy")
        let_rest(redis_url)
        command = [sys.executable, "-c", TRIES, redis_url]
        processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = [(await asyncio.to_thread(process.communicate, timeout=60))[0] for process in processes]
    # the second process may have come after the first one's trial had failed, but then the circuit rests again
    assert sum(text.count("called") for text in said) == 1


@pytest.mark.matrix("needs Redis")
async def test_a_trial_that_died_is_over_when_its_time_is(redis_url: str) -> None:
    shop = Shop()
    async with app_with(shop, redis_url, reset=300) as app:
        for _ in range(3):
            await app.invoke("buy")
        let_rest(redis_url)
        shop.healthy = True
        with client_library.Redis.from_url(redis_url) as client:
            [name] = client.keys("toolgate:breaker:*")
            seconds, micros = client.time()
            later = (seconds + 60) * 1_000_000 + micros
            client.hset(name, mapping={"trial": "of a process that was killed", "until": later})
            assert code(await app.invoke("buy")) == "CIRCUIT_OPEN"
            client.hset(name, "until", later - 60_000_000)
        assert code(await app.invoke("buy")) == "ok"


@pytest.mark.matrix("needs Redis")
async def test_a_trial_that_is_cancelled_lets_the_next_call_try(redis_url: str) -> None:
    shop = Shop()
    async with app_with(shop, redis_url, reset=300) as app:
        for _ in range(3):
            await app.invoke("buy")
        let_rest(redis_url)
        shop.open.clear()
        trial = asyncio.ensure_future(app.invoke("buy"))
        await until(lambda: shop.calls == 4, "the trial is inside")
        trial.cancel()
        await asyncio.gather(trial, return_exceptions=True)
        shop.open.set()
        shop.healthy = True
        assert code(await app.invoke("buy")) == "ok"


@pytest.mark.matrix("needs Redis")
async def test_bad_input_and_control_say_nothing_of_the_target(redis_url: str) -> None:
    @tool(tier="read_only", target="shop")
    async def picky(ctx: InvokeContext, how: str) -> str:
        """Ends in many ways."""
        if how == "input":
            raise ToolError("no", code="INVALID_INPUT")
        if how == "abort":
            ctx.abort("enough")
        raise ConnectionError("down")

    async with memory_app(redis_url=redis_url, breaker={"failures": 2}) as app:
        app.register(picky)
        ways = ["down", "input", "abort", "input", "down", "input"]
        codes = [code(await app.invoke("picky", {"how": way})) for way in ways]
    assert codes == [
        "CONNECTION_ERROR",
        "INVALID_INPUT",
        "PERMISSION_DENIED",
        "INVALID_INPUT",
        "CONNECTION_ERROR",
        "CIRCUIT_OPEN",
    ]


@pytest.mark.matrix("needs Redis")
async def test_without_redis_each_app_goes_by_what_it_sees(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    async with app_with(shop, own_redis.url) as one, app_with(shop, own_redis.url) as other:
        assert code(await one.invoke("buy")) == "CONNECTION_ERROR"
        own_redis.stop()
        with caplog.at_level(logging.WARNING, "toolgate"):
            codes = [code(await one.invoke("buy")) for _ in range(4)]
        assert codes == ["CONNECTION_ERROR"] * 3 + ["CIRCUIT_OPEN"]
        assert len([record for record in caplog.records if "circuit breakers go by" in record.message]) == 1
        assert code(await other.invoke("buy")) == "CONNECTION_ERROR"
        own_redis.start()
        shop.healthy = True
        assert [code(await app.invoke("buy")) for app in (one, other)] == ["ok", "ok"]


@pytest.fixture(params=["memory", "redis"])
def shared(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {} if request.param == "memory" else {"redis_url": request.getfixturevalue("redis_url")}


async def test_looking_says_what_would_happen_and_does_not_try(shared: dict[str, Any]) -> None:
    shop = Shop()
    clock = ManualClock()
    app = memory_app(breaker={"failures": 2, "reset_seconds": 300}, clock=clock, **shared)
    app.register(shop.tool)
    async with app:
        entry, plain = app.parts.catalog.resolve("buy", "acme"), app.parts.catalog.resolve("echo", "acme")
        assert [await app.parts.breakers.look(each, "default") for each in (entry, plain)] == [None, None]
        for _ in range(2):
            await app.invoke("buy")
        words = await app.parts.breakers.look(entry, "default")
        assert words is not None
        assert "shop failed 2 times in a row" in words
        clock.advance(301)
        if shared:
            let_rest(shared["redis_url"])
        assert [await app.parts.breakers.look(entry, "default") for _ in range(3)] == [None] * 3
        shop.healthy = True
        assert code(await app.invoke("buy")) == "ok", "looking must not have taken the trial"


class Elsewhere:
    """Runs dynamic tools: theirs fail."""

    async def run(self, _ctx: InvokeContext, entry: Entry, _arguments: dict[str, Any]) -> str:
        if entry.tool.tenant == "globex":
            raise ConnectionError("down")
        return "fine"

    async def close(self) -> list[str]:
        return []


async def test_a_tenants_own_tool_can_not_shut_others_out(shared: dict[str, Any]) -> None:
    shop = Shop()
    shop.healthy = True
    async with memory_app(breaker={"failures": 2}, **shared) as app:
        app.add_runner("far", Elsewhere(), tier="read_only")
        app.register(shop.tool)
        fields = {"name": "theirs", "description": "x", "kind": "far", "tier": "read_only", "target": "shop"}
        acme, globex = Actor("acme", "owner", "ada"), Actor("globex", "owner", "eve")
        await app.policy.allow_adding_tools("owner")
        for actor in (acme, globex):
            await app.tools.add_dynamic(fields, actor)
        assert [code(await app.invoke("theirs", actor=globex)) for _ in range(3)][-1] == "CIRCUIT_OPEN"
        assert code(await app.invoke("theirs", actor=acme)) == "ok"
        assert code(await app.invoke("buy", actor=globex)) == "ok"
        assert await app.parts.breakers.open_everywhere() == [("globex", "shop")]


@pytest.mark.matrix("needs Redis")
async def test_a_healthy_call_asks_redis_once(redis_url: str) -> None:
    """The price of sharing: one question to Redis for each call, and none at its end."""
    shop = Shop()
    shop.healthy = True
    async with app_with(shop, redis_url) as app:
        await app.invoke("buy")
        with client_library.Redis.from_url(redis_url) as client:
            before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            for _ in range(5):
                await app.invoke("buy")
            after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert after - before == 5


def test_redis_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, toolgate\nfrom toolgate.coordination.redis import Redis\n"
        "from toolgate.runners.breaker import Breakers\n"
        "Breakers(5, 30, lambda: 0, Redis('redis://localhost'))\nassert 'redis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_a_circuit_keeps_its_state_in_memory_by_the_clock_it_is_given() -> None:
    clock = ManualClock()
    breakers = Breakers(1, 30, clock.monotonic)
    target = ("", "shop")
    passed = breakers.enter(target, "1", 5)
    assert isinstance(passed, Pass), "in memory there is nothing to await"
    assert breakers.open_targets() == []
    breakers.leave(target, passed, "1", "trouble")
    assert breakers.open_targets() == [target]
    with pytest.raises(Failed, match="circuit is open"):
        breakers.enter(target, "2", 5)
    clock.advance(30)
    trial = breakers.enter(target, "3", 5)
    assert isinstance(trial, Pass)
    assert trial.trial
    breakers.leave(target, trial, "3", "well")
    assert breakers.open_targets() == []
