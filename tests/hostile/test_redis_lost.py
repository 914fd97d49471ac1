"""Limits in Redis under a crowd from several processes, and when Redis is killed, frozen, cut off or full of rubbish."""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis as client_library

from tests.servers import Redis as RedisServer
from toolgate import App, Outcome, RateLimit, tool
from toolgate.testing import memory_app

ROOT = Path(__file__).resolve().parents[2]

CROWD = """
import asyncio, sys
from toolgate import Actor, tool
from toolgate.testing import memory_app
@tool(tier='read_only')
async def look() -> int:
    'Looks.'
    return 1
async def main():
    rules = [{'by': ['tenant'], 'per_hour': 100}, {'by': ['user'], 'per_day': 1000}]
    async with memory_app(redis_url=sys.argv[1], rate_limits=rules) as app:
        app.register(look)
        await app.parts.redis.ping()
        print('ready', flush=True)
        sys.stdin.readline()
        outcomes = await asyncio.gather(*(app.invoke('look', actor=Actor('acme', None, f'u-{n % 7}')) for n in range(100)))
        for outcome in outcomes:
            print(outcome.error.code if outcome.error else 'ok')
asyncio.run(main())
"""


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("COST-4")
async def test_two_hundred_calls_from_two_processes_against_a_limit_of_a_hundred(redis_url: str) -> None:
    command = [sys.executable, "-c", CROWD, redis_url]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
    said = await asyncio.gather(*(asyncio.to_thread(process.communicate, "go\n", 250) for process in processes))
    assert Counter("".join(out for out, _ in said).split()) == {"ok": 100, "RATE_LIMITED": 100}


@tool(tier="read_only", rate_limit=RateLimit(per_hour=50), concurrency=20)
async def limited() -> int:
    """Has limits."""
    await asyncio.sleep(0)
    return 1


def app_with(url: str, **settings: Any) -> App:
    app = memory_app(redis_url=url, **settings)
    app.register(limited)
    return app


def code(outcome: Outcome) -> str:
    return outcome.error.code if outcome.error else "ok"


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("COST-4", "PIPE-11")
async def test_a_redis_that_is_killed_and_comes_back(own_redis: RedisServer) -> None:
    async with app_with(own_redis.url) as app:
        codes: list[str] = []
        back = asyncio.Event()

        async def caller() -> None:
            while not back.is_set():
                codes.append(code(await app.invoke("limited")))
                await asyncio.sleep(0.005)

        async def told(word: str) -> None:
            async with asyncio.timeout(30):
                while word not in codes:
                    await asyncio.sleep(0.005)

        callers = [asyncio.ensure_future(caller()) for _ in range(2)]
        await told("ok")
        await asyncio.to_thread(own_redis.stop)
        await told("CONNECTION_ERROR")
        refused = await app.invoke("limited")
        assert refused.error is not None
        assert (refused.error.code, refused.error.retryable) == ("CONNECTION_ERROR", True)
        assert "the call was not run" in refused.error.message
        assert (await app.invoke("echo", {"text": "without limits"})).ok
        await asyncio.to_thread(own_redis.start)
        codes.clear()
        async with asyncio.timeout(30):
            while not {"ok", "RATE_LIMITED"} & set(codes):
                await asyncio.sleep(0.005)
        back.set()
        await asyncio.gather(*callers)
        assert code(await app.invoke("limited")) in ("ok", "RATE_LIMITED")


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("COST-4", "PIPE-11", "PIPE-10")
async def test_connections_that_are_cut_cost_no_call_and_no_limit(redis_url: str) -> None:
    @tool(tier="read_only", rate_limit=RateLimit(per_hour=30), concurrency=5, target="shop", cache=0.001)
    async def everything() -> int:
        """Asks Redis for all it can be asked for."""
        return 1

    async with app_with(redis_url) as app:
        app.register(everything)
        codes = []
        with client_library.Redis.from_url(redis_url) as client:
            for _ in range(40):
                client.client_kill_filter(_type="normal", skipme=True)
                codes.append(code(await app.invoke("everything")))
        assert codes == ["ok"] * 30 + ["RATE_LIMITED"] * 10


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("COST-4", "PIPE-8", "PIPE-10")
async def test_a_redis_that_does_not_answer_holds_calls_up_for_a_moment_only(own_redis: RedisServer) -> None:
    @tool(tier="read_only", target="shop", cache=60)
    async def unlimited(n: int) -> int:
        """Has a breaker and a cache, and no limit."""
        return n

    async with app_with(own_redis.url) as app:
        app.register(unlimited)
        assert code(await app.invoke("limited")) == "ok"
        own_redis.freeze()
        try:
            began = time.monotonic()
            first = await app.invoke("limited")
            assert time.monotonic() - began < 30
            assert code(first) == "CONNECTION_ERROR"
            began = time.monotonic()
            assert [(await app.invoke("unlimited", {"n": n})).output for n in range(20)] == list(range(20))
            assert time.monotonic() - began < 30, "each of the twenty waited for it"
        finally:
            own_redis.thaw()
        async with asyncio.timeout(30):
            while code(await app.invoke("limited")) != "ok":
                await asyncio.sleep(0.1)


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("COST-4", "PIPE-11", "PIPE-10")
@pytest.mark.parametrize("what", ["rate", "places", "breaker"])
async def test_rubbish_under_our_names_is_never_an_allowance(redis_url: str, what: str) -> None:
    """Where a count can't be read the call is refused; a breaker goes by what its process sees."""
    written = asyncio.Event()

    @tool(tier="read_only", rate_limit=RateLimit(per_hour=30), concurrency=5, target="shop")
    async def everything() -> int:
        """Asks Redis for all it can be asked for."""
        await written.wait()
        raise ConnectionError("down")

    async with memory_app(redis_url=redis_url, breaker={"failures": 1}) as app:
        app.register(everything)
        call = asyncio.ensure_future(app.invoke("everything"))
        with client_library.Redis.from_url(redis_url) as client:
            if what == "breaker":
                written.set()
                assert code(await call) == "CONNECTION_ERROR"
            async with asyncio.timeout(30):
                while not (names := client.keys(f"toolgate:{what}:*")):
                    await asyncio.sleep(0.001)
            client.delete(*names)
            for name in names:
                client.set(name, "rubbish")
        written.set()
        await call
        codes = [code(await app.invoke("everything")) for _ in range(2)]
    assert codes == (["CONNECTION_ERROR", "CIRCUIT_OPEN"] if what == "breaker" else ["CONNECTION_ERROR"] * 2)


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("COST-4")
async def test_a_redis_whose_scripts_were_flushed_is_told_them_again(redis_url: str) -> None:
    async with app_with(redis_url) as app:
        with client_library.Redis.from_url(redis_url) as client:
            for _ in range(3):
                assert code(await app.invoke("limited")) == "ok"
                client.script_flush()


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("COST-4")
async def test_a_redis_that_refuses_us_is_no_allowance(own_redis: RedisServer) -> None:
    async with app_with(own_redis.url) as app:
        assert own_redis.say("CONFIG SET requirepass hush") == "+OK"
        with client_library.Redis.from_url(own_redis.url, password="hush") as client:
            client.client_kill_filter(_type="normal", skipme=True)
        outcome = await app.invoke("limited")
    assert outcome.error is not None
    assert outcome.error.code == "CONNECTION_ERROR"
    assert "user and password" in (outcome.error.suggestion or "")
