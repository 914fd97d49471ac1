"""`app.changes`: one process at a time compares a thing and changes it, so that of two changes that name what they saw, one
is made and the other is told that it came too late."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from toolgate.app.facets import Facet
from toolgate.errors import Failed, StoreError
from toolgate.store import change_locks
from toolgate.tasks import finish

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

POLL_SECONDS = 0.02
WAIT_SECONDS = 10.0
"""The time that a change waits for one of another process."""

logger = logging.getLogger("toolgate")


class ChangesFacet(Facet):
    """Changes that are made only if nothing else has changed."""

    def __init__(self, parts: "Parts") -> None:
        super().__init__(parts)
        self._here: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """Holds the lock of a name, with what other processes changed before it taken over. Raises CAPACITY_EXCEEDED if
        another holds it too long."""
        lock = self._here.setdefault(name, asyncio.Lock())
        async with lock:  # those of this process wait in order, without asking the store
            try:
                await self._take(name)
                await self._parts.store_sync.refresh()
                yield
            finally:
                await finish(self._release(name))

    async def _release(self, name: str) -> None:
        try:
            await self._parts.store.transact(change_locks.release(name, self._parts.presence.id))
        except StoreError as error:  # the change is made: whoever asked for it is told that
            logger.warning("the lock on changes of %s is held until this process changes it again: %s", name, error)

    async def _take(self, name: str) -> None:
        presence, until = self._parts.presence, monotonic() + WAIT_SECONDS
        await presence.show()
        while not await self._parts.store.transact(change_locks.take(name, presence.id, presence.seconds)):
            if monotonic() > until:
                words = "Another process is changing this. Try again."
                raise Failed("CAPACITY_EXCEEDED", words, details={"retry_after": 1.0})
            await asyncio.sleep(POLL_SECONDS)
