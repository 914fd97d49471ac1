"""Large calls, and calls that take long to judge, leave the event loop to everybody else."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from time import process_time, thread_time
from typing import Any

import pytest

from toolgate import Actor, App, tool
from toolgate.model import Outcome
from toolgate.testing import memory_app
from toolgate.threads import MAX_OFFLOAD_THREADS, Offload

pytestmark = pytest.mark.requirement("PIPE-11")

LARGE: dict[str, Any] = {f"key_{number}": f"value {number} abcdefghijkl" for number in range(45_000)}


@tool(tier="read_only")
async def take(data: Any) -> int:
    """Take anything."""
    return len(data)


@tool(tier="read_only")
async def give() -> Any:
    """Give much."""
    return LARGE


@tool(tier="read_only")
async def look(paths: list[str]) -> int:
    """Look at files."""
    return len(paths)


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as opened:
        for one in (take, give, look):
            opened.register(one)
        yield opened


class Heart:
    """Beats on the event loop, and knows how much was computed there while it could not: by the processor's time, which
    stands still when the machine has other work."""

    def __init__(self) -> None:
        self.beats, self.longest = 0, 0.0
        self._began, self._last = process_time(), thread_time()

    @property
    def worked(self) -> float:
        """Seconds, on the loop and beside it."""
        return process_time() - self._began

    def beat(self) -> None:
        now = thread_time()
        self.beats, self.longest, self._last = self.beats + 1, max(self.longest, now - self._last), now


@asynccontextmanager
async def heart() -> AsyncIterator[Heart]:
    made = Heart()

    async def live() -> None:
        while True:
            await asyncio.sleep(0.001)
            made.beat()

    living = asyncio.create_task(live())
    try:
        yield made
    finally:
        made.beat()
        living.cancel()


def check(alive: Heart) -> None:
    """Work on the loop itself leaves a handful of beats, and one pause as long as all of it."""
    assert alive.beats > 20
    assert alive.longest < alive.worked * 0.6


@pytest.mark.matrix("works on large values")
@pytest.mark.parametrize(("name", "arguments"), [("take", {"data": LARGE}), ("give", {})], ids=["arguments", "output"])
async def test_the_loop_goes_on_while_a_large_value_is_worked_on(app: App, name: str, arguments: dict[str, Any]) -> None:
    async with heart() as alive:
        outcome = await app.invoke(name, arguments)
    assert outcome.ok, outcome.error
    check(alive)


async def test_the_loop_goes_on_while_patterns_are_followed_and_there_is_an_end_to_it(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        folder = tmp_path / f"f{number}"
        folder.mkdir()
        for inner in range(40):
            (folder / f"{inner}.txt").touch()
    monkeypatch.chdir(tmp_path)
    async with heart() as alive:
        outcome = await app.invoke("look", {"paths": ["**/**/**"] * 499})
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"
    assert "too long" in outcome.error.message
    check(alive)
    assert (await app.invoke("look", {"paths": ["**/*.txt", "f1/*"]})).ok


@pytest.mark.matrix("works on large values")
@pytest.mark.requirement("POL-4")
async def test_a_policy_reads_large_arguments_apart_and_does_not_keep_them(tmp_path: Path) -> None:
    file = tmp_path / "own.rego"
    file.write_text(
        "package soma.policy\n\nimport rego.v1\n\ndefault allow := false\n\n"
        'allow if input.action == "tool.view"\nallow if input.context.arguments.data.key_7\n'
    )
    async with memory_app(policy={"file": file}) as app:
        app.register(take)
        async with heart() as alive:
            outcome = await app.invoke("take", {"data": LARGE})
        assert outcome.ok, outcome.error
        check(alive)
        denied = await app.invoke("take", {"data": {**LARGE, "key_7": False}})
        assert denied.error is not None
        assert denied.error.code == "PERMISSION_DENIED"
        assert all(len(repr(key)) < 2_000 for key in app.parts.guard._particular)


@pytest.mark.matrix("works on large values")
async def test_names_that_mean_the_same_are_not_compared_each_with_each(app: App) -> None:
    """`d_ir`, `d-i.r` and so on are all a folder: there are as many as a caller likes."""
    letters = "workingdirectory"
    places = [at for count in range(1, 6) for at in combinations(range(1, len(letters)), count)]
    names = {"".join(f"_{letter}" if index in at else letter for index, letter in enumerate(letters)) for at in places}
    many = {f"{name}{mark * times}": "a" for name in names for mark in "_-" for times in range(3)}
    assert len(many) > 20_000
    async with asyncio.timeout(120):
        outcome = await app.invoke("take", {"data": many})
    assert isinstance(outcome, Outcome)


async def test_one_tenants_large_work_is_done_one_after_the_other_and_takes_no_other_tenants_turn() -> None:
    offload, go, begun = Offload(), threading.Event(), list[str]()

    def work(tenant: str) -> str:
        begun.append(tenant)
        assert tenant != "greedy" or go.wait(30)
        return tenant

    greedy = [asyncio.create_task(offload("greedy", work, "greedy")) for _ in range(MAX_OFFLOAD_THREADS * 5)]
    try:
        for tenant in ("modest", "other"):
            assert await asyncio.wait_for(offload(tenant, work, tenant), 30) == tenant
        assert begun.count("greedy") == 1
    finally:
        go.set()
    assert await asyncio.gather(*greedy) == ["greedy"] * len(greedy)
    assert offload._lines == {}


async def test_a_caller_that_goes_away_waits_for_the_thread_and_work_that_fails_says_so() -> None:
    offload, go, ended = Offload(), threading.Event(), threading.Event()

    def work() -> None:
        go.wait(30)
        ended.set()

    waiting = asyncio.create_task(offload("a", work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
    with pytest.raises(ZeroDivisionError):
        await offload("a", lambda: 1 / 0)


@pytest.mark.matrix("works on large values")
async def test_arguments_that_their_caller_changes_meanwhile_run_as_they_were_checked(app: App) -> None:
    data = dict(LARGE)
    calling = asyncio.ensure_future(app.invoke("take", {"data": data}, actor=Actor("acme")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not calling.done()
    data.clear()
    assert (await calling).output == len(LARGE)
