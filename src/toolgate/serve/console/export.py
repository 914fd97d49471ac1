"""Lists as files: what a page shows, as CSV or JSON."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from toolgate.serve.problems import HttpProblem

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of a cell that spreadsheet programs take for a formula, some of them also in full width."""
MAX_COLUMNS = 200
"""Columns of a file. Arguments have names of their callers' choosing: with many of those in many rows, a file would have
more cells than there is memory for."""


def exported(title: str, items: Sequence[Any] | Mapping[str, Any], form: str, headers: Mapping[str, str]) -> Response:
    """The items of a list, or a document, as a file to be kept."""
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "list"
    if form == "json":
        body, kind = msgspec.json.encode(items), "application/json"
    elif form == "csv":
        body, kind = _csv([items] if isinstance(items, Mapping) else items).encode(), "text/csv; charset=utf-8"
    else:
        raise HttpProblem(422, "The query is wrong: format is csv or json.")
    told = {**headers, "content-disposition": f'attachment; filename="{name}.{form}"'}
    return Response(body, media_type=kind, headers=told)


def _csv(items: Sequence[Any]) -> str:
    given = msgspec.json.decode(msgspec.json.encode(items))
    rows = [_flat(item) for item in given]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if len(columns) > MAX_COLUMNS:  # what is within a field stays there, as JSON
        rows = [item if isinstance(item, dict) else {"value": item} for item in given]
        columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue()


def _flat(item: Any, within: str = "") -> dict[str, Any]:
    """The fields of an item, those of an object in it by their path."""
    if not isinstance(item, dict):
        return {within or "value": item}
    found: dict[str, Any] = {}
    for name, value in item.items():
        path = f"{within}.{name}" if within else str(name)
        found |= _flat(value, path) if isinstance(value, dict) and value else {path: value}
    return found


def _cell(value: Any) -> str | int | float | None:
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if text.startswith(FORMULA) else text
