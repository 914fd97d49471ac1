"""Row 10: `memory_load` among 10,000 notes, governed and recorded, beside the vector of the query alone.

Set TOOLGATE_DATABASE_URL to a PostgreSQL database, and that is measured too.
"""

import os

from contest import Rounds, Worker, figure, ratio
from rows import Bench

CALLS = 20
GOAL_MS = 50.0
EMBED = "the vector of a query"


def memory(bench: Bench) -> None:
    bench.said("saving 10,000 notes")
    workers = {"SQLite": bench.toolgate("toolgate_memory.py")}
    url = os.environ.get("TOOLGATE_DATABASE_URL", "")
    if url.startswith("postgresql://"):
        workers["PostgreSQL"] = bench.toolgate("toolgate_memory.py", url)
    rounds = _take_turns(bench, workers)
    for name in rounds:
        bench.figures[f"memory: {name}"] = {f"{key} ms": vars(figure(rounds, name, key)) for key in ("p50", "p95", "mean")}
    bench.found(10, EMBED, _ms(rounds, EMBED))
    for database in workers:
        for name in (f"memory_load, {database}", f"memory_load with a filter, {database}"):
            met = figure(rounds, name, "p50").median < GOAL_MS
            bench.found(10, f"{name}: p50", _ms(rounds, name), f"under {GOAL_MS:g} ms", met)
        times = ratio(rounds, f"memory_load, {database}", EMBED)
        bench.found(10, f"memory_load, {database} / {EMBED}", f"{times.median:.2f} ({times.low:.2f} to {times.high:.2f})")


def _take_turns(bench: Bench, workers: dict[str, Worker]) -> Rounds:
    seen: Rounds = {}
    for number in range(bench.rounds):
        for database, worker in workers.items():
            bench.said(f"round {number + 1} of {bench.rounds}: memory, {database}")
            turns = {f"memory_load, {database}": "load", f"memory_load with a filter, {database}": "filtered"}
            if database == "SQLite":
                turns[EMBED] = "embed"
            for name, do in turns.items():
                seen.setdefault(name, []).append(worker.ask(do, calls=CALLS))
    return seen


def _ms(rounds: Rounds, name: str) -> str:
    p50 = figure(rounds, name, "p50")
    return f"{p50.median:.1f} ({p50.low:.1f} to {p50.high:.1f}) ms, p95 {figure(rounds, name, 'p95').median:.1f}"
