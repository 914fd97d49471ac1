"""Rows under each other, as wide as what they hold: for commands that show a table, or a line of several things.

A terminal that is too narrow for a table is shown a few lines for each row instead; a file or a pipe always gets the table.
"""

import sys
from collections.abc import Sequence
from shutil import get_terminal_size

from rich.cells import cell_len

from toolgate.cli.output import Part, clean, say

GAP = "  "
INDENT = "  "


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print a table, each row in its style. A heading that begins with `>` is of numbers, which stand at the right."""
    names = [name.lstrip(">") for name in header]
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(names, *cleaned, strict=True)]
    room = _room()
    if room is not None and sum(widths) + len(GAP) * (len(widths) - 1) > room:
        for number, row in enumerate(cleaned):
            pieces(*((text, styles[number] if styles else "") for text in _named(names, row)))
        return
    right = [name.startswith(">") for name in header]
    say((_line(names, widths, right), "bold"))
    for number, row in enumerate(cleaned):
        say((_line(row, widths, right), styles[number] if styles else ""))


def pieces(*parts: Part) -> None:
    """Print a line of parts with gaps between them: on a narrow terminal as several, all but the first indented."""
    rest = iter(parts)
    for number, line in enumerate(packed([_text(part) for part in parts], _room())):
        shown: list[Part] = [INDENT] if number else []
        for index in range(len(line)):
            shown += [GAP, next(rest)] if index else [next(rest)]
        say(*shown)


def packed(texts: Sequence[str], room: int | None) -> list[list[str]]:
    """Texts in lines that fit, with gaps between them, and an indent before all but the first."""
    lines: list[list[str]] = [[]]
    left = room
    for text in texts:
        needed = cell_len(text) + (len(GAP) if lines[-1] else 0)
        if room is not None and left is not None and lines[-1] and needed > left:
            lines.append([])
            left, needed = room - len(INDENT), cell_len(text)
        lines[-1].append(text)
        left = None if left is None else left - needed
    return lines


def _text(part: Part) -> str:
    return clean(part if isinstance(part, str) else part[0])


def _room() -> int | None:
    """How wide the terminal is; None if stdout is none."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def _named(names: Sequence[str], row: Sequence[str]) -> list[str]:
    """The cells of a row, each but the first with the name of its column."""
    first, *rest = row
    return [first, *(f"{name}: {cell}" if name else cell for name, cell in zip(names[1:], rest, strict=True) if cell)]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, at_right in zip(cells, widths, right, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if at_right else cell + space)
    return GAP.join(padded).rstrip()
