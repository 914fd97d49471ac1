"""Signs of life of Apps. What an App takes before an effect (money, an idempotency key) is settled by the App itself; what
belongs to one that died is settled by the others, who see that it no longer renews its row in `processes`.

Nothing is lost if a living one is taken for dead, because a clock jumped or a machine slept: whoever settles for it assumes
the worst (the money is spent, the effect unknown), and the living one puts that right when its call ends.
"""

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from uuid_utils import uuid7

from toolgate.errors import StoreError
from toolgate.store.database import Store, Transaction, moment, now
from toolgate.store.sql import upsert, value
from toolgate.tasks import repeat, start_task

IS_DEAD = "process_id NOT IN (SELECT id FROM processes WHERE seen_at > :alive_since AND seen_at < :alive_until)"
"""For a WHERE clause over rows with a process_id; its parameters come from `alive_since`."""
FORGET = timedelta(days=1)
LEAVE_SECONDS = 5
"""The time that leaving waits for a store that does not answer."""

logger = logging.getLogger("toolgate.store")


def alive_since(seconds: float) -> dict[str, Any]:
    """Between when and when a living one was seen. One seen in the future had a wrong clock, and may have died long ago."""
    at, lease = now(), timedelta(seconds=seconds)
    return {"alive_since": at - lease, "alive_until": at + lease}


def awake() -> float:
    """Seconds that nobody can set, and that go on while the machine sleeps, where it can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def beat(process: str, url: str | None = None) -> Transaction[None]:
    """Shows that a process is alive; without `url`, where it serves stays as it is."""
    where = {} if url is None else {"url": url}
    yield upsert("processes", {"id": process, "seen_at": now(), **where}, ("id",))


def served_at(seconds: float) -> Transaction[str | None]:
    """The address of a living process that serves HTTP, the latest to begin; None: there is none."""
    return value(
        "SELECT url FROM processes WHERE url IS NOT NULL AND seen_at > :alive_since AND seen_at < :alive_until "
        "ORDER BY id DESC LIMIT 1",
        alive_since(seconds),
    )


class LiveProcess(NamedTuple):
    """A process that works on this database."""

    id: str
    seen_at: datetime
    url: str | None
    """The address at which it serves HTTP, if it does."""

    @property
    def started_at(self) -> datetime:
        """The time at which its id was made."""
        return datetime.fromtimestamp((UUID(self.id).int >> 80) / 1000, UTC)


def living(seconds: float) -> Transaction[list[LiveProcess]]:
    """The processes that are alive, oldest first."""
    rows = yield (
        "SELECT id, seen_at, url FROM processes WHERE seen_at > :alive_since AND seen_at < :alive_until ORDER BY id",
        alive_since(seconds),
    )
    return [LiveProcess(row[0], moment(row[1]), row[2]) for row in rows]


def gone(process: str) -> Transaction[None]:
    yield "DELETE FROM processes WHERE id = :id", {"id": process}
    yield "DELETE FROM processes WHERE seen_at < :past", {"past": now() - FORGET}


class ProcessHeartbeat:
    """This App among the living: from the first time that it takes something until it closes."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self.seconds = seconds
        """After this long without a sign, an App counts as dead."""
        self.id = str(uuid7())
        self._url: str | None = None
        self._beating: asyncio.Task[None] | None = None
        self._seen: float | None = None
        self.lapses = 0
        """The number of times that this App was without a sign for so long that others may have taken it for dead. While it
        is fresh and this has not changed, what was taken in its name is still its own."""

    async def show(self) -> None:
        """Shows the first sign of life, before anything is taken in this App's name."""
        if self._beating is None:
            await self._renew()
            if self._beating is None:
                self._beating = start_task(
                    repeat(self.seconds / 5, self._renew, logger, "this process cannot show that it is alive")
                )

    async def serve_at(self, url: str) -> None:
        """Shows that this App serves HTTP, and where."""
        self._url = url
        await self.show()
        await self._renew()

    @property
    def is_shown(self) -> bool:
        return self._beating is not None

    @property
    def is_fresh(self) -> bool:
        """Tells whether the last sign is so young that nobody can take this App for dead now."""
        return self._seen is not None and awake() - self._seen < self.seconds / 2

    async def leave(self) -> None:
        """Lets others settle what is still held in this App's name."""
        if self._beating is not None:
            beating, self._beating, self._seen = self._beating, None, None
            beating.cancel()
            # If it takes too long it is not cancelled, for which PostgreSQL would have to answer: the store's end ends it.
            await asyncio.wait([start_task(self._go(beating))], timeout=LEAVE_SECONDS)

    async def _go(self, beating: "asyncio.Task[None]") -> None:
        await asyncio.wait([beating])  # a sign after this one's end would make it look alive
        with contextlib.suppress(StoreError):
            await self._store.transact(gone(self.id))

    async def _renew(self) -> None:
        before, began = self._seen, awake()
        await self._store.transact(beat(self.id, self._url))
        if before is None or awake() - before >= self.seconds / 2:
            self.lapses += 1
        self._seen = began
