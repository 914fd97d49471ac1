"""Search of tools by what they do: keeps the index in step with the catalog, and compares tasks with it.

The index is made in the background, of what is not in it yet; vectors come from the store where any process has computed
them before. A catalog may change meanwhile: what is in the index goes by the text, so nothing in it becomes wrong.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import log
from threading import Lock
from typing import TYPE_CHECKING, Any

from toolgate.embeddings import Embedder, MultilingualEmbedder
from toolgate.errors import ToolgateError
from toolgate.model import Tool
from toolgate.store import tool_vectors
from toolgate.store.database import Store
from toolgate.tasks import start_task, stop_tasks
from toolgate.threads import to_thread
from toolgate.tool_search.language import english_share
from toolgate.tool_search.result import RankedTool, Ranking
from toolgate.tool_search.text import ToolText, digest, server_of, tool_text, words_of

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from toolgate.tool_search.vector_index import Floats, ToolVectorIndex

PATIENCE_SECONDS = 3.0
"""How long a search waits for the index, before it answers by words."""
CHUNK_TEXTS = 512
FEW_TOOLS = 256
"""So many tools are waited for until both models have read them."""
FLOOR = 0.235
"""How much better the best tool must fit than the actor's tools do on average; below, nothing is given. The fit alone tells
less: it depends on the language, and on how long the task is."""
MANY_TOOLS = 200
MANY_TOOLS_STEP = 0.014
"""What is added to the floor by the logarithm of how many times MANY_TOOLS there are: of more tools that do not fit, the
luckiest is nearer, and the right one is not."""
TAIL = 0.55
"""The share of the best fit from which on other tools are given, too."""
SURE = 0.06
"""How far above the floor the best tool is a sure fit."""
MAX_FOUND = 200
"""The most tools that a search gives."""
MAX_VIEWS = 64
SPARE_ROWS = 20_000
"""Rows of tools that are gone, beyond as many as there are tools, after which the index is made anew."""

logger = logging.getLogger("toolgate.tools")


@dataclass
class ToolView:
    """The tools of an actor, and the keys of their texts."""

    tools: tuple[Tool, ...]
    keys: list[bytes]
    contexts: Mapping[str, str]
    index: "ToolVectorIndex | None" = None
    """The index that has all of them; None: none has, as far as is known."""
    rows: "NDArray[numpy.int32] | None" = None
    """Their rows there."""


class SemanticSearch:
    """The index of a catalog, shared by all actors."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._english, self._multilingual = Embedder(), MultilingualEmbedder()
        self._index: ToolVectorIndex | None = None
        self._texts: dict[int, tuple[Tool, str, bytes, ToolText]] = {}
        """By the identity of the tools, which are held with them."""
        self._views: dict[int, ToolView] = {}
        self._wanted: dict[bytes, ToolText] = {}
        self._without_english: dict[bytes, ToolText] = {}
        self._filling: asyncio.Task[None] | None = None
        self._refining: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Ends what is under way; the next search goes on with it."""
        await stop_tasks(self._filling, self._refining)

    async def rank(self, phrasings: Sequence[str], tools: tuple[Tool, ...], contexts: Mapping[str, str]) -> Ranking | None:
        """The tools that fit, best first; None if the index is not ready.

        `contexts` are what servers are for, by `server_of` their tools.
        """
        view = await self._view(tools, contexts)
        if not await self._is_ready(view):
            return None
        index = self._index
        assert index is not None
        # The multilingual model tells capitals apart: FORECAST would be as far from a forecast as other words.
        phrasings = [phrasing.lower() if phrasing.isupper() else phrasing for phrasing in phrasings]
        english, multilingual = await asyncio.gather(self._english_vectors(phrasings), self._multilingual.embed(phrasings))
        return await to_thread(_ranked, index, view, phrasings, english, multilingual)

    async def prepare(self, tools: tuple[Tool, ...], contexts: Mapping[str, str]) -> None:
        """Has tools read that will be searched."""
        await self._is_ready(await self._view(tools, contexts))

    def pending(self, tools: tuple[Tool, ...]) -> int:
        """How many of these are not in the index yet."""
        view, rows = self._views.get(id(tools)), {} if self._index is None else self._index.rows
        return len(tools) if view is None else sum(key not in rows for key in view.keys)

    async def _english_vectors(self, phrasings: Sequence[str]) -> "Floats":
        """Vectors of what is English; what is not is not read by a model that does not know it."""
        import numpy

        wanted = [number for number, phrasing in enumerate(phrasings) if english_share(phrasing)]
        vectors = numpy.zeros((len(phrasings), self._english.dimensions), numpy.float32)
        if wanted:
            vectors[wanted] = await self._english.embed([phrasings[number] for number in wanted])
        return vectors

    # -- keeping the index

    async def _view(self, tools: tuple[Tool, ...], contexts: Mapping[str, str]) -> ToolView:
        known = self._views.get(id(tools))
        if known is not None and known.tools is tools and known.contexts is contexts:
            return known
        if len(self._texts) > 2 * len(tools) + SPARE_ROWS:
            self._texts = {}
        keys = await to_thread(self._keys, tools, contexts)
        if len(self._views) >= MAX_VIEWS:
            self._views.clear()
        view = self._views[id(tools)] = ToolView(tools, keys, contexts)
        return view

    def _keys(self, tools: tuple[Tool, ...], contexts: Mapping[str, str]) -> list[bytes]:
        keys, texts = [], self._texts
        for tool in tools:
            context = contexts.get(server_of(tool), "")
            known = texts.get(id(tool))
            if known is None or known[0] is not tool or known[1] != context:
                text = tool_text(tool, context)
                known = texts[id(tool)] = tool, context, text.key, text
            keys.append(known[2])
        return keys

    async def _is_ready(self, view: ToolView) -> bool:
        """Has what is missing read, and waits a little for it."""
        if view.index is not None and view.index is self._index:
            return True
        rows = {} if self._index is None else self._index.rows
        if len(rows) > 2 * len(self._texts) + SPARE_ROWS:
            await self.close()
            self._index, rows = None, {}
        missing = {key for key in view.keys if key not in rows}
        if missing:
            texts = {known[2]: known[3] for tool in view.tools if (known := self._texts.get(id(tool))) is not None}
            self._wanted |= {key: texts[key] for key in missing if key in texts}
            if self._filling is None or self._filling.done():
                self._filling = start_task(self._fill(), unheard=True)
            await asyncio.wait({self._filling}, timeout=PATIENCE_SECONDS)
            if self._index is None or not missing <= self._index.rows.keys():
                return False
        if self._refining is not None and not self._refining.done() and len(self._without_english) <= FEW_TOOLS:
            await asyncio.wait({self._refining}, timeout=PATIENCE_SECONDS)
        return True

    async def _fill(self) -> None:
        """Reads what is wanted with the quick model, then has the other one read it."""
        try:
            if self._index is None:
                await self._store.transact(tool_vectors.forget_old())
                await self._multilingual.embed([])  # imports numpy, off the loop
                from toolgate.tool_search.vector_index import ToolVectorIndex

                self._without_english.clear()
                self._index = ToolVectorIndex(self._english.dimensions, self._multilingual.dimensions)
            while self._wanted:
                chunk = dict(list(self._wanted.items())[:CHUNK_TEXTS])
                await self._add(self._index, {key: text for key, text in chunk.items() if key not in self._index.rows})
                for key in chunk:
                    self._wanted.pop(key, None)
            if self._refining is None or self._refining.done():
                self._refining = start_task(self._refine(self._index), unheard=True)
        except ToolgateError as error:
            logger.warning("tools are searched by words: %s", error)
            self._wanted.clear()

    async def _add(self, index: "ToolVectorIndex", texts: dict[bytes, ToolText]) -> None:
        if not texts:
            return
        contexts = list({text.context for text in texts.values()} - index.contexts.keys() - {""})
        if contexts:
            index.add_contexts(
                contexts, await self._vectors(self._english, contexts), await self._vectors(self._multilingual, contexts)
            )
        index.add(texts, await self._vectors(self._multilingual, [text.named_purpose for text in texts.values()]))
        self._without_english |= texts

    async def _refine(self, index: "ToolVectorIndex") -> None:
        with suppress(ToolgateError):  # said by `_fill`, if it lasts
            while self._without_english and index is self._index:
                chunk = dict(list(self._without_english.items())[:CHUNK_TEXTS])
                vectors = await self._vectors(self._english, [text.purpose for text in chunk.values()])
                index.set_english([index.rows[key] for key in chunk], vectors)
                for key in chunk:
                    self._without_english.pop(key, None)

    async def _vectors(self, model: Embedder | MultilingualEmbedder, texts: Sequence[str]) -> "Floats":
        """The vectors of texts: from the store, or computed and kept there."""
        digests = [digest(text) for text in texts]
        kept = await self._store.read(tool_vectors.find(model.name, list(dict.fromkeys(digests))))
        lacking = {
            name: text for name, text in zip(digests, texts, strict=True) if len(kept.get(name, b"")) != 2 * model.dimensions
        }
        computed = await model.embed(list(lacking.values()))
        import numpy

        if lacking:
            fresh = {name: vector.tobytes() for name, vector in zip(lacking, computed.astype("<f2"), strict=True)}
            await self._store.transact(tool_vectors.add(model.name, fresh))
            kept |= fresh
        joined = numpy.frombuffer(b"".join(kept[name] for name in digests), "<f2")
        return numpy.asarray(joined.reshape(len(texts), model.dimensions), numpy.float32)


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class OneBlasThread:
    """Has products computed by one thread each, as long as anybody is inside. The limit is the whole process's: where each
    search set and restored its own, two at once could leave the process with one thread for good."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


_one_blas_thread = OneBlasThread()


def _ranked(
    index: "ToolVectorIndex",
    view: ToolView,
    phrasings: Sequence[str],
    english: "Floats",
    multilingual: "Floats",
) -> Ranking:
    import numpy

    from toolgate.tool_search.task_vectors import towards_tools
    from toolgate.tool_search.vector_index import SearchTask

    shares = numpy.array([english_share(phrasing) for phrasing in phrasings], numpy.float32)
    words = [frozenset(words_of(phrasing)) for phrasing in phrasings]
    if view.rows is None or view.index is not index:
        view.rows = numpy.fromiter((index.rows[key] for key in view.keys), numpy.int32, len(view.keys))
        view.index = index
    # One product is done in a millisecond. More threads for it wait for each other, and on a busy machine for long.
    with _one_blas_thread:
        fits = index.scores(view.rows, SearchTask(shares, *towards_tools(english, multilingual), words))
    likely = numpy.arange(len(fits))
    if len(fits) > MAX_FOUND:
        likely = numpy.argpartition(-fits, MAX_FOUND)[:MAX_FOUND]
    order = likely[numpy.lexsort((likely, -fits[likely]))]  # equals by name, as the tools are
    top = float(fits[order[0]])
    distance = top - (float(fits.sum()) - top) / max(1, len(fits) - 1)
    floor = FLOOR + MANY_TOOLS_STEP * log(max(1.0, len(fits) / MANY_TOOLS))
    best = order[: numpy.searchsorted(-fits[order], -TAIL * top, side="right")].tolist() if distance >= floor else []
    found = tuple(RankedTool(view.tools[place], float(fits[place])) for place in best)
    return Ranking(found, "meaning", 0, distance >= floor + SURE)
