"""Documents and their passages, with the embeddings by which they are found."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Rows, Transaction
from toolgate.store.sql import columns, containing, insert, is_any, made, select, value

OWN = "tenant_id = :tenant AND persona_id = :persona"
REPLACED = f"{OWN} AND created_by = :user AND (sha256 = :sha256 OR origin = :origin)"
"""Documents of the same content, or from the same place: of the user who took them in, so that nobody removes another's by
taking in a copy of it, and then something else in its place."""


class Shelf(NamedTuple):
    """Whose documents: those of a tenant's callers in one persona; '' for callers without one."""

    tenant: str
    persona: str


class DocumentRow(NamedTuple):
    """A row of documents."""

    id: str
    tenant_id: str
    persona_id: str
    name: str
    kind: str
    sha256: str
    origin: str
    size_bytes: int
    passages: int
    truncated: bool
    model: str
    created_by: str
    created_at: datetime

    @property
    def shelf(self) -> Shelf:
        return Shelf(self.tenant_id, self.persona_id)


class PassageRow(NamedTuple):
    """A row of document_passages, without its embedding."""

    document_id: str
    number: int
    text: str
    page: int | None
    section: str | None
    sheet: str | None
    first_row: int | None
    last_row: int | None


class LibraryFull(Exception):
    """A tenant has no room for another document."""


def put(row: DocumentRow, passages: Sequence[tuple[PassageRow, bytes]], most: int) -> Transaction[int]:
    """Keeps a document in place of those that it replaces; gives how many those were. Raises LibraryFull if the tenant would
    have more than so many passages."""
    yield from _revise(row.tenant_id)
    if (yield from passages_beside(row)) + len(passages) > most:
        raise LibraryFull
    replaced = yield f"SELECT id FROM documents WHERE {REPLACED}", _replacing(row)
    for (former,) in replaced:
        yield from _drop(former)
    yield insert("documents", row._asdict())
    for passage, embedding in passages:
        yield insert("document_passages", {**passage._asdict(), "embedding": embedding})
    return len(replaced)


def passages_beside(row: DocumentRow) -> Transaction[int]:
    """The passages of a tenant in documents that this one would not replace."""
    sql = f"SELECT sum(passages) FROM documents WHERE tenant_id = :tenant AND NOT ({REPLACED})"
    return int((yield from value(sql, _replacing(row))) or 0)


def _replacing(row: DocumentRow) -> dict[str, str]:
    return {**row.shelf._asdict(), "user": row.created_by, "sha256": row.sha256, "origin": row.origin}


def remove(id: str, tenant: str, user: str | None = None) -> Transaction[DocumentRow | None]:
    """Removes a document of a tenant, or of one of its users; gives what was removed."""
    yield from _revise(tenant)
    rows = yield (
        f"SELECT {columns(DocumentRow)} FROM documents WHERE id = :id AND tenant_id = :tenant",
        {"id": id, "tenant": tenant},
    )
    if not rows or user not in (None, made(DocumentRow, rows[0]).created_by):
        return None
    yield from _drop(id)
    return made(DocumentRow, rows[0])


def _drop(id: str) -> Transaction[None]:
    yield "DELETE FROM document_passages WHERE document_id = :id", {"id": id}
    yield "DELETE FROM documents WHERE id = :id", {"id": id}


def _revise(tenant: str) -> Transaction[None]:
    yield (
        "INSERT INTO document_libraries (tenant_id, revision) VALUES (:tenant, 1) "
        "ON CONFLICT (tenant_id) DO UPDATE SET revision = document_libraries.revision + 1",
        {"tenant": tenant},
    )


def revision(tenant: str) -> Transaction[int]:
    """A number that every change of a tenant's documents raises; 0: there never was one."""
    return (yield from value("SELECT revision FROM document_libraries WHERE tenant_id = :tenant", {"tenant": tenant})) or 0


def listed(
    tenant: str | None, user: str | None = None, after: str | None = None, most: int | None = None
) -> Transaction[list[DocumentRow]]:
    """The documents of a tenant, or of all; of one user, or of all; oldest first, at most so many after an id."""
    conditions = {"tenant": "tenant_id = :tenant", "user": "created_by = :user", "after": "id > :after"}
    given = {"tenant": tenant, "user": user, "after": after}
    values: dict[str, str | int] = {name: part for name, part in given.items() if part is not None}
    where = " AND ".join(conditions[name] for name in values) or "TRUE"
    limit = "" if most is None else f" LIMIT {most:d}"
    return select(DocumentRow, "documents", f"WHERE {where} ORDER BY id{limit}", values)


def has_any(shelf: Shelf) -> Transaction[bool]:
    """Tells whether there is a document on a shelf."""
    return is_any(f"SELECT 1 FROM documents WHERE {OWN} LIMIT 1", shelf._asdict())


def embeddings(shelf: Shelf, model: str) -> Transaction[tuple[int, Rows]]:
    """The revision, and document, number and embedding of every passage on a shelf that a model computed."""
    current = yield from revision(shelf.tenant)
    rows = yield (
        "SELECT p.document_id, p.number, p.embedding FROM document_passages p JOIN documents d ON d.id = p.document_id "
        f"WHERE {OWN} AND d.model = :model ORDER BY d.created_at, d.id, p.number",
        {**shelf._asdict(), "model": model},
    )
    return current, rows


def passages_without(id: str, shelf: Shelf, model: str, vector_bytes: int) -> Transaction[list[PassageRow]]:
    """The passages of a document on a shelf whose embedding is missing, or was computed by another model."""
    return select(
        PassageRow,
        "document_passages",
        f"WHERE document_id = :id AND document_id IN (SELECT id FROM documents WHERE {OWN}) AND (length(embedding) <> :size "
        "OR EXISTS (SELECT 1 FROM documents WHERE id = :id AND model <> :model)) ORDER BY number",
        {"id": id, **shelf._asdict(), "model": model, "size": vector_bytes},
    )


def set_embeddings(id: str, shelf: Shelf, model: str, embeddings: Sequence[tuple[int, bytes]]) -> Transaction[bool]:
    """Gives passages of a document their embeddings, by number, and the document the model that computed them; gives whether
    the document is still there."""
    yield from _revise(shelf.tenant)
    values = {"id": id, **shelf._asdict(), "model": model}
    if not (yield from is_any(f"UPDATE documents SET model = :model WHERE id = :id AND {OWN} RETURNING id", values)):
        return False
    for number, embedding in embeddings:
        yield (
            "UPDATE document_passages SET embedding = :embedding WHERE document_id = :id AND number = :number",
            {"embedding": embedding, "id": id, "number": number},
        )
    return True


def mentioning(shelf: Shelf, words: Sequence[str], most: int) -> Transaction[list[tuple[str, int]]]:
    """Passages of a shelf in which one of these words stands, by document and number: at most so many for each word."""
    found: dict[tuple[str, int], None] = {}
    for word in words:
        rows = yield (
            "SELECT p.document_id, p.number FROM document_passages p JOIN documents d ON d.id = p.document_id "
            f"WHERE {OWN} AND lower(p.text) LIKE :pattern ESCAPE '\\' ORDER BY p.document_id, p.number LIMIT :most",
            {**shelf._asdict(), "pattern": containing(word), "most": most},
        )
        found.update(((document, number), None) for document, number in rows)
    return list(found)


def fetch(shelf: Shelf, keys: Sequence[tuple[str, int]]) -> Transaction[list[tuple[str, PassageRow]]]:
    """Passages of a shelf by document and number, each with the document's name; those that are gone are left out."""
    found = []
    for document, number in keys:
        rows = yield (
            f"SELECT d.name, {', '.join(f'p.{name}' for name in PassageRow._fields)} FROM document_passages p "
            f"JOIN documents d ON d.id = p.document_id WHERE {OWN} AND p.document_id = :document AND p.number = :number",
            {**shelf._asdict(), "document": document, "number": number},
        )
        found += [(row[0], made(PassageRow, row[1:])) for row in rows]
    return found
