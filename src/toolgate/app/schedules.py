"""`app.schedules`: calls and other jobs at the times of a cron line."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from toolgate.app.facets import Facet
from toolgate.errors import Failed
from toolgate.jobs.job import Job
from toolgate.jobs.schedules import CronTimes, Schedule, ScheduleState, schedule_of
from toolgate.jobs.tool_calls import TYPE
from toolgate.model import LOCAL, Actor, Call, new_id
from toolgate.store.schedules import ScheduleRow
from toolgate.tasks import uninterrupted

SCHEDULES_PAGE = 1_000


class SchedulesFacet(Facet):
    """Schedules: calls of tools and other jobs that are queued at the times of a cron line.

    An actor sees and changes their own schedules: those of the same tenant, persona and user. `all_users`: those of the
    whole tenant.
    """

    @uninterrupted
    async def add(
        self,
        cron: str,
        tool: str,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        name: str | None = None,
        timezone: str | None = None,
        max_runs: int | None = None,
        until: datetime | None = None,
        actor: Actor | None = None,
        session: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        door: str = "python",
    ) -> Schedule:
        """Has a tool called at the times of a cron line.

        Tool, permission and arguments are checked now. All that governs the call is asked again each time, as for any call
        of the actor: where a person must agree, its job waits for them.

        Args:
            cron: Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly or @yearly.
            tool: The tool.
            arguments: A mapping, or JSON as text or bytes.
            name: A name for the schedule, of which the user has one; without it, one is made.
            timezone: The IANA name of the time zone that the cron line is read in; without it, that of the user.
            max_runs: How often it fires; then it ends.
            until: The last moment at which it may fire.
            actor: Who calls; without it, the person at this machine.
            session: The session that the calls belong to.
            workspace: The folder that they work in, in place of what session and settings say.
            door: The door that whoever adds it came by.
        Raises `CallError` for what is wrong with it, or may not be done.
        """
        actor = actor or LOCAL
        place = None if workspace is None else os.path.realpath(workspace)
        call = Call(new_id(), tool, arguments, actor, session, door=door, workspace=place)
        return await self._parts.scheduled_calls.add(
            cron, call, name=name, timezone=timezone, max_runs=max_runs, until=until
        )

    @uninterrupted
    async def add_job(
        self,
        cron: str,
        type: str,  # noqa: A002 - as handlers name it
        payload: Mapping[str, Any],
        *,
        name: str | None = None,
        timezone: str | None = None,
        max_runs: int | None = None,
        until: datetime | None = None,
        actor: Actor | None = None,
    ) -> Schedule:
        """Has a job of a type that has a handler queued at the times of a cron line. Calls of tools are added with `add`."""
        if type == TYPE:
            raise Failed(
                "VALIDATION_ERROR", "A call of a tool is scheduled with app.schedules.add, which asks what governs it."
            )
        actor = actor or LOCAL
        added = await self._parts.schedules.add(
            cron, type, payload, actor=actor, label=type, name=name, timezone=timezone, max_runs=max_runs, until=until
        )
        await self._parts.scheduled_calls.note("schedule.added", actor, added)
        return added

    def times(self, cron: str, *, timezone: str | None = None, count: int = 5, actor: Actor | None = None) -> CronTimes:
        """Gives the next times of a cron line in a time zone, without one in that of the user. Raises `Failed`."""
        return self._parts.schedules.times(cron, timezone, count, actor or LOCAL)

    async def get(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Gives a schedule. Raises `Failed` if there is none that the actor may see."""
        return schedule_of(await self._find(id_or_name, actor or LOCAL, all_users))

    async def list(
        self,
        *,
        actor: Actor | None = None,
        all_users: bool = False,
        limit: int = SCHEDULES_PAGE,
        after: str | None = None,
        state: ScheduleState | None = None,
        named: str | None = None,
    ) -> "list[Schedule]":
        """Gives the schedules, oldest first; `after`: those that are younger than the one with this id; `named`: those with
        this text in their name."""
        listing = self._parts.schedules.list
        return await listing(actor or LOCAL, limit, all_users=all_users, after=after, state=state, named=named)

    @uninterrupted
    async def pause(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Has a schedule fire no more until it is resumed. A job that it has queued is not affected."""
        actor = actor or LOCAL
        paused = await self._parts.schedules.pause(await self._find(id_or_name, actor, all_users), actor.user)
        await self._parts.scheduled_calls.note("schedule.paused", actor, paused)
        return paused

    @uninterrupted
    async def resume(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Has a schedule that is paused fire again, from its next time on."""
        actor = actor or LOCAL
        resumed = await self._parts.schedules.resume(await self._find(id_or_name, actor, all_users))
        await self._parts.scheduled_calls.note("schedule.resumed", actor, resumed)
        return resumed

    @uninterrupted
    async def remove(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Removes a schedule, and cancels its job if one is not over. Gives what was removed."""
        actor = actor or LOCAL
        row = await self._find(id_or_name, actor, all_users)
        await self._parts.schedules.remove(row)
        removed = schedule_of(row)
        await self._parts.scheduled_calls.note("schedule.removed", actor, removed)
        return removed

    @uninterrupted
    async def run_now(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Queues the job of a schedule now, besides its times. It is done for the user of the schedule."""
        actor = actor or LOCAL
        row = await self._find(id_or_name, actor, all_users)
        job = await self._parts.schedules.run_now(row)
        await self._parts.scheduled_calls.note("schedule.run", actor, schedule_of(row))
        return job

    async def _find(self, id_or_name: str, actor: Actor, all_users: bool) -> ScheduleRow:
        return await self._parts.schedules.find(id_or_name, actor, all_users=all_users)
