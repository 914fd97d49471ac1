"""Limits how many calls run at once, of a tool and of a tenant. A call that finds no place is refused, never queued.

Counted in this process, or in Redis for all processes. There a place is held on a lease that is renewed while the call
runs, so that the places of a process that died come free by themselves.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence

from toolgate.coordination.redis import Argument, CoordinationError, Redis, key
from toolgate.errors import Failed
from toolgate.model import Call, Entry, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.held_resources import HoldingGate, hold
from toolgate.tasks import BackgroundTasks, finish, start_task, stop_tasks

RETRY_AFTER = 1.0
RENEWALS = 3
"""Renewals of a place within one lease."""

Name = tuple[str, ...]
"""What has only so many places: a tenant, or a tool. Tools of one name that two tenants made for themselves are two."""

Limited = list[tuple[Name, int]]

logger = logging.getLogger("toolgate")

# KEYS: a sorted set for each limit, of call ids by the millisecond at which their lease ends. ARGV: the call's id, how long
# the lease is, the limits. Gives the number of the limit that is reached, or 0.
TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, lease = ARGV[1], tonumber(ARGV[2])
for k, key in ipairs(KEYS) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if redis.call('ZCARD', key) >= tonumber(ARGV[k + 2]) and not redis.call('ZSCORE', key, id) then return k end
end
for _, key in ipairs(KEYS) do
    redis.call('ZADD', key, now + lease, id)
    redis.call('PEXPIRE', key, lease)
end
return 0
"""

# KEYS: as above. ARGV: how long the lease is, then a call's id for each key. Only what is still held is renewed.
RENEW = """
local time = redis.call('TIME')
local now, lease = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1])
for k, key in ipairs(KEYS) do
    redis.call('ZADD', key, 'XX', now + lease, ARGV[k + 1])
    redis.call('PEXPIRE', key, lease)
end
"""

# KEYS: as above. ARGV: the call's id.
GIVE_BACK = "for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end"


class Running:
    """Counts the calls that are on their way, of all tools and tenants."""

    def __init__(self) -> None:
        self.count = 0
        """Counted up by whoever begins one."""
        self._none: asyncio.Event | None = None

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


class Concurrency(HoldingGate):
    """The gate: counts the calls that are running where there is a limit."""

    def __init__(self, per_tenant: int | None, redis: Redis | None = None, lease_seconds: float = 30.0) -> None:
        self._per_tenant = per_tenant
        self.bounded = per_tenant is not None
        """True: calls of every tool are counted; else only those of tools with a limit of their own."""
        self._running: dict[Name, int] = {}
        self._shared = None if redis is None else SharedPlaces(redis, lease_seconds)

    def enter(self, ctx: InvokeContext, entry: Entry) -> Awaitable[None] | None:
        """Takes a place of a call that is counted, or raises CAPACITY_EXCEEDED; with Redis, when awaited."""
        limits = self._limits(ctx.call, entry)
        if self._shared is not None:
            return self._enter_shared(ctx, self._shared, limits)
        for name, most in limits:
            if self._running.get(name, 0) >= most:
                raise _full(name, most)
        for name, _ in limits:
            self._running[name] = self._running.get(name, 0) + 1
        hold(ctx, self, limits)
        return None

    async def _enter_shared(self, ctx: InvokeContext, shared: "SharedPlaces", limits: "Limited") -> None:
        await shared.take(ctx.call.id, limits)
        hold(ctx, self, limits)  # not before: what is cancelled while it is taken, `take` gives back, once it was taken

    def leave(self, ctx: InvokeContext, token: "Limited", _outcome: Outcome | None) -> Awaitable[None] | None:
        """Gives the place back. With Redis it is on its way at once; awaited, it is done. Never fails."""
        if self._shared is not None:
            return self._shared.give_back(ctx.call.id)
        for name, _ in token:
            if self._running[name] == 1:
                del self._running[name]
            else:
                self._running[name] -= 1
        return None

    def _limits(self, call: Call, entry: Entry) -> "Limited":
        limits: Limited = []
        if entry.concurrency is not None:
            limits.append((("tool", entry.name, entry.tool.tenant or ""), entry.concurrency))
        if self._per_tenant is not None:
            limits.append((("tenant", call.actor.tenant), self._per_tenant))
        return limits

    async def close(self) -> None:
        """Let go of Redis. Calls that are left behind keep their places until the lease ends."""
        if self._shared is not None:
            await self._shared.close()


class SharedPlaces:
    """Places that are counted in Redis."""

    def __init__(self, redis: Redis, lease_seconds: float) -> None:
        self._redis = redis
        self._lease = max(1, int(lease_seconds * 1000))
        self._held: dict[str, list[str]] = {}
        """By call, what it holds a place of."""
        self._renewing: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()

    async def take(self, id: str, limits: Sequence[tuple[Name, int]]) -> None:
        keys = [key("places", *name) for name, _ in limits]
        self._held[id] = keys
        arguments: list[Argument] = [id, self._lease, *(most for _, most in limits)]
        taking = self._tasks.start(self._redis.run(TAKE, keys, arguments))
        try:
            reached = await finish(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda _taking: self.give_back(id))  # not before: it would come first
            raise
        except CoordinationError as error:
            self.give_back(id)  # it may have been taken all the same
            words = f"Running calls cannot be counted, so the call was not run. {error.message}"
            raise Failed("CONNECTION_ERROR", words, suggestion=error.suggestion) from error
        if reached:
            del self._held[id]
            raise _full(*limits[reached - 1])
        if self._renewing is None or self._renewing.done():
            self._renewing = start_task(self._renew())

    def give_back(self, id: str) -> Awaitable[None] | None:
        keys = self._held.pop(id, None)
        if keys is None:
            return None
        return self._tasks.finish(self._give_back(id, keys))

    async def _give_back(self, id: str, keys: list[str]) -> None:
        try:
            await self._redis.run(GIVE_BACK, keys, [id])
        except CoordinationError as error:
            logger.warning("a place comes free only when its lease ends, in %g s: %s", self._lease / 1000, error)

    async def _renew(self) -> None:
        """While anything is held, renew all of it several times in each lease."""
        while self._held:
            await asyncio.sleep(self._lease / 1000 / RENEWALS)
            held = [(each, id) for id, keys in self._held.items() for each in keys]
            if not held:
                return
            try:
                await self._redis.run(RENEW, [each for each, _ in held], [self._lease, *(id for _, id in held)])
            except CoordinationError as error:
                logger.warning("the places of %d running calls could not be renewed: %s", len(self._held), error)

    async def close(self) -> None:
        await stop_tasks(self._renewing)
        await self._tasks.wait()


def _full(name: Name, most: int) -> Failed:
    what = f"of tenant {name[1]}" if name[0] == "tenant" else f"of {name[1]}"
    return Failed(
        "CAPACITY_EXCEEDED",
        f"Too many calls at once: {most} calls {what} are running, which is its limit.",
        details={"retry_after": RETRY_AFTER},
    )
