"""taskiq with Redis streams, which are acknowledged when a task is done, and results in Redis.

Its argument is the URL of the Redis. The worker is a process of its own, started from this file.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

URL = os.environ.get("BENCH_REDIS") or sys.argv[1]
broker = RedisStreamBroker(URL).with_result_backend(RedisAsyncResultBackend(URL))


@broker.task(task_name="add")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    from measure import cpu_seconds, serve, spread_of

    command = [sys.executable, "-m", "taskiq", "worker", "peer_taskiq:broker", "--workers", "1", "--log-level", "ERROR"]
    place = {"cwd": Path(__file__).parent, "env": {**os.environ, "BENCH_REDIS": URL}}
    worker = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=2, stderr=2, **place)
    await broker.startup()

    async def one() -> None:
        result = await (await add.kiq(1, 2)).wait_result(check_interval=0.001, timeout=60)
        if result.return_value != 3:
            raise AssertionError(f"1 + 2 gave {result!r}")

    async def many(request: dict[str, Any]) -> dict[str, Any]:
        begin, cpu = perf_counter(), process_time() + cpu_seconds(worker.pid)
        tasks = [await add.kiq(1, 2) for _ in range(request["calls"])]
        for task in tasks:
            await task.wait_result(check_interval=0.001, timeout=60)
        took, cpu = perf_counter() - begin, process_time() + cpu_seconds(worker.pid) - cpu  # without that of Redis
        return {"per_second": request["calls"] / took, "cpu_us": cpu / request["calls"] * 1e6}

    async def latency(request: dict[str, Any]) -> dict[str, Any]:
        return await spread_of(one, request["calls"])

    async def idle(request: dict[str, Any]) -> dict[str, Any]:
        before = cpu_seconds(worker.pid)
        await asyncio.sleep(request["seconds"])
        return {"percent": (cpu_seconds(worker.pid) - before) / request["seconds"] * 100}

    try:
        await one()  # the worker is there
        await serve({"many": many, "latency": latency, "idle": idle})
    finally:
        os.killpg(worker.pid, signal.SIGKILL)  # SIGTERM is not enough for it
        worker.wait(20)


if __name__ == "__main__":
    asyncio.run(main())
