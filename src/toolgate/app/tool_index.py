"""The index of the catalog that every search of tools goes through, whichever door it comes from."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from toolgate.extras import is_installed
from toolgate.mcp.definitions import descriptions
from toolgate.mcp.presets import PRESETS
from toolgate.model import Actor, Tool
from toolgate.openapi.records import PIN_PREFIX
from toolgate.tasks import start_task, stop_tasks
from toolgate.threads import to_thread
from toolgate.tool_search import RankedTool, Ranking
from toolgate.tool_search.text import checked_phrasings, name_words, plain

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.tool_search.semantic_search import SemanticSearch

MAX_KEPT_NAMES = 64
"""Lists of tools whose names are kept in a form to look them up by."""
MAX_WORD_PHRASINGS = 4
"""Phrasings that are compared by words, which takes longer than by meaning."""
MAX_ABOUT_CHARS = 1_000


class ToolIndex:
    """Searches the tools that an actor may see."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._semantic: SemanticSearch | None = None
        self._names: dict[int, tuple[tuple[Tool, ...], dict[str, list[Tool]]]] = {}
        """By the identity of the lists, which are held with them."""
        self._contexts: tuple[int, Mapping[str, str]] = (-1, {})
        self._preparing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Ends what is under way in the background."""
        if self._preparing is not None:
            await stop_tasks(self._preparing)
        if self._semantic is not None:
            await self._semantic.close()

    async def search(
        self, phrasings: Sequence[str], actor: Actor, *, limit: int = 10, weights: Mapping[str, float] | None = None
    ) -> Ranking:
        """Gives the tools that fit any of several phrasings of one task. A tool whose very name is searched for comes first.

        `weights` are factors by name of tool, without them those that the actor's tenant has by past outcomes: they order
        what fits and never add to it.

        Raises `InvalidInput` if there are too many phrasings, or one is too long.
        """
        said = checked_phrasings(phrasings)
        tools = await self._parts.permitted.tools(actor)
        if not said or not tools:
            return Ranking(())
        ranking = await self._by_meaning(said, tools) if is_installed("embeddings") else None
        if ranking is None:
            pending = 0 if self._semantic is None else self._semantic.pending(tools)
            ranking = Ranking(await to_thread(_by_words, said, tools), pending=pending)
        if weights is None:
            weights = await self._parts.learning.weights(actor.tenant)
        return _finished(ranking, await self._named(said, tools), weights, max(0, limit))

    def prepare(self, tools: tuple[Tool, ...]) -> None:
        """Begins to read tools in the background that a model was told to search."""
        if is_installed("embeddings") and (self._preparing is None or self._preparing.done()):
            self._preparing = start_task(self._prepare(tools), unheard=True)

    async def _prepare(self, tools: tuple[Tool, ...]) -> None:
        await self._made().prepare(tools, await self._server_contexts())

    async def _by_meaning(self, phrasings: Sequence[str], tools: tuple[Tool, ...]) -> Ranking | None:
        return await self._made().rank(phrasings, tools, await self._server_contexts())

    def _made(self) -> "SemanticSearch":
        if self._semantic is None:
            from toolgate.tool_search.semantic_search import SemanticSearch

            self._semantic = SemanticSearch(self._parts.store)
        return self._semantic

    async def _server_contexts(self) -> Mapping[str, str]:
        """The purpose that each MCP server and OpenAPI document states, by `server_of` its tools: read again once the
        catalog is another."""
        version, known = self._parts.catalog.version, self._contexts
        if known[0] != version:
            found = {name: _context(about) for name, about in (await self._parts.store.read(descriptions())).items()}
            presets = {name: one.settings.preset for name, one in self._parts.mcp_tools.upstreams.items()}
            found |= {name: PRESETS[preset].about for name, preset in presets.items() if preset in PRESETS}
            contexts = {
                server if server.startswith(PIN_PREFIX) else f"mcp:{server}": (
                    f"{name_words(server.removeprefix(PIN_PREFIX))}. {text}"
                )
                for server, text in found.items()
            }
            known = self._contexts = version, contexts if contexts != known[1] else known[1]
        return known[1]

    async def _named(self, phrasings: Sequence[str], tools: tuple[Tool, ...]) -> dict[str, Tool]:
        """The tools whose names are among the phrasings, as they are written or as words."""
        known = self._names.get(id(tools))
        if known is None or known[0] is not tools:
            if len(self._names) >= MAX_KEPT_NAMES:
                self._names.clear()
            known = self._names[id(tools)] = tools, await to_thread(_names, tools)
        return {tool.name: tool for phrasing in phrasings for tool in known[1].get(phrasing.casefold(), ())}


def _context(about: str) -> str:
    """A server's title and description of itself, or how it says that it is used."""
    recorded: Any = orjson.loads(about)
    info = recorded.get("info")
    info = info if isinstance(info, dict) else {}
    parts = (info.get("title"), info.get("description") or recorded.get("instructions"))
    return plain(". ".join(part for part in parts if isinstance(part, str)), MAX_ABOUT_CHARS)


def _by_words(phrasings: Sequence[str], tools: tuple[Tool, ...]) -> tuple[RankedTool, ...]:
    from toolgate.tool_search.word_match import rank

    best: dict[str, RankedTool] = {}
    for phrasing in phrasings[:MAX_WORD_PHRASINGS]:
        for tool, score in rank(phrasing, tools):
            if tool.name not in best or best[tool.name].score < score:
                best[tool.name] = RankedTool(tool, score)
    return tuple(best.values())


def _names(tools: tuple[Tool, ...]) -> dict[str, list[Tool]]:
    names: dict[str, list[Tool]] = {}
    for tool in tools:
        for written in {tool.name.casefold(), name_words(tool.name)}:
            names.setdefault(written, []).append(tool)
    return names


def _finished(ranking: Ranking, named: Mapping[str, Tool], weights: Mapping[str, float], limit: int) -> Ranking:
    """The best of a ranking by learned weights, after the tools that were named."""
    others = [
        RankedTool(one.tool, one.score * weights.get(one.tool.name, 1.0))
        for one in ranking.found
        if one.tool.name not in named
    ]
    first = [RankedTool(tool, 1.0) for _name, tool in sorted(named.items())]
    best = (*first, *sorted(others, key=lambda one: (-one.score, one.tool.name)))[:limit]
    found = tuple(RankedTool(one.tool, round(min(1.0, one.score), 4)) for one in best)
    return ranking._replace(found=found, is_sure=ranking.is_sure or bool(named))
