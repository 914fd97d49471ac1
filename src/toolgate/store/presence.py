"""Who is alive. What an App takes before an effect (money, an idempotency key) is settled by the App itself; what belongs
to one that died is settled by the others, who see that it no longer renews its row in `processes`.

Nothing is lost if a living one is taken for dead, because a clock jumped or a machine slept: whoever settles for it assumes
the worst (the money is spent, the effect unknown), and the living one puts that right when its call ends.
"""

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Any

from uuid_utils import uuid7

from toolgate.errors import StoreError
from toolgate.store.database import Store, Transaction, now

IS_DEAD = "process_id NOT IN (SELECT id FROM processes WHERE seen_at > :alive_since)"
"""For a WHERE clause over rows with a process_id; its parameter comes from `alive_since`."""
FORGET = timedelta(days=1)

logger = logging.getLogger("toolgate.store")


def alive_since(seconds: float) -> dict[str, Any]:
    return {"alive_since": now() - timedelta(seconds=seconds)}


def beat(process: str) -> Transaction[None]:
    yield (
        "INSERT INTO processes (id, seen_at) VALUES (:id, :moment) "
        "ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at",
        {"id": process, "moment": now()},
    )


def gone(process: str) -> Transaction[None]:
    yield "DELETE FROM processes WHERE id = :id", {"id": process}
    yield "DELETE FROM processes WHERE seen_at < :past", {"past": now() - FORGET}


class Presence:
    """This App among the living: from the first time that it takes something until it closes."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self.seconds = seconds
        """After this long without a sign, an App counts as dead."""
        self.id = str(uuid7())
        self._beating: asyncio.Task[None] | None = None

    async def show(self) -> None:
        """Be seen, before anything is taken in this App's name."""
        if self._beating is None:
            await self._store.transact(beat(self.id))
            if self._beating is None:
                self._beating = asyncio.create_task(self._beat())

    @property
    def is_shown(self) -> bool:
        return self._beating is not None

    async def leave(self) -> None:
        """What is still held in this App's name may be settled by others from now on."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
            with contextlib.suppress(StoreError):
                await self._store.transact(gone(self.id))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.seconds / 5)
            try:
                await self._store.transact(beat(self.id))
            except StoreError as error:
                logger.warning("this process can't show that it is alive: %s", error)
