"""Contenders, each in a process of its own, taking turns: what is noisy for a minute is noisy for all of them.

A contender is a worker script and what to ask of it. The workers stay alive over all rounds and talk JSON lines; only one
of them runs at a time. Ratios are taken within a round and then their median, so that a slow minute cancels out.
"""

import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

WORKERS = Path(__file__).parent / "workers"


class WorkerCrashed(Exception):
    """A worker ended before it answered: the only thing that makes a benchmark fail."""


class Worker:
    """A running worker script."""

    def __init__(self, script: str, python: Path, *arguments: str) -> None:
        self.script = script
        command = [str(python), str(WORKERS / script), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """One request, one answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise WorkerCrashed(self.script) from error
        return self._read()

    def end(self) -> None:
        """Close its input, which ends it, and wait."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerCrashed(f"{self.script} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True)
class Contender:
    """A name to show, the worker that does it, and the question it is asked."""

    name: str
    worker: Worker
    do: str = "run"
    note: str = ""


@dataclass(frozen=True)
class Spread:
    """A figure over all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        seen = sorted(values)
        return cls(median(seen), seen[0], seen[-1])


Rounds = dict[str, list[dict[str, float]]]
"""What each contender answered, round by round."""


def compete(contenders: Sequence[Contender], rounds: int, turn: float, said: Callable[[str], None]) -> Rounds:
    """Let all of them run for about `turn` seconds a round, one after another. A first round, in which memory grows to
    what the worker needs and code becomes warm, is not counted."""
    calls = {one.name: _fitting(one, turn) for one in contenders}
    seen: Rounds = {one.name: [] for one in contenders}
    for number in range(rounds + 1):
        for one in contenders:
            said(f"round {number} of {rounds}: {one.name}" if number else f"warming up: {one.name}")
            answer = one.worker.ask(one.do, calls=calls[one.name])
            if number:
                seen[one.name].append(answer)
    return seen


def _fitting(one: Contender, turn: float) -> int:
    """How many calls fill a turn; at least 200, so that a p95 means something."""
    mean = one.worker.ask(one.do, calls=200)["mean"]
    return min(20_000, max(200, int(turn * 1e6 / mean)))


def figure(rounds: Rounds, name: str, key: str) -> Spread:
    return Spread.of(answer[key] for answer in rounds[name])


def ratio(rounds: Rounds, above: str, below: str, key: str = "p50") -> Spread:
    """How many times `above` is `below`, within each round."""
    return Spread.of(one[key] / other[key] for one, other in zip(rounds[above], rounds[below], strict=True))
