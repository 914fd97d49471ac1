"""The tools that models are listed: all that their actor may see, or, where those are too many to read, the tools by which
they find the others, with those that their tenant uses most.

A list is the same for all sessions of a day: definitions stand before a conversation, and with others the prompt cache of
the model's provider is lost. So the tools that are used most are those of the 30 days before today, in UTC, and all
processes of an installation list the same. Another catalog, policy or flag makes another list, and midnight may.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from toolgate.errors import StoreError
from toolgate.model import DISCOVERY_TOOLS, Actor, Entry, Tool
from toolgate.registry.export import count_tokens, definition_text
from toolgate.store import call_counts, call_statistics
from toolgate.store.call_counts import CountFilter
from toolgate.store.call_statistics import DAY
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

USAGE_DAYS = 30
MAX_KEPT_LISTS = 1_000
MAX_KEPT_TOOLS = 2_000_000
"""Tools in all lists that are kept, those of which they were chosen included."""
MAX_KEPT_COUNTS = 50_000
MAX_KEPT_TENANTS = 10_000

logger = logging.getLogger("toolgate")


class ServedTools(NamedTuple):
    """The tools that a model is listed, by name."""

    tools: tuple[Tool, ...]
    is_discovery: bool
    """True if they are not all: the model searches the others."""


class ServedLists:
    """Chooses them for actors."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._settings = parts.settings.discovery
        self._kept: dict[tuple[int, str | None], tuple[tuple[Tool, ...], int, ServedTools | None]] = {}
        """By the identity of the list that was chosen from, which is held with it, and the tenant: the day, and what was
        chosen. Without a tenant: the plain list, or None if that is too long."""
        self._kept_tools = 0
        self._tokens: dict[int, tuple[Tool, int]] = {}
        self._used: dict[str, tuple[int, tuple[str, ...]]] = {}

    @property
    def day(self) -> int:
        """The number of the day, on which the lists depend."""
        return int(self._parts.now().timestamp()) // DAY

    async def of(self, actor: Actor) -> ServedTools:
        """Gives the tools that a model is listed which works for an actor: the same tuple as long as nothing changes."""
        return await self.choose(await self._parts.permitted.tools(actor), actor.tenant)

    async def choose(self, permitted: tuple[Tool, ...], tenant: str) -> ServedTools:
        """Gives those of them that a model is listed which works for a tenant."""
        plain = await self._plain(permitted)
        if plain is not None:
            return plain
        key, day = (id(permitted), tenant), self.day
        known = self._kept.get(key)
        if known is not None and known[0] is permitted and known[1] == day and known[2] is not None:
            return known[2]
        wanted = {*DISCOVERY_TOOLS, *self._settings.pinned}
        most = [name for name in await self._most_used(tenant, day) if _has(permitted, name) and name not in wanted]
        wanted.update(most[: self._settings.listed])
        chosen = ServedTools(_named(permitted, wanted), is_discovery=True)
        self._keep(key, permitted, day, chosen)
        self._parts.tool_index.prepare(permitted)
        return chosen

    async def entries(self, actor: Actor) -> list[Entry]:
        """Gives the tools that a model is listed, as they are compiled."""
        return self.compiled((await self.of(actor)).tools, actor)

    def compiled(self, tools: Iterable[Tool], actor: Actor) -> list[Entry]:
        return [self._parts.catalog.resolve(tool.name, actor.tenant) for tool in tools]

    async def _plain(self, permitted: tuple[Tool, ...]) -> ServedTools | None:
        """All of them but those that serve discovery; None if a model is to search them instead."""
        key = id(permitted), None
        known = self._kept.get(key)
        if known is not None and known[0] is permitted:
            return known[2]
        own = [name for name in DISCOVERY_TOOLS if _has(permitted, name)]
        others = permitted if not own else tuple(tool for tool in permitted if tool.name not in DISCOVERY_TOOLS)
        plain = None
        # Who lacks one of the tools of discovery could not reach what is not listed.
        if len(own) < len(DISCOVERY_TOOLS) or not await self._are_too_many(others):
            plain = ServedTools(others, is_discovery=False)
        self._keep(key, permitted, 0, plain)
        return plain

    async def _are_too_many(self, tools: tuple[Tool, ...]) -> bool:
        if self._settings.mode != "auto":
            return self._settings.mode == "always"
        return await to_thread(self._exceed, tools, self._settings.above_tokens)

    def _exceed(self, tools: Sequence[Tool], most: int) -> bool:
        """Tells whether definitions have more tokens; counts no further than it takes to know."""
        total = 0
        for tool in tools:
            total += self.tokens(tool)
            if total > most:
                return True
        return False

    def tokens(self, tool: Tool) -> int:
        """Gives the tokens of a definition."""
        known = self._tokens.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        counted = count_tokens(definition_text(tool))
        if len(self._tokens) >= MAX_KEPT_COUNTS:
            self._tokens.clear()
        self._tokens[id(tool)] = tool, counted
        return counted

    def _keep(self, key: tuple[int, str | None], permitted: tuple[Tool, ...], day: int, chosen: ServedTools | None) -> None:
        size = len(permitted) + (0 if chosen is None else len(chosen.tools))
        if len(self._kept) >= MAX_KEPT_LISTS or self._kept_tools + size > MAX_KEPT_TOOLS:
            self._kept.clear()
            self._kept_tools = 0
        self._kept[key] = permitted, day, chosen
        self._kept_tools += size

    async def _most_used(self, tenant: str, day: int) -> tuple[str, ...]:
        """The tools that a tenant called with success in the days before a day, the most often called first. Of its own
        calls alone: what others use is theirs to know."""
        known = self._used.get(tenant)
        if known is not None and known[0] == day:
            return known[1]
        store, wanted = self._parts.store, CountFilter(tenant=tenant, status="success")
        counting = call_counts.counts(wanted, (day - USAGE_DAYS) * DAY, day * DAY, by="tool", statuses=False)
        try:
            await self._count(day)
            found = await store.read(counting)
        except StoreError as error:  # a list without them is one that can be worked with
            logger.warning("the tools that tenant %s uses most cannot be told: %s", tenant, error)
            return ()
        used = tuple(one.name for one in sorted(found, key=lambda one: (-one.calls, one.name)))
        if len(self._used) >= MAX_KEPT_TENANTS:
            self._used.clear()
        self._used[tenant] = day, used
        return used

    async def _count(self, day: int) -> None:
        """Has all calls counted that ended before a day: a list that is made of some of them would be another tomorrow, or
        in another process. Whoever serves counts all the time, so that hardly any are left."""
        while True:
            counted = await call_statistics.count_rows(self._parts.store, call_statistics.PART_ROWS)
            if not counted.behind or (counted.at is not None and counted.at >= day * DAY * 1_000_000):
                return


def _has(tools: tuple[Tool, ...], name: str) -> bool:
    at = bisect_left(tools, name, key=attrgetter("name"))
    return at < len(tools) and tools[at].name == name


def _named(tools: tuple[Tool, ...], names: Iterable[str]) -> tuple[Tool, ...]:
    return tuple(tools[bisect_left(tools, name, key=attrgetter("name"))] for name in sorted(names) if _has(tools, name))
