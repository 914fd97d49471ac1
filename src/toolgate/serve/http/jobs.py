"""/v1/jobs: work in the background, and what became of it. Calls are queued by POST /v1/tools/{name}/invoke, mode async."""

from typing import Annotated

import msgspec

from toolgate.jobs.job import STATES, Job, JobState
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of

resource = Resource("jobs")

MAX_WAIT_SECONDS = 60


class JobsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    state: JobState | None = None
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    persona: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None


class WaitQuery(ApiModel, frozen=True):
    """The time that is waited for the end."""

    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0.0
    """Seconds after which the job is answered as it is, if it is not over by then."""


@resource.get("/v1/jobs", permission="own")
async def list_jobs(request: ApiRequest, query: JobsQuery) -> Page[Job]:
    """List jobs, latest first: those of the caller's user, or with the permission read of all users."""
    after = position_of(request, query)
    found = await request.app.jobs.list(
        state=query.state, type=query.type, persona=query.persona, actor=request.sender, all_users=request.all_users,
        all_tenants=request.all_tenants, limit=query.limit + 1, before=None if after is None else after[0],
    )  # fmt: skip
    return page_of(request, query, found, lambda job: (job.id,))


@resource.get("/v1/jobs/counts", permission="read")
async def count_jobs(request: ApiRequest) -> dict[JobState, int]:
    """Count the jobs of the tenant in each state; states that none is in are left out."""
    counts = await request.app.jobs.counts(actor=request.sender, all_tenants=request.all_tenants)
    return {state: counts[state] for state in STATES if state in counts}


@resource.get("/v1/jobs/{id}", permission="own")
async def get_job(request: ApiRequest, id: str, query: WaitQuery) -> Job:
    """Get a job; with `wait`, once it is over or the time is. Somebody else's looks missing."""
    jobs, actor, all_users = request.app.jobs, request.actor, request.all_users
    if query.wait:
        return await jobs.wait(id, query.wait, actor=actor, all_users=all_users)
    return await jobs.get(id, actor=actor, all_users=all_users)


@resource.post("/v1/jobs/{id}/retry", permission="call", problems=(409,))
async def retry_job(request: ApiRequest, id: str) -> Job:
    """Have a job that failed, was cancelled or is parked tried again: one's own, as an admin any of the tenant."""
    return await request.app.jobs.retry(id, actor=request.actor, all_users=request.credential.may("administer"))


@resource.post("/v1/jobs/{id}/cancel", permission="call", problems=(409,))
async def cancel_job(request: ApiRequest, id: str) -> Job:
    """End a job: at once if it waits, and if it runs as soon as its worker hears of it."""
    return await request.app.jobs.cancel(id, actor=request.actor, all_users=request.credential.may("administer"))
