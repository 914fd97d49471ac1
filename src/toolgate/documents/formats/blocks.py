"""The text of a document as its format gives it: blocks in reading order, each with its place in the document.

The modules of this package are the readers. But for `markdown`, they run in the jail (`documents.jailed_reader`), so they
import nothing of Toolgate outside of this package.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

MAX_TEXT_CHARS = 1_000_000
"""Of a document; what follows is left out, and the caller is told so."""
MAX_BLOCKS = 50_000
MAX_PAGES = 5_000
MAX_HEADING_CHARS = 200
MAX_SECTION_DEPTH = 6
MAX_SECTION_CHARS = 1_000


class Block(NamedTuple):
    """A paragraph, a row of a table, or a page."""

    text: str
    page: int | None = None
    """The number of the page or slide, from 1."""
    section: str | None = None
    """The headings above it, outer before inner."""
    sheet: str | None = None
    row: int | None = None
    """The number of a row in its sheet, from 1."""


class UnreadableDocument(Exception):
    """A document that can't be read; the message says why, to the caller."""


class _Full(Exception):
    """A document has more text than is taken."""


class DocumentText:
    """The blocks of a document, up to the limits, and the headings that the next one stands under."""

    def __init__(self, max_chars: int = MAX_TEXT_CHARS, max_blocks: int = MAX_BLOCKS) -> None:
        self.blocks: list[Block] = []
        self.truncated = False
        """True if there is more than was taken."""
        self._chars_left = max_chars
        self._max_blocks = max_blocks
        self._headings: list[tuple[int, str]] = []

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Ends what is inside as soon as a limit is met."""
        try:
            yield
        except _Full:
            self.truncated = True

    def stop(self) -> None:
        """Says that there is more, which is not taken."""
        raise _Full

    def heading(self, level: int, text: str) -> None:
        """Begins a section; those of the same level, and inside of it, end. Level 0 is the title of it all."""
        title = " ".join(cleaned(text[: 10 * MAX_HEADING_CHARS]).split())[:MAX_HEADING_CHARS]
        if not title:
            return
        level = min(max(level, 0), MAX_SECTION_DEPTH)
        self._headings = [(depth, name) for depth, name in self._headings if depth < level]
        self._headings.append((level, title))

    def begin_page(self) -> None:
        """Ends all sections."""
        self._headings = []

    @property
    def section(self) -> str | None:
        """The headings that the next block stands under."""
        return " > ".join(title for _, title in self._headings)[:MAX_SECTION_CHARS] or None

    def add(
        self,
        text: str,
        *,
        page: int | None = None,
        section: str | None = None,
        sheet: str | None = None,
        row: int | None = None,
    ) -> None:
        """Takes a block, unless there is nothing in it. It stands in the section that was begun last, or the one given."""
        is_cut = len(text) > self._chars_left
        text = cleaned(text[: self._chars_left])
        if not text and not is_cut:
            return
        if len(self.blocks) >= self._max_blocks or not text:
            self.stop()
        section = self.section if section is None else cleaned(section)[:MAX_SECTION_CHARS]
        sheet = None if sheet is None else cleaned(sheet)[:MAX_HEADING_CHARS]
        self.blocks.append(Block(text, page, section, sheet, row))
        self._chars_left -= len(text)
        if is_cut:
            self.stop()


def cleaned(text: str) -> str:
    """A text without control characters, halves of characters, and white space at its ends."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = (char if char.isprintable() or char in "\n\t" else "" if char in "\ufffe\u00ad\x02" else " " for char in text)
    return "".join(kept).strip()
