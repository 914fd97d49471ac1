"""Places for work in processes that a call starts without being asked about: so many at once, and of each tenant fewer, so
that one tenant's calls do not take them all. Who finds no place waits for one; the time of the call goes on meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

MAX_PROCESSES = 8
MAX_TENANT_PROCESSES = 2


class TenantPlaces:
    """The places of one event loop."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MAX_PROCESSES)
        self._tenants: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}
        """By tenant: its places, and one entry for each that waits or works."""

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """Holds a place for a tenant, once there is one."""
        own, here = self._tenants.setdefault(tenant, (asyncio.Semaphore(MAX_TENANT_PROCESSES), []))
        here.append(None)
        try:
            async with own, self._all:
                yield
        finally:
            here.pop()
            if not here:
                self._tenants.pop(tenant, None)


_places: WeakKeyDictionary[asyncio.AbstractEventLoop, TenantPlaces] = WeakKeyDictionary()


def tenant_places() -> TenantPlaces:
    """The places of the running event loop."""
    return _places.setdefault(asyncio.get_running_loop(), TenantPlaces())
