"""`app.statistics`: how many calls ended, how, at what cost and after how long; in figures, and over time."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import NamedTuple

from toolgate.app.facets import Facet
from toolgate.errors import InvalidInput, ToolgateError
from toolgate.store import call_counts, call_statistics
from toolgate.store.call_counts import CallCount, CountBy, CountFilter, whole_hours
from toolgate.store.call_statistics import DAY, HOUR, CountedUpTo, percentile
from toolgate.store.database import Transaction
from toolgate.tasks import start_task, stop_tasks

REQUEST_ROWS = 300
"""Rows of the log that somebody who asks waits for at most, if they are not counted yet: some ten milliseconds."""
BACKGROUND_SECONDS = 1.0
IDLE_SHARE, BUSY_SHARE = 0.5, 0.03
"""The part of the time that counting in the background takes, while nobody writes to the log and while somebody does."""
MAX_POINTS = 500
MAX_HOURS = 1_500
MAX_SERIES = 12
MAX_VALUES = 100
PERCENTILES = (0.5, 0.95, 0.99)

logger = logging.getLogger("toolgate")


class CallTotals(NamedTuple):
    """Calls that ended, together."""

    calls: int
    by_status: dict[str, int]
    nano: int
    tokens: int
    percentiles: tuple[float | None, ...]
    """Milliseconds within which half, 95 % and 99 % of the calls whose tool ran ended; None: none ran."""


class CallSeries(NamedTuple):
    """Calls of one name, point by point."""

    name: str | None
    """None: all that are not among the largest."""
    calls: list[int]
    nano: list[int]


class CallStatistics(NamedTuple):
    """Calls that ended in a time, and in as much time before it."""

    since: datetime
    until: datetime
    step: int
    """Seconds from one point to the next."""
    totals: CallTotals
    before: CallTotals
    percentiles: list[tuple[float | None, ...]]
    """Of each point."""
    series: list[CallSeries]
    """The largest first."""
    outcomes: list[CallSeries]
    """The same calls by status."""


class Counted(NamedTuple):
    """The part of the log that is counted."""

    up_to: datetime | None
    """The time of the last row that is counted; None: none is."""
    behind: int
    """Rows of the log that are not counted yet."""


class StatisticsFacet(Facet):
    """Counts of the calls that ended. They are made from the audit log, which alone is the record."""

    async def over_time(
        self, wanted: CountFilter, since: datetime, until: datetime, *, step: int | None = None, by: CountBy = "status"
    ) -> CallStatistics:
        """Gives figures and series of a time, which is widened to whole steps. Steps of less than a day are hours or
        several of them. Raises `InvalidInput` for what is not counted: by two of persona, door and user, or in steps
        that are too many."""
        _check(wanted, by)
        begin, end, step = _steps(since, until, step, is_daily=_is_daily(wanted, by))
        return await self._parts.store.read(_over_time(wanted, begin, end, step, by))

    async def values(
        self, wanted: CountFilter, since: datetime, until: datetime, bys: Sequence[CountBy]
    ) -> dict[CountBy, list[tuple[str, int]]]:
        """Gives the names that calls of a time have, with how many calls there are of each; the most first, at most 100.
        Those of a user, of a persona by tool, and of more than two days, are of whole days."""
        for by in bys:
            _check(wanted, by)
        return await self._parts.store.read(_values(wanted, *whole_hours(since, until), bys))

    async def catch_up(self, *, max_rows: int | None = None) -> Counted:
        """Counts the rows of the log that are not counted yet: all, or at most so many. Gives how far that came."""
        await self._parts.store.flush()
        return _counted(await call_statistics.count_rows(self._parts.store, max_rows))

    async def up_to(self) -> Counted:
        """Gives how far the log is counted."""
        return _counted(await call_statistics.count_rows(self._parts.store, 0))

    async def rebuild(self) -> Counted:
        """Counts the whole log again. It may take long; meanwhile, answers hold what is counted so far."""
        await self._parts.store.transact(call_statistics.forget())
        return await self.catch_up()

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        """Counts rows in the background while inside `async with`: in small steps, and slowly while calls are made."""
        task = start_task(self._keep_counting())
        try:
            yield
        finally:
            await stop_tasks(task)

    async def _keep_counting(self) -> None:
        end, pause = 0, BACKGROUND_SECONDS
        while True:
            await asyncio.sleep(pause)
            begun, pause = perf_counter(), BACKGROUND_SECONDS
            try:
                counted = await call_statistics.count_rows(self._parts.store, call_statistics.PART_ROWS)
            except ToolgateError as error:
                logger.warning("calls could not be counted: %s", error)
                continue
            is_busy, end = self._parts.store.written != end, self._parts.store.written
            if counted.behind:
                pause = (perf_counter() - begun) / (BUSY_SHARE if is_busy else IDLE_SHARE)


def _over_time(wanted: CountFilter, begin: int, end: int, step: int, by: CountBy) -> Transaction[CallStatistics]:
    earlier = begin - (end - begin)
    by_status = yield from call_counts.by_step(wanted, begin, end, by="status", step=step)
    by_name = by_status if by == "status" else (yield from call_counts.by_step(wanted, begin, end, by=by, step=step))
    totals = yield from call_counts.counts(wanted, begin, end)
    slots = yield from call_counts.durations(wanted, begin, end, step=step)
    before = yield from call_counts.counts(wanted, earlier, begin)
    slots_before = yield from call_counts.durations(wanted, earlier, begin)
    points = (end - begin) // step
    return CallStatistics(
        _instant(begin), _instant(end), step, _totals(totals, slots), _totals(before, slots_before),
        [_percentiles(slots.get(point, ())) for point in range(points)], _series(by_name), _series(by_status),
    )  # fmt: skip


def _values(
    wanted: CountFilter, begin: int, end: int, bys: Sequence[CountBy]
) -> Transaction[dict[CountBy, list[tuple[str, int]]]]:
    found: dict[CountBy, list[tuple[str, int]]] = {}
    for by in bys:
        period = begin, end
        if _is_daily(wanted, by) or end - begin > 2 * DAY:
            period = begin // DAY * DAY, -(-end // DAY) * DAY
        named: dict[str, int] = defaultdict(int)
        for one in (yield from call_counts.counts(wanted, *period, by=by, statuses=False)):
            named[one.name] += one.calls
        found[by] = sorted(named.items(), key=lambda item: (-item[1], item[0]))[:MAX_VALUES]
    return found


def _counted(found: CountedUpTo) -> Counted:
    return Counted(None if found.at is None else _instant(found.at / 1_000_000), found.behind)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _check(wanted: CountFilter, by: CountBy) -> None:
    if call_counts.facet_of(wanted, by) is None:
        raise InvalidInput(
            "Calls are counted by one of persona, door and user at a time, and those of a door not by tool.",
            suggestion="Leave one of them away; GET /v1/invocations takes all filters together.",
        )


def _is_daily(wanted: CountFilter, by: CountBy) -> bool:
    """Tells whether only days are counted: of a user, and of a persona by tool."""
    facet, by_tool = call_counts.facet_of(wanted, by), by == "tool" or wanted.tool is not None
    return facet is not None and not call_statistics.is_counted(facet, HOUR, by_tool)


def _steps(since: datetime, until: datetime, step: int | None, *, is_daily: bool) -> tuple[int, int, int]:
    seconds = until.timestamp() - since.timestamp()
    if seconds <= 0:
        raise InvalidInput("The time ends before it begins: `until` must be after `since`.")
    if step is None:
        step = DAY if is_daily or seconds > 10 * DAY else HOUR
    if step < HOUR or step % HOUR:
        raise InvalidInput(f"The step must be {HOUR} seconds, or a multiple of that.")
    if is_daily and step % DAY:
        raise InvalidInput(
            "Calls of a user, or of a persona by tool, are counted by day.", suggestion=f"Use a step of {DAY}."
        )
    begin, end = int(since.timestamp()) // step * step, -(-int(until.timestamp() + 1) // step) * step
    most = MAX_POINTS if step % DAY == 0 else min(MAX_POINTS, MAX_HOURS * HOUR // step)
    if (end - begin) // step > most:
        raise InvalidInput(f"The time has more than {most} steps of {step} seconds.", suggestion=f"Use a step of {DAY}.")
    return begin, end, step


def _totals(found: Sequence[CallCount], slots: dict[int, list[int]]) -> CallTotals:
    by_status: dict[str, int] = defaultdict(int)
    for one in found:
        by_status[one.status] += one.calls
    together = [sum(column) for column in zip(*slots.values(), strict=True)]
    return CallTotals(
        sum(by_status.values()), dict(by_status), sum(one.nano for one in found), sum(one.tokens for one in found),
        _percentiles(together),
    )  # fmt: skip


def _percentiles(slots: Sequence[int]) -> tuple[float | None, ...]:
    return tuple(percentile(slots, share) for share in PERCENTILES)


def _series(found: dict[str, tuple[list[int], list[int]]]) -> list[CallSeries]:
    """One for each of the names with the most calls and of those with the highest cost, and one for all others."""
    named = [CallSeries(name, calls, nano) for name, (calls, nano) in found.items()]
    most_calls = sorted(named, key=lambda one: (-sum(one.calls), one.name or ""))
    most_cost = sorted(most_calls, key=lambda one: -sum(one.nano))
    kept = {one.name for one in (*most_calls[:MAX_SERIES], *most_cost[:MAX_SERIES])}
    others = [one for one in most_calls if one.name not in kept]
    largest = [one for one in most_calls if one.name in kept]
    if others:
        calls, nano = ([sum(at) for at in zip(*(one[place] for one in others), strict=True)] for place in (1, 2))
        largest.append(CallSeries(None, calls, nano))
    return largest
