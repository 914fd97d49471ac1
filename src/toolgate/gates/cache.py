"""Results that may be given out again: by tool definition, canonical arguments and the tenant or the actor they are for.

Kept as JSON, so that nobody can change what the next caller gets. In memory, where the least recently used go first; or in
Redis for all processes, where anything that goes wrong is a miss.

The scope `tenant` is for everybody in the tenant: of functions that see their arguments and nothing else, and of those
whose code says so. Whether one may ask is decided before the cache is looked at. The scope `user` is for the actor as a
whole, with persona and scopes, in one session, and at home or not, because a tool sees all of it and works in a folder
that depends on it; it is the scope of every other tool (`registry.compile`). What was fetched with a credential or a secret
is the actor's own in any case: theirs may open other doors than the next caller's.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

import orjson

from toolgate.coordination.redis import CoordinationError, Redis
from toolgate.model import LOCAL_DOORS, Call, Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.hooks import Stages

Key = tuple[str, str, str, tuple[str | None, ...] | None, bytes]

logger = logging.getLogger("toolgate")


class ResultCache:
    """The gate: results with an end, in memory or, with Redis, shared."""

    def __init__(
        self,
        time: Callable[[], float],
        most: int = 10_000,
        most_bytes: int = 100_000_000,
        redis: Redis | None = None,
    ) -> None:
        self._time = time
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: OrderedDict[Key, tuple[float, bytes]] = OrderedDict()
        self._shared = None if redis is None else SharedResults(redis)

    async def enter(self, ctx: InvokeContext, entry: Entry, on: Stages) -> bool:
        """Answers the call from the cache; False if it has no answer, or a hook declines it."""
        key = self._key(entry, ctx.call, ctx.canonical)
        text = self._read(key) if self._shared is None else await self._shared.read(key)
        if text is None:
            return False
        ctx.output = orjson.loads(text)
        if on.did_cache_hit:
            await on.did_cache_hit(ctx)
        ctx.cached = ctx._scratch is None or not ctx._scratch.hit_declined
        return ctx.cached

    async def keep(self, ctx: InvokeContext, entry: Entry) -> None:
        """Keeps what is given out for the next caller."""
        if entry.cache is None:
            return
        text = orjson.dumps(ctx.result)
        if len(text) > self._most_bytes // 10:
            return
        key = self._key(entry, ctx.call, ctx.canonical)
        if self._shared is None:
            self._write(key, text, entry.cache.ttl)
        else:
            await self._shared.write(key, text, entry.cache.ttl)

    @staticmethod
    def _key(entry: Entry, call: Call, canonical: bytes) -> Key:
        actor = call.actor
        own = (entry.cache is not None and entry.cache.scope == "user") or entry.auth is not None or b"secret:" in canonical
        whose = None
        if own:
            here = "here" if call.door in LOCAL_DOORS else "elsewhere"
            whose = (actor.persona, actor.user, call.session, call.workspace or here, *actor.scopes)
        return entry.fingerprint, entry.name, actor.tenant, whose, canonical

    def _read(self, key: Key) -> bytes | None:
        held = self._held.get(key)
        if held is None:
            return None
        end, text = held
        if end <= self._time():
            self._drop(key)
            return None
        self._held.move_to_end(key)
        return text

    def _write(self, key: Key, text: bytes, ttl: float) -> None:
        if key in self._held:
            self._drop(key)
        self._held[key] = (self._time() + ttl, text)
        self._bytes += len(text) + len(key[-1])
        while len(self._held) > self._most or self._bytes > self._most_bytes:
            self._drop(next(iter(self._held)))

    def _drop(self, key: Key) -> None:
        _, text = self._held.pop(key)
        self._bytes -= len(text) + len(key[-1])


class SharedResults:
    """Results in Redis, which forgets them in time."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._unreachable = False

    async def read(self, key: Key) -> bytes | None:
        try:
            text = await self._redis.get(_name(key))
        except CoordinationError as error:
            self._miss(error)
            return None
        self._unreachable = False
        try:
            orjson.loads(text or b"")
        except orjson.JSONDecodeError:  # nothing, or what somebody else has put there
            return None
        return text

    async def write(self, key: Key, text: bytes, ttl: float) -> None:
        try:
            await self._redis.put(_name(key), text, ttl)
        except CoordinationError as error:
            self._miss(error)

    def _miss(self, error: CoordinationError) -> None:
        if not self._unreachable:
            self._unreachable = True
            logger.warning("results are not cached until Redis is back: %s", error)


def _name(key: Key) -> str:
    *parts, canonical = key
    return f"cache:{sha256(orjson.dumps(parts) + canonical).hexdigest()}"
