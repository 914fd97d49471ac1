"""Calls that come over the event stream, taken while a server or a worker runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolgate.app.app import App
from toolgate.errors import CODES, call_error
from toolgate.events.answers import FinalResults
from toolgate.events.door import CallsHere, RequestDoor
from toolgate.jobs.tool_calls import outcome_of
from toolgate.model import LOCAL, Actor, ErrorInfo, Outcome

DAY_SECONDS = 86_400.0
NO_RESULT = ErrorInfo("CANCELLED", CODES["CANCELLED"].message)
"""The error of a job that ended without one."""


@asynccontextmanager
async def taking_events(app: App) -> AsyncIterator[bool]:
    """Takes calls from the event stream, if the settings say so, until its block ends; gives whether it does. Calls that run
    then have as long to end as `shutdown_seconds` says. A stream that is not reached is tried again and again."""
    parts, settings = app.parts, app.settings
    if settings.events.url is None or not settings.events.take_requests:
        yield False
        return

    async def is_settled(actor: Actor, key: str) -> bool:
        await parts.idempotency.reap()
        found = await app.idempotency.get(key, actor=actor)
        return found is not None and found.state != "running"

    calls, remembered = parts.event_calls, settings.limits.key_days * DAY_SECONDS
    here = CallsHere(parts.pipeline.__call__, is_settled, parts.now)
    door = RequestDoor(calls.stream(), settings.events, calls.keys, parts.store, here, remembered)
    finals = FinalResults(door, parts.store, ApprovalsAndJobs(app), parts.now)
    await calls.start(door, finals)
    try:
        yield True
    finally:
        await calls.stop(settings.shutdown_seconds)


class ApprovalsAndJobs:
    """The approvals and jobs of an App that calls wait for."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def outcome(self, kind: str, id: str, tenant: str) -> Outcome | None:
        if kind == "approval":
            waits = await self._app.approvals.state(id, tenant) == "waiting"
            return None if waits else await self._app.approvals.resume(id, actor=Actor(tenant, user=LOCAL.user))
        job = await self._app.parts.jobs.get(id, tenant)
        if job is None:
            raise call_error("OUTCOME_UNKNOWN", "The job of the call is not on record any more.")
        if not job.is_over:
            return None
        return outcome_of(job) or Outcome(id, str(job.payload.get("tool", "")), "failure", error=job.error or NO_RESULT)

    async def give_up(self, kind: str, id: str, tenant: str) -> Outcome | None:
        operator = Actor(tenant, user=LOCAL.user)
        if kind == "approval":
            await self._app.approvals.withdraw(id, actor=operator, reason="the deadline of its request is over")
            return None
        ended = await self.outcome(kind, id, tenant)
        if ended is None:
            await self._app.jobs.cancel(id, actor=operator, all_users=True)
        return ended
