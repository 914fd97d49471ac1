"""Counts of the calls that ended: call_statistics, made from the audit log behind a watermark and read in its place.

A row counts calls of a tenant in an hour or a day, by status and error code: all of them, or those of one persona, door or
user (`facet`), for all tools together or for one (`by_tool`); `is_counted` says which of these there are. So every answer is
a sum over few rows, however long the log is. Durations lie in slots, each half as long again as the one before: a percentile
that is taken from them is within 23 % of the true one, for durations from 0.1 ms to 8 minutes.

Nothing is counted while a call runs. Whoever asks, and whoever serves, counts the rows after the watermark, some thousand at
a time; the watermark moves in the transaction that adds them, so that of several processes one adds them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

import orjson

from toolgate.store import tool_outcomes
from toolgate.store.database import Rows, Store, Transaction
from toolgate.store.tool_outcomes import Observed, ToolKey
from toolgate.threads import to_thread

HOUR, DAY = 3_600, 86_400
"""Seconds that are counted together."""
SLOTS = 40
SLOT_GROWTH = 1.5
SLOT_BOUNDS_MS = tuple(0.1 * SLOT_GROWTH**number for number in range(SLOTS - 1))
"""The durations at which the second slot and all later ones begin."""
FACETS = ("persona", "door", "user")
ALL_SLOTS = tuple(range(SLOTS))
SLOT_COLUMNS = tuple(f"l{number:02d}" for number in range(SLOTS))
_KEY = ("tenant_id", "facet", "span", "by_tool", "value", "starts", "tool_name", "status", "code")
_SUMS = ("calls", "ran", "nano", "tokens")
PART_ROWS = 4_000
"""Rows of the log that one transaction counts: other writers wait for it some ten milliseconds."""
_CHUNKS = (8, 1)
"""Cells that one INSERT takes: few sizes, so that few statements are prepared."""

CellKey = tuple[Any, ...]
Cell = tuple[list[int], dict[int, int]]
"""Calls, those that ran, nano-dollars and tokens; and the calls that ran, by slot."""
Cells = dict[CellKey, Cell]


class LogPart(NamedTuple):
    """Rows of the log that are not counted yet."""

    after: int
    """The watermark: the last row that is counted."""
    last: int
    """The last row of this part."""
    end: int
    """The last row of the log."""
    at: int | None
    """The time of the row at the watermark; None: nothing is counted yet."""
    rows: Rows


class CountedUpTo(NamedTuple):
    """The part of the log that is counted."""

    at: int | None
    """The time of its last row, in microseconds since 1970; None: nothing is counted yet."""
    behind: int
    """Rows of the log after it."""


# -- counting


def next_part(most: int) -> Transaction[LogPart]:
    """Reads the ends of calls among the next rows that are not counted yet."""
    [(after, at, end)] = yield (
        "SELECT seq, (SELECT at FROM audit_log WHERE seq = call_statistics_progress.seq), "
        "(SELECT coalesce(max(seq), 0) FROM audit_log) FROM call_statistics_progress WHERE id = 1",
        {},
    )
    last = min(after + most, end)
    if last <= after:
        return LogPart(after, after, end, at, [])
    rows = yield (
        "SELECT at, tenant, tool, status, body FROM audit_log WHERE seq > :after AND seq <= :last AND kind = 'end' "
        "ORDER BY seq",
        {"after": after, "last": last},
    )
    return LogPart(after, last, end, at, rows)


def counted(rows: Iterable[tuple[Any, ...]]) -> Cells:
    """The cells to which ends of calls add, and what they add to each."""
    cells: Cells = {}
    for leaf, (counts, slots) in _leaves(rows).items():
        tenant, starts, tool, status, code, *values = leaf
        held = [("", ""), *((facet, value) for facet, value in zip(FACETS, values, strict=True) if value is not None)]
        for span in (HOUR, DAY):
            begin = starts // span * span
            for facet, value in held:
                for by_tool, name in ((0, ""), (1, tool)):
                    if not is_counted(facet, span, by_tool):
                        continue
                    key = (tenant, facet, span, by_tool, value, begin, name, status, code)
                    cell = cells.get(key)
                    if cell is None:
                        cells[key] = ([*counts], {**slots})
                        continue
                    for index, count in enumerate(counts):
                        cell[0][index] += count
                    for slot, count in slots.items():
                        cell[1][slot] = cell[1].get(slot, 0) + count
    return cells


def is_counted(facet: str, span: int, by_tool: int) -> bool:
    """Tells whether there are rows of this kind. A user's calls are counted by day, those of a persona by day if by tool,
    and those of a door for all tools together: finer, nearly every call would have a row of its own."""
    if facet == "user" or (facet == "persona" and by_tool):
        return span == DAY
    return not facet or not by_tool


def _leaves(rows: Iterable[tuple[Any, ...]]) -> Cells:
    """Calls that differ in nothing that is counted, together: a busy log has many of them."""
    leaves: Cells = {}
    for at, tenant, tool, status, body in rows:
        said = _content(body)
        persona, door, user = (_text(said.get(name)) for name in FACETS)
        starts = at // 1_000_000 // HOUR * HOUR
        leaf = (tenant, starts, tool, status, _text(said.get("code")) or "", persona or "", door or "python", user)
        found = leaves.get(leaf)
        if found is None:
            found = leaves[leaf] = ([0, 0, 0, 0], {})
        counts, slots = found
        ran = _number(said.get("attempts")) > 0
        for index, more in enumerate((1, ran, _number(said.get("cost")), _number(said.get("tokens_used")))):
            counts[index] += more
        if ran:
            slot = slot_of(said.get("duration_ms"))
            slots[slot] = slots.get(slot, 0) + 1
    return leaves


def slot_of(duration_ms: Any) -> int:
    """The slot that counts a duration."""
    return bisect_right(SLOT_BOUNDS_MS, duration_ms) if isinstance(duration_ms, int | float) else 0


def percentile(slots: Sequence[int], share: float) -> float | None:
    """The duration, in milliseconds, within which a share of the calls ended; None: there are none. It is the geometric
    middle of the slot that holds the true one."""
    seen = list(accumulate(slots))
    if not seen or not seen[-1]:
        return None
    slot = bisect_left(seen, max(1, ceil(seen[-1] * share)))
    return SLOT_BOUNDS_MS[0] if slot == 0 else round(SLOT_BOUNDS_MS[slot - 1] * SLOT_GROWTH**0.5, 4)


def _content(body: str) -> dict[str, Any]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:  # somebody changed it: `verify` tells
        return {}
    return content if isinstance(content, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 2**53 else 0


def observed(rows: Iterable[tuple[Any, ...]]) -> dict[ToolKey, list[Observed]]:
    """The outcomes of tools that ends of calls tell, in the order of the log."""
    found: dict[ToolKey, list[Observed]] = {}
    for at, tenant, tool, status, body in rows:
        verdict = tool_outcomes.verdict_of(status, _content(body))
        if verdict is not None:
            found.setdefault((tenant, tool), []).append(Observed(verdict, at // 1_000_000))
    return found


def add(part: LogPart, cells: Cells, outcomes: Mapping[ToolKey, Sequence[Observed]]) -> Transaction[bool]:
    """Adds a part of the log and moves the watermark; gives False, and does nothing, if somebody else has."""
    moved = yield (
        "UPDATE call_statistics_progress SET seq = :last WHERE id = 1 AND seq = :after RETURNING seq",
        {"last": part.last, "after": part.after},
    )
    if not moved:
        return False
    yield from _upserts(sorted(cells.items()))  # in order, so that each page of the table is looked for once
    yield from tool_outcomes.add(outcomes)
    return True


def _upserts(cells: list[tuple[CellKey, Cell]]) -> Transaction[None]:
    """Adds cells, some to a statement. Most hold calls of one slot or none, and then the other slots are not named: SQLite
    takes time for each name of a value, and for each pair of them in one statement."""
    alike: dict[tuple[int, ...], list[tuple[Any, ...]]] = {}
    for key, (sums, held) in cells:
        slots = tuple(held) if len(held) <= 1 else ALL_SLOTS
        alike.setdefault(slots, []).append((*key, *sums, *(held.get(slot, 0) for slot in slots)))
    for slots, rows in alike.items():
        done = 0
        for chunk in _CHUNKS:
            while len(rows) - done >= chunk and (chunk == 1 or len(slots) <= 1):
                sql, names = _upsert(slots, chunk)
                yield sql, dict(zip(names, (value for row in rows[done : done + chunk] for value in row), strict=True))
                done += chunk


@cache
def _upsert(slots: tuple[int, ...], cells: int) -> tuple[str, list[str]]:
    """The statement that adds so many cells, and the names of its values."""
    counts = (*_SUMS, *(SLOT_COLUMNS[slot] for slot in slots))
    columns = (*_KEY, *counts)
    names = [f"v{number}" for number in range(cells * len(columns))]
    rows = (names[begin : begin + len(columns)] for begin in range(0, len(names), len(columns)))
    values = ", ".join(f"({', '.join(f':{name}' for name in row)})" for row in rows)
    added = ", ".join(f"{name} = call_statistics.{name} + excluded.{name}" for name in counts)
    return (
        f"INSERT INTO call_statistics ({', '.join(columns)}) VALUES {values} "
        f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {added}"
    ), names


async def count_rows(store: Store, most: int | None = None) -> CountedUpTo:
    """Counts rows of the log that are not counted yet: at most so many, or all. Gives how far that came."""
    left = most
    while True:
        part = await store.read(next_part(PART_ROWS if left is None else min(left, PART_ROWS)))
        if part.after > part.end:  # the log was cut, or another one was put in its place
            await store.transact(forget())
            continue
        if part.last == part.after:
            return CountedUpTo(part.at, part.end - part.after)
        cells, outcomes = await to_thread(lambda rows: (counted(rows), observed(rows)), part.rows)
        await store.transact(add(part, cells, outcomes))
        if left is not None:
            left -= part.last - part.after


def forget() -> Transaction[None]:
    """Removes all counts: they are made anew from the beginning of the log."""
    yield "UPDATE call_statistics_progress SET seq = 0 WHERE id = 1", {}
    yield "DELETE FROM call_statistics", {}
    yield from tool_outcomes.forget()
