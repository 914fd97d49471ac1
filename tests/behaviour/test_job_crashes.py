"""Jobs outlast their workers: processes that are killed, that stand still, that stop in order, and servers that restart."""

import asyncio
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.job_worker import LEASE_SECONDS, Worker, noted, register, settings
from tests.servers import Postgres, postgres
from toolgate import Actor, App
from toolgate.jobs.job import Job
from toolgate.store import idempotency

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


async def crash(url: str, home: Path, crew: Crew, count: int, kills: int, pause: float = 0.05, **how: Any) -> None:
    """Queues so many jobs, kills workers in the middle of their work so often, and counts what came of it."""
    names = {tool: [f"{tool}-{number}" for number in range(count // 2)] for tool in ("post", "charge")}
    async with opened(url, home) as app:
        tools = {**await queue(app, "post", names["post"]), **await queue(app, "charge", names["charge"])}
        workers = [crew.hire(url, home, CONCURRENCY, pause, **how) for _ in range(2)]
        for turn in range(kills):
            # Each time some more effects have been seen, so that every kill finds its worker at work.
            await effects(home, min(effects_of(home) + max(2, count // (2 * kills)), count - 5), f"before kill {turn}")
            last = noted(home / "at_work")[-1]
            [victim] = [worker for worker in workers if str(worker.process.pid) == last]
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


async def test_calls_without_effect_whose_worker_is_killed_are_all_made(database: str, tmp_path: Path, crew: Crew) -> None:
    """Such calls keep no key, since they can be made again: each is, and none is parked."""
    count = 6 * CONCURRENCY
    async with opened(database, tmp_path) as app:
        for number in range(count):
            await app.enqueue("peek", {"key": str(number)}, actor=ADA)
        victim = crew.hire(database, tmp_path, CONCURRENCY, 0.05)
        await effects(tmp_path, 2 * CONCURRENCY)  # a batch is taken, and another one being put on record
        victim.kill()
        crew.hire(database, tmp_path, CONCURRENCY, 0.0)
        jobs = await all_over(app, count)
        assert {job.state for job in jobs} == {"done"} and any(job.crashes for job in jobs)
        assert sorted(int(job.result["output"]) for job in jobs) == list(range(count))
        again = sum(Counter(noted(tmp_path / "asked")).values()) - count
        assert 0 < again <= 2 * CONCURRENCY, "only what had no end on record is made again"
        assert not await app.parts.store.read(idempotency.listed())


# -- workers that are not dead


async def one(app: App, tool: str, key: str) -> str:
    [id] = await queue(app, tool, [key])
    return id


async def reached(app: App, id: str, *states: str) -> Job:
    deadline = time.monotonic() + SOON
    while (job := await app.jobs.get(id, actor=ADA)).state not in states:
        assert time.monotonic() < deadline, job
        await asyncio.sleep(0.02)
    return job


@pytest.mark.parametrize(("tool", "state"), [("post", "parked"), ("charge", "done")])
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_worker_that_stood_still_ends_nothing_that_another_has_taken(
    database: str, tmp_path: Path, crew: Crew, tool: str, state: str
) -> None:
    async with opened(database, tmp_path) as app:
        id = await one(app, tool, "k")
        sleeper = crew.hire(database, tmp_path, pause=1.0)
        await effects(tmp_path, 1)
        sleeper.signal(signal.SIGSTOP)  # in the middle of its call, and for longer than it is taken to be alive
        crew.hire(database, tmp_path, pause=0.0)
        taken = await reached(app, id, state)
        sleeper.signal(signal.SIGCONT)
        deadline = time.monotonic() + SOON
        while "was taken by another worker meanwhile" not in sleeper.log.read_text():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert await app.jobs.get(id, actor=ADA) == taken and taken.crashes == 1
    assert len(noted(tmp_path / "posted")) <= 1
    if tool == "charge":
        assert [file.name for file in (tmp_path / "charged").iterdir()] == ["k"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_job_that_kills_its_workers_has_failed_and_says_so(database: str, tmp_path: Path, crew: Crew) -> None:
    async with opened(database, tmp_path, max_crashes=2) as app:
        id = await one(app, "die", "k")
        for _ in range(2):
            worker = crew.hire(database, tmp_path, max_crashes=2)
            assert worker.process.wait(SOON) == -signal.SIGKILL
        crew.hire(database, tmp_path, max_crashes=2)
        job = await reached(app, id, "failed")
        assert (job.crashes, job.error and job.error.code) == (2, "OUTCOME_UNKNOWN")
        assert job.error is not None and "workers died too often" in job.error.message
        assert noted(tmp_path / "died") == ["k", "k"]


async def test_a_worker_told_to_stop_ends_what_it_runs_and_takes_no_more(database: str, tmp_path: Path, crew: Crew) -> None:
    async with opened(database, tmp_path) as app:
        await queue(app, "post", [f"k{number}" for number in range(10)])
        worker = crew.hire(database, tmp_path, 3, 0.5)
        await effects(tmp_path, 3)
        assert worker.stop() == 0
        counts = await app.jobs.counts(actor=ADA)
        assert counts == {"done": 3, "queued": 7} and len(noted(tmp_path / "posted")) == 3
        crew.hire(database, tmp_path, 8, 0.0)
        assert {job.state for job in await all_over(app, 10)} == {"done"}
    assert max(Counter(noted(tmp_path / "posted")).values()) == 1


# -- databases that are away


async def test_a_worker_whose_database_is_locked_goes_on_when_it_is_free(tmp_path: Path, crew: Crew) -> None:
    url = f"sqlite:///{tmp_path / 'toolgate.db'}"
    async with opened(url, tmp_path) as app:
        await queue(app, "post", [f"k{number}" for number in range(30)])
        crew.hire(url, tmp_path, 4, 0.05)
        await effects(tmp_path, 5)
        locker = sqlite3.connect(tmp_path / "toolgate.db", timeout=20, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(1.5 * LEASE_SECONDS)  # none can say that it is alive meanwhile
        locker.execute("ROLLBACK")
        locker.close()
        jobs = await all_over(app, 30)
    assert {job.state for job in jobs} <= {"done", "parked"}
    assert max(Counter(noted(tmp_path / "posted")).values()) == 1


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.mark.matrix("a server of its own is started, and restarted in the middle of the work")
async def test_a_server_that_restarts_loses_no_job(own_postgres: Postgres, tmp_path: Path, crew: Crew) -> None:
    url = own_postgres.url()
    async with opened(url, tmp_path) as app:
        await queue(app, "charge", [f"k{number}" for number in range(120)])
        for _ in range(2):
            crew.hire(url, tmp_path, 4, 0.05)
        await effects(tmp_path, 30)
        await asyncio.to_thread(own_postgres.restart)
        jobs = await all_over(app, 120)
    assert [(job.state, job.error) for job in jobs if job.state != "done"] == []
    assert len(list((tmp_path / "charged").iterdir())) == 120
