"""Sums of call_statistics: how many calls ended in a time, how, at what cost and after how long."""

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Literal, NamedTuple

from toolgate.store.call_statistics import DAY, FACETS, HOUR, SLOT_COLUMNS, is_counted
from toolgate.store.database import Rows, Transaction
from toolgate.store.sql import column

CountBy = Literal["status", "tool", "code", "persona", "door", "user"]
_COLUMN: dict[str, str] = {"status": "status", "tool": "tool_name", "code": "code"}
_SUMMED = ("calls", "ran", "nano", "tokens")
NOTHING = "''"
"""In place of a column that is not asked for."""

# Each tenant, or value of a facet, by one seek: DISTINCT would walk through all that they have.
_TENANTS = """WITH RECURSIVE held(name) AS (
SELECT min(tenant_id) FROM call_statistics
UNION ALL SELECT (SELECT min(tenant_id) FROM call_statistics WHERE tenant_id > held.name)
FROM held WHERE held.name IS NOT NULL) SELECT name FROM held WHERE name IS NOT NULL"""
_PLACE = "tenant_id = :tenant AND facet = :facet AND span = :span AND by_tool = :by_tool"
_VALUES = f"""WITH RECURSIVE held(name) AS (
SELECT min(value) FROM call_statistics WHERE {_PLACE}
UNION ALL SELECT (SELECT min(value) FROM call_statistics WHERE {_PLACE} AND value > held.name)
FROM held WHERE held.name IS NOT NULL) SELECT name FROM held WHERE name IS NOT NULL"""

# Of one tool, each hour or day by one seek: a range would walk through those of all tools.
_STARTS = """WITH RECURSIVE at(starts) AS (
SELECT CAST(:begin AS BIGINT) WHERE CAST(:begin AS BIGINT) < :until
UNION ALL SELECT at.starts + :span FROM at WHERE at.starts + :span < :until) SELECT at.starts FROM at"""


class CountFilter(NamedTuple):
    """The calls that are counted; None: whatever they have there. Of persona, door and user, one may be named;
    with a door, no tool."""

    tenant: str | None = None
    tool: str | None = None
    status: str | None = None
    code: str | None = None
    persona: str | None = None
    door: str | None = None
    user: str | None = None


class CallCount(NamedTuple):
    """Calls that ended, counted together."""

    tenant: str
    point: int
    """The number of the step in which they ended; 0 where steps are not asked for."""
    name: str
    status: str
    calls: int
    ran: int
    """Calls whose tool was run."""
    nano: int
    tokens: int


def whole_hours(since: datetime, until: datetime) -> tuple[int, int]:
    """The hours that hold a time: the beginning of the first and the end of the last, in seconds since 1970."""
    return int(since.timestamp()) // HOUR * HOUR, -(-int(until.timestamp() + 1) // HOUR) * HOUR


def whole_days(since: datetime, until: datetime) -> tuple[int, int]:
    """The days in UTC that hold a time, as `whole_hours`."""
    begin, end = whole_hours(since, until)
    return begin // DAY * DAY, -(-end // DAY) * DAY


def facet_of(wanted: CountFilter, by: CountBy | None) -> str | None:
    """The facet that has to be read: '' for all calls; None: no row counts what is wanted."""
    named = [facet for facet in FACETS if facet == by or getattr(wanted, facet) is not None]
    facet = next(iter(named), "")
    by_tool = by == "tool" or wanted.tool is not None
    return None if len(named) > 1 or not is_counted(facet, DAY, by_tool) else facet


def counts(
    wanted: CountFilter,
    since: int,
    until: int,
    *,
    by: CountBy | None = "status",
    step: int | None = None,
    statuses: bool = True,
) -> Transaction[list[CallCount]]:
    """Sums from one hour to another (seconds since 1970), by name and status; by `step` seconds too, if they are given.
    With `by` None, calls of all names together, without `statuses` of all statuses: the name, or the status, is empty.
    Steps of whole days are read from days, so `since` must begin one."""
    found = yield from _sums(wanted, since, until, step, by, statuses, _SUMMED)
    return [CallCount._make(row) for row in found if row[4]]


def by_step(
    wanted: CountFilter, since: int, until: int, *, by: CountBy, step: int
) -> Transaction[dict[str, tuple[list[int], list[int]]]]:
    """Of each name, the calls and their nano-dollars, step by step; the time is given as for `counts`. There may be
    thousands of sums, so nothing is made of them in between."""
    points = (until - since) // step
    found: dict[str, tuple[list[int], list[int]]] = {}
    for _, point, name, _, calls, nano in (yield from _sums(wanted, since, until, step, by, False, ("calls", "nano"))):
        series = found.get(name)
        if series is None:
            series = found[name] = [0] * points, [0] * points
        series[0][point] += calls
        series[1][point] += nano
    return found


def durations(wanted: CountFilter, since: int, until: int, *, step: int | None = None) -> Transaction[dict[int, list[int]]]:
    """The calls that ran, by the slot of their duration, of each step in which any did; the time is given as for `counts`.
    They are read on their own because forty columns for each name and status would take longer than all else."""
    found: dict[int, list[int]] = {}
    for _, point, _, _, *slots in (yield from _sums(wanted, since, until, step, None, False, SLOT_COLUMNS)):
        if any(slots):
            known = found.get(point)
            found[point] = slots if known is None else [one + more for one, more in zip(known, slots, strict=True)]
    return found


def _sums(
    wanted: CountFilter,
    since: int,
    until: int,
    step: int | None,
    by: CountBy | None,
    statuses: bool,
    summed: tuple[str, ...],
) -> Transaction[Rows]:
    """Rows: the tenant, the number of the step, the name, the status, and the sum of each column."""
    facet = facet_of(wanted, by)
    if facet is None:
        raise ValueError("calls are counted by one of persona, door and user at a time, and of a door not by tool")
    tenants = [wanted.tenant] if wanted.tenant is not None else (yield from column(_TENANTS))
    given = {name: text for name, text in wanted._asdict().items() if text is not None and name != "tenant"}
    by_tool = int(by == "tool" or "tool" in given)
    values = {**given, "facet": facet, "by_tool": by_tool, "value": given.get(facet, ""), "since": since, "step": step}
    names = NOTHING if by is None else _COLUMN.get(by, "value"), "status" if statuses else NOTHING
    found: Rows = []
    for tenant in tenants:
        for span, begin, end in _pieces(since, until, step):
            steps = None if step is None else "starts" if step == span else "point"
            statement = _statement(facet, tuple(sorted(given)), steps, names, summed)
            found += yield statement, {**values, "tenant": tenant, "span": span, "begin": begin, "until": end}
    return found


def _pieces(since: int, until: int, step: int | None) -> Iterator[tuple[int, int, int]]:
    """Spans that make up a time: whole days where they can be, hours before and after."""
    first, last = -(-since // DAY) * DAY, until // DAY * DAY
    if (step is not None and step % DAY) or first >= last:
        yield HOUR, since, until
        return
    for span, begin, end in ((HOUR, since, first), (DAY, first, last), (HOUR, last, until)):
        if begin < end:
            yield span, begin, end


@cache
def _statement(
    facet: str, given: tuple[str, ...], steps: str | None, names: tuple[str, str], summed: tuple[str, ...]
) -> str:
    """Groups rows, where a step is one span, by where that `starts`: they lie in this order, and need not be sorted."""
    where = [_PLACE, "value = :value" if facet in given or not facet else f"value IN ({_VALUES})"]
    where += [f"starts IN ({_STARTS})" if "tool" in given else "starts >= :begin AND starts < :until"]
    where += [f"{_COLUMN[name]} = :{name}" for name in given if name in _COLUMN]
    where += ["ran > 0"] if summed is SLOT_COLUMNS else []  # the others have no duration
    grouped = ", ".join(dict.fromkeys(one for one in (steps, *names) if one not in (None, NOTHING)))
    sums = ", ".join(f"CAST(SUM({one}) AS BIGINT)" for one in summed)
    return (
        "SELECT CAST(:tenant AS TEXT) AS tenant, "
        f"{'0' if steps is None else '(starts - :since) / :step'} AS point, {', '.join(names)}, {sums} "
        f"FROM call_statistics WHERE {' AND '.join(where)}{f' GROUP BY {grouped}' if grouped else ''}"
    )


class ToolUseCount(NamedTuple):
    """Calls of one tool by one persona."""

    persona: str
    """Empty: none."""
    tool: str
    used: int
    """Calls since a day that ran the tool, or were answered from the cache."""
    stopped: int
    """Calls since then that did neither, though the policy let them through."""
    last: int | None
    """The beginning of the last day, whenever it was, with a call that used the tool; in seconds since 1970."""


_TOOL_USE = f"""SELECT value, tool_name,
CAST(SUM(CASE WHEN starts >= :begin THEN used ELSE 0 END) AS BIGINT),
CAST(SUM(CASE WHEN starts >= :begin AND code NOT IN ('PERMISSION_DENIED', 'TOOL_NOT_FOUND') THEN calls - used ELSE 0 END)
AS BIGINT), MAX(CASE WHEN used > 0 THEN starts END)
FROM (SELECT value, tool_name, starts, code, calls, CASE WHEN status = 'success' THEN calls ELSE ran END AS used
FROM call_statistics WHERE {_PLACE}) AS counted GROUP BY value, tool_name"""


def tool_use(tenant: str, since: int) -> Transaction[list[ToolUseCount]]:
    """The calls of a tenant by persona and tool, since the beginning of a day (seconds since 1970)."""
    rows = yield _TOOL_USE, {"tenant": tenant, "facet": "persona", "span": DAY, "by_tool": 1, "begin": since}
    return [ToolUseCount._make(row) for row in rows]


def tenants() -> Transaction[list[str]]:
    """The tenants of which calls are counted."""
    return column(_TENANTS)
