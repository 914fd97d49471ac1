"""Row 8: what a call of sandboxed code costs, beside a process that nobody holds and beside Docker.

Set TOOLGATE_SANDBOX__DOCKER_IMAGE to an image with Python in it, and Docker is measured here; otherwise the figure is the
published one.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import NamedTuple

from contest import Rounds, Spread, Worker, figure, ratio
from rows import Bench

DOCKER_PUBLISHED_MS = 568
DOCKER_SOURCE = "published: S. Khan, arXiv:2602.15214, Docker on a cloud SSD (1,157 ms on a cloud HDD)"
WARM_TYPESCRIPT, WARM_PYTHON, MONTY = "TypeScript, warm", "Python, warm", "small Python in Monty"
PLAIN_PYTHON, PLAIN_DENO, PLAIN_DOCKER = "plain `python -I -c`", "plain `deno run`", "plain `docker run`"
LANGUAGES = ("TypeScript", "Python")
JAILS = ("bubblewrap", "namespaces", "landlock")


class Turn(NamedTuple):
    """One contender, and how many of its calls a round has."""

    name: str
    worker: Worker
    do: str
    calls: int


def sandbox(bench: Bench) -> None:
    """All of it. Where no jail holds there is nothing to measure, and the first worker says so by its end."""
    ours = bench.toolgate("toolgate_sandbox.py", "auto")
    missing = ours.ask("jails")
    image = os.environ.get("TOOLGATE_SANDBOX__DOCKER_IMAGE", "")
    jails = [name for name in JAILS if missing[name] is None] + (["docker"] if image and _engine_answers() else [])
    rounds = _take_turns(_turns(bench, ours, jails, image), bench.rounds, bench.said)
    for name in rounds:
        bench.figures[f"sandbox: {name}"] = {f"{key} ms": vars(figure(rounds, name, key)) for key in ("p50", "p95", "mean")}
    _judge(bench, rounds, jails)
    for name in JAILS:
        if missing[name] is not None:
            bench.found(8, f"cold, {name}", "not measured: it can't be had here (`toolgate doctor` says why)")
    _sustained(bench, ours)
    _remains(bench, ours)


def _turns(bench: Bench, ours: Worker, jails: list[str], image: str) -> list[Turn]:
    plain = bench.toolgate("plain_process.py", image)
    turns = [
        Turn(MONTY, ours, "monty", 200),
        Turn(WARM_PYTHON, ours, "warm python", 20),
        Turn(WARM_TYPESCRIPT, ours, "warm typescript", 20),
        Turn(PLAIN_PYTHON, plain, "python", 10),
        Turn(PLAIN_DENO, plain, "deno", 10),
    ]
    for jail in jails:
        held = bench.toolgate("toolgate_sandbox.py", jail)
        calls = 3 if jail == "docker" else 10
        turns += [Turn(f"{name}, cold, {jail}", held, f"cold {name.lower()}", calls) for name in LANGUAGES]
        if jail == "docker":
            turns += [Turn(f"{name}, warm, {jail}", held, f"warm {name.lower()}", 3) for name in LANGUAGES]
            turns.append(Turn(PLAIN_DOCKER, plain, "docker", 3))
    return turns


def _engine_answers() -> bool:
    command = shutil.which("docker")
    return command is not None and subprocess.run([command, "version"], check=False, capture_output=True).returncode == 0


def _take_turns(turns: list[Turn], rounds: int, said: Callable[[str], None]) -> Rounds:
    """All of them, one after another, so many times; a first round, in which workers are started, is not counted."""
    seen: Rounds = {turn.name: [] for turn in turns}
    for number in range(rounds + 1):
        for turn in turns:
            said(f"round {number} of {rounds}: {turn.name}" if number else f"warming up: {turn.name}")
            answer = turn.worker.ask(turn.do, calls=turn.calls if number else 2)
            if number:
                seen[turn.name].append(answer)
    return seen


def _judge(bench: Bench, rounds: Rounds, jails: list[str]) -> None:
    for name, goal in ((WARM_TYPESCRIPT, 3.0), (WARM_PYTHON, 3.0), (MONTY, 0.5)):
        _against(bench, rounds, name, goal)
    for jail in jails:
        for language in LANGUAGES:
            _against(bench, rounds, f"{language}, cold, {jail}", None if jail == "docker" else 100.0)
            if jail == "docker":
                _against(bench, rounds, f"{language}, warm, {jail}", None)
    for above, below in (
        (PLAIN_PYTHON, WARM_PYTHON),
        (PLAIN_DENO, WARM_TYPESCRIPT),
        (f"Python, cold, {jails[0]}", PLAIN_PYTHON),
        (f"TypeScript, cold, {jails[0]}", PLAIN_DENO),
    ):
        bench.found(8, f"{above} / {below}", _spread(ratio(rounds, above, below), 2))
    if PLAIN_DOCKER in rounds:
        bench.found(8, PLAIN_DOCKER, f"{_spread(figure(rounds, PLAIN_DOCKER, 'p50'), 0)} ms")
        bench.found(8, f"{PLAIN_DOCKER} / {WARM_PYTHON}", _spread(ratio(rounds, PLAIN_DOCKER, WARM_PYTHON), 0))
    warm = figure(rounds, WARM_PYTHON, "p50").median
    quoted = f"{DOCKER_PUBLISHED_MS} ms, {DOCKER_PUBLISHED_MS / warm:.0f} times Python, warm"
    bench.found(8, f"start of a Docker container ({DOCKER_SOURCE})", quoted)


def _against(bench: Bench, rounds: Rounds, name: str, goal: float | None) -> None:
    p50, p95 = figure(rounds, name, "p50"), figure(rounds, name, "p95").median
    measured = f"{_spread(p50, 2)} ms, p95 {p95:.2f}"
    if goal is None:
        bench.found(8, f"{name}: p50", measured)
    else:
        bench.found(8, f"{name}: p50", measured, f"under {goal:g} ms", p50.median < goal)


def _spread(spread: Spread, digits: int) -> str:
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def _sustained(bench: Bench, ours: Worker) -> None:
    """How many calls a second one machine sustains: each takes a new process."""
    for language in ("typescript", "python"):
        bench.said(f"sandbox: {language}, back to back")
        calls = 40 * min(bench.rounds, 5)
        rate = ours.ask(f"busy {language}", calls=calls)["per_second"]
        bench.figures[f"sandbox: {language} back to back"] = {"calls/s": rate}
        bench.found(8, f"{language}, back to back", f"{rate:.0f} calls/s")


def _remains(bench: Bench, ours: Worker) -> None:
    calls = 1_000 if bench.rounds > 3 else 200
    bench.said(f"sandbox: what {calls:,} calls leave")
    left = ours.ask("remains", calls=calls)
    bench.figures["sandbox: left after calls"] = {"calls": calls, **left}
    measured = (
        f"{left['processes']} processes, {left['files']} files, {left['descriptors']} descriptors, {left['MB']:+.1f} MB"
    )
    clean = not left["processes"] and not left["files"] and left["descriptors"] <= 0 and left["MB"] < 5
    bench.found(8, f"left by {calls:,} calls", measured, "none, none, none, under 5 MB", clean)
