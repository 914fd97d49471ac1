"""/v1/schedules: calls of tools at the times of a cron line."""

from typing import Annotated

import msgspec

from toolgate.jobs.job import Job
from toolgate.jobs.schedules import MAX_NAME_CHARS, MAX_RUNS, CronTimes, Schedule, ScheduleState
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Instant, Name
from toolgate.serve.http.tools import Arguments, Session, no_arguments

resource = Resource("schedules")


class NewSchedule(ApiModel, frozen=True):
    """A call that is to be made again and again."""

    cron: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    """Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly or @yearly."""
    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    arguments: Arguments = msgspec.field(default_factory=no_arguments)
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    """Of which the user has one schedule; without it, one is made up."""
    timezone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    """The IANA name of the time zone that the cron line is read in; without it, that of the user."""
    max_runs: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUNS)] | None = None
    """How often it fires; then it ends."""
    until: Instant | None = None
    """The last moment at which it may fire."""
    session: Session | None = None
    """The session that the calls belong to."""


class CronQuery(ApiModel, frozen=True):
    """A cron line."""

    cron: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    timezone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    """The IANA name of the time zone that it is read in; without it, that of the user."""
    count: Annotated[int, msgspec.Meta(ge=1, le=50)] = 5


class SchedulesQuery(PageQuery, frozen=True):
    """Filters of the list."""

    state: ScheduleState | None = None
    q: Name | None = None
    """A text in their name."""


@resource.get("/v1/cron", permission="own")
async def read_cron_line(request: ApiRequest, query: CronQuery) -> CronTimes:
    """Tell the next times of a cron line, which is refused here as it would be in a schedule."""
    return request.app.schedules.times(query.cron, timezone=query.timezone, count=query.count, actor=request.sender)


@resource.get("/v1/schedules", permission="own")
async def list_schedules(request: ApiRequest, query: SchedulesQuery) -> Page[Schedule]:
    """List schedules, oldest first: those of the caller's user, or with the permission read of all users."""
    position = position_of(request, query)
    found = await request.app.schedules.list(
        actor=request.actor, all_users=request.all_users, limit=query.limit + 1,
        after=None if position is None else position[0], state=query.state, named=query.q,
    )  # fmt: skip
    return page_of(request, query, found, lambda schedule: (schedule.id,))


@resource.post("/v1/schedules", permission="call", status=201, problems=(409, 429))
async def add_schedule(request: ApiRequest, body: NewSchedule) -> Schedule:
    """Have a tool called at the times of a cron line, for the caller. Tool, permission and arguments are checked now."""
    return await request.app.schedules.add(
        body.cron, body.tool, bytes(body.arguments), name=body.name, timezone=body.timezone, max_runs=body.max_runs,
        until=body.until, actor=request.actor, session=body.session, door="http",
    )  # fmt: skip


@resource.get("/v1/schedules/{id}", permission="own")
async def get_schedule(request: ApiRequest, id: str) -> Schedule:
    """Get a schedule. Somebody else's looks missing."""
    return await request.app.schedules.get(id, actor=request.actor, all_users=request.all_users)


@resource.delete("/v1/schedules/{id}", permission="call")
async def remove_schedule(request: ApiRequest, id: str) -> None:
    """Remove a schedule, and cancel its job if one is not over: one's own, as an admin any of the tenant."""
    await request.app.schedules.remove(id, actor=request.actor, all_users=request.credential.may("administer"))


@resource.post("/v1/schedules/{id}/pause", permission="call", problems=(409,))
async def pause_schedule(request: ApiRequest, id: str) -> Schedule:
    """Have a schedule fire no more until it is resumed."""
    return await request.app.schedules.pause(id, actor=request.actor, all_users=request.credential.may("administer"))


@resource.post("/v1/schedules/{id}/resume", permission="call", problems=(409,))
async def resume_schedule(request: ApiRequest, id: str) -> Schedule:
    """Have a schedule that is paused fire again, from its next time on."""
    return await request.app.schedules.resume(id, actor=request.actor, all_users=request.credential.may("administer"))


@resource.post("/v1/schedules/{id}/run", permission="call", status=202, problems=(409,))
async def run_schedule(request: ApiRequest, id: str) -> Job:
    """Queue the job of a schedule now, besides its times. It is done for the user of the schedule."""
    return await request.app.schedules.run_now(id, actor=request.actor, all_users=request.credential.may("administer"))
