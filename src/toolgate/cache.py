"""Results that may be given out again: by tool definition, canonical arguments and the tenant or user they are for.

Kept as JSON, so that nobody can change what the next caller gets. In memory, the least recently used go first.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import orjson

from toolgate.model import Actor, Entry

Key = tuple[str, str, str, str | None, bytes]


class ResultCache:
    """Results with an end."""

    def __init__(self, time: Callable[[], float], most: int = 10_000, most_bytes: int = 100_000_000) -> None:
        self._time = time
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: OrderedDict[Key, tuple[float, bytes]] = OrderedDict()

    @staticmethod
    def key(entry: Entry, actor: Actor, canonical: bytes) -> Key:
        per_user = entry.cache is not None and entry.cache.scope == "user"
        return entry.fingerprint, entry.name, actor.tenant, actor.user if per_user else None, canonical

    def read(self, key: Key) -> tuple[Any] | None:
        """The result, in a tuple because it may be None."""
        held = self._held.get(key)
        if held is None:
            return None
        end, text = held
        if end <= self._time():
            self._drop(key)
            return None
        self._held.move_to_end(key)
        return (orjson.loads(text),)

    def write(self, key: Key, output: Any, ttl: float) -> None:
        text = orjson.dumps(output)
        if len(text) > self._most_bytes // 10:
            return
        if key in self._held:
            self._drop(key)
        self._held[key] = (self._time() + ttl, text)
        self._bytes += len(text) + len(key[-1])
        while len(self._held) > self._most or self._bytes > self._most_bytes:
            self._drop(next(iter(self._held)))

    def _drop(self, key: Key) -> None:
        _, text = self._held.pop(key)
        self._bytes -= len(text) + len(key[-1])
