"""How fast Toolgate is beside its peers: `python benchmarks/run.py [--quick] [NAME …]`, with names as in `NAMES`, or all.

Prints what was measured beside its goal. A run of everything is kept in `results/`. Speed is not a test: a missed goal is
reported, and only a worker that crashes makes the exit code 1. docs/explanation/speed.md says what is measured and why.
"""

import argparse
import sys
from contextlib import ExitStack

import console
import http_rows
import jobs
import mcp_rows
import memory
import peers
import report
import rows
import sandbox
from contest import WorkerCrashed
from rich.console import Console

MEASURES = {
    "durable": rows.durable,
    "startup": rows.startup,
    "sandbox": sandbox.sandbox,
    "memory": memory.memory,
    "jobs": jobs.jobs,
    "http": http_rows.http,
    "mcp": mcp_rows.over_http,
    "console": console.console,
}
NAMES = ("invoke", "crowd", "list", *MEASURES)


def main() -> int:
    parser = argparse.ArgumentParser(description="How fast Toolgate is beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="3 short rounds in place of 9")
    given = parser.parse_args()
    unknown = set(given.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    wanted = set(given.names or NAMES)
    console = Console() if sys.stdout.isatty() else Console(width=150)
    with ExitStack() as ending, console.status("the peers' environment") as status:
        python = peers.interpreter()
        rounds, turn = (3, 0.1) if given.quick else (9, 0.2)
        bench = rows.Bench(python, rounds, turn, status.update, ending)
        try:
            measure(bench, wanted)
        except WorkerCrashed as crash:
            console.print(f"[red]a worker crashed:[/red] {crash}")
            return 1
    report.show(bench, console)
    if wanted == set(NAMES):
        report.keep(bench)
    return 0


def measure(bench: rows.Bench, wanted: set[str]) -> None:
    """The rows asked for. The contest with the peers comes first, before anything else has warmed or filled the machine."""
    crowd = None
    if wanted & {"crowd", "list"}:
        bench.said("registering 100,000 tools for 10,000 tenants")
        crowd = bench.toolgate("toolgate_crowd.py")
    if wanted & {"invoke", "crowd"}:
        rows.in_process(bench, crowd if "crowd" in wanted else None)
    if crowd is not None and "list" in wanted:
        rows.crowd_list(bench, crowd)
    for name, rows_of in MEASURES.items():
        if name in wanted:
            rows_of(bench)
    bench.findings.sort(key=lambda finding: finding.row)


if __name__ == "__main__":
    sys.exit(main())
