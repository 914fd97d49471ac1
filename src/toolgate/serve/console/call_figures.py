"""The figures of a list of calls: what its filters offer, with counts, and its calls over time."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from toolgate.serve.console.page import PageRequest
from toolgate.serve.console.series import OUTCOMES
from toolgate.serve.console.words import DOORS, mark_of
from toolgate.serve.http.invocations import CallsQuery, CallSummary
from toolgate.serve.http.statistics import (
    CallFacets,
    FacetValue,
    PeriodQuery,
    StatisticsQuery,
    StatisticsView,
    call_facets,
    get_statistics,
)

LONGEST = timedelta(days=90)
"""The time that is counted where the list has no beginning."""
SHORTEST = timedelta(hours=6)
"""The time that is drawn where the list has less: counts are kept by the hour."""
DAY = 86_400
STEPS = (3_600, 7_200, 14_400, 28_800, DAY, 7 * DAY)
MOST_POINTS = 60
"""Of a plot: more would make bars of a pixel, and a page that takes longer to write than to read."""
NOT_COUNTED = ("id", "session", "request_id", "parent", "tier")
ONE_OF = ("persona", "door", "user")
"""Filters of which counts know one at a time."""
STATUS_TONES = {status: tone for status, _, tone in OUTCOMES}

Column = tuple[str, str]
PlotRow = tuple[datetime, list[float | None]]


class CallFigures(msgspec.Struct, frozen=True):
    """Two plots over the same time."""

    step: int
    outcomes: list[Column]
    """Names and tones."""
    counts: list[PlotRow]
    p95: list[PlotRow]
    calls: int
    behind: int
    """Records that are not counted yet."""


def _period(wanted: CallsQuery | None) -> tuple[datetime, datetime]:
    until = (wanted and wanted.until) or datetime.now(UTC)
    since = (wanted and wanted.since) or until - LONGEST
    return max(min(since, until - SHORTEST), until - 4 * LONGEST), until


async def figures_of(request: PageRequest, wanted: CallsQuery | None) -> CallFigures | None:
    """The plots of a list; None: there is none, or its filters are not all among those that are counted by."""
    if wanted is None:
        return None
    named = {name: value for name in ONE_OF if (value := getattr(wanted, name)) is not None}
    is_of_user = "user" in named or not request.all_users
    if any(getattr(wanted, name) for name in NOT_COUNTED) or len(named) > (1 if request.all_users else 0):
        return None
    if named and not is_of_user and wanted.tool:
        return None
    since, until = _period(wanted)
    least = DAY if is_of_user else 0
    step = next((one for one in STEPS if one >= least and (until - since).total_seconds() <= one * MOST_POINTS), STEPS[-1])
    filters = {"tool": wanted.tool, "status": wanted.status, "code": wanted.code, **named}
    found: StatisticsView = await get_statistics(request, StatisticsQuery(since=since, until=until, step=step, **filters))
    known = {one.name: one.calls for one in found.series if one.name}
    order = [name for name in STATUS_TONES if name in known]
    return CallFigures(
        step=found.step,
        outcomes=[(mark_of(name).word, STATUS_TONES[name]) for name in order],
        counts=[(at, [known[name][number] for name in order]) for number, at in enumerate(found.points)],
        p95=[(at, [value]) for at, value in zip(found.points, found.p95_ms, strict=True)],
        calls=found.totals.calls,
        behind=found.behind,
    )


async def facets_of(request: PageRequest, wanted: CallsQuery | None) -> CallFacets:
    """The names that calls of the time have, of those facets that filters are for."""
    since, until = _period(wanted)
    return await call_facets(request, PeriodQuery(since=since, until=until), ("tool", "persona", "door", "code"))


def choices_of(
    request: PageRequest, wanted: CallsQuery | None, facets: CallFacets, items: Iterable[CallSummary]
) -> dict[str, list[tuple[str, str]]]:
    """The values that filters offer, each with its words: those that calls of the time have, the most frequent first."""
    listed = list(items)
    return {
        "tool": _offered(facets.tools, (wanted and wanted.tool, *(one.tool for one in listed))),
        "persona": _offered(facets.personas, (request.persona, *(one.persona for one in listed))),
        "door": _offered(facets.doors, (wanted and wanted.door, *(one.door for one in listed)), DOORS),
        "code": _offered(facets.codes, (wanted and wanted.code, *(one.code for one in listed))),
    }


def _offered(
    counted: Iterable[FacetValue], also: Iterable[Any], words: dict[str, str] | None = None
) -> list[tuple[str, str]]:
    """Names with their counts, and those that are not counted yet."""
    known = {one.name: f" ({one.calls:,})" for one in counted}
    names = [*known, *sorted({name for name in also if name} - known.keys())]
    return [(name, f"{(words or {}).get(name, name)}{known.get(name, '')}") for name in names]
