"""Finds the nearest vectors in this process: the vectors of a space as one matrix, compared with a query in one product.

Each search asks the database first whether the space has changed, in this process or in another, and takes over what has. So
nothing has to be announced, and a note that was deleted is never found. The matrices of the spaces that were searched last
are kept, up to a number of bytes.
"""

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

from toolgate.store import memories
from toolgate.store.database import Store, Transaction
from toolgate.store.memories import SpaceRow, Unseen
from toolgate.store.memory_index import Ranked
from toolgate.threads import to_thread

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

FLOAT_BYTES = 4
MATRIX_BYTES = 4_096
"""What a matrix takes besides its numbers, roughly."""


class VectorIndex(Protocol):
    """The port of what finds the notes of a space whose vectors are nearest to a query's."""

    def adding(self, space: int, vectors: dict[int, bytes]) -> Transaction[None]:
        """The statements that go with those that add notes, in one transaction."""

    async def nearest(self, space: SpaceRow, query: "NDArray[numpy.float32]", least: float, most: int) -> list[Ranked]:
        """At most so many notes of at least this cosine, the nearest first."""


class _Matrix:
    """The vectors of one space, as they were when the space had these counts."""

    def __init__(self) -> None:
        self.added = 0
        self.removed = 0
        self.numbers: Any = None
        self.vectors: Any = None
        self.one_at_a_time = asyncio.Lock()

    @property
    def bytes(self) -> int:
        return MATRIX_BYTES + (0 if self.vectors is None else int(self.vectors.nbytes + self.numbers.nbytes))

    def take_over(self, unseen: Unseen, dimensions: int) -> None:
        """Brings it in step. Runs in a thread; whoever searches has the arrays of before."""
        import numpy

        numbers, vectors = self.numbers, self.vectors
        if numbers is None:
            numbers, vectors = numpy.empty(0, numpy.int64), numpy.empty((0, dimensions), numpy.float32)
        if unseen.left is not None:
            kept = numpy.isin(numbers, numpy.array(unseen.left, numpy.int64), assume_unique=True)
            numbers, vectors = numbers[kept], vectors[kept]
        if unseen.vectors:
            new = numpy.frombuffer(b"".join(vector for _, vector in unseen.vectors), "<f4").reshape(-1, dimensions)
            vectors = numpy.concatenate([vectors, new.astype(numpy.float32)])
            numbers = numpy.concatenate([numbers, numpy.array([number for number, _ in unseen.vectors], numpy.int64)])
        self.numbers, self.vectors = numbers, vectors
        self.added, self.removed = unseen.space.added, unseen.space.removed


class MatrixIndex:
    """The index in this process."""

    def __init__(self, store: Store, model: str, dimensions: int, cache_bytes: int) -> None:
        self._store = store
        self._model = model
        self._dimensions = dimensions
        self._cache_bytes = cache_bytes
        self._matrices: OrderedDict[int, _Matrix] = OrderedDict()

    @property
    def cached_bytes(self) -> int:
        return sum(matrix.bytes for matrix in self._matrices.values())

    def adding(self, space: int, vectors: dict[int, bytes]) -> Transaction[None]:  # noqa: ARG002 - the port's names
        """None: they are read when they are looked for."""
        yield from ()

    async def nearest(self, space: SpaceRow, query: "NDArray[numpy.float32]", least: float, most: int) -> list[Ranked]:
        matrix = self._matrices.setdefault(space.id, _Matrix())
        self._matrices.move_to_end(space.id)
        async with matrix.one_at_a_time:
            read = memories.unseen(space.id, self._model, self._dimensions * FLOAT_BYTES, matrix.added, matrix.removed)
            unseen = await self._store.read(read)
            if unseen is None:
                return []
            if unseen.vectors or unseen.left is not None or matrix.vectors is None:
                await to_thread(matrix.take_over, unseen, self._dimensions)
            numbers, vectors = matrix.numbers, matrix.vectors
        self._forget()
        return await to_thread(_nearest, numbers, vectors, query, least, most)

    def _forget(self) -> None:
        """Lets go of the matrices that were not used for longest."""
        total = self.cached_bytes
        while total > self._cache_bytes and len(self._matrices) > 1:
            _, matrix = self._matrices.popitem(last=False)
            total -= matrix.bytes


def _nearest(numbers: Any, vectors: Any, query: Any, least: float, most: int) -> list[Ranked]:
    import numpy

    cosines = vectors @ query
    chosen = numpy.flatnonzero(cosines >= least)
    if len(chosen) > most:
        chosen = chosen[numpy.argpartition(-cosines[chosen], most - 1)[:most]]
    ordered = chosen[numpy.lexsort((numbers[chosen], -cosines[chosen]))]
    return list(zip(numbers[ordered].tolist(), cosines[ordered].tolist(), strict=True))
