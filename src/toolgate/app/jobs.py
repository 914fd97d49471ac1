"""`app.jobs`: work in the background, and what became of it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from toolgate.app.background import enqueue, make_worker
from toolgate.app.facets import Facet
from toolgate.errors import Failed
from toolgate.jobs.handlers import Handler
from toolgate.jobs.job import Job
from toolgate.jobs.tool_calls import TYPE, payload_of, queued
from toolgate.model import LOCAL, Actor, Call, Outcome
from toolgate.model.outcome import PendingInfo
from toolgate.tasks import uninterrupted

JOBS_PAGE = 100


class JobsFacet(Facet):
    """Jobs: calls of tools and other work that workers do in the background.

    An actor sees and changes the jobs of their own user; `all_users`, those of their tenant.
    """

    def add_handler(self, handler: Handler) -> None:
        """Adds the handler of a type of jobs, a function declared with `@job_handler`."""
        self._parts.jobs.handlers.add_declared(handler)

    async def enqueue(
        self,
        type: str,  # noqa: A002 - as handlers name it
        payload: Mapping[str, Any],
        *,
        actor: Actor | None = None,
        key: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Job:
        """Queues a job of a type that has a handler. Calls of tools are queued with `app.enqueue`.

        Args:
            key: Of all jobs of a user and a type with one key there is one; it is given again.
            delay: Seconds from now before which it is not run.
            priority: From -10 to 10: the higher, the sooner among the jobs of its tenant.
            max_attempts: How often it is tried, if not as often as its handler says.
        Raises `Failed` if it can't be queued.
        """
        if type == TYPE:
            raise Failed("VALIDATION_ERROR", "A call of a tool is queued with app.enqueue, which asks what governs it.")
        how = {"actor": actor or LOCAL, "key": key, "delay": delay, "priority": priority, "max_attempts": max_attempts}
        return await enqueue(self._parts, type, payload, **how)

    async def get(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Gives a job. Raises `Failed` if there is none of this id that the actor may see."""
        return self._own(await self._parts.jobs.get(id, (actor or LOCAL).tenant), id, actor or LOCAL, all_users)

    async def list(
        self,
        *,
        state: str | None = None,
        type: str | None = None,  # noqa: A002
        actor: Actor | None = None,
        all_users: bool = False,
        limit: int = JOBS_PAGE,
    ) -> "list[Job]":
        """Gives the latest jobs, latest first."""
        actor = actor or LOCAL
        user = None if all_users else actor.user
        return await self._parts.jobs.list(tenant=actor.tenant, user=user, state=state, type=type, limit=limit)

    async def wait(self, id: str, seconds: float, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Gives a job once it is over, or as it is after so many seconds."""
        await self.get(id, actor=actor, all_users=all_users)
        job = await self._parts.jobs.wait(id, seconds, (actor or LOCAL).tenant)
        return self._own(job, id, actor or LOCAL, all_users)

    @uninterrupted
    async def cancel(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Ends a job: at once if it waits, and if it runs as soon as its worker hears of it."""
        actor = actor or LOCAL
        await self.get(id, actor=actor, all_users=all_users)
        job = self._own(await self._parts.jobs.cancel(id, actor.tenant), id, actor, all_users)
        await self._parts.events.record("job.cancelled", actor, "", {"job": id, "type": job.type})
        return job

    @uninterrupted
    async def retry(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Has a job that failed, was cancelled or is parked tried again; a parked one, perhaps, for the second time."""
        actor = actor or LOCAL
        before = await self.get(id, actor=actor, all_users=all_users)
        job = self._own(await self._parts.jobs.retry(id, actor.tenant), id, actor, all_users)
        await self._parts.events.record("job.retried", actor, "", {"job": id, "type": job.type, "was": before.state})
        return job

    async def counts(self, *, actor: Actor | None = None) -> dict[str, int]:
        """Gives the number of the tenant's jobs in each state."""
        return await self._parts.jobs.counts((actor or LOCAL).tenant)

    @asynccontextmanager
    async def worker(self, concurrency: int | None = None) -> AsyncIterator[None]:
        """Runs jobs in this process, of all tenants, while inside `async with`."""
        worker = make_worker(self._parts, concurrency)
        await worker.start()
        try:
            yield
        finally:
            await worker.stop()

    async def run_all(self, concurrency: int | None = None) -> None:
        """Runs all jobs that are due in this process, until none is left."""
        await make_worker(self._parts, concurrency).run_once()

    async def keep_waiting(self, call: Call, outcome: Outcome) -> Outcome:
        """Keeps a call that was to be queued and waits for a person: it is queued when they have agreed."""
        assert outcome.pending is not None
        job = await self._parts.jobs.enqueue(
            TYPE,
            payload_of(call),
            actor=call.actor,
            key=call.idempotency_key,
            delay=call.background.delay if call.background else 0.0,
            priority=call.background.priority if call.background else 0,
            approval=outcome.pending.id,
        )
        waiting = queued(job)
        return Outcome(
            outcome.id, outcome.tool, "pending", None, outcome.error, PendingInfo(waiting.kind, waiting.id), outcome.metrics
        )

    def _own(self, job: Job | None, id: str, actor: Actor, all_users: bool) -> Job:
        if job is None or (job.user != actor.user and not all_users):
            raise Failed(
                "VALIDATION_ERROR", f"There is no job {id[:64]!r}.", suggestion="`toolgate jobs list` shows those there are."
            )
        return job
