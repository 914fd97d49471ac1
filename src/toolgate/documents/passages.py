"""Cuts the blocks of a document into passages: long enough to mean something alone, short enough for the embedding model to
read whole, each with the place where it stands."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from toolgate.documents.formats.blocks import Block

MAX_PASSAGE_CHARS = 900
"""About as much as an embedding model reads of a text (256 tokens)."""
OVERLAP_CHARS = 120
"""Of a text that has to be cut, how much two passages share: a sentence that is cut is whole in one of them."""
_SENTENCE_END = re.compile(r"[.!?。！？][\"')\]]*\s+|\n+")  # noqa: RUF001 - other scripts' full stops


class Passage(NamedTuple):
    """A piece of a document."""

    text: str
    page: int | None = None
    section: str | None = None
    sheet: str | None = None
    first_row: int | None = None
    last_row: int | None = None

    @property
    def meaning(self) -> str:
        """The text that is embedded: what a passage is about often stands only in its headings."""
        place = self.section or self.sheet
        return f"{place}\n{self.text}" if place else self.text


def passages(blocks: Iterable[Block], most: int = MAX_PASSAGE_CHARS) -> Iterator[Passage]:
    """The passages of a document, in order. None is longer than `most` characters or reaches over a page, section or
    sheet; every word of the document is in one of them."""
    held: list[Block] = []
    size = 0
    for block in blocks:
        if held and (_place(block) != _place(held[0]) or size + len(block.text) + 1 > most):
            yield _joined(held)
            held, size = [], 0
        if len(block.text) > most:
            yield from (_joined([block._replace(text=piece)]) for piece in pieces(block.text, most))
            continue
        held.append(block)
        size += len(block.text) + 1
    if held:
        yield _joined(held)


def pieces(text: str, most: int, overlap: int = OVERLAP_CHARS) -> Iterator[str]:
    """A text in pieces of at most so many characters, cut after a sentence, else between words, else anywhere."""
    start = 0
    while len(text) - start > most:
        end = _cut(text, start, start + most)
        yield text[start:end].strip()
        start = _resume(text, max(start + 1, end - overlap), end)
    if text[start:].strip():
        yield text[start:].strip()


def _cut(text: str, start: int, limit: int) -> int:
    least = start + (limit - start) // 2
    ends = [found.end() for found in _SENTENCE_END.finditer(text, least, limit)]
    if ends:
        return ends[-1]
    space = max(text.rfind(" ", least, limit), text.rfind("\n", least, limit))
    return space + 1 if space > 0 else limit


def _resume(text: str, start: int, end: int) -> int:
    """Where the next piece begins: at a word, if one begins before the end of the last piece."""
    space = text.find(" ", start, end)
    return space + 1 if space >= 0 else end


def _place(block: Block) -> tuple[object, ...]:
    return block.page, block.section, block.sheet


def _joined(blocks: Sequence[Block]) -> Passage:
    first, last = blocks[0], blocks[-1]
    text = "\n".join(block.text for block in blocks)
    return Passage(text, first.page, first.section, first.sheet, first.row, last.row)
