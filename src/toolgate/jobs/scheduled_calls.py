"""Schedules that call tools: what cannot be called cannot be scheduled, and each firing passes all gates again."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from toolgate.errors import Failed
from toolgate.gates.secrets.gate import names_in
from toolgate.jobs.schedules import Schedule, Schedules, schedule_of
from toolgate.jobs.tool_calls import TYPE, payload_of
from toolgate.model import LOCAL_DOORS, Actor, Call
from toolgate.pipeline.rehearsal import Rehearsal

SCHEDULER = "scheduler"
"""The tool that adds schedules: none may add others by itself."""
MAX_LISTED_SCHEDULES = 1_000


class ScheduledCalls:
    """Schedules of calls, as `app.schedules` and the tool `scheduler` have them."""

    def __init__(
        self,
        schedules: Schedules,
        *,
        rehearse: Callable[[Call], Awaitable[Rehearsal]],
        has_key: Callable[[Actor], Awaitable[bool]],
        record: Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]],
    ) -> None:
        """`has_key` tells whether an API key lets its holder act as an actor."""
        self._schedules = schedules
        self._rehearse = rehearse
        self._has_key = has_key
        self._record = record

    async def add(
        self,
        cron: str,
        call: Call,
        *,
        name: str | None = None,
        timezone: str | None = None,
        max_runs: int | None = None,
        until: datetime | None = None,
        by_call: str | None = None,
    ) -> Schedule:
        """Has a call made at the times of a cron line. Raises the CallError with which it would be refused now.

        Args:
            by_call: The call of the tool `scheduler` that adds it.
        """
        is_program = call.from_code or (call.spending_limit is not None and not call.spending_limit.is_run)
        if is_program:  # what holds for a program would not hold for its schedules
            raise Failed("VALIDATION_ERROR", "A program cannot add schedules: nobody saw what it would have done later.")
        if call.on_behalf_of:  # nor what holds for whoever called a subordinate
            raise Failed("VALIDATION_ERROR", "A subordinate agent cannot add schedules: its caller has to.")
        found = await self._rehearse(call)
        if by_call is not None and any(True for _name in names_in(found.arguments)):
            # Who may use a secret is settled for the tool that a call names, not for what a text inside its arguments says.
            raise Failed(
                "VALIDATION_ERROR",
                "A task cannot refer to secrets.",
                suggestion="Have a person add the schedule: `toolgate schedules add`.",
            )
        if found.entry.name == SCHEDULER:
            raise Failed("VALIDATION_ERROR", "A schedule cannot add schedules.")
        payload = {**payload_of(call), "tool": found.entry.name, "arguments": found.arguments}
        needs_key = call.door not in LOCAL_DOORS and await self._has_key(call.actor)
        added = await self._schedules.add(
            cron, TYPE, payload, actor=call.actor, label=found.entry.name, name=name, timezone=timezone,
            shown={**payload, "arguments": found.shown}, max_runs=max_runs, until=until, needs_key=needs_key,
        )  # fmt: skip
        await self.note("schedule.added", call.actor, added, **({} if by_call is None else {"call": by_call}))
        return added

    async def of_actor(self, actor: Actor) -> list[Schedule]:
        """The schedules of an actor, oldest first."""
        return await self._schedules.list(actor, MAX_LISTED_SCHEDULES)

    async def remove(self, actor: Actor, id_or_name: str, by_call: str) -> Schedule:
        """Removes a schedule of an actor. Raises Failed if there is none."""
        row = await self._schedules.find(id_or_name, actor)
        await self._schedules.remove(row)
        removed = schedule_of(row)
        await self.note("schedule.removed", actor, removed, call=by_call)
        return removed

    async def note(self, action: str, actor: Actor, schedule: Schedule, **more: str) -> None:
        """Puts on record what somebody did with a schedule."""
        tool = str(schedule.payload.get("tool", "")) if schedule.type == TYPE else ""
        details = {"schedule": schedule.id, "name": schedule.name, "cron": schedule.cron, "timezone": schedule.timezone}
        await self._record(action, actor, tool, {**details, "for_user": schedule.user, "type": schedule.type, **more})
