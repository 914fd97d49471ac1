"""Jobs under concurrency and with damaged rows: each is taken once, a key has one job, tenants take turns, nothing leaks."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import Actor, App, tool
from toolgate.jobs.handlers import JobContext
from toolgate.jobs.job import Job
from toolgate.pipeline.context import InvokeContext
from toolgate.store import job_claims
from toolgate.store.database import Transaction

pytestmark = pytest.mark.requirement("JOB-4")
ADA = Actor("acme", "analyst", "ada")
SOON = 30
TYPES = frozenset({"note"})


def opened(database: str, home: Path, **jobs: Any) -> Any:
    return App.open(
        database_url=database, home=home, entry_points=False, jobs={"backoff_seconds": 0.01, **jobs},
        limits={"lease_seconds": 1},
    )  # fmt: skip


async def nothing(_ctx: JobContext) -> None:
    """Do nothing."""


def claim(app: App, most: int, after: str = "") -> Any:
    parts = app.parts
    lock = job_claims.skips_locked(parts.store.name)
    return parts.store.transact(job_claims.claim("worker", parts.now(), most, TYPES, after=after, lock=lock))


def changed(sql: str, **values: Any) -> Transaction[None]:
    yield sql, values


async def test_each_job_is_taken_once_and_a_worker_passes_over_what_another_takes(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        app.parts.jobs.handlers.add("note", nothing)
        ids = [(await app.jobs.enqueue("note", {}, actor=Actor(f"t{n % 3}", None, "u"))).id for n in range(60)]
        taken: list[str] = []

        async def work() -> None:
            while len(taken) < len(ids):
                rows, _ = await claim(app, 4)
                taken.extend(row.id for row in rows)

        async with asyncio.timeout(SOON):
            await asyncio.gather(*(work() for _ in range(6)))
        assert sorted(taken) == sorted(ids)


async def test_a_key_that_many_use_at_once_has_one_job(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app, opened(database, tmp_path / "other") as other:
        for each in (app, other):
            each.parts.jobs.handlers.add("note", nothing)
        jobs = await asyncio.gather(
            *(each.jobs.enqueue("note", {}, actor=ADA, key="k") for _ in range(10) for each in (app, other))
        )
        assert len({job.id for job in jobs}) == 1
        assert len(await app.jobs.list(actor=ADA)) == 1


async def test_two_workers_that_run_until_nothing_is_left_leave_nothing(database: str, tmp_path: Path) -> None:
    ran: Counter[str] = Counter()

    async def note(ctx: JobContext) -> None:
        ran[ctx.id] += 1
        await asyncio.sleep(0)

    async with opened(database, tmp_path) as app, opened(database, tmp_path / "other") as other:
        for each in (app, other):
            each.parts.jobs.handlers.add("note", note)
        for _ in range(40):
            await app.jobs.enqueue("note", {}, actor=ADA)
        await asyncio.gather(app.jobs.run_all(2), other.jobs.run_all(2))
        assert await app.jobs.counts(actor=ADA) == {"done": 40}
        assert set(ran.values()) == {1}


async def test_tenants_take_turns_however_many_there_are(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        app.parts.jobs.handlers.add("note", nothing)
        for number in range(2 * job_claims.MAX_TENANTS):
            for _ in range(2):
                await app.jobs.enqueue("note", {}, actor=Actor(f"t{number:03}", None, "u"))
        seen: Counter[str] = Counter()
        after = ""
        for _ in range(2 * job_claims.MAX_TENANTS):
            rows, after = await claim(app, 1, after)
            seen.update(row.tenant_id for row in rows)
        assert len(seen) == 2 * job_claims.MAX_TENANTS and set(seen.values()) == {1}


@at_most(10)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-10, 10), st.integers(0, 3)), min_size=1, max_size=24),
    st.integers(1, 4),
)
def test_jobs_begin_in_order_tenants_take_turns_and_no_more_run_than_may(
    wanted: list[tuple[str, int, int]], concurrency: int
) -> None:
    """Whatever is claimed together, and however long each takes."""
    begun: list[tuple[str, str]] = []
    running = most = 0

    async def work(ctx: JobContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.append((ctx.actor.tenant, ctx.id))
        for _ in range(ctx.payload["turns"]):
            await asyncio.sleep(0)
        running -= 1

    async def act() -> None:
        async with App.open(database_url="memory://", entry_points=False) as app:
            app.parts.jobs.handlers.add("work", work)
            order: dict[str, list[tuple[int, str]]] = {}
            for tenant, priority, turns in wanted:
                actor = Actor(tenant, None, "ada")
                job = await app.jobs.enqueue("work", {"turns": turns}, actor=actor, priority=priority)
                order.setdefault(tenant, []).append((-priority, job.id))
            await app.jobs.run_all(concurrency=concurrency)
        assert most <= concurrency
        for tenant, jobs in order.items():
            assert [id for name, id in begun if name == tenant] == [id for _, id in sorted(jobs)]
        first = [begun.index((tenant, min(jobs)[1])) for tenant, jobs in order.items()]
        assert max(first) < len(order) + concurrency, "each tenant has its turn before others have many"

    asyncio.run(act())


async def test_a_job_that_a_living_worker_has_by_the_record_alone_is_queued_again(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        app.parts.jobs.handlers.add("note", nothing)
        job = await app.jobs.enqueue("note", {}, actor=ADA)
        process, past = app.parts.presence.id, app.parts.now() - timedelta(seconds=5)
        await app.parts.store.transact(job_claims.claim_one(job.id, process, app.parts.now()))
        await app.parts.store.transact(changed("UPDATE jobs SET started_at = :past", past=past))
        async with app.jobs.worker():
            done = await app.jobs.wait(job.id, SOON, actor=ADA)
        assert (done.state, done.crashes) == ("done", 0)


@pytest.mark.parametrize("payload", ["", "no base64!", "AAAA", "A" * 80])
async def test_a_payload_that_was_changed_in_the_database_fails_and_is_kept(tmp_path: Path, payload: str) -> None:
    async with opened("memory://", tmp_path) as app:
        app.parts.jobs.handlers.add("note", nothing)
        job = await app.jobs.enqueue("note", {"a": 1}, actor=ADA)
        await app.parts.store.transact(changed("UPDATE jobs SET payload = :payload", payload=payload))
        await app.jobs.run_all()
        failed = await app.jobs.get(job.id, actor=ADA)
        assert failed.state == "failed" and failed.error is not None and "cannot be read" in failed.error.message


async def failing(app: App, handler: Any, payload: dict[str, Any]) -> Job:
    app.parts.jobs.handlers.add("note", handler, max_attempts=1)
    job = await app.jobs.enqueue("note", payload, actor=ADA)
    await app.jobs.run_all()
    return await app.jobs.get(job.id, actor=ADA)


async def test_the_error_of_a_handler_does_not_say_what_its_payload_hides(tmp_path: Path) -> None:
    async def leak(ctx: JobContext) -> None:
        raise RuntimeError(f"login as {ctx.payload['user']} with {ctx.payload['password']!r} failed")

    async with opened("memory://", tmp_path) as app:
        job = await failing(app, leak, {"user": "ada lovelace", "password": "correct horse battery"})
        assert job.state == "failed" and job.error is not None
        assert "correct horse" not in job.error.message and "ada lovelace" in job.error.message


async def test_a_tool_that_may_be_called_again_keeps_its_key_in_each_attempt(database: str, tmp_path: Path) -> None:
    keys: list[str | None] = []

    @tool(tier="read_only")
    async def fetch(ctx: InvokeContext) -> str:
        """Fails twice."""
        keys.append(ctx.call.idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("nobody is there")
        return "there"

    async with opened(database, tmp_path) as app:
        app.register(fetch)
        queued = await app.enqueue("fetch", {}, actor=ADA, idempotency_key="mine")
        assert queued.pending is not None
        async with app.jobs.worker():
            job = await app.jobs.wait(queued.pending.id, SOON, actor=ADA)
        assert (job.state, keys) == ("done", ["mine", "mine", "mine"])


async def test_a_delayed_job_is_not_taken_early_and_a_backlog_of_them_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with opened("memory://", tmp_path) as app:
        app.parts.jobs.handlers.add("note", nothing)
        for _ in range(50):
            await app.jobs.enqueue("note", {}, actor=ADA, delay=3600, priority=10)
        now = await app.jobs.enqueue("note", {}, actor=ADA, priority=-10)
        rows, _ = await claim(app, 8)
        assert [row.id for row in rows] == [now.id]
