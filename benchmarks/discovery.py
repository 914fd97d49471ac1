"""Search of tools: how well tools are found, and how quickly among 10,000 and 100,000.

    python benchmarks/discovery.py [--random] [TOOLS …]
    python benchmarks/discovery.py --set FOLDER

Prints quality on the set in tests/discovery (with the model that knows English alone as the baseline), what a model reads
when it searches that set and when it is listed all of it, then for each number of tools: seconds until searches go by
meaning, until both models have read all, memory, and milliseconds of a search.
With --random the vectors of tools are made up, so that nothing is read: for searches among 100,000 tools. With --set it
measures quality on a set of one's own (its form: tests/discovery/evaluation.py).
"""

import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.discovery import evaluation
from toolgate import tool
from toolgate.embeddings import Embedder
from toolgate.model import DISCOVERY_TOOLS, Tool
from toolgate.registry.export import count_tokens, definition_text
from toolgate.store.database import Store, open_store
from toolgate.testing import memory_app
from toolgate.tool_search import semantic_search
from toolgate.tool_search.semantic_search import SemanticSearch
from toolgate.tool_search.text import tool_text

SEARCHES = 200
NO_CONTEXTS: dict[str, str] = {}
"""One for all searches, as the catalog gives: another one makes a search look at all tools again."""


async def main(sizes: Sequence[int], *, is_random: bool) -> None:
    semantic_search.PATIENCE_SECONDS = 3_600.0
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/a.db")
        await store.start()
        if is_random:
            for size in sizes:
                await made_up(store, size)
            return await store.close()
        await quality(store)
        await tokens()
        for size in sizes:
            await speed(store, size)
        await store.close()


async def quality(store: Store) -> None:
    tools, contexts = evaluation.tools(), evaluation.contexts()
    for half in ("tuned", "held"):
        tasks = [task for task in evaluation.tasks() if task.half == half]
        print(f"baseline, {half}: {await baseline(tools, whole(tools), tasks)}")
        for name, about in (("with what servers are for", contexts), ("without", {})):
            search = SemanticSearch(store)
            print(f"{half}, {name}: {await evaluation.quality(search, tools, about, tasks)}")
            await search.close()
    search, again = SemanticSearch(store), [task for task in evaluation.tasks() if task.said_again and task.half == "held"]
    for is_said_again in (False, True):
        found = await evaluation.quality(search, tools, contexts, again, is_said_again=is_said_again)
        print(f"{len(again)} tasks, {'in three phrasings' if is_said_again else 'in one'}: {found}")
    await search.close()


async def tokens() -> None:
    """Tokens that a model reads of the set: all definitions, or the tools that search, an answer and one definition."""
    given, tasks = evaluation.tools(), [task for task in evaluation.tasks() if task.tool and task.language == "en"][::8]

    def made(one: Tool) -> Any:
        async def act() -> None: ...

        return tool(name=f"set_{one.name}", description=one.description, tier="read_only")(act)

    def size(one: Tool) -> int:
        return count_tokens(definition_text(one))

    async with memory_app() as app:
        searching = [one for one in await app.tools.list() if one.name in DISCOVERY_TOOLS]
        for one in await app.tools.list():
            if one.name not in DISCOVERY_TOOLS:
                await app.tools.disable(one.name)
        app.tools.register_many(map(made, given))
        answers = [await app.invoke("search_tools", {"phrasings": [task.text], "limit": 5}) for task in tasks]
    whole = list(map(size, given))
    answer = sum(count_tokens(json.dumps(one.output)) for one in answers) / len(answers)
    print(
        f"{len(given)} tools: {sum(whole):,} tokens to list them all; {sum(map(size, searching)):,} for those that "
        f"search, {answer:.0f} for an answer, {sum(whole) / len(whole):.0f} for a definition"
    )


async def quality_outside(folder: Path) -> None:
    """Quality on a set from outside: of the model for English on two texts of a tool, and of searches."""
    semantic_search.PATIENCE_SECONDS = 3_600.0
    tools, contexts, tasks = evaluation.outside_set(folder)
    none_fits = sum(not task.tool for task in tasks)
    print(f"{len(tools)} tools of {len(contexts)} servers, {len(tasks)} tasks of which {none_fits} fit none")
    store = open_store("memory://")
    await store.start()
    search = SemanticSearch(store)
    await read_by_both(search, tools, contexts)
    floor, said_again = semantic_search.FLOOR, [task for task in tasks if task.said_again]
    for is_said_again, chosen in ((False, tasks), (False, said_again), (True, said_again)):
        if not chosen:
            continue
        print(f"{len(chosen)} tasks, in {'several phrasings' if is_said_again else 'one phrasing'}:")
        for name, texts in (("whole definitions", whole(tools)), ("beginnings of descriptions", beginnings(tools))):
            print(f"  baseline, {name}: {await baseline(tools, texts, chosen, is_said_again=is_said_again)}")
        for name, lowest in (("refusing", floor), ("without refusing", -1.0)):
            semantic_search.FLOOR = lowest
            found = await evaluation.quality(search, tools, contexts, chosen, is_said_again=is_said_again)
            print(f"  {name}: {found}")
    await search.close()
    await store.close()


async def read_by_both(search: SemanticSearch, tools: tuple[Tool, ...], contexts: Mapping[str, str]) -> None:
    """Waits until both models have read all tools: many are searched by one of them before."""
    await search.rank(["first"], tools, contexts)
    if search._refining is not None:
        await search._refining


def whole(tools: Sequence[Tool]) -> list[str]:
    """Name, description and arguments in one text."""
    arguments = [tool.input_schema.get("properties", {}).items() for tool in tools]
    return [
        f"{tool.name}: {tool.description} " + " ".join(f"{name} {one['description']}" for name, one in given)
        for tool, given in zip(tools, arguments, strict=True)
    ]


def beginnings(tools: Sequence[Tool]) -> list[str]:
    return [tool_text(tool).purpose for tool in tools]


async def baseline(
    tools: Sequence[Tool], texts: Sequence[str], tasks: Sequence[evaluation.Task], *, is_said_again: bool = False
) -> evaluation.Quality:
    """One text of each tool by one model, by the mean of its cosines with the phrasings. It refuses nothing."""
    model, names = Embedder(), {tool.name: number for number, tool in enumerate(tools)}
    vectors, places = await model.embed(texts), []
    for task in tasks:
        if task.tool:
            near = vectors @ (await model.embed([task.text, *(task.said_again if is_said_again else ())])).mean(axis=0)
            places.append((task.language == "en", int((near > near[names[task.tool]]).sum())))
    return evaluation.shares(places, [])


async def speed(store: Store, size: int) -> None:
    tools, tasks = many(size), [task.text for task in evaluation.tasks() if task.language == "en"]
    search, start, cpu = SemanticSearch(store), time.perf_counter(), time.process_time()
    await search.rank(["first"], tools, NO_CONTEXTS)
    ready = time.perf_counter() - start
    await read_by_both(search, tools, NO_CONTEXTS)
    read, used = time.perf_counter() - start, time.process_time() - cpu
    print(
        f"{size} tools: by meaning after {ready:.1f} s, by both models after {read:.1f} s ({used:.1f} s of processor time)"
    )
    print(await searched(search, tools, tasks))
    await search.close()
    again = SemanticSearch(store)
    start = time.perf_counter()
    await again.rank(["first"], tools, NO_CONTEXTS)
    print(f"{size} tools after a restart: by meaning after {time.perf_counter() - start:.1f} s")
    await again.close()


async def searched(search: SemanticSearch, tools: tuple[Tool, ...], tasks: Sequence[str]) -> str:
    """How long searches take, and in how much memory."""
    took, cpu = [], time.process_time()
    for number in range(SEARCHES):
        begin = time.perf_counter()
        await search.rank([tasks[number % len(tasks)]], tools, NO_CONTEXTS)
        took.append((time.perf_counter() - begin) * 1_000)
    used = (time.process_time() - cpu) / SEARCHES * 1_000
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    return (
        f"a search p50 {median(took):.1f} ms, p95 {quantiles(took, n=20)[-1]:.1f} ms, {used:.1f} ms of processor time; "
        f"peak memory {peak:.0f} MB"
    )


async def made_up(store: Store, size: int) -> None:
    import numpy

    from toolgate.tool_search.vector_index import ToolVectorIndex

    tools, tasks = many(size), [task.text for task in evaluation.tasks() if task.language == "en"]
    search, chance, start = SemanticSearch(store), numpy.random.default_rng(7), time.perf_counter()
    index = search._index = ToolVectorIndex(384, 512)
    texts = {text.key: text for text in map(tool_text, tools)}
    index.add(texts, chance.standard_normal((len(texts), 512), numpy.float32) / 22)
    index.set_english(range(len(texts)), chance.standard_normal((len(texts), 384), numpy.float32) / 20)
    print(f"{size} tools with made-up vectors: added in {time.perf_counter() - start:.1f} s")
    await search.rank(tasks[:1], tools, NO_CONTEXTS)
    print(await searched(search, tools, tasks))


def many(size: int) -> tuple[Tool, ...]:
    """Tools with texts of their own, in the shape of those of the set."""
    base, chance = evaluation.tools(), random.Random(7)
    return tuple(
        Tool(name=f"{one.name}_{number}", description=f"{one.description} in {chance.choice(base).name} {number}")
        for number, one in ((number, base[number % len(base)]) for number in range(size))
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    if "--set" in given:
        asyncio.run(quality_outside(Path(given[given.index("--set") + 1])))
    else:
        asyncio.run(main([int(size) for size in given if size.isdigit()], is_random="--random" in given))
