"""The stages of a call as bars, each where its time lies in that of the call; and the calls made within it as a tree."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from toolgate.serve.console.words import gate_of
from toolgate.serve.http.invocations import CallStage, CallSummary

WIDTH = 1_000.0
"""Units of the drawing."""
LEAST = 6.0
"""Units of a bar that would be too short to be seen."""
TONES = {"deny": "bad", "fail": "bad", "ask": "wait"}


class StageBar(NamedTuple):
    """A stage as it is drawn."""

    name: str
    attempt: int | None
    verdict: str
    tone: str
    words: str
    code: str | None
    ms: float
    hooks_ms: float
    x: float
    hooks: float
    width: float


class TreeRow(NamedTuple):
    """A call within another, and how deep."""

    call: CallSummary
    level: int


def bars_of(stages: Iterable[CallStage]) -> list[StageBar]:
    """The bars of a call, in its order."""
    found = list(stages)
    total = max((one.start_ms + one.ms + one.hooks_ms for one in found), default=0.0) or 1.0
    attempts = sum(one.attempt is not None for one in found)
    return [_bar(one, WIDTH / total, numbered=attempts > 1) for one in found]


def _bar(stage: CallStage, scale: float, *, numbered: bool) -> StageBar:
    name, passed = gate_of(stage.gate)
    hooks = stage.hooks_ms * scale
    width = max(hooks + stage.ms * scale, LEAST)
    return StageBar(
        name=name, attempt=stage.attempt if numbered else None, verdict=stage.verdict,
        tone=TONES.get(stage.verdict, "accent"), words=stage.reason or (passed if stage.verdict == "pass" else ""),
        code=stage.code, ms=stage.ms + stage.hooks_ms, hooks_ms=stage.hooks_ms,
        x=round(min(stage.start_ms * scale, WIDTH - width), 1), hooks=round(hooks, 1), width=round(width, 1),
    )  # fmt: skip


def tree_of(call_id: str, calls: Iterable[CallSummary]) -> list[TreeRow]:
    """The calls within a call, each right behind the one that made it."""
    made: dict[str | None, list[CallSummary]] = {}
    for one in calls:
        made.setdefault(one.parent, []).append(one)

    def below(id: str, level: int) -> Iterator[TreeRow]:
        for one in made.pop(id, ()):
            yield TreeRow(one, level)
            yield from below(one.id, level + 1)

    return list(below(call_id, 0))
