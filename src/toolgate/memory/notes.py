"""The notes of agents: saved with a vector of their meaning, found by it, deleted. A note belongs to a persona of a tenant,
both of which come from the caller's credential; nothing that a caller sends can name another's.

Secrets are masked before a note is kept, as they are in records: a note outlives the call that knew which values are secret.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from toolgate.embeddings import Embedder
from toolgate.errors import InvalidInput, StoreError, ToolError
from toolgate.memory.conditions import Condition, read_condition
from toolgate.memory.matrix_index import FLOAT_BYTES, MatrixIndex, VectorIndex
from toolgate.memory.pgvector_index import PgvectorIndex
from toolgate.model import Actor
from toolgate.settings.memory import MemorySettings
from toolgate.store import memories, memory_index
from toolgate.store.database import Store, Transaction
from toolgate.store.memories import FieldsRow, NewNote, NoteRow, SpaceFull, SpaceLimits, SpaceRow
from toolgate.store.memory_index import Ranked
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.gates.redaction import Redactor

MAX_METADATA_BYTES = 4_000
MAX_FOUND_NOTES = 100
MAX_DELETED_IDS = 1_000
FIRST_LOOKS = (100, 1_000)
"""How many of the nearest notes a filter looks at before all others: most filters are met among them."""
ROWS_AT_ONCE = 1_000
"""Notes that are read at once where a filter has to look at them."""
ROUNDING = 1e-6
"""By which the cosine of a vector with itself may miss one."""
logger = logging.getLogger("toolgate")
_NOTE_ID = re.compile(r"[0-9a-f]{16}\Z")
_FIELD_NAME = re.compile(r"[^\W\d]\w{0,63}\Z")


class SavedNote(NamedTuple):
    """A note that was kept, and whether something in it was masked."""

    id: str
    masked: bool


class FoundNote(NamedTuple):
    """A note, and how near it is to what was looked for: from 0 to 1, where 0.5 is nothing in common."""

    id: str
    text: str
    score: float
    metadata: dict[str, Any]
    created_at: str


class Memory:
    """All notes. Its methods work on those of one actor's persona."""

    def __init__(self, store: Store, embedder: Embedder, redactor: "Redactor", settings: MemorySettings) -> None:
        self._store = store
        self._embedder = embedder
        self._redactor = redactor
        self._settings = settings
        self._index: VectorIndex | None = None
        self._choosing = asyncio.Lock()
        self.embed_later: Callable[[Actor, list[str]], Awaitable[None]] | None = None
        """Has the vectors of notes computed in the background; None: nobody would."""
        self.without_pgvector: str | None = None
        """The reason why PostgreSQL does not compare the vectors itself, once that is known."""

    # -- what can be done

    async def save(
        self, actor: Actor, notes: Sequence[tuple[str, Mapping[str, Any]]], known: tuple[str, ...] = ()
    ) -> list[SavedNote]:
        """Keeps notes: texts with metadata. `known`: values of secrets that the call was given."""
        cleaned = [await self._masked(self._checked(text), _checked_metadata(metadata), known) for text, metadata in notes]
        later = self.embed_later is not None and self._settings.embedding == "background"
        size = self._embedder.dimensions * FLOAT_BYTES
        vectors = [None] * len(cleaned) if later else await self.vectors_of([text for text, _, _ in cleaned])
        new = [
            NewNote(secrets.token_hex(8), text, metadata, vector, size)
            for (text, metadata, _), vector in zip(cleaned, vectors, strict=True)
        ]
        if new:
            try:
                await self._store.transact(self._adding(actor, new, await self.index()))
            except SpaceFull as full:
                raise ToolError(
                    str(full), code="CAPACITY_EXCEEDED", retryable=False, charged=False,
                    suggestion="Delete notes that are not needed, with memory_forget or memory_delete.",
                ) from None  # fmt: skip
        if later and self.embed_later is not None:
            await self.embed_later(actor, [note.id for note in new])
        return [SavedNote(note.id, masked) for note, (_, _, masked) in zip(new, cleaned, strict=True)]

    async def load(
        self,
        actor: Actor,
        query: str,
        *,
        threshold: float,
        limit: int,
        condition: str | Callable[[], Condition] | None = None,
    ) -> list[FoundNote]:
        """Finds the notes nearest in meaning to a text, the nearest first. `condition`: those alone that fit it; made anew
        for each look, it may remember what it was asked, the nearest first."""
        if not 1 <= limit <= MAX_FOUND_NOTES:
            raise InvalidInput(f"limit is from 1 to {MAX_FOUND_NOTES}.")
        space, ranked = await self._find(actor, query, threshold, limit, condition)
        if space is None:
            return []
        rows = await self._store.read(memories.notes_by_number(space.id, [number for number, _ in ranked]))
        return [_found(rows[number], cosine) for number, cosine in ranked if number in rows]

    async def delete(self, actor: Actor, ids: Sequence[str]) -> list[str]:
        """Deletes notes; gives the ids of those that were there."""
        if not 0 < len(ids) <= MAX_DELETED_IDS:
            raise InvalidInput(f"ids are from 1 to {MAX_DELETED_IDS:,}.")
        space = await self._space(actor)
        known = [id for id in ids if _NOTE_ID.match(id)]
        return [] if space is None or not known else await self._store.transact(memories.remove(space.id, "id", known))

    async def forget(self, actor: Actor, query: str, *, threshold: float, condition: str | None = None) -> list[str]:
        """Deletes the notes near in meaning to a text; gives their ids."""
        space, ranked = await self._find(actor, query, threshold, None, condition)
        if space is None or not ranked:
            return []
        return await self._store.transact(memories.remove(space.id, "seq", [number for number, _ in ranked]))

    async def vectors_of(self, texts: Sequence[str]) -> list[bytes | None]:
        """Vectors of texts, as they are kept."""
        return [vector.astype("<f4").tobytes() for vector in await self._embedder.embed(texts)]

    async def index(self) -> VectorIndex:
        """The index that finds vectors here, chosen once."""
        async with self._choosing:
            if self._index is None:
                self._index = await self._choose()
        return self._index

    # -- saving

    def _checked(self, text: str) -> str:
        if not text.strip():
            raise InvalidInput("The text of a note is empty.", suggestion="Say what shall be remembered.")
        if len(text) > self._settings.note_chars:
            raise InvalidInput(
                f"A note has at most {self._settings.note_chars:,} characters; this one has {len(text):,}.",
                suggestion="Save the facts in it as notes of their own.",
            )
        return _storable(text)

    async def _masked(self, text: str, metadata: dict[str, Any], known: tuple[str, ...]) -> tuple[str, str, bool]:
        value = {"text": text, "metadata": metadata}
        if not self._redactor.ready:
            await self._redactor.prepare(value)
        masked = self._redactor.mask(value, known=known)
        return masked["text"], orjson.dumps(masked["metadata"]).decode(), masked is not value

    def _adding(self, actor: Actor, notes: list[NewNote], index: VectorIndex) -> Transaction[None]:
        limits = SpaceLimits(self._settings.notes, self._settings.tenant_bytes)
        model = self._embedder.name
        added = yield from memories.add(actor.tenant, actor.persona, actor.user, model, notes, limits)
        yield from index.adding(added.space, added.vectors)

    # -- finding

    async def _find(
        self, actor: Actor, query: str, threshold: float, limit: int | None, condition: str | Callable[[], Condition] | None
    ) -> tuple[SpaceRow | None, list[Ranked]]:
        """The actor's space, and the notes there that are near enough and fit the filter. Without a limit: all."""
        if not query.strip():
            raise InvalidInput("The query is empty.", suggestion="Say what is looked for.")
        if not 0 <= threshold <= 1:  # which is so for no number that is none
            raise InvalidInput("threshold is a number from 0 to 1.")
        if isinstance(condition, str):
            holds = read_condition(condition) if condition.strip() else None
            condition = None if holds is None else lambda: holds
        space = await self._space(actor)
        if space is None or not space.notes:
            return None, []
        (vector,) = await self._embedder.embed([query])
        index, least = await self.index(), 2 * threshold - 1 - ROUNDING
        if condition is None:
            return space, await index.nearest(space, vector, least, limit or space.notes)
        looks = [most for most in FIRST_LOOKS if limit is not None and most < space.notes]
        for most in (*looks, space.notes):
            ranked = await index.nearest(space, vector, least, most)
            found = await self._fitting(space, ranked, condition(), limit)
            if len(found) == limit or len(ranked) < most:
                break
        return space, found

    async def _fitting(self, space: SpaceRow, ranked: list[Ranked], holds: Condition, limit: int | None) -> list[Ranked]:
        """Those that fit a filter, until there are enough."""
        found: list[Ranked] = []
        for start in range(0, len(ranked), ROWS_AT_ONCE):
            chunk = ranked[start : start + ROWS_AT_ONCE]
            rows = await self._store.read(memories.fields_by_number(space.id, [number for number, _ in chunk]))
            found += await to_thread(_kept, chunk, rows, holds)
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    async def _space(self, actor: Actor) -> SpaceRow | None:
        return await self._store.read(memories.space_of(actor.tenant, actor.persona))

    async def _choose(self) -> VectorIndex:
        model, dimensions = self._embedder.name, self._embedder.dimensions
        if self._store.name == "postgres":
            standing = await self._store.read(memory_index.standing())
            self.without_pgvector = standing.obstacle
            if standing.obstacle is None:
                try:
                    await self._store.transact(memory_index.create(dimensions))
                    return PgvectorIndex(self._store, model, dimensions)
                except StoreError as error:
                    await self._store.ping()  # a server that is away for now is no reason to do without for good
                    self.without_pgvector = str(error.__cause__ or error.message)
            logger.info("notes are compared in this process: %s", self.without_pgvector)
        return MatrixIndex(self._store, model, dimensions, self._settings.cache_bytes)


def _storable(text: str) -> str:
    """A text that every database can hold: PostgreSQL has no character 0, UTF-8 no lone surrogates."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _checked_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in metadata.items():
        if not _FIELD_NAME.match(name):
            raise InvalidInput(
                "A name in metadata is no name.", suggestion="Names are a letter, then up to 63 letters, digits and _."
            )
        parts = value if isinstance(value, list) else [value]
        if not all(part is None or isinstance(part, str | int | float | bool) for part in parts):
            raise InvalidInput(
                f"metadata.{name} is neither a text, a number, true, false, null nor a list of these.",
                suggestion="Keep metadata flat.",
            )
    try:
        size = len(orjson.dumps(metadata))
    except (TypeError, ValueError):
        raise InvalidInput("metadata cannot be written as JSON.") from None
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(f"metadata has at most {MAX_METADATA_BYTES:,} bytes as JSON; this has {size:,}.")
    return dict(metadata)


def _kept(chunk: list[Ranked], rows: dict[int, FieldsRow], holds: Condition) -> list[Ranked]:
    """The notes of a chunk that are still there and fit a filter. Runs in a thread."""
    return [
        one
        for one in chunk
        if (row := rows.get(one[0])) is not None
        and holds({"id": row.id, "created_at": _utc(row.created_at), **orjson.loads(row.metadata)})
    ]


def _found(row: NoteRow, cosine: float) -> FoundNote:
    score = round(min(max((1 + cosine) / 2, 0.0), 1.0), 3)
    return FoundNote(row.id, row.text, score, orjson.loads(row.metadata), _utc(row.created_at))


def _utc(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
