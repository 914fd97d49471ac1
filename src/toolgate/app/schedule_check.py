"""Checks that a job of a schedule may still be run for whoever added the schedule."""

from collections.abc import Callable
from datetime import datetime

from toolgate.errors import Denied, Failed
from toolgate.jobs.handlers import JobContext
from toolgate.model import Actor
from toolgate.model.roles import permissions_of
from toolgate.store import keys
from toolgate.store import schedules as table
from toolgate.store.database import Store


class ScheduleCheck:
    """Looks at schedules and API keys when a job is about to run. What a key let its holder add ends with the key: else it
    could outlive its revocation for ever."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    async def has_key(self, actor: Actor) -> bool:
        """Tells whether an API key lets its holder call tools as this actor, with these scopes at least."""
        at = self._clock()
        known = (
            key
            for key in await self._store.read(keys.listed(actor.tenant))
            if key.state(at) == "valid" and "call" in permissions_of(key.roles)
        )
        return any(
            (key.actor.user, key.actor.persona) == (actor.user, actor.persona) and set(actor.scopes) <= set(key.actor.scopes)
            for key in known
        )

    async def job(self, ctx: JobContext) -> None:
        """Refuses a job whose schedule was removed, or whose user has no key for it any more. Any other may be run."""
        if ctx.payload.get("needs_key") is True and not await self.has_key(ctx.actor):
            raise Denied(
                "PERMISSION_DENIED",
                "The call was queued with an API key, and none that lets its user do this is valid any more.",
                suggestion="Make a key for the user, and call again.",
            )
        if ctx.row.schedule_id is None:
            return
        schedule = await self._store.read(table.get(ctx.row.schedule_id, ctx.actor.tenant))
        if schedule is None:
            raise Failed("CANCELLED", "Its schedule was removed.")
        if schedule.needs_key and not await self.has_key(ctx.actor):
            raise Denied(
                "PERMISSION_DENIED",
                "The schedule was added with an API key, and none that lets its user do this is valid any more.",
                suggestion="Make a key for the user, or add the schedule again.",
            )
