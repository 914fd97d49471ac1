"""Calls of a tool as jobs, run by a worker in the process that queues them; each is on disk before and after it is run.

Its argument is the tier of the tool.
"""

import asyncio
import sys
import tempfile
from time import perf_counter, process_time
from typing import Any

from measure import add, serve, spread_of

from toolgate import App, tool


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home, entry_points=False) as app:
            app.register(tool(tier=sys.argv[1])(add))

            async def one() -> None:
                queued = await app.enqueue("add", {"a": 1, "b": 2})
                assert queued.pending is not None, queued
                job = await app.jobs.wait(queued.pending.id, 60)
                if job.state != "done" or job.result["output"] != 3:
                    raise AssertionError(f"1 + 2 gave {job!r}")

            async def many(request: dict[str, Any]) -> dict[str, Any]:
                calls, begin, cpu = request["calls"], perf_counter(), process_time()
                queued = await asyncio.gather(*(app.enqueue("add", {"a": 1, "b": 2}) for _ in range(calls)))
                last = queued[-1].pending
                assert last is not None, queued[-1]
                await app.jobs.wait(last.id, 60)
                while set(await app.jobs.counts()) != {"done"}:  # those beside it
                    await asyncio.sleep(0.005)
                done = await app.jobs.list(limit=calls)
                took, cpu = perf_counter() - begin, process_time() - cpu
                ids = {each.pending.id for each in queued if each.pending is not None}
                if {job.id for job in done} != ids or any(job.result["output"] != 3 for job in done):
                    raise AssertionError("some of 1 + 2 did not give 3")
                return {"per_second": calls / took, "cpu_us": cpu / calls * 1e6}

            async def latency(request: dict[str, Any]) -> dict[str, Any]:
                return await spread_of(one, request["calls"])

            async def idle(request: dict[str, Any]) -> dict[str, Any]:
                before = process_time()
                await asyncio.sleep(request["seconds"])
                return {"percent": (process_time() - before) / request["seconds"] * 100}

            async with app.jobs.worker():
                await serve({"many": many, "latency": latency, "idle": idle})


asyncio.run(main())
