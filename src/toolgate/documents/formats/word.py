"""Reads documents of Word: paragraphs under their headings, and tables row by row."""

import re
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Any

from toolgate.documents.formats.blocks import DocumentText

_HEADING = re.compile(r"heading ?([1-9])\Z", re.IGNORECASE)
MAX_TABLE_COLUMNS = 256


def read_docx(data: bytes, into: DocumentText) -> None:
    """Reads a file of Word: its body, without headers, footers and comments."""
    import docx
    from docx.table import Table

    document = docx.Document(BytesIO(data))
    levels = _heading_levels(document)
    for part in document.iter_inner_content():
        if isinstance(part, Table):
            for row in part.rows:
                cells = list(islice(_cell_texts(row), MAX_TABLE_COLUMNS + 1))
                into.truncated |= len(cells) > MAX_TABLE_COLUMNS
                into.add(" | ".join(cells) if any(cells) else "")
            continue
        level = levels.get(part._p.style) if part._p.style is not None else None
        if level is None:
            into.add(part.text)
        else:
            into.heading(level, part.text)


def _heading_levels(document: Any) -> dict[str, int]:
    """By the id of a style, the level of the headings that have it: found once, since each paragraph would search them
    all."""
    levels = {}
    for style in document.styles:
        found = _HEADING.match(style.name or "")
        if found is not None:
            levels[style.style_id] = int(found[1])
        elif (style.name or "").lower() == "title":
            levels[style.style_id] = 0
    return levels


def _cell_texts(row: Any) -> Iterator[str]:
    """The texts of the cells of a row; a merged cell once."""
    before = None
    for cell in row.cells:
        if cell._tc is not before:
            yield " ".join(cell.text.split())
        before = cell._tc
