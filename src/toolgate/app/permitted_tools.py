"""The tools that an actor may see: enabled for it, visible by the policy, each under one name."""

from typing import TYPE_CHECKING

from toolgate.model import Actor, Entry, Tool

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

MAX_KEPT_LISTS = 1_000


class PermittedTools:
    """Lists of tools for actors, as all doors and prompts have them."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._listed: dict[int, tuple[tuple[Tool, ...], tuple[Tool, ...]]] = {}
        """Lists without second names, by the identity of the whole ones, which are held with them."""

    async def tools(self, actor: Actor) -> tuple[Tool, ...]:
        """The definitions, by name."""
        if self._parts.notices.changed():
            await self._parts.notices.catch_up(self._parts.store_sync.refresh)
        enabled = self._parts.catalog.permitted(actor)
        if self._parts.guard.native:
            return self._without_aliases(enabled)
        seen = set(await self._parts.guard.permitted(actor, [tool.name for tool in enabled]))
        return self._without_aliases(tuple(tool for tool in enabled if tool.name in seen))

    async def entries(self, actor: Actor) -> list[Entry]:
        """The same, as they are compiled."""
        return [self._parts.catalog.resolve(tool.name, actor.tenant) for tool in await self.tools(actor)]

    async def find(self, name: str, actor: Actor) -> Entry | None:
        """Gives a tool that an actor has; None for one that is hidden, off or missing, after the same lookups: how long it
        takes tells nothing."""
        guard, catalog = self._parts.guard, self._parts.catalog
        view = guard.known(actor, "tool.view", name) or await guard.decide(actor, "tool.view", name)
        entry = catalog.find(name, actor.tenant)
        if entry is None or not view.allow:
            return None
        return entry if catalog.why_off(entry, actor.tenant) is None else None

    def _without_aliases(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """Of two names for one thing the first alone, where an actor has both: a model reads each definition."""
        aliases = self._parts.catalog.aliases
        if not aliases or self._parts.settings.list_aliases:
            return tools
        known = self._listed.get(id(tools))
        if known is not None and known[0] is tools:
            return known[1]  # the very tuple again: what was made of it can be used again, too
        names = {tool.name for tool in tools}
        hidden = {name for name, first in aliases.items() if first in names}
        listed = tuple(tool for tool in tools if tool.name not in hidden)
        if len(self._listed) >= MAX_KEPT_LISTS:
            self._listed.clear()
        self._listed[id(tools)] = tools, listed
        return listed
