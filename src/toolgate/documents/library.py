"""Keeps documents for each tenant and persona, and finds the passages that answer a question. Nothing of a document leaves
this installation: it is read in the jail, and its embeddings are computed here."""

import re
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import NamedTuple

from toolgate.documents.index import PassageIndex
from toolgate.documents.passages import Passage, passages
from toolgate.documents.reader import DocumentReader
from toolgate.embeddings import Embedder
from toolgate.errors import InvalidInput
from toolgate.model import Actor, new_id
from toolgate.sandbox.tenant_places import tenant_places
from toolgate.store import documents as table
from toolgate.store.database import Store, now
from toolgate.store.documents import DocumentRow, LibraryFull, PassageRow, Shelf
from toolgate.tasks import finish
from toolgate.threads import to_thread

EMBEDDED_AT_ONCE = 64
MAX_NAME_CHARS = 300
FLOAT_BYTES = 4
MAX_IDENTIFIERS = 3
"""Of a question, that are looked for letter by letter."""
MAX_MENTIONS = 100
_IDENTIFIER = re.compile(r"(?=[\w./:-]{4,64}(?![\w./:-]))[\w./:-]*\d[\w./:-]*")
"""A word of four letters or more with a digit in it: INV-2024-0917, 4711a, RFC9457."""

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class IngestedDocument(NamedTuple):
    """A document that was taken in, and how many it replaced."""

    document: DocumentRow
    replaced: int


class FoundPassage(NamedTuple):
    """A passage, the name of its document, and how near it is to the question, from 0 to 1."""

    name: str
    passage: PassageRow
    score: float


class DocumentLibrary:
    """The documents of all tenants. Callers see those of their own tenant and persona."""

    def __init__(self, store: Store, reader: DocumentReader, embedder: Embedder, max_passages: int) -> None:
        self._store = store
        self._reader = reader
        self._embedder = embedder
        self._max_passages = max_passages
        self._index = PassageIndex(store, embedder.name, embedder.dimensions)

    async def ingest(
        self, actor: Actor, name: str, data: bytes, *, origin: str, depth: int = 0, progress: Progress | None = None
    ) -> IngestedDocument:
        """Takes a file in, in place of the user's own with the same content, or the one from its `origin`."""
        async with tenant_places().place(actor.tenant):
            content = await self._reader.read(name, data, depth=depth)
        cut = await to_thread(lambda: list(passages(content.blocks)))
        row = DocumentRow(
            id=f"doc_{new_id()}", tenant_id=actor.tenant, persona_id=actor.persona or "", name=name[-MAX_NAME_CHARS:],
            kind=content.kind, sha256=sha256(data).hexdigest(), origin=sha256(origin.encode()).hexdigest(),
            size_bytes=len(data), passages=len(cut), truncated=content.truncated, model=self._embedder.name,
            created_by=actor.user, created_at=now(),
        )  # fmt: skip
        if await self._store.read(table.passages_beside(row)) + len(cut) > self._max_passages:
            raise self._full()  # before much is computed for nothing
        rows = await self._embedded(row.id, cut, progress)
        try:
            replaced = await finish(self._store.transact(table.put(row, rows, self._max_passages)))
        except LibraryFull:
            raise self._full() from None
        return IngestedDocument(row, replaced)

    async def _embedded(
        self, document: str, cut: list[Passage], progress: Progress | None
    ) -> list[tuple[PassageRow, bytes]]:
        rows = []
        for start in range(0, len(cut), EMBEDDED_AT_ONCE):
            batch = cut[start : start + EMBEDDED_AT_ONCE]
            vectors = await self._embedder.embed([passage.meaning for passage in batch])
            stored = vectors.astype("<f4")
            rows += [(PassageRow(document, start + at, *passage), stored[at].tobytes()) for at, passage in enumerate(batch)]
            if progress is not None:
                await progress(len(rows), len(cut), None)
        return rows

    async def embed(self, actor: Actor, document: str) -> bool:
        """Computes the embeddings that a document of the actor's tenant and persona lacks, or has of another model; gives
        whether there were any."""
        shelf, model = Shelf(actor.tenant, actor.persona or ""), self._embedder.name
        size = self._embedder.dimensions * FLOAT_BYTES
        rows = await self._store.read(table.passages_without(document, shelf, model, size))
        if not rows:
            return False
        computed = await self._embedded(document, [Passage(*row[2:]) for row in rows], None)
        embeddings = [(row.number, vector) for row, (_, vector) in zip(rows, computed, strict=True)]
        return await finish(self._store.transact(table.set_embeddings(document, shelf, model, embeddings)))

    def _full(self) -> InvalidInput:
        return InvalidInput(
            f"The document does not fit: a tenant's documents may have {self._max_passages:,} passages.",
            suggestion="Have the operator remove documents (`toolgate documents remove`) or raise limits.document_passages.",
        )

    async def query(
        self, actor: Actor, question: str, *, limit: int, threshold: float, document: str | None = None
    ) -> list[FoundPassage]:
        """The passages that are nearest to a question, nearest first; of one document if one is named."""
        shelf = Shelf(actor.tenant, actor.persona or "")
        [vector] = await self._embedder.embed([question])
        # Numbers mean nothing to the model: to it, one invoice is like another.
        names = list(dict.fromkeys(word.strip("./:-") for word in _IDENTIFIER.findall(question)))[:MAX_IDENTIFIERS]
        raised = await self._store.read(table.mentioning(shelf, names, MAX_MENTIONS)) if names else []
        near = await self._index.nearest(shelf, vector, most=limit, threshold=threshold, document=document, raised=raised)
        found = await self._store.read(table.fetch(shelf, [(one.document, one.number) for one in near]))
        rows = {(row.document_id, row.number): (name, row) for name, row in found}
        return [
            FoundPassage(*rows[one.document, one.number], one.score)
            for one in near
            if (one.document, one.number) in rows  # it may just have been replaced
        ]

    async def is_empty(self, actor: Actor) -> bool:
        """Tells whether an actor has no document to ask."""
        return not await self._store.read(table.has_any(Shelf(actor.tenant, actor.persona or "")))

    # -- for operators

    async def list(
        self, tenant: str | None, user: str | None = None, after: str | None = None, limit: int | None = None
    ) -> list[DocumentRow]:
        """The documents of a tenant, or of all; of one user, or of all; oldest first."""
        return await self._store.read(table.listed(tenant, user, after, limit))

    async def remove(self, id: str, tenant: str, user: str | None = None) -> DocumentRow | None:
        """Removes a document of a tenant, or of one of its users; None if there is none."""
        return await finish(self._store.transact(table.remove(id, tenant, user)))
