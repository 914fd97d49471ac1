"""Celery with a Redis broker, as durable as it can be: tasks are acknowledged when they are done, results are kept.

Its argument is the URL of the Redis. The worker is a process of its own (prefork, two children), started from this file.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from celery import Celery

URL = os.environ.get("BENCH_REDIS") or sys.argv[1]
app = Celery("peer_celery", broker=URL, backend=URL)
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task(name="add")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    from measure import cpu_seconds, serve, spread_of

    command = [sys.executable, "-m", "celery", "-A", "peer_celery", "worker", "-P", "prefork", "-c", "2", "-l", "ERROR"]
    place = {"cwd": Path(__file__).parent, "env": {**os.environ, "BENCH_REDIS": URL}}
    worker = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=2, stderr=2, **place)

    async def one() -> None:
        if await asyncio.to_thread(lambda: add.delay(1, 2).get(timeout=60)) != 3:
            raise AssertionError("1 + 2 is not 3")

    def spent() -> float:
        """CPU seconds of this process and of the worker; those of Redis are not in it."""
        return process_time() + cpu_seconds(worker.pid)

    def queue_and_wait(calls: int) -> dict[str, float]:
        begin, cpu = perf_counter(), spent()
        for result in [add.delay(1, 2) for _ in range(calls)]:
            if result.get(timeout=60) != 3:
                raise AssertionError("1 + 2 is not 3")
        return {"per_second": calls / (perf_counter() - begin), "cpu_us": (spent() - cpu) / calls * 1e6}

    async def many(request: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(queue_and_wait, request["calls"])

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
        worker.terminate()
        worker.wait(20)


if __name__ == "__main__":
    asyncio.run(main())
