"""Runs that nobody drives: of processes that died or closed, and those that were left to a worker. Each is queued as a job;
who runs the job takes the run."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from toolgate.agent.journal import Journals, actor_of
from toolgate.agent.model_grants import ModelGrants
from toolgate.model import Actor
from toolgate.settings.agent import AgentSettings
from toolgate.store import agent_runs as table
from toolgate.store.agent_runs import RunRow
from toolgate.store.live_processes import ProcessHeartbeat

MAX_CRASHES = 5
"""Processes that may die with a run: it may be what kills them."""
FORGET_EVERY = timedelta(hours=1)
LOST_AFTER = timedelta(minutes=10)
"""After this long, a run whose job was not run is queued again: the job may be lost, or have failed."""

Enqueue = Callable[[Actor, str, str], Awaitable[None]]
"""Queues a job that drives a run of an actor, under a key."""


class RunTakeover:
    """Queues runs, and forgets those that ended long ago."""

    def __init__(
        self,
        journals: Journals,
        presence: ProcessHeartbeat,
        settings: AgentSettings,
        grants: ModelGrants,
        enqueue: Enqueue,
        record: Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]],
    ) -> None:
        self._store = journals.store
        self._clock = journals.clock
        self._presence = presence
        self._settings = settings
        self._grants = grants
        self._enqueue = enqueue
        self._record = record
        self._forgot_at: datetime | None = None

    async def queue(self, row: RunRow) -> None:
        """Queues a run that no process has. One job for each time that it is nobody's."""
        await self._enqueue(actor_of(row), row.id, f"agent:{row.id}:{row.claims}")
        await self._store.transact(table.note_queued(row.id, row.claims, self._clock()))

    async def sweep(self) -> None:
        """Queues what no living process drives; gives up what ended several processes; forgets what is old."""
        at = self._clock()
        for row in await self._store.read(table.orphans(at - LOST_AFTER, lease=self._presence.seconds)):
            if row.crashes >= MAX_CRASHES:
                await self._give_up(row)
            else:
                await self.queue(row)
        if self._forgot_at is None or at - self._forgot_at >= FORGET_EVERY:
            self._forgot_at = at
            before = at - timedelta(days=self._settings.keep_days)
            while await self._store.transact(table.forget(before)) >= table.MAX_AT_ONCE:
                pass

    async def _give_up(self, row: RunRow) -> None:
        reason = f"{row.crashes} processes died while they drove it; it may be the reason."
        if await self._store.transact(table.end(row.id, "failed", reason, self._clock())) is not None:
            await self._grants.end(row)
            await self._record("agent.ended", actor_of(row), "", {"run": row.id, "status": "failed", "reason": reason})
