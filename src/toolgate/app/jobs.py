"""`app.jobs`: work in the background, and what became of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from toolgate.app.background import enqueue, make_worker
from toolgate.app.facets import Facet
from toolgate.errors import Failed
from toolgate.jobs.handlers import Handler
from toolgate.jobs.job import Job
from toolgate.jobs.runner import AttemptObserver
from toolgate.jobs.tool_calls import TYPE, queued
from toolgate.jobs.worker import JobWorker
from toolgate.model import LOCAL, Actor, Call, Outcome
from toolgate.model.outcome import ErrorInfo, PendingInfo
from toolgate.store import jobs as table
from toolgate.store.jobs import JobBacklog
from toolgate.store.live_processes import alive_since
from toolgate.tasks import uninterrupted

JOBS_PAGE = 100


class JobsFacet(Facet):
    """Jobs: calls of tools and other work that workers do in the background.

    An actor sees and changes their own jobs: those of the same tenant, persona and user, for what one persona of a user may
    read another may not. `all_users`: those of the whole tenant.
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

    async def ids(self, tenant: str | None, beginning: str) -> list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
        return await self._parts.store.read(table.ids(tenant, beginning))

    async def list(
        self,
        *,
        state: str | None = None,
        type: str | None = None,  # noqa: A002
        persona: str | None = None,
        actor: Actor | None = None,
        all_users: bool = False,
        all_tenants: bool = False,
        limit: int = JOBS_PAGE,
        before: str | None = None,
    ) -> list[Job]:
        """Gives the latest jobs, latest first; `before`: those that are older than the one with this id. `all_tenants` is
        for whoever runs this installation; `persona` narrows what `all_users` and `all_tenants` give."""
        actor = actor or LOCAL
        if all_tenants or all_users:
            tenant = None if all_tenants else actor.tenant
            return await self._parts.jobs.list(
                tenant=tenant, persona=persona, state=state, type=type, limit=limit, before=before
            )
        return await self._parts.jobs.list(owner=actor, state=state, type=type, limit=limit, before=before)

    async def follow(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> AsyncGenerator[Job]:
        """Gives a job as it is, and again whenever it has changed, until it is over."""
        await self.get(id, actor=actor, all_users=all_users)
        async with aclosing(self._parts.jobs.follow(id, (actor or LOCAL).tenant)) as changes:
            async for job in changes:
                yield job

    async def wait(self, id: str, seconds: float, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Gives a job once it is over, or as it is after so many seconds."""
        job: Job | None = await self.get(id, actor=actor, all_users=all_users)
        if job is not None and not job.is_over:
            job = await self._parts.jobs.wait(id, seconds, (actor or LOCAL).tenant)
        return self._own(job, id, actor or LOCAL, all_users)

    @uninterrupted
    async def cancel(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Ends a job: at once if it waits, and if it runs as soon as its worker hears of it."""
        actor = actor or LOCAL
        before = await self.get(id, actor=actor, all_users=all_users)
        job = self._own(await self._parts.jobs.cancel(id, actor.tenant), id, actor, all_users)
        if before.state != "cancelled":
            await self._parts.events.record("job.cancelled", actor, "", {"job": id, "type": job.type, "was": before.state})
        return job

    @uninterrupted
    async def retry(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Has a job that failed, was cancelled or is parked tried again; a parked one, perhaps, for the second time."""
        actor = actor or LOCAL
        before = await self.get(id, actor=actor, all_users=all_users)
        job = self._own(await self._parts.jobs.retry(id, actor.tenant), id, actor, all_users)
        await self._parts.events.record("job.retried", actor, "", {"job": id, "type": job.type, "was": before.state})
        return job

    async def counts(self, *, actor: Actor | None = None, all_tenants: bool = False) -> dict[str, int]:
        """Gives the number of the tenant's jobs in each state, or of all tenants'."""
        return await self._parts.jobs.counts(None if all_tenants else (actor or LOCAL).tenant)

    async def backlog(self, failed_seconds: float, due_seconds: float) -> JobBacklog:
        """Gives what of all tenants' jobs somebody should look at: how many there are in each state, failed within so many
        seconds, and are due for so many. For whoever runs this installation."""
        parts, moment = self._parts, self._parts.now()
        failed_since, due_before = moment - timedelta(seconds=failed_seconds), moment - timedelta(seconds=due_seconds)
        return await parts.store.read(table.backlog(alive_since(parts.presence.seconds), failed_since, due_before))

    @property
    def types(self) -> frozenset[str]:
        """The types of jobs that this process has a handler for."""
        return self._parts.jobs.handlers.names

    @asynccontextmanager
    async def worker(
        self, concurrency: int | None = None, *, once: bool = False, observers: Sequence[AttemptObserver] = ()
    ) -> AsyncIterator[JobWorker]:
        """Runs jobs in this process, of all tenants, while inside `async with`; those that run at its end are waited for.

        Args:
            concurrency: Jobs that run at once; without it, as many as the settings say.
            once: Until none is left that is due (`await worker.wait()`).
            observers: Functions that are told of each attempt at a job that has ended.
        """
        worker = make_worker(self._parts, concurrency, observers)
        await worker.start(once=once)
        try:
            yield worker
        finally:
            await worker.stop()

    async def run_all(self, concurrency: int | None = None) -> None:
        """Runs all jobs that are due in this process, until none is left."""
        await make_worker(self._parts, concurrency).run_once()

    async def keep_waiting(self, call: Call, outcome: Outcome) -> Outcome:
        """Keeps a call that was to be queued and waits for a person: it is queued when they have agreed."""
        assert outcome.pending is not None
        try:
            job = await self._parts.jobs.enqueue(
                TYPE,
                await self._parts.pipeline.queue.payload(call),
                actor=call.actor,
                key=call.idempotency_key,
                delay=call.background.delay if call.background else 0.0,
                priority=call.background.priority if call.background else 0,
                approval=outcome.pending.id,
            )
        except Failed as failed:
            info = ErrorInfo(failed.code, failed.message, failed.retryable, failed.suggestion)
            return Outcome(outcome.id, outcome.tool, "failure", None, info, None, outcome.metrics)
        waiting = queued(job)
        suggestion = f"Job {job.id} waits for the answer, and goes on by itself when there is one."
        error = None if outcome.error is None else msgspec.structs.replace(outcome.error, suggestion=suggestion)
        return Outcome(
            outcome.id, outcome.tool, "pending", None, error, PendingInfo(waiting.kind, waiting.id), outcome.metrics
        )

    def _own(self, job: Job | None, id: str, actor: Actor, all_users: bool) -> Job:
        if job is None or not (all_users or (job.user, job.persona) == (actor.user, actor.persona)):
            raise Failed(
                "VALIDATION_ERROR",
                f"There is no job {id[:64]!r}.",
                suggestion="`toolgate jobs list` shows those there are.",
                category="missing",
            )
        return job
