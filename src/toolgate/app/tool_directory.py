"""Makes the directory in which the tools of discovery look: what every actor of a call may see, whoever made the call."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolgate.model import DISCOVERY_TOOLS, Actor, Entry
from toolgate.services.tool_directory import FoundEntries, FoundEntry, ToolDirectory
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.agent.prompt import Prompts
    from toolgate.app.assembly import Parts

MAX_SEARCHED = 200
"""Tools that are found for a subordinate, before those are left out that somebody above it does not have."""


def make_directory(parts: "Parts", prompts: "Prompts") -> ToolDirectory:
    """The directory of an App's catalog, with the descriptions that prompts have."""

    async def search(phrasings: Sequence[str], actors: Sequence[Actor], limit: int) -> FoundEntries:
        actor, *above = actors
        most = MAX_SEARCHED if above else limit + len(DISCOVERY_TOOLS)
        ranking = await parts.tool_index.search(phrasings, actor, limit=most)
        theirs = [{tool.name for tool in await parts.permitted.tools(one)} for one in above]
        found = [
            one
            for one in ranking.found
            if one.tool.name not in DISCOVERY_TOOLS and all(one.tool.name in names for names in theirs)
        ][:limit]
        entries = [parts.catalog.resolve(one.tool.name, actor.tenant) for one in found]
        told = await prompts.described(entries, actor)
        tokens = await to_thread(lambda: [parts.served.tokens(one.tool) for one in found])
        given = [FoundEntry(entry, one.score, count) for entry, one, count in zip(told, found, tokens, strict=True)]
        return FoundEntries(given, ranking.is_sure)

    async def find(name: str, actors: Sequence[Actor]) -> Entry | None:
        seen = [await parts.permitted.find(name, actor) for actor in actors]  # all of them: it takes as long for each name
        if any(entry is None for entry in seen) or seen[0] is None:
            return None
        return (await prompts.described([seen[0]], actors[0]))[0]

    return ToolDirectory(search, find)
