"""Jobs outlast their workers: processes that are killed, that stand still, that stop in order, and servers that restart."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.job_worker import Worker, noted, register, settings
from toolgate import Actor, App
from toolgate.jobs.job import Job

pytestmark = pytest.mark.requirement("JOB-4")
ADA = Actor("acme", "analyst", "ada")
SOON = 60.0
CONCURRENCY = 8


@asynccontextmanager
async def opened(url: str, home: Path, **more: Any) -> AsyncIterator[App]:
    async with App.open(**settings(url, home, **more)) as app:
        register(app, home)
        yield app


class Crew:
    """The worker processes of a test; none outlives it."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def hire(self, *words: Any, **how: Any) -> Worker:
        self.workers.append(Worker(*words, **how))
        return self.workers[-1]


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    for worker in crew.workers:
        worker.process.kill()
        worker.process.wait(20)


async def queue(app: App, tool: str, keys: list[str], **how: Any) -> dict[str, str]:
    """Queues a call for each key; gives the keys by the ids of their jobs."""
    queued = {}
    for key in keys:
        outcome = await app.enqueue(tool, {"key": key}, actor=ADA, idempotency_key=key, **how)
        assert outcome.pending is not None, outcome
        queued[outcome.pending.id] = key
    return queued


def effects_of(home: Path) -> int:
    return len(noted(home / "posted")) + len(noted(home / "asked"))


async def effects(home: Path, count: int, what: str = "") -> None:
    """Waits until so many effects were seen."""
    deadline = time.monotonic() + SOON
    while effects_of(home) < count:
        assert time.monotonic() < deadline, f"{effects_of(home)} of {count} effects {what}"
        await asyncio.sleep(0.01)


async def all_over(app: App, count: int) -> list[Job]:
    """The jobs, once none of them is left to do."""

    async def is_over() -> bool:
        counts = await app.jobs.counts(actor=ADA)
        return sum(counts.values()) == count and set(counts) <= {"done", "parked", "failed", "cancelled"}

    deadline = time.monotonic() + 2 * SOON
    while not await is_over():
        assert time.monotonic() < deadline, await app.jobs.counts(actor=ADA)
        await asyncio.sleep(0.05)
    return await app.jobs.list(actor=ADA, limit=count)


async def crash(url: str, home: Path, crew: Crew, count: int, kills: int) -> None:
    """Queues so many jobs, kills workers in the middle of their work so often, and counts what came of it."""
    names = {tool: [f"{tool}-{number}" for number in range(count // 2)] for tool in ("post", "charge")}
    chance = random.Random(14)
    async with opened(url, home) as app:
        tools = {**await queue(app, "post", names["post"]), **await queue(app, "charge", names["charge"])}
        workers = [crew.hire(url, home, CONCURRENCY) for _ in range(2)]
        for turn in range(kills):
            # Each time some more effects have been seen, so that every kill finds its worker at work.
            await effects(home, min(effects_of(home) + max(2, count // (2 * kills)), count - 5), f"before kill {turn}")
            victim = chance.choice(workers)
            victim.kill()
            victim.start()
        jobs = await all_over(app, count)
    assert {job.id for job in jobs} == set(tools)
    by_state = {state: {tools[job.id] for job in jobs if job.state == state} for state in ("done", "parked", "failed")}
    assert not by_state["failed"] and len(by_state["done"]) + len(by_state["parked"]) == count
    # No effect twice; none of what is done is without one; one without a known end is parked.
    posted = Counter(noted(home / "posted"))
    assert max(posted.values()) == 1
    assert set(names["post"]) & by_state["done"] <= set(posted) <= (by_state["done"] | by_state["parked"])
    assert set(names["post"]) == (set(posted) & by_state["done"]) | by_state["parked"]
    assert len(by_state["parked"]) <= kills * CONCURRENCY
    # Those that can be made again without harm were, and the service outside has counted each key once.
    assert set(names["charge"]) <= by_state["done"]
    assert sorted(file.name for file in (home / "charged").iterdir()) == sorted(names["charge"])
    assert all(job.error is not None and "Nobody knows" in job.error.message for job in jobs if job.state == "parked")
    assert any(job.crashes for job in jobs), "no worker was killed in the middle of its work"


async def test_workers_are_killed_and_nothing_is_lost_or_done_twice(database: str, tmp_path: Path, crew: Crew) -> None:
    await crash(database, tmp_path, crew, 60, 2)


@pytest.mark.matrix("a thousand jobs and ten kills; sixty and two are in make test")
async def test_workers_are_killed_ten_times_among_a_thousand_jobs(database: str, tmp_path: Path, crew: Crew) -> None:
    await crash(database, tmp_path, crew, 1_000, 10)
