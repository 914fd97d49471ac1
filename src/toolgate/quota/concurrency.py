"""How many calls may run at once, of a tool and of a tenant. A call that finds no place is refused, never queued."""

import asyncio
import contextlib

from toolgate.errors import Failed
from toolgate.model import Call, Entry

RETRY_AFTER = 1.0


class Running:
    """How many calls are on their way, of all tools and tenants."""

    def __init__(self) -> None:
        self.count = 0
        self._none: asyncio.Event | None = None

    def enter(self) -> None:
        self.count += 1

    def leave(self) -> None:
        self.count -= 1
        if self._none is not None and not self.count:
            self._none.set()

    async def wait(self, seconds: float) -> None:
        """Wait until there is none, but not longer than this."""
        self._none = asyncio.Event()
        if self.count:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none.wait(), seconds)


class Concurrency:
    """Counts the calls that are running where there is a limit."""

    def __init__(self, per_tenant: int | None) -> None:
        self._per_tenant = per_tenant
        self._tools: dict[str, int] = {}
        self._tenants: dict[str, int] = {}

    def acquire(self, call: Call, entry: Entry) -> None:
        """Take a place, or raise CAPACITY_EXCEEDED."""
        limit = entry.concurrency
        if limit is None and self._per_tenant is None:
            return
        tool, tenant = entry.name, call.actor.tenant
        if limit is not None and self._tools.get(tool, 0) >= limit:
            raise _full(f"{limit} calls of {tool} are running, which is its limit")
        if self._per_tenant is not None:
            if self._tenants.get(tenant, 0) >= self._per_tenant:
                raise _full(f"{self._per_tenant} calls of tenant {tenant} are running, which is its limit")
            self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        if limit is not None:
            self._tools[tool] = self._tools.get(tool, 0) + 1

    def release(self, call: Call, entry: Entry) -> None:
        """Give the place back."""
        if entry.concurrency is not None:
            _less(self._tools, entry.name)
        if self._per_tenant is not None:
            _less(self._tenants, call.actor.tenant)


def _less(counts: dict[str, int], key: str) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1


def _full(words: str) -> Failed:
    return Failed("CAPACITY_EXCEEDED", f"Too many calls at once: {words}.", details={"retry_after": RETRY_AFTER})
