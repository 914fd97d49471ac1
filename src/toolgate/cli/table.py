"""The one printer of lists: rows under a header, as wide as what they hold.

A terminal that is too narrow for the table is shown a few lines for each row instead, each cell with the name of its column.
A file or a pipe always gets the table, a line for each row. Columns in which no row has anything are left out.
"""

import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Any

from rich.cells import cell_len

from toolgate.cli.output import Part, answered, clean, note, say

GAP = "  "
INDENT = "  "
STATE_STYLES = {
    **dict.fromkeys(("approved", "used", "done", "valid", "holds", "success", "newly allowed", "trusted"), "green"),
    **dict.fromkeys(("waiting", "unknown", "exhausted", "pending", "new", "parked"), "yellow"),
    **dict.fromkeys(("rejected", "failure", "failed", "timeout", "denied", "newly denied", "changed"), "red"),
    **dict.fromkeys(("expired", "revoked", "ended", "gone", "cancelled"), "dim"),
}
"""The colour of a state, the same in every list."""


def table(header: Sequence[str], rows: Sequence[Sequence[Part]]) -> None:
    """Prints rows. A heading that begins with `>` is of numbers, which stand at the right; no headings, no header."""
    texts = [[_text(cell) for cell in row] for row in rows]
    used = [index for index in range(len(header)) if any(row[index] for row in texts)]
    names = [header[index].lstrip(">") for index in used]
    widths = [max(map(cell_len, (name, *(row[index] for row in texts)))) for name, index in zip(names, used, strict=True)]
    room = _room()
    if room is not None and sum(widths) + len(GAP) * (len(widths) - 1) > room:
        for row in rows:
            _print_folded(names, [row[index] for index in used], room)
        return
    rights = [header[index].startswith(">") for index in used]
    if any(names):
        _print_line([(name, "bold") for name in names], widths, rights)
    for row in rows:
        _print_line([row[index] for index in used], widths, rights)


def listing(value: Any, header: Sequence[str], rows: Sequence[Sequence[Part]], *, none: str) -> int:
    """Prints a list: a value for programs, a table for people, or a sentence that says what would fill it. Gives the exit
    code."""
    if not answered(value):
        table(header, rows)
        if not rows:
            note((none, "dim"))
    return 0


def state(name: str) -> Part:
    """A state as a cell, in its colour."""
    return name, STATE_STYLES.get(name, "")


def packed(texts: Sequence[str], room: int) -> list[list[str]]:
    """Texts in lines that fit, with gaps between them, and an indent before all but the first."""
    lines: list[list[str]] = [[]]
    left = room
    for text in texts:
        needed = cell_len(text) + (len(GAP) if lines[-1] else 0)
        if lines[-1] and needed > left:
            lines.append([])
            left, needed = room - len(INDENT), cell_len(text)
        lines[-1].append(text)
        left -= needed
    return lines


def _print_line(cells: Sequence[Part], widths: Sequence[int], rights: Sequence[bool]) -> None:
    parts: list[Part] = []
    for cell, width, right in zip(cells, widths, rights, strict=True):
        space = " " * (width - cell_len(_text(cell)))
        parts += [GAP, space, cell] if right else [GAP, cell, space]
    while parts and not _text(parts[-1]).strip():
        parts.pop()
    say(*parts[1:])


def _print_folded(names: Sequence[str], cells: Sequence[Part], room: int) -> None:
    """Prints one row on as many lines as it takes, each cell but the first after the name of its column."""
    labelled: list[tuple[str, Part]] = [
        (f"{name}: " if index and name else "", cell)
        for index, (name, cell) in enumerate(zip(names, cells, strict=True))
        if _text(cell)
    ]
    rest = iter(labelled)
    for number, line in enumerate(packed([label + _text(cell) for label, cell in labelled], room)):
        parts: list[Part] = [INDENT] if number else []
        for index in range(len(line)):
            parts += [GAP if index else "", *next(rest)]
        say(*parts)


def _text(part: Part) -> str:
    return clean(part if isinstance(part, str) else part[0])


def _room() -> int | None:
    """The width of the terminal; None if stdout is none."""
    return get_terminal_size().columns if sys.stdout.isatty() else None
