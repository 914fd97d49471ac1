"""Calls of a tool as jobs, run by a worker in the process that queues them; each is on disk before and after it is run."""

import asyncio
import tempfile
from time import perf_counter, process_time
from typing import Any

from measure import add, serve, spread_of

from toolgate import App, tool


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with App.open(home=home, entry_points=False) as app:
            app.register(tool(tier="read_only")(add))

            async def one() -> None:
                queued = await app.enqueue("add", {"a": 1, "b": 2})
                assert queued.pending is not None, queued
                job = await app.jobs.wait(queued.pending.id, 60)
                if job.state != "done" or job.result["output"] != 3:
                    raise AssertionError(f"1 + 2 gave {job!r}")

            async def many(request: dict[str, Any]) -> dict[str, Any]:
                begin = perf_counter()
                await asyncio.gather(*(app.enqueue("add", {"a": 1, "b": 2}) for _ in range(request["calls"])))
                while set(await app.jobs.counts()) != {"done"}:
                    await asyncio.sleep(0.01)
                return {"per_second": request["calls"] / (perf_counter() - begin)}

            async def latency(request: dict[str, Any]) -> dict[str, Any]:
                return await spread_of(one, request["calls"])

            async def idle(request: dict[str, Any]) -> dict[str, Any]:
                before = process_time()
                await asyncio.sleep(request["seconds"])
                return {"percent": (process_time() - before) / request["seconds"] * 100}

            async with app.jobs.worker():
                await serve({"many": many, "latency": latency, "idle": idle})


asyncio.run(main())
