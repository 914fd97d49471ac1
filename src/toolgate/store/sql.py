"""Statements that every group of tables has, and rows as Python has them. Names of tables and columns are our own, never a
caller's; values are parameters."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from toolgate.store.database import Statement, Transaction, moment

R = TypeVar("R", bound=tuple[Any, ...])
NO_VALUES: Mapping[str, Any] = {}
_CONVERSIONS: dict[Any, Any] = {datetime: moment, datetime | None: moment, bool: bool}


def insert(table: str, values: Mapping[str, Any]) -> Statement:
    """Adds a row."""
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(f':{name}' for name in values)})", values


def upsert(table: str, values: Mapping[str, Any], key: tuple[str, ...], changes: Iterable[str] | None = None) -> Statement:
    """Adds a row, or changes the one that has its key: in these columns, or in all that are not of the key."""
    changed = (name for name in values if name not in key) if changes is None else changes
    taken = ", ".join(f"{name} = excluded.{name}" for name in changed)
    return f"{insert(table, values)[0]} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {taken}", values


def select(kind: type[R], table: str, rest: str, values: Mapping[str, Any] = NO_VALUES) -> Transaction[list[R]]:
    """The rows of a table, each as a named tuple whose fields are its columns; `rest` is what follows the table's name."""
    rows = yield f"SELECT {columns(kind)} FROM {table} {rest}", values
    return [made(kind, row) for row in rows]


def select_one(kind: type[R], table: str, rest: str, values: Mapping[str, Any]) -> Transaction[R | None]:
    """The first of the rows that `select` gives; None: there is none."""
    found = yield from select(kind, table, rest, values)
    return found[0] if found else None


def column(sql: str, values: Mapping[str, Any] = NO_VALUES) -> Transaction[list[Any]]:
    """The values of a query of one column."""
    return [row[0] for row in (yield sql, values)]


def value(sql: str, values: Mapping[str, Any] = NO_VALUES) -> Transaction[Any]:
    """The first value of a query; None: it gave no row."""
    return next(iter((yield from column(sql, values))), None)


def is_any(sql: str, values: Mapping[str, Any]) -> Transaction[bool]:
    """Tells whether a statement gave any row: whether there is one, or one was changed (RETURNING)."""
    return bool((yield sql, values))


def containing(text: str) -> str:
    """The pattern of LIKE, with the escape character `\\`, for what has a text in it; to be compared in small letters."""
    plain = "".join(f"\\{char}" if char in "\\%_" else char for char in text.lower())
    return f"%{plain}%"


def columns(kind: type[R]) -> str:
    """The fields of a named tuple, for a SELECT."""
    return ", ".join(kind._fields)  # type: ignore[attr-defined]


def made(kind: type[R], row: Iterable[Any]) -> R:
    """A row with instants and booleans as Python has them, whatever the backend gives."""
    values = list(row)
    for index, convert in _conversions(kind):
        if values[index] is not None:
            values[index] = convert(values[index])
    return kind(*values)


@cache
def _conversions(kind: type[Any]) -> list[tuple[int, Any]]:
    hints = enumerate(kind.__annotations__.values())
    return [(index, _CONVERSIONS[hint]) for index, hint in hints if hint in _CONVERSIONS]
