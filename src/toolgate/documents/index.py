"""Finds the embeddings that are nearest to a question's: exactly, by comparing all of a shelf, which are kept in memory
until a document changes."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from toolgate.store import documents as table
from toolgate.store.database import Rows, Store
from toolgate.store.documents import Shelf
from toolgate.threads import to_thread

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

RAISED_SCORE = 0.4
"""Added to the cosine of a passage that is raised: more than lies between passages of one kind."""
MAX_CACHED_BYTES = 200_000_000
"""Of all shelves in memory. The one that was asked last stays, whatever its size."""


class NearPassage(NamedTuple):
    """A passage by its document and number, and how near it is: the cosine."""

    document: str
    number: int
    score: float


class _LoadedShelf(NamedTuple):
    revision: int
    keys: list[tuple[str, int]]
    vectors: "NDArray[numpy.float32]"


class PassageIndex:
    """The embeddings of all shelves that were asked lately."""

    def __init__(self, store: Store, model: str, dimensions: int) -> None:
        self._store = store
        self._model = model
        self._dimensions = dimensions
        self._loaded: OrderedDict[Shelf, _LoadedShelf] = OrderedDict()
        self._loading = asyncio.Lock()

    async def nearest(
        self,
        shelf: Shelf,
        question: "NDArray[numpy.float32]",
        *,
        most: int,
        threshold: float,
        document: str | None = None,
        raised: Collection[tuple[str, int]] = (),
    ) -> list[NearPassage]:
        """The passages that are nearest to a question, of all documents or of one, nearest first. `raised`: passages, by
        document and number, that come before others."""
        loaded = await self._shelf(shelf)
        return await to_thread(_nearest, loaded, question, most, threshold, document, frozenset(raised))

    async def _shelf(self, shelf: Shelf) -> _LoadedShelf:
        revision = await self._store.read(table.revision(shelf.tenant))
        async with self._loading:  # many questions at once load a shelf once
            loaded = self._loaded.get(shelf)
            if loaded is None or loaded.revision < revision:
                loaded = await self._load(shelf)
            self._loaded[shelf] = loaded
            self._loaded.move_to_end(shelf)
            while len(self._loaded) > 1 and sum(one.vectors.nbytes for one in self._loaded.values()) > MAX_CACHED_BYTES:
                self._loaded.popitem(last=False)
            return loaded

    async def _load(self, shelf: Shelf) -> _LoadedShelf:
        revision, rows = await self._store.read(table.embeddings(shelf, self._model))
        return await to_thread(_as_matrix, revision, rows, self._dimensions)


def _as_matrix(revision: int, rows: Rows, dimensions: int) -> _LoadedShelf:
    import numpy

    vectors = numpy.frombuffer(b"".join(row[2] for row in rows), "<f4").reshape(len(rows), dimensions)
    return _LoadedShelf(revision, [(row[0], row[1]) for row in rows], vectors)


def _nearest(
    loaded: _LoadedShelf,
    question: "NDArray[numpy.float32]",
    most: int,
    threshold: float,
    document: str | None,
    raised: frozenset[tuple[str, int]],
) -> list[NearPassage]:
    import numpy

    if not loaded.keys:
        return []
    scores = loaded.vectors @ question
    if raised:
        scores += numpy.fromiter((RAISED_SCORE * (key in raised) for key in loaded.keys), numpy.float32, len(loaded.keys))
        scores = numpy.minimum(scores, 1.0)
    if document is not None:
        of_document = numpy.fromiter((key[0] == document for key in loaded.keys), bool, len(loaded.keys))
        scores = numpy.where(of_document, scores, -1.0)
    best = numpy.argsort(-scores, kind="stable")[:most]
    found = [(*loaded.keys[at], round(float(scores[at]), 4)) for at in best.tolist()]
    return [NearPassage(document, number, score) for document, number, score in found if score >= threshold]
