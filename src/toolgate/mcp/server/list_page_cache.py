"""Caches pages of tool lists as they were sent, by actor, as long as what the actor may see is the same.

Callers can't choose what is cached: the first page, and those that a cached page leads to. A made-up cursor is answered, and
not cached.
"""

import msgspec

from toolgate.model import Actor, Tool

MAX_CACHED_ACTORS = 1_000
MAX_CACHED_BYTES = 32 * 1024 * 1024


class ActorPages(msgspec.Struct, gc=False):
    permitted: tuple[Tool, ...]
    """The very tuple that the App gave: another one means that something changed."""
    bodies: dict[str | None, bytes]
    """By cursor."""
    cursors: set[str | None]
    """Those that were given out, and None for the first page."""

    @property
    def size(self) -> int:
        return sum(map(len, self.bodies.values()))


class ListPageCache:
    """The pages of all actors, up to MAX_CACHED_BYTES."""

    def __init__(self) -> None:
        self._pages: dict[Actor, ActorPages] = {}
        self.size = 0

    def find(self, actor: Actor, permitted: tuple[Tool, ...], cursor: str | None) -> bytes | None:
        pages = self._pages.get(actor)
        return None if pages is None or pages.permitted is not permitted else pages.bodies.get(cursor)

    def keep(
        self, actor: Actor, permitted: tuple[Tool, ...], cursor: str | None, body: bytes, following: str | None
    ) -> None:
        """Caches a page with the cursor of the next one, if its own cursor was given out."""
        pages = self._pages.get(actor)
        if pages is None or pages.permitted is not permitted:
            pages = self._begin(actor, permitted)
        if cursor not in pages.cursors or cursor in pages.bodies:
            return
        if self.size + len(body) > MAX_CACHED_BYTES:
            self._clear()
            return
        self.size += len(body)
        pages.bodies[cursor] = body
        if following is not None:
            pages.cursors.add(following)

    def _begin(self, actor: Actor, permitted: tuple[Tool, ...]) -> ActorPages:
        before = self._pages.pop(actor, None)
        if before is not None:
            self.size -= before.size
        if len(self._pages) >= MAX_CACHED_ACTORS:
            self._clear()
        pages = self._pages[actor] = ActorPages(permitted, {}, {None})
        return pages

    def _clear(self) -> None:
        self._pages.clear()
        self.size = 0
