"""What every worker does: get a call ready, then answer each line on stdin with how long many of them took.

A request is `{"do": "run", "calls": 1000}`, an answer one line of JSON; the end of input ends the worker. Nothing here
knows what is measured: a worker hands `serve` its handlers, most of them made by `timed`.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

TURN = 100
"""After so many calls the event loop gets a turn: background work runs, and is charged to the mean."""

Call = Callable[[], Awaitable[Any]]
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def add_later(a: int, b: int) -> int:
    """Add two numbers, after a turn of the event loop: what a tool that waits for something does."""
    await asyncio.sleep(0)
    return a + b


async def count_words(text: str) -> int:
    """Count the words of a text: what a tool does that takes text, which may hold a secret."""
    return len(text.split())


THREE_WORDS = "quarterly revenue forecast-for-the-northern-region"


async def time_calls(call: Call, count: int) -> tuple[dict[str, float], Any]:
    """Microseconds a call takes (half of them less than p50, mean: all the time over all the calls), and the last result."""
    for _ in range(min(count, 200)):
        await call()
    await asyncio.sleep(0)
    took: list[int] = []
    result: Any = None
    begin = perf_counter_ns()
    for index in range(count):
        start = perf_counter_ns()
        result = await call()
        took.append(perf_counter_ns() - start)
        if index % TURN == TURN - 1:
            await asyncio.sleep(0)
    total = perf_counter_ns() - begin
    took.sort()
    figures = {"p50": took[count // 2] / 1e3, "p95": took[count * 95 // 100] / 1e3, "mean": total / count / 1e3}
    return figures, result


def timed(call: Call, read: Callable[[Any], Any] = lambda result: result) -> Handler:
    """The usual handler: run so many calls. A call that does not give 3 is an error, not a fast call."""

    async def run(request: dict[str, Any]) -> dict[str, Any]:
        figures, result = await time_calls(call, request["calls"])
        if read(result) != 3:
            raise AssertionError(f"1 + 2 gave {result!r}")
        return figures

    return run


async def serve(handlers: dict[str, Handler]) -> None:
    """Answer requests until the input ends. Whatever a library prints goes to stderr, not between the answers."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answers.write(json.dumps({"ready": True}) + "\n")
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        answers.write(json.dumps(await handlers[request["do"]](request)) + "\n")


async def spread_of(call: Call, count: int) -> dict[str, float]:
    """Milliseconds from asking for something to having it, one after the other, with a pause in which the other side is
    idle again. Beside that, what others on the machine change far less: the CPU time of this process in half of them, and
    `alone`, the p95 of the time without that in which a thread of this process was ready and waited for a CPU."""
    took, spent, alone = [], [], []
    for _ in range(count):
        await asyncio.sleep(0.005)
        waited = waited_for_cpu_ns()
        begin, cpu = perf_counter_ns(), process_time_ns()
        await call()
        took.append((perf_counter_ns() - begin) / 1e6)
        spent.append((process_time_ns() - cpu) / 1e6)
        alone.append(max(took[-1] - (waited_for_cpu_ns() - waited) / 1e6, spent[-1]))
    for figures in (took, spent, alone):
        figures.sort()
    return {
        "p50": took[count // 2], "p95": took[count * 95 // 100], "cpu": spent[count // 2], "alone": alone[count * 95 // 100],
    }  # fmt: skip


def waited_for_cpu_ns() -> int:
    """The time in which threads of this process were ready to run and had no CPU, as Linux counts it; elsewhere 0."""
    waited = 0
    for place in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            waited += int(place.read_text().split()[1])
    return waited


def cpu_seconds(session: int) -> float:
    """The CPU time of all processes of a session, as Linux counts it."""
    ticks = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
