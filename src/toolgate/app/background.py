"""Makes the parts of an App that work in the background: the queue of jobs, their handlers, the worker."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from toolgate.app import agent_runs, approval_notices, workflow_jobs
from toolgate.app.agent_runs import DriveRun
from toolgate.app.approval_notices import ApprovalNotices
from toolgate.app.job_handlers import (
    EMBEDDING_SCHEMA,
    GENERATE_EMBEDDING,
    NOTIFICATION_SCHEMA,
    SEND_NOTIFICATION,
    GenerateEmbedding,
    SendNotification,
)
from toolgate.app.schedule_check import ScheduleCheck
from toolgate.app.workflow_jobs import ExecuteWorkflow
from toolgate.errors import Failed
from toolgate.jobs import timer, tool_calls
from toolgate.jobs.handlers import JobContext, JobHandlers
from toolgate.jobs.job import Job
from toolgate.jobs.qstash import QStash
from toolgate.jobs.queue import JobQueue
from toolgate.jobs.runner import AttemptObserver, JobRunner
from toolgate.jobs.scheduled_calls import ScheduledCalls
from toolgate.jobs.schedules import Schedules
from toolgate.jobs.tool_calls import ToolCalls
from toolgate.jobs.worker import JobEngine, JobWorker, StoreEngine
from toolgate.model import Actor
from toolgate.pipeline.rehearsal import rehearse
from toolgate.store.idempotency import Scope, forget
from toolgate.timezones import Timezones

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def make_queue(parts: "Parts") -> JobQueue:
    """The queue of jobs; it has no handlers yet."""
    return JobQueue(
        parts.store,
        JobHandlers(installed=parts.settings.entry_points),
        parts.settings.jobs,
        announce=parts.notices.announce,
        watch=parts.notices.watch,
        mask=lambda value, known=(): parts.redactor.mask(value, frozenset(), known),
        clock=parts.now,
    )


def add_handlers(parts: "Parts") -> None:
    """Says what is done for jobs of each type."""

    async def free_key(actor: Actor, key: str) -> None:
        await parts.idempotency.settle(actor.tenant, actor.user, key, happened=False, by="worker")

    async def forget_key(actor: Actor, key: str, tool: str) -> None:
        await parts.store.transact(forget(Scope(actor.tenant, actor.user, key), tool))

    handlers = parts.jobs.handlers
    calls = ToolCalls(parts.pipeline.__call__, parts.catalog.find, free_key, forget_key)
    check = ScheduleCheck(parts.store, parts.now)

    async def call_tool(ctx: JobContext) -> Any:
        await check.job(ctx)
        return await calls(ctx)

    handlers.add(tool_calls.TYPE, call_tool, schema=tool_calls.SCHEMA, is_masked=True)
    handlers.add(workflow_jobs.TYPE, ExecuteWorkflow(parts, calls), schema=workflow_jobs.SCHEMA)
    handlers.add(SEND_NOTIFICATION, SendNotification(parts), max_attempts=5, schema=NOTIFICATION_SCHEMA)
    handlers.add(GENERATE_EMBEDDING, GenerateEmbedding(parts), schema=EMBEDDING_SCHEMA)
    handlers.add(agent_runs.TYPE, DriveRun(parts), schema=agent_runs.SCHEMA, is_masked=True)
    notices = ApprovalNotices(parts, partial(enqueue, parts))
    handlers.add(
        approval_notices.TYPE, notices.deliver, max_attempts=approval_notices.ATTEMPTS, schema=approval_notices.SCHEMA
    )
    if parts.settings.approvals.notify:
        parts.consent.on_waiting = notices.tell
    parts.memory.embed_later = partial(_embed_later, parts)


async def _embed_later(parts: "Parts", actor: Actor, ids: list[str]) -> None:
    """Has notes embedded in the background, and those of the same persona whose job was lost; at once where no job can be
    queued."""
    for id in (*ids, *await parts.note_embeddings.forgotten(actor)):
        try:
            payload = {"type": "memory", "id": id}
            await enqueue(parts, GENERATE_EMBEDDING, payload, actor=actor, key=f"memory:{id}")
        except Failed:
            await parts.note_embeddings.embed(actor, id)


def make_qstash(parts: "Parts") -> QStash:
    """The way of jobs to QStash and back."""
    return QStash(
        parts.store,
        parts.settings.qstash,
        parts.jobs,
        find_secret=parts.server_secrets.find,
        record=parts.events.record,
    )


async def enqueue(parts: "Parts", type: str, payload: Mapping[str, Any], **how: Any) -> Job:  # noqa: A002
    """Queues a job, by way of QStash if the settings say so."""
    way = parts.qstash if parts.qstash.sends(type) else parts.jobs
    return await way.enqueue(type, payload, **how)


def make_schedules(parts: "Parts") -> Schedules:
    """The schedules that queue jobs."""
    return Schedules(parts.store, parts.jobs, parts.providers.everywhere[Timezones].of)


def make_scheduled_calls(parts: "Parts") -> ScheduledCalls:
    """Schedules of calls; the tool `scheduler` has them too."""
    made = ScheduledCalls(
        parts.schedules,
        rehearse=partial(rehearse, parts.pipeline),
        has_key=ScheduleCheck(parts.store, parts.now).has_key,
        record=parts.events.record,
    )
    parts.providers.everywhere[ScheduledCalls] = made
    return made


def make_worker(parts: "Parts", concurrency: int | None = None, observers: Sequence[AttemptObserver] = ()) -> JobWorker:
    """A worker for this process; it is not started."""
    if parts.metrics is not None:
        observers = (*observers, parts.metrics.count_attempt)
    runner = JobRunner(parts.store, parts.jobs, parts.providers.everywhere, observers)
    engine = _make_engine(parts, concurrency or parts.settings.jobs.concurrency)
    schedules = timer.ScheduleTimer(parts.store, parts.schedules, parts.events.record)

    async def tick() -> float | None:
        seconds = await schedules.tick()
        await parts.run_takeover.sweep()
        return seconds

    return JobWorker(parts.store, parts.jobs, runner, parts.presence, engine, tick)


def _make_engine(parts: "Parts", concurrency: int) -> JobEngine:
    """The engine that decides which job this process runs next."""
    if parts.settings.jobs.engine == "dbos":
        from toolgate.jobs.dbos_engine import DbosEngine

        return DbosEngine(parts.store, parts.jobs, parts.presence, concurrency, parts.settings.database)
    return StoreEngine(parts.store, parts.jobs, parts.presence, concurrency)
