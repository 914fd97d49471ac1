"""Decisions of an OPA server, in Redis: what one process was told, the others need not ask."""

from toolgate.coordination.redis import PREFIX, Redis


class SharedDecisions:
    """The guard's shared cache. Whatever goes wrong is raised, and the guard takes it for a miss."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def get(self, key: str) -> bytes | None:
        found = await self._redis.ask(lambda client: client.get(PREFIX + key))
        return found if isinstance(found, bytes) else None

    async def set(self, key: str, value: bytes, seconds: float) -> None:
        await self._redis.ask(lambda client: client.set(PREFIX + key, value, px=max(1, int(seconds * 1000))))
