"""Rows under each other, as wide as what they hold: for commands that show a table."""

from collections.abc import Sequence

from rich.cells import cell_len

from toolgate.cli.screen import clean, say

GAP = "  "


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print a table, each row in its style. A heading that begins with `>` is of numbers, which stand at the right."""
    names = [name.lstrip(">") for name in header]
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(names, *cleaned, strict=True)]
    right = [name.startswith(">") for name in header]
    say((_line(names, widths, right), "bold"))
    for number, row in enumerate(cleaned):
        say((_line(row, widths, right), styles[number] if styles else ""))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, at_right in zip(cells, widths, right, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if at_right else cell + space)
    return GAP.join(padded).rstrip()
