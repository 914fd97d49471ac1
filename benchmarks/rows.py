"""What is measured: one function for each row of goals, from asking the workers to judging what they said."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from contest import Contender, Rounds, Spread, Worker, WorkerCrashed, compete, figure, ratio

TOOLGATE = "Toolgate, governed and audited"
OPENAI = "openai-agents"
OPENAI_REUSED = "openai-agents, one context for all calls"
LANGCHAIN, FASTMCP = "LangChain", "FastMCP in memory"

PROCESSES = 4


@dataclass(frozen=True)
class Finding:
    """One measured thing beside its goal; `met` is None where there is no goal."""

    row: int
    what: str
    measured: str
    goal: str = ""
    met: bool | None = None


@dataclass
class Bench:
    """How to measure, and what was found so far."""

    peers: Path
    rounds: int
    turn: float
    said: Callable[[str], None]
    ending: ExitStack
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    contest: Rounds = field(default_factory=dict)

    def peer(self, script: str) -> Worker:
        return self._started(Worker(script, self.peers))

    def toolgate(self, script: str, *arguments: str) -> Worker:
        return self._started(Worker(script, Path(sys.executable), *arguments))

    def _started(self, worker: Worker) -> Worker:
        self.ending.callback(worker.end)
        return worker

    def found(self, row: int, what: str, measured: str, goal: str = "", met: bool | None = None) -> None:
        self.findings.append(Finding(row, what, measured, goal, met))


def in_process(bench: Bench, crowd: Worker | None) -> None:
    """Rows 1 and 2: one call in one process, against the peers; and with 100,000 tools and 10,000 tenants beside it."""
    openai, pydantic_ai = bench.peer("peer_openai_agents.py"), bench.peer("peer_pydantic_ai.py")
    ours = bench.toolgate("toolgate_add.py")
    contenders = [
        Contender("plain await", bench.peer("plain.py")),
        Contender("pydantic validate_call", bench.peer("peer_validate_call.py")),
        Contender("pydantic-ai, toolset alone", pydantic_ai, "thin"),
        Contender(OPENAI_REUSED, openai, "reused"),
        Contender(TOOLGATE, ours),
        Contender(OPENAI, openai),
        Contender("pydantic-ai", pydantic_ai),
        Contender(LANGCHAIN, bench.peer("peer_langchain.py")),
        Contender("MCP SDK in memory", bench.peer("peer_mcp.py")),
        Contender(FASTMCP, bench.peer("peer_fastmcp.py")),
        Contender("Toolgate, actor made for each call", ours, "actor_each"),
        Contender("Toolgate, rate and concurrency limits", ours, "limited"),
        Contender("Toolgate, a tool that takes text", ours, "text"),
        Contender("openai-agents, a tool that takes text", openai, "text"),
        Contender("Toolgate, a tool that suspends", ours, "suspends"),
        Contender("openai-agents, a tool that suspends", openai, "suspends"),
    ]
    if crowd is not None:
        contenders += [Contender("crowd, hot", crowd, "hot"), Contender("crowd, spread", crowd, "spread")]
    bench.contest = compete(contenders, bench.rounds, bench.turn, bench.said)
    rounds = bench.contest
    for name in rounds:
        bench.figures[name] = {key: vars(figure(rounds, name, key)) for key in ("p50", "p95", "mean")}
        bench.figures[name]["times toolgate"] = vars(ratio(rounds, name, TOOLGATE))
        bench.figures[name]["times openai-agents"] = vars(ratio(rounds, name, OPENAI))
    _judge_in_process(bench, rounds)
    closings = [ours.ask("closing", calls=20_000) for _ in range(3)]
    flushed = median(one["mean"] for one in closings)
    bench.figures["toolgate mean with the flush at close"] = flushed
    bench.found(1, "Toolgate: mean with the audit flushed at close", f"{flushed:.1f} µs")
    if crowd is not None:
        _judge_crowd(bench, rounds)


def _judge_in_process(bench: Bench, rounds: Rounds) -> None:
    at = figure(rounds, TOOLGATE, "p50")
    mean = figure(rounds, TOOLGATE, "mean").median
    bench.found(1, "Toolgate: p50 of a governed call (mean, background included)", f"{at.median:.1f} µs ({mean:.1f} µs)")
    for peer, least in ((LANGCHAIN, 12), (FASTMCP, 60)):
        times = ratio(rounds, peer, TOOLGATE)
        bench.found(1, f"{peer} / Toolgate", _times(times), f"at least {least}", times.median >= least)
    times = ratio(rounds, TOOLGATE, OPENAI)
    bench.found(1, f"Toolgate / {OPENAI}", _times(times), "at most 1.0", times.median <= 1)
    bench.found(1, f"Toolgate / {OPENAI_REUSED}", _times(ratio(rounds, TOOLGATE, OPENAI_REUSED)))
    for kind in ("a tool that takes text", "a tool that suspends"):
        bench.found(1, f"Toolgate / {OPENAI}, {kind}", _times(ratio(rounds, f"Toolgate, {kind}", f"openai-agents, {kind}")))


def _judge_crowd(bench: Bench, rounds: Rounds) -> None:
    for name, what in (("crowd, hot", "one hot tool"), ("crowd, spread", "spread over tools and tenants")):
        times = ratio(rounds, name, TOOLGATE)
        at = figure(rounds, name, "p50").median
        measured = f"{_times(times)}, {at:.1f} µs"
        bench.found(
            2, f"100,000 tools, 10,000 tenants / Toolgate alone, {what}", measured, "at most 1.2", times.median <= 1.2
        )


def _times(times: Spread) -> str:
    return f"{times.median:.2f} ({times.low:.2f} to {times.high:.2f})"


def crowd_list(bench: Bench, crowd: Worker) -> None:
    """Row 6: the list of what one actor may use, among 100,000 tools."""
    cold = Spread.of(crowd.ask("list_cold")["ms"] for _ in range(5))
    cached = Spread.of(crowd.ask("list_cached")["ms"] for _ in range(bench.rounds))
    bench.figures["permitted list"] = {"cold ms": vars(cold), "cached ms": vars(cached)}
    bench.found(6, "permitted list of 100,000 tools, cached", f"{cached.median:.3f} ms", "under 1 ms", cached.median < 1)
    bench.found(6, "the same, cold", f"{cold.median:.1f} ms", "under 50 ms", cold.median < 50)


def durable(bench: Bench) -> None:
    """Row 3: records that are on disk before the effect and before the outcome, for 128 callers at once. Processes differ
    more than the rounds of one, so there are several."""
    plain = bench.toolgate("plain_sqlite.py")
    calls = int(20_000 * bench.turn / 0.2)
    rates, commits = [], []
    for number in range(PROCESSES):
        ours = bench.toolgate("toolgate_durable.py")
        for again in range(1 + bench.rounds // 3):
            bench.said(f"durable audit: process {number + 1} of {PROCESSES}, round {again + 1}")
            rates.append(ours.ask("run", calls=calls, callers=128)["per_second"])
            commits.append(plain.ask("run", calls=calls // 20)["per_second"])
    rate, commit = Spread.of(rates), Spread.of(commits)
    times = Spread.of(one / other for one, other in zip(rates, commits, strict=True))
    bench.figures["durable"] = {"calls/s": vars(rate), "sqlite commits/s": vars(commit), "ratio": vars(times)}
    measured = f"{rate.median:,.0f} calls/s ({rate.low:,.0f} to {rate.high:,.0f})"
    bench.found(3, "durable audit, tier write, 128 callers", measured, "20,000 calls/s", rate.median >= 20_000)
    bench.found(3, "the same / plain sqlite3 with a commit for each row", _times(times))


def startup(bench: Bench) -> None:
    """Row 9: how long a person waits for the first word."""
    python = sys.executable
    script = Path(python).with_name("toolgate")
    commands = {
        "toolgate tools list": [str(script), "tools", "list"],
        "import toolgate": [python, "-c", "import toolgate"],
        "from toolgate import App": [python, "-c", "from toolgate import App"],
        "python -c pass": [python, "-c", "pass"],
    }
    seen: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as home:
        for name in ("toolgate tools list", "import toolgate", "from toolgate import App"):
            _wall(commands[name], home)
        for number in range(7):
            bench.said(f"round {number + 1} of 7: start-up")
            for name, command in commands.items():
                seen[name].append(_wall(command, home))
    least = median(seen["python -c pass"])
    for name, goal in (("toolgate tools list", 0.5), ("import toolgate", 0.3), ("from toolgate import App", 0.3)):
        best, middle = min(seen[name]), median(seen[name])
        bench.figures[name] = {"best s": best, "median s": middle, "python -c pass": least}
        measured = f"{middle:.3f} s (best {best:.3f}; {middle / least:.1f} times python -c pass)"
        bench.found(9, name, measured, f"under {goal} s", middle < goal)


def _wall(command: list[str], home: str) -> float:
    environment = {**os.environ, "TOOLGATE_HOME": str(Path(home) / "data")}
    begin = perf_counter()
    ended = subprocess.run(command, check=False, cwd=home, env=environment, stdout=subprocess.DEVNULL)
    if ended.returncode:
        raise WorkerCrashed(f"{' '.join(command[1:])} ended with {ended.returncode}")
    return perf_counter() - begin
