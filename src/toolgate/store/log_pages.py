"""Pages of the audit log, newest first: of all its rows, or of the calls that ended.

A page takes about as long in a long log as in a short one. Rows are walked along one index, which the filters choose; the
other filters are looked at row by row, of at most `MAX_WALKED` rows. So a page may hold less than it could while there are
more, and the next one goes on where it stopped.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from toolgate.store.database import LOG_COLUMNS, Rows, Transaction
from toolgate.store.sql import value

MAX_WALKED = 1_000
"""Rows that a page looks at, where filters are left that no index has."""
SLACK = 120_000_000
"""Microseconds. Rows stand in the order in which they were written. The times in them differ from that by less than this."""
LAST = 2**63 - 1
DEFAULT_DOOR = "python"
"""The door that records do not name."""


class LogFilter(NamedTuple):
    """The rows that are wanted; None: whatever they have there."""

    tenant: str | None = None
    tool: str | None = None
    status: str | None = None
    kind: str | None = None
    user: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class CallFilter(NamedTuple):
    """The calls that are wanted; None: whatever they have there."""

    tenant: str | None = None
    id: str | None = None
    """A beginning of the id."""
    user: str | None = None
    tool: str | None = None
    status: str | None = None
    code: str | None = None
    persona: str | None = None
    door: str | None = None
    tier: str | None = None
    session: str | None = None
    request_id: str | None = None
    parent: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class LogPage(NamedTuple):
    """Rows, newest first, and the number before which the next page begins; None: there is nothing older."""

    rows: Rows
    next: int | None


Index = tuple[list[str], frozenset[str]]
"""The conditions of the index that rows are walked along, and the filters that these are."""
BODY_FIELDS = frozenset({"user", "code", "persona", "door", "tier", "session", "request_id", "parent"})


def rows(wanted: LogFilter, before: int | None, limit: int) -> Transaction[LogPage]:
    """Up to `limit` rows before a number; None: the last ones."""
    given = _given(wanted)
    if "tenant" in given and given.get("kind") not in (None, "start", "end"):
        index = ["tenant = :tenant", "kind <> 'start'", "kind <> 'end'"], frozenset({"tenant"})
    else:
        index = _column_index(given)
    return (yield from _page("audit_log", index, given, before, limit))


def calls(wanted: CallFilter, before: int | None, limit: int) -> Transaction[LogPage]:
    """The end records of up to `limit` calls before a number; None: the last ones."""
    given = _given(wanted)
    if "id" in given:
        # Ids begin with their time, so a short beginning may be that of many: those after the first ones are not looked at.
        inner = f"SELECT seq FROM audit_log WHERE call_id >= :id AND call_id < :past ORDER BY call_id LIMIT {MAX_WALKED}"
        index = [f"seq IN (SELECT seq FROM ({inner}) AS begun)"], frozenset({"id"})
    elif "parent" in given:
        index = ["seq IN (SELECT seq FROM call_parents WHERE parent_id = :parent)"], frozenset({"parent"})
    elif "request_id" in given:
        index = ["seq IN (SELECT seq FROM call_requests WHERE request_id = :request_id)"], frozenset({"request_id"})
    elif "user" in given and "tenant" in given:
        index = ["tenant = :tenant", "user_text = :user_text"], frozenset({"tenant", "user"})
    elif "tenant" in given and ("code" in given or given.get("status", "success") != "success"):
        index = ["tenant = :tenant", "status <> 'success'"], frozenset({"tenant"})
    else:
        index = _column_index(given)
    return (yield from _page("call_ends", index, given, before, limit))


def calls_within(call_id: str, tenant: str, levels: int, limit: int) -> Transaction[Rows]:
    """The end records of the calls that a call made, of those that these made, and so on, level by level, oldest first."""
    found: Rows = []
    columns, parents = ", ".join(LOG_COLUMNS), [call_id]
    while parents and levels and len(found) < limit:
        named = {f"parent{number}": id for number, id in enumerate(parents)}
        made = f"SELECT seq FROM call_parents WHERE parent_id IN ({', '.join(f':{name}' for name in named)})"
        where = f"tenant = :tenant AND seq IN ({made})"
        rows = yield (
            f"SELECT {columns} FROM call_ends WHERE {where} ORDER BY seq LIMIT {limit - len(found):d}",
            {"tenant": tenant, **named},
        )
        found, parents, levels = [*found, *rows], [row[3] for row in rows], levels - 1
    return found


def _column_index(given: Mapping[str, Any]) -> Index:
    name = next((name for name in ("tool", "tenant") if name in given), None)
    return ([], frozenset()) if name is None else ([f"{name} = :{name}"], frozenset({name}))


def _given(wanted: LogFilter | CallFilter) -> dict[str, Any]:
    return {name: part for name, part in wanted._asdict().items() if part is not None}


def _page(table: str, index: Index, given: Mapping[str, Any], before: int | None, limit: int) -> Transaction[LogPage]:
    along, covered = index
    rest = {name: part for name, part in given.items() if name not in covered}
    bounds = {"before": LAST if before is None else before, "above": 0}
    if "until" in given:
        bounds["before"] = min(bounds["before"], (yield from _first_after(_micros(given["until"]) + SLACK)))
    if "since" in given:
        bounds["above"] = (yield from _first_after(_micros(given["since"]) - SLACK)) - 1
    values = {**_values(given), **bounds}
    walked = f"FROM {table} WHERE {' AND '.join((*along, 'seq < :before', 'seq > :above'))} ORDER BY seq DESC"
    columns, filters = ", ".join(LOG_COLUMNS), " AND ".join(_filters(rest))
    if not filters:
        found = yield _used(f"SELECT {columns} {walked} LIMIT {limit:d}", values)
        return LogPage(found, int(found[-1][0]) if len(found) == limit else None)
    # The rows of the inner query come in its order, and the outer one takes no more of them than it needs.
    inner = f"(SELECT {columns} {walked} LIMIT {MAX_WALKED}) AS walked"
    found = yield _used(f"SELECT {columns} FROM {inner} WHERE {filters} LIMIT {limit:d}", values)
    exact = [row for row in found if _fits(row[7], rest)]
    if len(found) == limit:
        return LogPage(exact, int(found[-1][0]))
    last = yield from value(*_used(f"SELECT seq {walked} LIMIT 1 OFFSET {MAX_WALKED - 1}", values))
    return LogPage(exact, None if last is None else int(last))


def _filters(rest: Mapping[str, Any]) -> Iterator[str]:
    """Conditions that are looked at row by row. What a body holds is looked for as text; found rows are read."""
    for name in rest:
        if name == "door" and rest[name] == DEFAULT_DOOR:
            yield "1 = 1"  # records do not name it: found rows are read
        elif name in BODY_FIELDS:
            yield rf"body LIKE :{name}_part ESCAPE '\'"
        elif name in ("since", "until"):
            yield "at >= :since" if name == "since" else "at < :until"
        else:
            yield f"{name} = :{name}"


def _fits(body: str, rest: Mapping[str, Any]) -> bool:
    wanted = {name: part for name, part in rest.items() if name in BODY_FIELDS}
    if not wanted:
        return True
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:  # somebody changed it: `verify` tells
        return False
    return isinstance(content, dict) and all(
        content.get(name, DEFAULT_DOOR if name == "door" else None) == part for name, part in wanted.items()
    )


def _values(given: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, part in given.items():
        values[name] = _micros(part) if isinstance(part, datetime) else part
        if name == "id":
            values["past"] = part + "\x7f"
        if name in BODY_FIELDS:
            text = orjson.dumps(part).decode()
            values[f"{name}_text"] = text
            escaped = "".join(f"\\{char}" if char in "\\%_" else char for char in text)
            values[f"{name}_part"] = f'%"{name.replace("_", chr(92) + "_")}":{escaped}%'
    return values


def _used(sql: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A statement with those of the values that it has a place for."""
    places = {word.strip("(),") for word in sql.split()}
    return sql, {name: part for name, part in values.items() if f":{name}" in places}


def _micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def _first_after(wanted: int) -> Transaction[int]:
    """The number of the first row that was written at a moment or after it, found by halving."""
    least, most = (f"(SELECT {one}(seq) FROM audit_log WHERE seq > 0)" for one in ("min", "max"))
    ends = yield f"SELECT {least}, {most}", {}  # two questions, because both at once would walk through all
    if ends[0][0] is None:
        return 1
    low, high = int(ends[0][0]), int(ends[0][1]) + 1
    while low < high:
        middle = (low + high) // 2
        at = yield from value("SELECT at FROM audit_log WHERE seq >= :seq ORDER BY seq LIMIT 1", {"seq": middle})
        low, high = (low, middle) if int(at) >= wanted else (middle + 1, high)
    return low
