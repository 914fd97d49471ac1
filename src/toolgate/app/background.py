"""Makes the parts of an App that work in the background: the queue of jobs, their handlers, the worker."""

from typing import TYPE_CHECKING

from toolgate.app import workflow_jobs
from toolgate.app.workflow_jobs import ExecuteWorkflow
from toolgate.jobs import tool_calls
from toolgate.jobs.handlers import JobHandlers
from toolgate.jobs.queue import JobQueue
from toolgate.jobs.runner import JobRunner
from toolgate.jobs.tool_calls import ToolCalls
from toolgate.jobs.worker import JobWorker, StoreEngine
from toolgate.model import Actor

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def make_queue(parts: "Parts") -> JobQueue:
    """The queue of jobs; it has no handlers yet."""
    return JobQueue(
        parts.store,
        JobHandlers(),
        parts.settings.jobs,
        announce=parts.notices.announce,
        watch=parts.notices.watch,
        mask=lambda payload: parts.redactor.mask(payload, frozenset(), ()),
        clock=parts.now,
    )


def add_handlers(parts: "Parts") -> None:
    """Says what is done for jobs of each type."""

    async def free_key(actor: Actor, key: str) -> None:
        await parts.idempotency.settle(actor.tenant, actor.user, key, happened=False, by="worker")

    handlers = parts.jobs.handlers
    calls = ToolCalls(parts.pipeline.__call__, parts.catalog.find, free_key)
    handlers.add(tool_calls.TYPE, calls, schema=tool_calls.SCHEMA)
    handlers.add(workflow_jobs.TYPE, ExecuteWorkflow(parts, calls), schema=workflow_jobs.SCHEMA)


def make_worker(parts: "Parts", concurrency: int | None = None) -> JobWorker:
    """A worker for this process; it is not started."""
    runner = JobRunner(parts.store, parts.jobs, parts.providers.everywhere)
    engine = StoreEngine(parts.store, parts.jobs, parts.presence, concurrency or parts.settings.jobs.concurrency)
    return JobWorker(parts.store, parts.jobs, runner, parts.presence, engine)
