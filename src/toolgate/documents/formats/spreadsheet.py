"""Reads workbooks of Excel: each row with the names of its columns, its sheet and its number."""

from datetime import date, datetime, time
from io import BytesIO
from typing import Any

from toolgate.documents.formats.blocks import DocumentText

MAX_SHEETS = 200
MAX_ROWS = 100_000
MAX_COLUMNS = 256
MAX_CELL_CHARS = 2_000


def read_xlsx(data: bytes, into: DocumentText) -> None:
    """Reads a file of Excel: the values that were last calculated, not the formulas."""
    import openpyxl

    book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True, keep_links=False)
    for sheet in book.worksheets[:MAX_SHEETS]:
        names: list[str] | None = None
        into.truncated |= (sheet.max_column or 0) > MAX_COLUMNS  # as the file says; what is there is not looked at
        rows = sheet.iter_rows(max_row=MAX_ROWS + 1, max_col=MAX_COLUMNS + 1, values_only=True)
        for number, row in enumerate(rows, 1):
            cells = [_shown(value) for value in row]
            if not any(cells):
                continue
            if number > MAX_ROWS or any(cells[MAX_COLUMNS:]) or max(map(len, cells)) > MAX_CELL_CHARS:
                into.truncated = True
            if number > MAX_ROWS:
                break
            cells = [cell[:MAX_CELL_CHARS] for cell in cells[:MAX_COLUMNS]]
            if names is None:
                names = cells if _is_header(row) else []
                into.add(" | ".join(filter(None, cells)), sheet=sheet.title, row=number)
            else:
                into.add(_line(names, cells), sheet=sheet.title, row=number)
    if len(book.worksheets) > MAX_SHEETS:
        into.stop()


def _is_header(row: tuple[Any, ...]) -> bool:
    """True if the first row that has anything names the columns: more than one, and all of them texts."""
    said = [value for value in row if value is not None]
    return len(said) > 1 and all(isinstance(value, str) for value in said)


def _line(names: list[str], cells: list[str]) -> str:
    named = (names[at] if at < len(names) else "" for at in range(len(cells)))
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in zip(named, cells, strict=True) if cell)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime) and not any((value.hour, value.minute, value.second)):
        value = value.date()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float):
        return f"{value:g}" if value != int(value) or abs(value) > 1e15 else str(int(value))
    return " ".join(str(value).split())
