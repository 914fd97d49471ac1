"""The vectors of notes once more, where PostgreSQL itself can compare them: with the extension pgvector.

The table is no part of the schema, for it can be made only where the extension is. It is filled with each note that is
saved, and before a search with those that are missing: saved before it was made, or by a process that does not know it.

A search compares the query with all vectors of its space. An HNSW index would be shared by all spaces; limited to one of
them it was no quicker, missed some, and took long to build (docs/decisions 33).
"""

from collections.abc import Mapping
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.memories import batched
from toolgate.store.sql import is_any, value

CREATE_LOCK = 0x746D656D  # "tmem"


Ranked = tuple[int, float]
"""The number of a note, and the cosine of its vector with a query's."""


class Standing(NamedTuple):
    """Whether pgvector can be used: its version, and what stands in the way."""

    version: str | None
    obstacle: str | None


def standing() -> Transaction[Standing]:
    """Looks whether this database has pgvector, or this user may add it."""
    rows = yield "SELECT default_version, installed_version FROM pg_available_extensions WHERE name = 'vector'", {}
    if not rows:
        return Standing(None, "the server does not have the extension pgvector")
    available, installed = rows[0]
    if installed is None and not (yield from value("SELECT has_database_privilege(current_database(), 'CREATE')")):
        return Standing(available, "the extension pgvector is not in the database, and Toolgate's user may not add it")
    return Standing(installed or available, None)


def create(dimensions: int) -> Transaction[None]:
    """Makes extension and table, if they are missing. Fails where whoever Toolgate is there may not do so."""
    if (yield from is_any("SELECT 1 WHERE to_regclass('memory_index') IS NOT NULL", {})):
        return
    yield "SELECT pg_advisory_xact_lock(:lock)", {"lock": CREATE_LOCK}  # two that make an extension at once both fail
    if not (yield from is_any("SELECT 1 FROM pg_extension WHERE extname = 'vector'", {})):
        yield "CREATE EXTENSION IF NOT EXISTS vector", {}
    yield (
        "CREATE TABLE IF NOT EXISTS memory_index ("
        "seq BIGINT PRIMARY KEY REFERENCES memories (seq) ON DELETE CASCADE, space_id BIGINT NOT NULL, model TEXT NOT NULL, "
        f"embedding vector({dimensions:d}) NOT NULL)",
        {},
    )
    yield "ALTER TABLE memory_index ALTER COLUMN embedding SET STORAGE plain", {}  # beside the row it would be read twice
    yield "CREATE INDEX IF NOT EXISTS memory_index_space ON memory_index (space_id, model)", {}


def put(space: int, model: str, vectors: Mapping[int, str]) -> Transaction[None]:
    """Adds the vectors of notes, each as pgvector writes it, by number. One that is there stays."""
    yield "SELECT 1 FROM memory_spaces WHERE id = :space FOR UPDATE", {"space": space}  # no note goes away meanwhile
    for numbers in batched(list(vectors)):
        yield (
            "INSERT INTO memory_index (seq, space_id, model, embedding) "
            "SELECT seq, :space, :model, embedding::vector "
            "FROM unnest(CAST(:numbers AS bigint[]), CAST(:texts AS text[])) AS given (seq, embedding) "
            "WHERE EXISTS (SELECT 1 FROM memories WHERE memories.seq = given.seq) ON CONFLICT (seq) DO NOTHING",
            {"space": space, "model": model, "numbers": numbers, "texts": [vectors[number] for number in numbers]},
        )


def missing(space: int, model: str, vector_bytes: int, after: int) -> Transaction[list[tuple[int, bytes]]]:
    """The vectors of notes of a space after a number that are not in the index yet."""
    rows = yield (
        "SELECT seq, vector FROM memories WHERE space_id = :space AND seq > :after AND model = :model "
        "AND length(vector) = :size AND NOT EXISTS (SELECT 1 FROM memory_index WHERE memory_index.seq = memories.seq)",
        {"space": space, "after": after, "model": model, "size": vector_bytes},
    )
    return [(number, vector) for number, vector in rows]


def nearest(space: int, model: str, query: str, least: float, most: int) -> Transaction[list[Ranked]]:
    """The notes of a space whose cosine with a vector is at least so much, the nearest first."""
    # In a subquery the query's text is read once, and not again for each row; OFFSET 0 has each row compared once.
    rows = yield (
        "SELECT seq, cosine FROM ("
        "SELECT seq, -(embedding <#> (SELECT CAST(:query AS text)::vector)) AS cosine FROM memory_index "
        "WHERE space_id = :space AND model = :model OFFSET 0) AS compared "
        "WHERE cosine >= :least ORDER BY cosine DESC, seq LIMIT :most",
        {"query": query, "space": space, "model": model, "least": least, "most": most},
    )
    return [(number, cosine) for number, cosine in rows]
