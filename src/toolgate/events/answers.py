"""The final results of calls that waited for a person, or for a job.

When a request's call has to be asked about, its first result says `pending`. Once somebody has answered, any process that
takes requests goes on with the call, through the same pipeline, and publishes what came of it; so it does when a job that
the call was queued as is over. After the request's deadline nothing is begun any more: the result is TIMEOUT.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from toolgate.errors import CallError, StoreError, ToolgateError, call_error
from toolgate.events.door import RequestDoor
from toolgate.events.messages import refused
from toolgate.events.signatures import BadSignature
from toolgate.events.stream import StreamError
from toolgate.model import Outcome
from toolgate.store import events as table
from toolgate.store.database import Store

POLL_SECONDS = 1.0
MAX_ROWS = 50
PRUNE_EVERY = timedelta(hours=1)

logger = logging.getLogger("toolgate.events")


class PendingCalls(Protocol):
    """The approvals and jobs of a tenant that calls wait for, by their kind and id."""

    async def outcome(self, kind: str, id: str, tenant: str) -> Outcome | None:
        """Goes on with a call and gives what came of it; None: there is nothing to go on with yet."""

    async def give_up(self, kind: str, id: str, tenant: str) -> Outcome | None:
        """Ends what is waited for, so that nothing comes of it later; gives what came of a job that was over in time."""


class FinalResults:
    """Looks for requests whose approval was answered."""

    def __init__(self, door: RequestDoor, store: Store, waits: "PendingCalls", now: Callable[[], datetime]) -> None:
        self._door, self._store, self._waits, self._now = door, store, waits, now
        self._prune_at = now()

    async def look(self) -> None:
        """Answers those that can be answered now."""
        moment = self._now()
        for row in await self._store.read(table.waiting(MAX_ROWS, moment - timedelta(seconds=POLL_SECONDS))):
            if await self._store.transact(table.take(row, self._now())):
                try:
                    await self._answer(row)
                except (StreamError, StoreError, BadSignature) as error:
                    logger.warning("the result of a call that was approved waits: %s", error.message)
        if moment >= self._prune_at:
            self._prune_at = moment + PRUNE_EVERY
            await self._door.prune()

    async def _answer(self, row: table.EventRow) -> None:
        if row.result is None:
            outcome = await self._outcome(row)
            if outcome is None:
                return
            if (pending := outcome.pending) is not None:
                waits = row._replace(pending_kind=pending.kind, pending_id=pending.id, updated_at=self._now())
                await self._store.transact(table.keep(waits))
                return
            body = self._door.result(row.id, row.tenant_id, row.session_id, outcome)
            row = row._replace(result=body.decode(), updated_at=self._now())
            await self._store.transact(table.keep(row))
        await self._door.publish_final(row, (row.result or "").encode())
        await self._store.transact(table.keep(row._replace(published=1, updated_at=self._now())))

    async def _outcome(self, row: table.EventRow) -> Outcome | None:
        """The outcome of a call; None: it waits still."""
        kind, id = row.pending_kind or "", row.pending_id or ""
        try:
            if self._now() < row.deadline:
                return await self._waits.outcome(kind, id, row.tenant_id)
            if (ended := await self._waits.give_up(kind, id, row.tenant_id)) is not None:
                return ended
            words = f"The call waited for its {kind} until its deadline was over."
            return refused("", call_error("TIMEOUT", words))
        except StoreError:
            raise
        except CallError as error:
            return refused("", error)
        except ToolgateError as error:  # what it waits for is not on record any more
            return refused("", call_error("PERMISSION_DENIED", f"The call was not run: {error.message}"))
