"""Finds the nearest vectors in PostgreSQL, with the extension pgvector: no process has to hold them."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from toolgate.store import memory_index
from toolgate.store.database import Store, Transaction
from toolgate.store.memories import SpaceRow
from toolgate.store.memory_index import Ranked
from toolgate.threads import to_thread

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

MAX_KNOWN_SPACES = 10_000
FLOAT_BYTES = 4


class PgvectorIndex:
    """The index in the database."""

    def __init__(self, store: Store, model: str, dimensions: int) -> None:
        self._store = store
        self._model = model
        self._dimensions = dimensions
        self._complete: OrderedDict[int, int] = OrderedDict()
        """By space, the last note up to which all are known to be in the index."""

    def adding(self, space: int, vectors: dict[int, bytes]) -> Transaction[None]:
        return memory_index.put(space, self._model, {number: _written(vector) for number, vector in vectors.items()})

    async def nearest(self, space: SpaceRow, query: "NDArray[numpy.float32]", least: float, most: int) -> list[Ranked]:
        if self._complete.get(space.id, 0) < space.added:
            await self._fill(space)
        found = memory_index.nearest(space.id, self._model, _written(query.tobytes()), least, most)
        return await self._store.read(found)

    async def _fill(self, space: SpaceRow) -> None:
        """Adds what is missing: notes that were saved before there was an index, or by a process that does not use it."""
        after = self._complete.get(space.id, 0)
        rows = await self._store.read(memory_index.missing(space.id, self._model, self._dimensions * FLOAT_BYTES, after))
        if rows:
            vectors = await to_thread(lambda: {number: _written(vector) for number, vector in rows})
            await self._store.transact(memory_index.put(space.id, self._model, vectors))
        self._complete[space.id] = space.added
        self._complete.move_to_end(space.id)
        if len(self._complete) > MAX_KNOWN_SPACES:
            self._complete.popitem(last=False)


def _written(vector: bytes) -> str:
    """A vector as pgvector reads it, from float32 as it is kept."""
    import struct

    numbers = struct.unpack(f"<{len(vector) // FLOAT_BYTES}f", vector)
    return f"[{','.join(format(number, '.8g') for number in numbers)}]"
