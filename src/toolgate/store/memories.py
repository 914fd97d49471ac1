"""Notes that agents keep, in spaces: one for each persona of each tenant.

Whoever changes a space changes its row first. On PostgreSQL that row's lock orders the changes of a space, so that a note
which is committed later has the higher number, and what a process has not seen yet are the notes after the last it knows.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

import orjson

from toolgate.store.database import Transaction, now
from toolgate.store.sql import column, insert, select, select_one, value

T = TypeVar("T")
R = TypeVar("R", bound=tuple[Any, ...])
NO_VECTOR = "(vector IS NULL OR model IS NULL OR model <> :model)"
LIST_SIZES = (10, 100, 1_000)
"""How many values a statement lists: few sizes, so that a database has read it before."""


class SpaceRow(NamedTuple):
    """A row of memory_spaces, without its name."""

    id: int
    notes: int
    bytes: int
    added: int
    removed: int


class NoteRow(NamedTuple):
    """A row of memories as it is given out."""

    seq: int
    id: str
    text: str
    metadata: str
    created_at: datetime


class FieldsRow(NamedTuple):
    """The part of a row that a filter looks at."""

    seq: int
    id: str
    metadata: str
    created_at: datetime


class NewNote(NamedTuple):
    """A note to be kept, with the vector of its text; None: that is computed later."""

    id: str
    text: str
    metadata: str
    vector: bytes | None
    vector_bytes: int
    """That the vector takes, or will take."""

    @property
    def size(self) -> int:
        return len(self.text.encode()) + len(self.metadata.encode()) + self.vector_bytes


class SpaceLimits(NamedTuple):
    """The most that is kept: notes of a space, bytes of a tenant."""

    notes: int
    tenant_bytes: int


class Added(NamedTuple):
    """Notes that were kept: their space, and their vectors by number."""

    space: int
    vectors: dict[int, bytes]


class SpaceFull(Exception):
    """A space or a tenant would have more than it may. Nothing is kept."""


class Unseen(NamedTuple):
    """What changed in a space since a process last looked."""

    space: SpaceRow
    vectors: list[tuple[int, bytes]]
    """Of the notes that were added, by number."""
    left: list[int] | None
    """The numbers of all notes that are there; None: none was removed."""


def name_of_space(tenant: str, persona: str | None) -> str:
    return orjson.dumps([tenant, persona]).decode()


def space_of(tenant: str, persona: str | None) -> Transaction[SpaceRow | None]:
    """Reads a space; None if nothing was ever kept in it."""
    return (
        yield from select_one(SpaceRow, "memory_spaces", "WHERE space = :space", {"space": name_of_space(tenant, persona)})
    )


def add(
    tenant: str, persona: str | None, user: str, model: str, notes: Sequence[NewNote], limits: SpaceLimits
) -> Transaction[Added]:
    """Keeps notes, at least one. Raises SpaceFull."""
    names = {"space": name_of_space(tenant, persona), "tenant_id": tenant, "persona_id": persona}
    yield f"{insert('memory_spaces', names)[0]} ON CONFLICT (space) DO NOTHING", names
    size = sum(note.size for note in notes)
    space = yield from value(
        "UPDATE memory_spaces SET notes = notes + :notes, bytes = bytes + :size WHERE space = :space RETURNING id",
        {"notes": len(notes), "size": size, "space": names["space"]},
    )
    there = yield from value("SELECT notes FROM memory_spaces WHERE id = :space", {"space": space})
    taken = yield from value("SELECT sum(bytes) FROM memory_spaces WHERE tenant_id = :tenant", {"tenant": tenant})
    if there > limits.notes:
        raise SpaceFull(f"{limits.notes:,} notes are kept already, which is the most for a persona.")
    if taken > limits.tenant_bytes:
        raise SpaceFull(f"The tenant's notes would take more than {limits.tenant_bytes:,} bytes.")
    moment, numbers = now(), dict[int, bytes]()
    for note in notes:
        sql, values = insert(
            "memories",
            {
                "id": note.id, "space_id": space, "user_id": user, "text": note.text, "metadata": note.metadata,
                "bytes": note.size, "model": None if note.vector is None else model, "vector": note.vector,
                "created_at": moment,
            },
        )  # fmt: skip
        number = yield from value(f"{sql} RETURNING seq", values)
        if note.vector is not None:
            numbers[number] = note.vector
    yield "UPDATE memory_spaces SET added = :added WHERE id = :space", {"added": number, "space": space}
    return Added(space, numbers)


def text_without_vector(space: int, id: str, model: str) -> Transaction[str | None]:
    """The text of a note that has no vector of a model; None: there is no such note."""
    return value(
        f"SELECT text FROM memories WHERE space_id = :space AND id = :id AND {NO_VECTOR}",
        {"space": space, "id": id, "model": model},
    )


def without_vectors(space: int, model: str, before: datetime, most: int) -> Transaction[list[str]]:
    """Ids of notes of a space that have no vector of a model although they are older than that."""
    return column(
        f"SELECT id FROM memories WHERE space_id = :space AND {NO_VECTOR} AND created_at < :before ORDER BY seq LIMIT :most",
        {"space": space, "model": model, "before": before, "most": most},
    )


def set_vector(space: int, id: str, model: str, text: str, vector: bytes) -> Transaction[Added | None]:
    """Gives a note the vector of its text. It gets a new number, as if it were kept just now: that is how the processes that
    share the database learn of it. None: the note is gone, is another by now, or has a vector already."""
    yield "UPDATE memory_spaces SET removed = removed + 0 WHERE id = :space", {"space": space}  # changes take turns
    rows = yield (
        f"DELETE FROM memories WHERE space_id = :space AND id = :id AND text = :text AND {NO_VECTOR} "
        "RETURNING user_id, metadata, bytes, created_at",
        {"space": space, "id": id, "text": text, "model": model},
    )
    if not rows:
        return None
    user, metadata, size, created_at = rows[0]
    sql, values = insert(
        "memories",
        {
            "id": id, "space_id": space, "user_id": user, "text": text, "metadata": metadata, "bytes": size,
            "model": model, "vector": vector, "created_at": created_at,
        },
    )  # fmt: skip
    number = yield from value(f"{sql} RETURNING seq", values)
    yield "UPDATE memory_spaces SET added = :added WHERE id = :space", {"added": number, "space": space}
    return Added(space, {number: vector})


def remove(space: int, name: Literal["id", "seq"], wanted: Sequence[Any]) -> Transaction[list[str]]:
    """Removes notes of a space by their ids or numbers; gives the ids of those that were there."""
    yield "UPDATE memory_spaces SET removed = removed + 0 WHERE id = :space", {"space": space}  # changes take turns
    gone: list[tuple[Any, ...]] = []
    for chosen in batched(wanted):
        listed, values = _listed(chosen)
        gone += yield (
            f"DELETE FROM memories WHERE space_id = :space AND {name} IN ({listed}) RETURNING id, bytes",
            {**values, "space": space},
        )
    if gone:
        yield (
            "UPDATE memory_spaces SET notes = notes - :notes, bytes = bytes - :size, removed = removed + :notes "
            "WHERE id = :space",
            {"notes": len(gone), "size": sum(row[1] for row in gone), "space": space},
        )
    return [row[0] for row in gone]


def unseen(space: int, model: str, vector_bytes: int, added: int, removed: int) -> Transaction[Unseen | None]:
    """Reads what changed in a space since it was as these numbers say; None if it is gone. All of it at one moment."""
    found = yield from select_one(SpaceRow, "memory_spaces", "WHERE id = :space", {"space": space})
    if found is None:
        return None
    usable = "FROM memories WHERE space_id = :space AND model = :model AND length(vector) = :size"
    values = {"space": space, "model": model, "size": vector_bytes}
    left = None
    if found.removed != removed:
        left = yield from column(f"SELECT seq {usable} ORDER BY seq", values)
    rows: list[tuple[Any, ...]] = []
    if found.added > added:
        rows = yield f"SELECT seq, vector {usable} AND seq > :added ORDER BY seq", {**values, "added": added}
    return Unseen(found, [(number, vector) for number, vector in rows], left)


def notes_by_number(space: int, numbers: Sequence[int]) -> Transaction[dict[int, NoteRow]]:
    """Reads notes of a space; those that are gone are not among them."""
    return (yield from _by_number(NoteRow, space, numbers))


def fields_by_number(space: int, numbers: Sequence[int]) -> Transaction[dict[int, FieldsRow]]:
    """Reads what a filter looks at of notes of a space; those that are gone are not among them."""
    return (yield from _by_number(FieldsRow, space, numbers))


def _by_number(kind: type[R], space: int, numbers: Sequence[int]) -> Transaction[dict[int, R]]:
    rows: list[R] = []
    for chosen in batched(numbers):
        listed, values = _listed(chosen)
        where = f"WHERE space_id = :space AND seq IN ({listed})"
        rows += yield from select(kind, "memories", where, {**values, "space": space})
    return {row[0]: row for row in rows}


def totals(model: str) -> Transaction[tuple[int, int, int]]:
    """Counts spaces that have notes, all notes, and those among them that have no vector of a model."""
    spaces, notes = (yield "SELECT count(*), coalesce(sum(notes), 0) FROM memory_spaces WHERE notes > 0", {})[0]
    other = yield from value("SELECT count(*) FROM memories WHERE model IS NULL OR model <> :model", {"model": model})
    return int(spaces), int(notes), int(other)


def batched(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many at a time as one statement takes."""
    return (items[start : start + LIST_SIZES[-1]] for start in range(0, len(items), LIST_SIZES[-1]))


def _listed(chosen: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Values as the parameters of `IN (...)`, the last as often as it takes to fill the list."""
    size = next(size for size in LIST_SIZES if len(chosen) <= size)
    padded = [*chosen, *[chosen[-1]] * (size - len(chosen))]
    values = {f"n{at}": chosen for at, chosen in enumerate(padded)}
    return ", ".join(f":{name}" for name in values), values
