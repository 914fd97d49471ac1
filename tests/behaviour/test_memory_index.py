"""What finds the nearest notes: the process, or PostgreSQL with pgvector; both exactly, however many there are."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import numpy
import pytest

from tests.servers import Postgres, postgres
from toolgate import Actor, App
from toolgate.embeddings import DIMENSIONS, Embedder
from toolgate.memory.matrix_index import MatrixIndex
from toolgate.memory.notes import Memory
from toolgate.memory.pgvector_index import PgvectorIndex
from toolgate.store import memories
from toolgate.store.database import Transaction
from toolgate.store.memories import NewNote, SpaceLimits
from toolgate.store.sql import value

pytestmark = pytest.mark.requirement("BUILTIN-4")
ANN = Actor("acme", "analyst", "ann")
FACTS = {
    "Deployments on Fridays are forbidden.": "Is it allowed to deploy on a Friday?",
    "The user's cat is called Mizzi.": "What is the name of the user's cat?",
    "Acme wants its invoices in euros.": "Which currency does Acme want on invoices?",
    "The password policy asks for twelve characters.": "How long must a password be under the policy?",
}


def opened(url: str, folder: Path) -> App:
    return App.open(os.devnull, home=folder / "home", database_url=url)


async def add_vectors(app: App, vectors: Any, actor: Actor = ANN) -> list[int]:
    """Notes with these vectors, as `Memory.save` would add them; their numbers."""
    index = await app.parts.memory.index()
    notes = [NewNote(secrets.token_hex(8), "noise", "{}", vector.tobytes(), vector.nbytes) for vector in vectors]

    def adding() -> Transaction[list[int]]:
        limits = SpaceLimits(1_000_000, 10**12)
        added = yield from memories.add(actor.tenant, actor.persona, actor.user, Embedder.name, notes, limits)
        yield from index.adding(added.space, added.vectors)
        return list(added.vectors)

    return await app.parts.store.transact(adding())


def random_vectors(number: int, seed: int = 1) -> Any:
    vectors = numpy.random.default_rng(seed).standard_normal((number, DIMENSIONS)).astype(numpy.float32)
    return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


async def finds_all(app: App) -> None:
    for fact, question in FACTS.items():
        (found,) = await app.parts.memory.load(ANN, question, threshold=0.7, limit=1)
        assert found.text == fact


# -- exactly, however many


async def nearest_are_exact(app: App, number: int) -> None:
    vectors = random_vectors(number)
    numbers = numpy.array(await add_vectors(app, vectors))
    await add_vectors(app, random_vectors(50, seed=2), Actor("globex", "analyst", "gus"))
    memory: Memory = app.parts.memory
    space = await app.parts.store.read(memories.space_of("acme", "analyst"))
    assert space is not None
    index = await memory.index()
    for query in random_vectors(5, seed=3):
        cosines = vectors @ query
        order = numpy.argsort(-cosines)
        found = await index.nearest(space, query, -1.0, 10)
        assert [seq for seq, _ in found] == numbers[order[:10]].tolist()
        assert [cosine for _, cosine in found] == pytest.approx(cosines[order[:10]].tolist(), abs=1e-5)
        least = float(cosines[order[2]] + cosines[order[3]]) / 2
        assert [seq for seq, _ in await index.nearest(space, query, least, number)] == numbers[order[:3]].tolist()
    every = await index.nearest(space, vectors[0], -2.0, number)
    assert {seq for seq, _ in every} == set(numbers.tolist())


async def test_the_nearest_are_exact(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        await nearest_are_exact(app, 500)


@pytest.mark.matrix("10,000 notes; the same with 500 in make test")
async def test_a_fact_is_found_among_10_000_notes(database: str, tmp_path: Path) -> None:
    async with opened(database, tmp_path) as app:
        await nearest_are_exact(app, 10_000)
        await app.parts.memory.save(ANN, [(fact, {"kind": "fact"}) for fact in FACTS])
        await finds_all(app)
        by_filter = await app.parts.memory.load(ANN, "x", threshold=0, limit=100, condition="kind == 'fact'")
        assert {note.text for note in by_filter} == set(FACTS)
    async with opened(database, tmp_path) as again:
        await finds_all(again)
        assert len(await again.parts.memory.forget(ANN, "x", threshold=0, condition="kind != 'fact'")) == 10_000
        assert len(await again.parts.memory.load(ANN, "x", threshold=0, limit=100)) == len(FACTS)


# -- with and without pgvector


@pytest.mark.matrix("PostgreSQL")
async def test_postgres_compares_the_vectors_itself_where_it_can(postgres_tables: str, tmp_path: Path) -> None:
    async with opened(postgres_tables, tmp_path) as app:
        await app.parts.memory.save(ANN, [(fact, {}) for fact in FACTS])
        assert isinstance(await app.parts.memory.index(), PgvectorIndex)
        assert await app.parts.store.read(value("SELECT count(*) FROM memory_index")) == len(FACTS)
        await finds_all(app)
        await app.parts.memory.forget(ANN, "x", threshold=0)
        assert await app.parts.store.read(value("SELECT count(*) FROM memory_index")) == 0


@pytest.fixture
def plain_user(postgres_server: Postgres, postgres_database: str) -> Iterator[str]:
    """The URL of an empty database for a user who may make tables there and no extensions."""
    name = f"plain_{secrets.token_hex(4)}"
    database = postgres_database.rpartition("/")[2]
    postgres_server.run(f"CREATE ROLE {name} LOGIN")
    yield f"postgresql://{name}@127.0.0.1:{postgres_server.port}/{database}"
    postgres_server.drop(database)
    postgres_server.run(f"DROP ROLE {name}")


@pytest.mark.matrix("PostgreSQL")
async def test_where_the_extension_is_refused_the_process_compares_until_it_is_there(
    plain_user: str, postgres_database: str, tmp_path: Path
) -> None:
    administrator = await asyncpg.connect(postgres_database)
    name = plain_user.partition("//")[2].partition("@")[0]
    await administrator.execute(f"GRANT ALL ON SCHEMA public TO {name}")
    async with opened(plain_user, tmp_path) as before:
        await before.parts.memory.save(ANN, [(fact, {}) for fact in list(FACTS)[:2]])
        assert isinstance(await before.parts.memory.index(), MatrixIndex)
        assert before.parts.memory.without_pgvector == (
            "the extension pgvector is not in the database, and Toolgate's user may not add it"
        )
        assert len(await before.parts.memory.load(ANN, "x", threshold=0, limit=9)) == 2
        await administrator.execute("CREATE EXTENSION vector")
        async with opened(plain_user, tmp_path) as after:  # what was saved before there was an index is found by it
            assert isinstance(await after.parts.memory.index(), PgvectorIndex)
            assert len(await after.parts.memory.load(ANN, "x", threshold=0, limit=9)) == 2
            await before.parts.memory.save(ANN, [(fact, {}) for fact in list(FACTS)[2:]])  # which does not know the index
            await finds_all(after)
            await after.parts.memory.forget(ANN, "Is it allowed to deploy on a Friday?", threshold=0.7)
            assert len(await before.parts.memory.load(ANN, "x", threshold=0, limit=9)) == len(FACTS) - 1
    await administrator.close()


@pytest.mark.matrix("a PostgreSQL of its own")
async def test_a_server_without_pgvector_is_served_by_the_process(tmp_path: Path) -> None:
    with postgres(extensions=False) as server:
        server.create("bare")
        async with opened(server.url("bare"), tmp_path) as app:
            await app.parts.memory.save(ANN, [(fact, {}) for fact in FACTS])
            assert isinstance(await app.parts.memory.index(), MatrixIndex)
            assert app.parts.memory.without_pgvector == "the server does not have the extension pgvector"
            await finds_all(app)


# -- what the doctor says


async def memory_check(url: str, folder: Path) -> tuple[str, str, str | None]:
    from toolgate.app.checks.installation import examine

    overrides = {"home": folder / "home", "database_url": url}
    found = [check async for check in examine(Path(os.devnull), overrides) if check.name == "memory"]
    return found[0].status, found[0].message, found[0].advice


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_the_doctor_says_how_many_notes_there_are_and_what_compares_them(database: str, tmp_path: Path) -> None:
    where = "in PostgreSQL, with pgvector" if database.startswith("postgresql") else "in this process"
    status, message, _ = await memory_check(database, tmp_path)
    assert status == "ok"
    assert message.startswith(f"no notes yet, compared {where}")
    async with opened(database, tmp_path) as app:
        if database.startswith("postgresql"):  # a look makes nothing
            assert await app.parts.store.read(value("SELECT to_regclass('memory_index') IS NULL"))
        await app.parts.memory.save(ANN, [(fact, {}) for fact in FACTS])
        await app.parts.memory.save(Actor("acme"), [("one", {})])
    _, message, _ = await memory_check(database, tmp_path)
    assert message.startswith(f"5 notes of 2 personas, compared {where}")
    async with opened(database, tmp_path) as app:
        await app.parts.store.transact(value("UPDATE memories SET model = 'old' WHERE text = 'one' RETURNING seq"))
    status, message, advice = await memory_check(database, tmp_path)
    assert (status, message) == ("warning", f"1 note of 5 have no vector of {Embedder.name} and are not found")
    assert advice == "Save them again."


@pytest.mark.matrix("PostgreSQL")
async def test_the_doctor_says_why_pgvector_is_not_used(plain_user: str, postgres_database: str, tmp_path: Path) -> None:
    administrator = await asyncpg.connect(postgres_database)
    await administrator.execute(f"GRANT ALL ON SCHEMA public TO {plain_user.partition('//')[2].partition('@')[0]}")
    await administrator.close()
    status, message, advice = await memory_check(plain_user, tmp_path)
    assert (status, message) == (
        "unused",
        "no notes yet, compared in this process: the extension pgvector is not in the database, and Toolgate's user may "
        "not add it",
    )
    assert advice is not None
    assert "CREATE EXTENSION vector" in advice
