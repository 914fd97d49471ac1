"""Concurrency limits that processes share through Redis: places on a lease."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as client_library

from tests import patience
from tests.patience import SOON
from tests.servers import Redis
from toolgate import Actor, App, Outcome, tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("PIPE-11")

RENEWALS = 600
ROOT = Path(__file__).resolve().parents[2]


class Gate:
    """A tool that waits until it is let go, and tells how many are inside."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0

        @tool(tier="read_only", concurrency=2)
        async def narrow() -> str:
            """Waits."""
            self.inside += 1
            try:
                await self.open.wait()
            finally:
                self.inside -= 1
            return "in"

        self.tool = narrow


def app_with(gate: Gate, url: str, lease: float = 30, tenant_concurrency: int | None = None) -> App:
    app = memory_app(redis_url=url, limits={"lease_seconds": lease, "tenant_concurrency": tenant_concurrency})
    app.register(gate.tool)
    return app


async def until(gate: Gate, inside: int) -> None:
    await patience.until(lambda: gate.inside == inside, f"{inside} are inside")


class Leases:
    """The places of the tool as Redis has them: when the lease of each ends."""

    def __init__(self, url: str) -> None:
        self._client = client_library.Redis.from_url(url)

    def ends(self) -> dict[bytes, float]:
        [name] = self._client.keys("toolgate:places:*")
        held: Any = self._client.zrange(name, 0, -1, withscores=True)
        return dict(held)

    def end(self, id: bytes) -> None:
        """Let the lease of one be over, without waiting for it."""
        [name] = self._client.keys("toolgate:places:*")
        self._client.zadd(name, {id: 1})

    async def until_renewed(self, *ids: bytes) -> None:
        before = self.ends()
        assert before.keys() >= set(ids)
        await patience.until(lambda: all(self.ends()[id] > before[id] for id in ids), "the leases are renewed")

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def leases(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leases]:
    """Renewed so much more often than they end that no machine is too slow for it."""
    monkeypatch.setattr("toolgate.gates.quota.concurrency.RENEWALS", RENEWALS)
    leases = Leases(redis_url)
    yield leases
    leases.close()


def code(outcome: Outcome) -> str:
    return outcome.error.code if outcome.error else "in"


@pytest.mark.matrix("needs Redis")
async def test_two_apps_share_the_places_of_a_tool(redis_url: str) -> None:
    gate = Gate()
    async with app_with(gate, redis_url) as one, app_with(gate, redis_url) as other:
        held = [asyncio.ensure_future(app.invoke("narrow")) for app in (one, other)]
        await until(gate, 2)
        refused = [await app.invoke("narrow", actor=Actor("globex")) for app in (one, other)]
        assert [code(outcome) for outcome in refused] == ["CAPACITY_EXCEEDED"] * 2
        assert refused[0].error is not None
        assert refused[0].error.details == {"retry_after": 1.0}
        gate.open.set()
        assert [code(await call) for call in held] == ["in", "in"]


@pytest.mark.matrix("needs Redis")
async def test_whoever_has_the_outcome_finds_the_place_free_in_any_process(redis_url: str) -> None:
    @tool(tier="read_only", concurrency=1)
    async def single() -> str:
        """One at a time."""
        return "in"

    async with memory_app(redis_url=redis_url) as one, memory_app(redis_url=redis_url) as other:
        for app in (one, other):
            app.register(single)
        assert [code(await app.invoke("single")) for app in (one, other) * 50] == ["in"] * 100


@pytest.mark.matrix("needs Redis")
async def test_two_apps_share_the_places_of_a_tenant(redis_url: str) -> None:
    gate = Gate()
    async with app_with(gate, redis_url, 30, 1) as one, app_with(gate, redis_url, 30, 1) as other:
        held = asyncio.ensure_future(one.invoke("narrow", actor=Actor("acme")))
        await until(gate, 1)
        assert code(await other.invoke("echo", {"text": "x"}, actor=Actor("acme"))) == "CAPACITY_EXCEEDED"
        assert code(await other.invoke("echo", {"text": "x"}, actor=Actor("globex"))) == "in"
        gate.open.set()
        assert code(await held) == "in"


@pytest.mark.matrix("needs Redis")
async def test_never_more_than_the_limit_run_at_once(redis_url: str) -> None:
    most = running = 0

    @tool(tier="read_only", concurrency=3)
    async def counted() -> int:
        """Counts itself."""
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return running

    apps = [memory_app(redis_url=redis_url) for _ in range(3)]
    for app in apps:
        app.register(counted)
    async with apps[0], apps[1], apps[2]:
        outcomes = await asyncio.gather(*(app.invoke("counted") for app in apps for _ in range(60)))
        assert {code(outcome) for outcome in outcomes} == {"in", "CAPACITY_EXCEEDED"}
        assert [code(await app.invoke("counted")) for app in apps] == ["in"] * 3
    assert most == 3


@pytest.mark.matrix("needs Redis")
async def test_a_call_that_takes_longer_than_the_lease_keeps_its_place(redis_url: str, leases: Leases) -> None:
    gate = Gate()
    async with app_with(gate, redis_url, lease=60) as app:
        held = [asyncio.ensure_future(app.invoke("narrow")) for _ in range(2)]
        await until(gate, 2)
        for _ in range(3):
            await leases.until_renewed(*leases.ends())
            assert code(await app.invoke("narrow")) == "CAPACITY_EXCEEDED"
        gate.open.set()
        assert [code(await call) for call in held] == ["in", "in"]


@pytest.mark.matrix("needs Redis")
async def test_a_caller_that_goes_away_gives_its_place_back(redis_url: str) -> None:
    gate = Gate()
    async with app_with(gate, redis_url) as app:
        held = [asyncio.ensure_future(app.invoke("narrow")) for _ in range(2)]
        await until(gate, 2)
        for call in held:
            call.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        gate.open.set()
        assert [code(await app.invoke("narrow")) for _ in range(2)] == ["in"] * 2


@pytest.mark.matrix("needs Redis")
@pytest.mark.parametrize("steps", range(12))
async def test_a_caller_that_goes_away_while_it_takes_a_place_leaves_none_taken(redis_url: str, steps: int) -> None:
    """Cancelled after a few turns of the loop: on its way to Redis, there, on its way back, or inside."""
    gate = Gate()
    async with app_with(gate, redis_url) as app:
        calls = [asyncio.ensure_future(app.invoke("narrow")) for _ in range(2)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        gate.open.set()
        async with asyncio.timeout(SOON):
            while [code(outcome) for outcome in await asyncio.gather(*(app.invoke("narrow") for _ in range(2)))] != [
                "in"
            ] * 2:
                await asyncio.sleep(0.01)


@pytest.mark.matrix("needs Redis")
async def test_the_places_of_a_killed_process_come_free_when_its_lease_ends(redis_url: str, leases: Leases) -> None:
    script = (
        "import asyncio, sys\n"
        "from toolgate import tool\n"
        "from toolgate.gates.quota import concurrency\n"
        "from toolgate.testing import memory_app\n"
        f"concurrency.RENEWALS = {RENEWALS}\n"
        "@tool(tier='read_only', concurrency=2)\n"
        "async def narrow() -> str:\n"
        "    'Waits.'\n"
        "    print('in', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "    return 'in'\n"
        "async def main():\n"
        "    async with memory_app(redis_url=sys.argv[1], limits={'lease_seconds': 60}) as app:\n"
        "        app.register(narrow)\n"
        "        await app.invoke('narrow')\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, redis_url], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "in\n"
    [theirs] = leases.ends()
    gate = Gate()
    async with app_with(gate, redis_url, lease=60) as app:
        held = asyncio.ensure_future(app.invoke("narrow"))
        await until(gate, 1)
        await leases.until_renewed(theirs)
        assert code(await app.invoke("narrow")) == "CAPACITY_EXCEEDED", "it is alive, and renews its lease"
        process.send_signal(signal.SIGKILL)
        process.wait(SOON)
        process.stdout.close()
        left = leases.ends()[theirs]
        await leases.until_renewed(*leases.ends().keys() - {theirs})
        assert leases.ends()[theirs] == left, "nobody else renews it"
        assert code(await app.invoke("narrow")) == "CAPACITY_EXCEEDED", "until it ends"
        leases.end(theirs)
        second = asyncio.ensure_future(app.invoke("narrow"))
        await until(gate, 2)
        gate.open.set()
        assert [code(await call) for call in (held, second)] == ["in", "in"]


@pytest.mark.matrix("needs Redis")
async def test_without_redis_a_call_with_a_limit_is_refused_and_one_without_runs(own_redis: Redis) -> None:
    gate = Gate()
    gate.open.set()
    async with app_with(gate, own_redis.url) as app:
        assert code(await app.invoke("narrow")) == "in"
        own_redis.stop()
        refused = await app.invoke("narrow")
        assert refused.error is not None
        assert (refused.status, refused.error.code, refused.error.retryable) == ("failure", "CONNECTION_ERROR", True)
        assert "cannot be counted" in refused.error.message
        assert "TOOLGATE_REDIS_URL" in (refused.error.suggestion or "")
        assert (await app.invoke("echo", {"text": "x"})).ok
        own_redis.start()
        assert code(await app.invoke("narrow")) == "in"


@pytest.mark.matrix("needs Redis")
async def test_a_place_can_be_given_back_although_redis_is_gone(own_redis: Redis) -> None:
    gate = Gate()
    async with app_with(gate, own_redis.url) as app:
        held = asyncio.ensure_future(app.invoke("narrow"))
        await until(gate, 1)
        own_redis.stop()
        gate.open.set()
        assert code(await held) == "in"
