"""Toolgate's memory with 10,000 notes: `memory_load` through the pipeline, and the vector of a query alone.

Its argument is the URL of a database; without one it is SQLite in a folder that is removed. The notes are real but for their
vectors, most of which are random: computing all of them would take half a minute, and searching does not depend on them.
"""

import asyncio
import os
import secrets
import sys
import tempfile
from itertools import count
from typing import Any

import numpy
from measure import Handler, serve, time_calls

from toolgate import Actor, App
from toolgate.embeddings import DIMENSIONS, Embedder
from toolgate.store import memories
from toolgate.store.memories import NewNote, SpaceLimits

NOTES = 10_000
FACT, QUESTION = "Deployments on Fridays are forbidden.", "Is it allowed to deploy on a Friday?"


async def fill(app: App, actor: Actor) -> None:
    vectors = numpy.random.default_rng(1).standard_normal((NOTES, DIMENSIONS)).astype(numpy.float32)
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    index = await app.parts.memory.index()

    def adding() -> Any:
        notes = [
            NewNote(secrets.token_hex(8), f"note {number} " + "word " * 40, '{"kind":"noise"}', vector.tobytes())
            for number, vector in enumerate(vectors)
        ]
        limits = SpaceLimits(10 * NOTES, 10**12)
        added = yield from memories.add(actor.tenant, actor.persona, actor.user, Embedder.name, notes, limits)
        yield from index.adding(added.space, added.vectors)

    await app.parts.store.transact(adding())
    await app.parts.memory.save(actor, [(FACT, {"kind": "fact"})])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/toolgate.db"
        actor = Actor("benchmark", secrets.token_hex(4), "ann")
        async with App.open(os.devnull, home=f"{folder}/home", database_url=url) as app:
            await fill(app, actor)
            await serve(handlers(app, actor))


def handlers(app: App, actor: Actor) -> dict[str, Handler]:
    number = count()

    def load(**more: Any) -> Handler:
        async def call() -> Any:
            query = f"{QUESTION} {next(number)}"
            outcome = await app.invoke("memory_load", {"query": query, "limit": 1, **more}, actor=actor)
            assert outcome.output["notes"][0]["text"] == FACT, outcome

        return run(call)

    async def embed() -> None:
        await app.parts.embedder.embed([f"{QUESTION} {next(number)}"])

    return {"load": load(), "filtered": load(threshold=0.4, filter="kind == 'fact'"), "embed": run(embed)}


def run(call: Any) -> Handler:
    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        figures, _ = await time_calls(call, request["calls"])
        return {name: took / 1e3 for name, took in figures.items()}

    return handle


asyncio.run(main())
