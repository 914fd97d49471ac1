"""Notices: how one process tells the others that something happened. The port, and the kind for a process that is alone.

A notice has a topic and a text. A text may be lost, never the fact: a watcher that is told "" must look for itself. The
topic `DATA` says that flags, policy or other data that every call relies on have changed in the store; `changed` tests for
it, and costs so little that every call can ask:

    if notices.changed():
        await notices.catch_up(read_the_store_again)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

DATA = "data"

Watcher = Callable[[str], None]

logger = logging.getLogger("toolgate")


class Notices:
    """Within this process. The other kinds differ in how a notice travels; whoever sends one hears it too."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}
        self._heard = 0
        self._seen = 0
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """Begin to listen. What is read from the store after this is up to date, or `changed` will say so."""

    async def close(self) -> None:
        """Stop listening."""

    async def announce(self, topic: str, text: str = "") -> None:
        """Tell everybody, after the change is committed. Never fails: what can't be told is logged."""
        self._hear(topic, text)

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        """Have something called with the text of each notice. Gives what ends it."""
        watchers = self._watchers.setdefault(topic, [])
        watchers.append(watcher)
        return lambda: watchers.remove(watcher)

    def changed(self) -> bool:
        """Whether data changed since it was last caught up with."""
        return self._heard != self._seen

    async def catch_up(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Read again what changed: once for all who find at the same time that it must be done, and all wait until it is.
        If it fails, the data still counts as changed."""
        async with self._one_at_a_time:
            if self.changed():
                mark = self._mark()
                await refresh()
                self._catch(mark)

    def _mark(self) -> int:
        return self._heard

    def _catch(self, mark: int) -> None:
        self._seen = mark

    def _hear(self, topic: str, text: str) -> None:
        if topic == DATA:
            self._heard += 1
        self._tell(topic, text)

    def _may_have_missed(self) -> None:
        """Notices may have been lost: everybody must look."""
        for topic in [DATA, *self._watchers.keys() - {DATA}]:
            self._hear(topic, "")

    def _tell(self, topic: str, text: str) -> None:
        for watcher in tuple(self._watchers.get(topic, ())):
            try:
                watcher(text)
            except Exception:  # one watcher's fault is not the others'
                logger.exception("a watcher of %s failed", topic)
