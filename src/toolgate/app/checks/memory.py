"""The check of the notes that agents keep: how many there are, and what compares their vectors. It makes nothing."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import plural
from toolgate.extras import install_command, is_installed
from toolgate.store import memories, memory_index

PGVECTOR_ADVICE = (
    "Searching works all the same, but each process holds the vectors. To have PostgreSQL compare them, install pgvector on "
    "its server, run CREATE EXTENSION vector in the database as a user who may, and restart Toolgate."
)


async def memory_checks(app: App) -> AsyncIterator[Check]:
    if not is_installed("embeddings"):
        yield Check("memory", "unused", "search by meaning is not installed", install_command("embeddings"))
        return
    store, embedder = app.parts.store, app.parts.embedder
    spaces, notes, other = await store.read(memories.totals(embedder.name))
    kept = f"{plural(notes, 'note')} of {plural(spaces, 'persona')}" if notes else "no notes yet"
    if other:
        words = f"{plural(other, 'note')} of {notes:,} have no vector of {embedder.name} and are not found"
        yield Check("memory", "warning", words, "Save them again.")
    if store.name != "postgres":
        yield Check("memory", "ok", f"{kept}, compared in this process")
        return
    found = await store.read(memory_index.standing())
    if found.obstacle is None:
        yield Check("memory", "ok", f"{kept}, compared in PostgreSQL, with pgvector {found.version}")
    else:
        yield Check("memory", "unused", f"{kept}, compared in this process: {found.obstacle}", PGVECTOR_ADVICE)
