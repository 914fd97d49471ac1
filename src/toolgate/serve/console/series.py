"""Statistics as plots: the columns and rows that the macro `plot` takes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from toolgate.serve.http.statistics import StatisticsView

TONES = ("p1", "p2", "p3", "p4", "p5")
"""Tokens of the style sheet, for the largest series; all others together have the last, p6."""
OUTCOMES = (
    ("success", "success", "ok"), ("failure", "failed", "bad"), ("timeout", "timed out", "p4"),
    ("denied", "denied", "p3"), ("pending", "waiting", "p6"),
)  # fmt: skip
"""The statuses of calls, in the order in which they are put on one another: status, word, token of its colour."""


Rows = list[tuple[datetime, list[float | None]]]


class Plot(msgspec.Struct, frozen=True):
    """A plot's columns, each a name and a token of a colour, and its rows: a moment, and a value of each column."""

    columns: list[tuple[str, str]]
    rows: Rows
    step: int


def _rows(points: Sequence[datetime], columns: Sequence[Sequence[float | None]]) -> Rows:
    return [(at, [column[number] for column in columns]) for number, at in enumerate(points)]


def named_plot(found: StatisticsView, what: Literal["calls", "cost_usd"], words: Callable[[str], str] = str) -> Plot:
    """The largest series by name, and all others together."""
    named = {one.name: getattr(one, what) for one in found.series if one.name is not None and any(getattr(one, what))}
    largest = sorted(named, key=lambda name: -sum(named[name]))[: len(TONES)]
    others = [getattr(one, what) for one in found.series if one.name not in largest]
    columns = [(words(name), tone) for name, tone in zip(largest, TONES, strict=False)]
    values = [named[name] for name in largest]
    if any(map(any, others)):
        columns.append(("others", "p6"))
        values.append([sum(at) for at in zip(*others, strict=True)])
    return Plot(columns, _rows(found.points, values), found.step)


def outcome_plot(found: StatisticsView) -> Plot:
    """Calls by how they ended; of outcomes besides success, those that there were."""
    named = {one.name: one.calls for one in found.outcomes}
    shown = [one for one in OUTCOMES if one[0] == "success" or any(named.get(one[0], ()))]
    nothing: list[int] = [0] * len(found.points)
    values = [named.get(status, nothing) for status, _, _ in shown]
    return Plot([(word, tone) for _, word, tone in shown], _rows(found.points, values), found.step)


def latency_plot(found: StatisticsView) -> Plot:
    """The time within which half, 95 % and 99 % of the calls that ran ended."""
    columns = [("p50", "p2"), ("p95", "p1"), ("p99", "p5")]
    return Plot(columns, _rows(found.points, [found.p50_ms, found.p95_ms, found.p99_ms]), found.step)


def success_plot(found: StatisticsView) -> Plot:
    """The share of the calls that ended, in per cent; none where no call ended."""
    named = {one.name: one.calls for one in found.outcomes}
    nothing: list[int] = [0] * len(found.points)
    ended = [sum(at) for at in zip(*(named.get(status, nothing) for status, _, _ in OUTCOMES[:-1]), strict=True)]
    shares = [100 * good / all_ if all_ else None for good, all_ in zip(named.get("success", nothing), ended, strict=True)]
    return Plot([("succeeded", "ok")], _rows(found.points, [shares]), found.step)
