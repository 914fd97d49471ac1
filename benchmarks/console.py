"""Row 13: requests of the console with a million calls in the audit log on SQLite: the server's own part of each.

The goal is about time on the clock. Beside it stands what other jobs on the machine change far less: the CPU time of the
whole process, and p95 without the time in which it was ready and waited for a CPU.
"""

from rows import Bench

GOAL_MS = 20.0


def console(bench: Bench) -> None:
    """Fills a log, counts it as the server does in the background, and sends each request again and again."""
    is_quick = bench.rounds <= 3
    calls, worker = 100_000 if is_quick else 1_000_000, bench.toolgate("toolgate_console.py")
    bench.said(f"console: writing {calls:,} calls")
    took = worker.ask("prepare", calls=calls)
    bench.found(13, f"counting {calls:,} calls", f"{took['count'] / calls * 1e6:.0f} µs each")
    bench.said("console: requests")
    figures = worker.ask("run", times=40 if is_quick else 200)
    bench.figures["console"] = figures
    for name, spread in figures.items():
        p50, p95, alone, cpu = (f"{spread[key]:.1f}" for key in ("p50", "p95", "alone", "cpu"))
        told = f"p50 {p50} ms, p95 {p95} ms ({alone} alone), CPU {cpu} ms"
        bench.found(13, f"{name}, {calls:,} calls in the log", told, f"p95 {GOAL_MS:g} ms", spread["p95"] <= GOAL_MS)
