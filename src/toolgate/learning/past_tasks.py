"""Past tasks and notes of a tenant, found again by likeness: by meaning where the extra `embeddings` is installed, by words
otherwise.

They lie among the memories, in a space of the tenant that no persona can have. A text is shown to the user who gave it, and
to those who may see what others do; to everybody else in the tenant it only counts for which tools worked.
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import orjson

from toolgate.embeddings import Embedder
from toolgate.errors import Denied, InvalidInput
from toolgate.extras import is_installed
from toolgate.memory import Memory
from toolgate.memory.conditions import Condition, quoted_text
from toolgate.memory.matrix_index import FLOAT_BYTES
from toolgate.model import Actor
from toolgate.settings.learning import LearningSettings
from toolgate.settings.memory import MemorySettings
from toolgate.store import learning as table
from toolgate.store import memories
from toolgate.store.database import Store
from toolgate.store.learning import OwnedNote
from toolgate.store.memories import NewNote, SpaceFull, SpaceLimits
from toolgate.threads import to_thread

SPACE = "\x1flearning"
"""The persona of the space: no actor can have one with a control character."""
MAX_TASK_CHARS = 2_000
MAX_TAGS, MAX_TAG_CHARS = 10, 64
MAX_USER_NOTES = 1_000
"""Kept of one user; the oldest make room."""
MAX_WORD_NOTES = 2_000
"""The last notes that a search by words compares."""
NEAREST = 100
MAX_USER_VOTES = 10
"""Of one user among the nearest, where tools are recommended: what one keeps many times takes no place from others."""
MIN_SCORE = 0.65
"""Likeness by meaning from which a task counts as similar; 0.5 is nothing in common."""
MIN_WORD_SHARE = 0.3
_WORD = re.compile(r"[^\W_]{3,}")


class _SpaceOwner(Actor, frozen=True):
    """An actor whose persona is the space of past tasks."""

    def __post_init__(self) -> None:
        """Nothing is checked: the tenant and the user are those of an actor."""


class SimilarNote(NamedTuple):
    """A kept task or note that is like a text."""

    id: str
    text: str
    score: float
    """From 0 to 1."""
    user: str
    kind: str
    """`task`: a user told how a tool did with it. `note`: somebody had it remembered."""
    tool: str | None
    success: bool | None
    tags: tuple[str, ...]
    created_at: str


class PastTasks:
    """The past tasks and notes of all tenants. Its methods work on those of one."""

    def __init__(
        self,
        store: Store,
        memory: Memory,
        masked: Callable[[str], Awaitable[str]],
        settings: LearningSettings,
        memory_settings: MemorySettings,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._memory = memory
        self._masked = masked
        self._settings = settings
        self._limits = SpaceLimits(memory_settings.notes, memory_settings.tenant_bytes)
        self._clock = clock
        self._keeping = WeakValueDictionary[tuple[str, str], asyncio.Lock]()

    @property
    def by_meaning(self) -> bool:
        """True if likeness is that of meanings, not of words."""
        return is_installed("embeddings")

    async def keep(
        self, actor: Actor, text: str, *, tool: str | None = None, success: bool | None = None, tags: Sequence[str] = ()
    ) -> str:
        """Keeps a task that a tool was used for, or a note; gives its id. Raises `InvalidInput`, and `Denied` (RATE_LIMITED)
        for more than a user may keep in an hour."""
        text, tags = checked_text(text, MAX_TASK_CHARS, "text"), checked_tags(tags)
        fields = {"kind": "note" if tool is None else "task", "tool": tool, "success": success, "user": actor.user}
        metadata: dict[str, Any] = {**{name: one for name, one in fields.items() if one is not None}, "tags": list(tags)}
        # One of a user after the other: much that is sent at once would be counted before any of it is kept.
        async with self._keeping.setdefault((actor.tenant, actor.user), asyncio.Lock()):
            await self._check_rate(actor)
            return await self._add(actor, text, metadata)

    async def _add(self, actor: Actor, text: str, metadata: dict[str, Any]) -> str:
        if self.by_meaning:
            owner = _SpaceOwner(actor.tenant, SPACE, actor.user)
            [saved] = await self._memory.save(owner, [(text, metadata)])
            return saved.id
        note = NewNote(
            secrets.token_hex(8), await self._masked(text), orjson.dumps(metadata).decode(), None,
            Embedder.dimensions * FLOAT_BYTES,
        )  # fmt: skip
        try:
            await self._store.transact(memories.add(actor.tenant, SPACE, actor.user, Embedder.name, [note], self._limits))
        except SpaceFull as full:
            raise Denied("CAPACITY_EXCEEDED", str(full), suggestion="`toolgate learning forget` makes room.") from None
        return note.id

    async def similar(self, actor: Actor, text: str, *, user: str | None = None) -> list[SimilarNote]:
        """Finds what is like a text among all that is kept in the actor's tenant, or that one user gave, the most similar
        first. The user is part of the search: of what all gave, only the nearest are looked at, which may all be others'."""
        return await self._find(actor, text, user, None if user is None else f"user == {quoted_text(user)}")

    async def votes(self, actor: Actor, text: str) -> list[SimilarNote]:
        """Finds what users told of tools for tasks like a text, of anybody in the tenant, the most similar first. That a
        tool did well counts once for each user, and so that it did not."""
        return await self._find(actor, text, None, _one_vote_each)

    async def _find(
        self, actor: Actor, text: str, user: str | None, condition: str | Callable[[], Condition] | None
    ) -> list[SimilarNote]:
        text = checked_text(text, MAX_TASK_CHARS, "query")
        if not self.by_meaning:
            return await self._by_words(actor.tenant, text, user, condition() if callable(condition) else None)
        owner = _SpaceOwner(actor.tenant, SPACE, actor.user)
        found = await self._memory.load(owner, text, threshold=MIN_SCORE, limit=NEAREST, condition=condition)
        return [_similar(one.id, one.text, one.score, one.metadata, one.created_at) for one in found]

    async def forget(self, tenant: str | None, user: str | None, before: datetime | None) -> int:
        """Deletes what is kept: of a tenant or of all, of a user, from before a moment. Gives how many there were."""
        gone = 0
        for space in await self._store.read(table.spaces(SPACE, tenant)):
            gone += await self._store.transact(table.remove_notes(space, user, before))
        return gone

    async def _check_rate(self, actor: Actor) -> None:
        space = await self._store.read(memories.space_of(actor.tenant, SPACE))
        if space is None:
            return
        most = self._settings.notes_per_hour
        kept = await self._store.read(table.notes_since(space.id, actor.user, self._clock() - timedelta(hours=1)))
        if kept >= most:
            raise Denied(
                "RATE_LIMITED", f"{most:,} tasks and notes of this user were kept in the last hour, the most there may be."
            )
        own = await self._store.read(table.notes_of_user(space.id, actor.user))
        if len(own) >= MAX_USER_NOTES:
            oldest = own[: len(own) - MAX_USER_NOTES + 1]
            await self._store.transact(memories.remove(space.id, "seq", oldest))

    async def _by_words(self, tenant: str, text: str, user: str | None, holds: Condition | None) -> list[SimilarNote]:
        space = await self._store.read(memories.space_of(tenant, SPACE))
        if space is None:
            return []
        rows = await self._store.read(table.latest_notes(space.id, user, MAX_WORD_NOTES))
        return await to_thread(_ranked, text, rows, holds)


def _one_vote_each() -> Condition:
    """Holds for the first task of each user, tool and success, and for few of a user."""
    seen, of_user = set[tuple[Any, ...]](), Counter[Any]()

    def holds(note: Mapping[str, Any]) -> bool:
        user = note.get("user")
        vote = (user, note.get("tool"), note.get("success"))
        if note.get("kind") != "task" or vote in seen or of_user[user] >= MAX_USER_VOTES:
            return False
        seen.add(vote)
        of_user[user] += 1
        return True

    return holds


def _ranked(text: str, rows: Sequence[OwnedNote], holds: Condition | None) -> list[SimilarNote]:
    """The notes that share words with a text: rare words count more. Runs in a thread."""
    wanted = _words(text)
    words = [_words(row.text) for row in rows]
    known = Counter(word for one in words for word in one)
    worth = {word: 1 / (1 + known[word]) ** 0.5 for word in {*known, *wanted}}
    whole = sum(worth[word] for word in wanted) or 1.0
    scored = [(sum(worth[word] for word in wanted & one) / whole, row) for one, row in zip(words, rows, strict=True)]
    best = sorted((one for one in scored if one[0] >= MIN_WORD_SHARE), key=lambda one: (-one[0], -one[1].seq))
    found = ((score, row, orjson.loads(row.metadata)) for score, row in best)
    return [
        _similar(row.id, row.text, round(score, 3), metadata, row.created_at.isoformat(timespec="seconds"))
        for score, row, metadata in islice((one for one in found if holds is None or holds(one[2])), NEAREST)
    ]


def _similar(id: str, text: str, score: float, metadata: Mapping[str, Any], created_at: str) -> SimilarNote:
    return SimilarNote(
        id, text, score, str(metadata.get("user", "")), str(metadata.get("kind", "note")), metadata.get("tool"),
        metadata.get("success"), tuple(metadata.get("tags", ())), created_at,
    )  # fmt: skip


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def checked_text(text: str, most: int, name: str) -> str:
    """A text in one line, without control characters. Raises `InvalidInput` for one that is empty or too long."""
    if len(text) > most:
        raise InvalidInput(f"{name} has at most {most:,} characters; this has {len(text):,}.", suggestion="Shorten it.")
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if not plain:
        raise InvalidInput(f"{name} is empty.")
    return plain


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags of a note. Raises `InvalidInput` for too many, and for one that is too long."""
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"A note has at most {MAX_TAGS} tags.")
    return tuple(checked_text(tag, MAX_TAG_CHARS, "A tag") for tag in tags)
