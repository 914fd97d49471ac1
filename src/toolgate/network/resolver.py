"""The resolver of this machine, on threads of its own."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from weakref import WeakValueDictionary

from toolgate.tasks import BackgroundTasks, finish

MAX_LOOKUPS = 32
"""Host names that are resolved at once, in all."""

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host name to addresses."""

_lookup_threads = ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="toolgate-lookup")
"""Threads of its own: a slow DNS server must not block those that all share."""


async def resolve(host: str, port: int) -> list[str]:
    """Resolves a host name as this machine does."""
    look = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_lookup_threads, look)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class BoundedResolver:
    """Resolves so many names at once, and no more; for one tenant at most half of them, so that names which are slow to
    resolve make their own tenant wait. A thread can't be stopped: it counts until it has ended, whoever still waits."""

    def __init__(self, resolve: Resolve, most: int) -> None:
        self._resolve = resolve
        self._room = asyncio.Semaphore(most)
        self._share = max(1, most // 2)
        self._tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Held by the lookups that are under way or wait, and by nothing else."""
        self._lookups = BackgroundTasks()

    @property
    def under_way(self) -> int:
        return len(self._lookups)

    async def look_up(self, host: str, port: int, tenant: str | None = None) -> list[str]:
        """The addresses of a host. `tenant`: who asks, if anybody but the operator."""
        places = [self._room] if tenant is None else [self._share_of(tenant), self._room]
        taken: list[asyncio.Semaphore] = []
        try:
            for place in places:
                await place.acquire()
                taken.append(place)
            lookup = self._lookups.start(self._resolve(host, port), unheard=True)
        except BaseException:
            _give_back(taken)
            raise
        lookup.add_done_callback(lambda _: _give_back(taken))
        return await finish(lookup)

    def _share_of(self, tenant: str) -> asyncio.Semaphore:
        return self._tenants.setdefault(tenant, asyncio.Semaphore(self._share))

    def close(self) -> None:
        """Lets go of the lookups that are under way."""
        self._lookups.cancel()


def _give_back(places: list[asyncio.Semaphore]) -> None:
    for place in places:
        place.release()
