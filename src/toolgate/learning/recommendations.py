"""Recommends tools for a task from how they did with similar ones."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from toolgate.learning.outcome_factors import reliability
from toolgate.learning.past_tasks import SimilarNote


class ToolRecord(NamedTuple):
    """Counts of the tasks that a tool did, and of those that it did not."""

    tool: str
    successes: int
    failures: int


class PastTask(NamedTuple):
    """A past task or note that is like a query, with the tools that were used for it."""

    text: str
    score: float
    kind: str
    tags: tuple[str, ...]
    tools: tuple[ToolRecord, ...]
    created_at: str


class Recommendation(NamedTuple):
    """A tool that did well with similar tasks."""

    tool: str
    score: float
    """From 0 to 1: how alike the tasks are, times the share that is expected to succeed."""
    successes: int
    failures: int


def past_tasks(found: Iterable[SimilarNote], names: frozenset[str], limit: int) -> list[PastTask]:
    """The tasks and notes that were found, each text once. Of the tools, those that are among the names."""
    grouped: dict[str, list[SimilarNote]] = defaultdict(list)
    for one in found:
        grouped[one.text].append(one)
    return [
        PastTask(text, notes[0].score, notes[0].kind, notes[0].tags, _records(notes, names), notes[0].created_at)
        for text, notes in list(grouped.items())[:limit]
    ]


def recommendations(found: Sequence[SimilarNote], names: frozenset[str], limit: int) -> list[Recommendation]:
    """The tools among the names that succeeded with similar tasks, by the votes of users, best first."""
    likeness: dict[str, float] = {}
    for one in found:
        if one.tool is not None and one.success:
            likeness[one.tool] = max(one.score, likeness.get(one.tool, 0.0))
    made = [
        Recommendation(tool, round(likeness[tool] * reliability(good, bad), 3), good, bad)
        for tool, good, bad in _records(found, names)
        if tool in likeness and good >= bad
    ]
    return sorted(made, key=lambda one: (-one.score, one.tool))[:limit]


def _records(found: Iterable[SimilarNote], names: frozenset[str]) -> tuple[ToolRecord, ...]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in found:
        if one.tool is not None and one.tool in names:
            counts[one.tool][0 if one.success else 1] += 1
    return tuple(ToolRecord(tool, good, bad) for tool, (good, bad) in sorted(counts.items(), key=lambda item: -item[1][0]))
