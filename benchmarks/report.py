"""What was found, as a table on the terminal and as files in `results/`: no machine or host is named in them."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import peers
from plot import draw
from rich.console import Console
from rich.table import Table
from rows import Bench, Finding

RESULTS = Path(__file__).parent / "results"
VERDICT = {True: "met", False: "missed", None: ""}
COLOUR = {True: "green", False: "red", None: "default"}


def show(bench: Bench, console: Console) -> None:
    """Contenders first, slowest last; then the goals."""
    if bench.contest:
        contest = Table("call of add(a, b)", "p50 µs", "p95 µs", "mean µs", "times Toolgate", "times openai-agents")
        for name, figures in _ranked(bench):
            contest.add_row(name, *_cells(figures), style="bold" if name.startswith("Toolgate,") else "")
        console.print(contest)
    goals = Table("row", "what", "measured", "goal", "verdict")
    for finding in bench.findings:
        verdict = f"[{COLOUR[finding.met]}]{VERDICT[finding.met]}[/]"
        goals.add_row(str(finding.row), finding.what, finding.measured, finding.goal, verdict)
    console.print(goals)


def keep(bench: Bench) -> None:
    """The last full run, for the repository."""
    RESULTS.mkdir(exist_ok=True)
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "rounds": bench.rounds,
        "peers": peers.versions(),
    }
    goals = [vars(finding) for finding in bench.findings]
    whole = {"about": about, "goals": goals, "figures": bench.figures}
    (RESULTS / "latest.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / "latest.md").write_text(_page(bench, about), encoding="utf-8")
    bars = [(name, figures["p50"]["median"]) for name, figures in _ranked(bench) if not name.startswith("crowd")]
    (RESULTS / "speed.svg").write_text(draw(bars), encoding="utf-8")


def _ranked(bench: Bench) -> list[tuple[str, dict[str, Any]]]:
    return sorted(((name, bench.figures[name]) for name in bench.contest), key=lambda pair: pair[1]["p50"]["median"])


def _cells(figures: dict[str, Any]) -> list[str]:
    ours, openai = figures["times toolgate"], figures["times openai-agents"]
    microseconds = [f"{figures[key]['median']:.2f}" for key in ("p50", "p95", "mean")]
    return [*microseconds, *(f"{one['median']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in (ours, openai))]


def _page(bench: Bench, about: dict[str, Any]) -> str:
    lines = [
        "# Latest benchmark run",
        "",
        f"{about['date']}, Python {about['python']}, {about['cpus']} CPUs, {about['rounds']} rounds, "
        + ", ".join(f"{name} {version}" for name, version in about["peers"].items())
        + ". Made by `benchmarks/run.py`; `docs/explanation/speed.md` explains it.",
        "",
        "| row | what | measured | goal | verdict |",
        "|---|---|---|---|---|",
        *(_line(finding) for finding in bench.findings),
        "",
        "One call of `add(a, b)`, microseconds; the ratios are of p50, median (lowest to highest) over the rounds.",
        "",
        "| contender | p50 | p95 | mean | times Toolgate | times openai-agents |",
        "|---|---|---|---|---|---|",
        *(f"| {name} | {' | '.join(_cells(figures))} |" for name, figures in _ranked(bench)),
    ]
    return "\n".join(lines) + "\n"


def _line(finding: Finding) -> str:
    return f"| {finding.row} | {finding.what} | {finding.measured} | {finding.goal} | {VERDICT[finding.met]} |"
