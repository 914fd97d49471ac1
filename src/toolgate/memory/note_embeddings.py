"""Computes the vectors of notes that were kept without one, or with one of another model."""

from datetime import timedelta

from toolgate.embeddings import Embedder
from toolgate.memory.notes import Memory
from toolgate.model import Actor
from toolgate.store import memories
from toolgate.store.database import Store, Transaction, now
from toolgate.store.memories import Added
from toolgate.tasks import finish

FORGOTTEN_AFTER = timedelta(minutes=10)
"""The age at which a note without a vector is taken for one whose job was lost."""
MAX_FORGOTTEN = 20


class NoteEmbeddings:
    """The vectors of all notes."""

    def __init__(self, store: Store, memory: Memory, embedder: Embedder) -> None:
        self._store = store
        self._memory = memory
        self._embedder = embedder

    async def embed(self, actor: Actor, id: str) -> bool:
        """Gives a note of an actor's persona the vector of its text; gives whether it needed one."""
        model = self._embedder.name
        space = await self._store.read(memories.space_of(actor.tenant, actor.persona))
        text = None if space is None else await self._store.read(memories.text_without_vector(space.id, id, model))
        if space is None or text is None:
            return False
        [vector] = await self._memory.vectors_of([text])
        assert vector is not None
        index = await self._memory.index()

        def setting() -> Transaction[Added | None]:
            added = yield from memories.set_vector(space.id, id, model, text, vector)
            if added is not None:
                yield from index.adding(added.space, added.vectors)
            return added

        return await finish(self._store.transact(setting())) is not None

    async def forgotten(self, actor: Actor) -> list[str]:
        """Ids of notes of an actor's persona that should have a vector by now: whoever was to see to it may have died."""
        space = await self._store.read(memories.space_of(actor.tenant, actor.persona))
        if space is None:
            return []
        before = now() - FORGOTTEN_AFTER
        return await self._store.read(memories.without_vectors(space.id, self._embedder.name, before, MAX_FORGOTTEN))
