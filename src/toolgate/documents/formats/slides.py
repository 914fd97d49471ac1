"""Reads presentations of PowerPoint: the texts of each slide, with its number, under its title; then its notes."""

from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Any

from toolgate.documents.formats.blocks import MAX_PAGES, DocumentText

MAX_SHAPES = 10_000


def read_pptx(data: bytes, into: DocumentText) -> None:
    """Reads a file of PowerPoint."""
    import pptx

    slides = pptx.Presentation(BytesIO(data)).slides
    for number, slide in enumerate(islice(slides, MAX_PAGES), 1):
        into.begin_page()
        title = slide.shapes.title
        if title is not None:
            into.heading(1, title.text_frame.text)
            into.add(title.text_frame.text, page=number)
        for count, shape in enumerate(_shapes(slide.shapes), 1):
            if count > MAX_SHAPES:
                into.truncated = True
                break
            if title is None or shape.shape_id != title.shape_id:
                _read_shape(shape, into, number)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            into.add(slide.notes_slide.notes_text_frame.text, page=number)
    if len(slides) > MAX_PAGES:
        into.stop()


def _shapes(shapes: Any) -> Iterator[Any]:
    """Shapes, and those inside of groups, in order. A list, not recursion: groups may be nested to any depth."""
    waiting = [iter(shapes)]
    while True:
        while waiting and (shape := next(waiting[-1], None)) is None:
            waiting.pop()
        if not waiting:
            return
        yield shape
        inner = getattr(shape, "shapes", None)
        if inner is not None:
            waiting.append(iter(inner))


def _read_shape(shape: Any, into: DocumentText, page: int) -> None:
    if shape.has_text_frame:
        into.add(shape.text_frame.text, page=page)
    elif getattr(shape, "has_table", False):
        for row in shape.table.rows:
            into.add(" | ".join(" ".join(cell.text_frame.text.split()) for cell in row.cells), page=page)
