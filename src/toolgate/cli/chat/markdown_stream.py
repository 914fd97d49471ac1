"""An answer of a model on stdout, as it is written: Markdown for a terminal, the text itself for a file or a pipe.

A block (a paragraph, a list, a code block) is printed once it is whole; the one that is being written is drawn again and
again below. The text is a model's, so what a terminal might obey is written out, and links show where they lead.
"""

import sys
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from toolgate.cli.output import clean, write
from toolgate.cli.spinner import has_spinner

FRAME_SECONDS = 0.08
DRAWING_SHARE = 0.2
"""The part of the time that drawing may take: what comes meanwhile waits for it."""
MAX_BLOCK_CHARS, MAX_CODE_CHARS = 8_000, 2_000
"""A longer block is printed in pieces: drawing it again and again takes as long as it is."""
FENCES = ("```", "~~~")


class MarkdownStream:
    """Prints one text after the other, each in as many pieces as it comes in."""

    def __init__(self) -> None:
        self._text = ""
        """The text that is not printed yet."""
        self._live: Live | None = None
        self._draw_at = 0.0
        self.is_open = False
        """True between the first piece of a text and its end."""

    def feed(self, piece: str) -> None:
        """Adds to the text."""
        if not self.is_open:
            self.is_open = True
            self._begin()
        if self._live is None:
            write(clean(piece, lines=True).encode("utf-8", "backslashreplace"))
            self._text = piece or self._text
            return
        self._text += clean(piece, lines=True)
        whole, self._text = split_blocks(self._text)
        if whole.strip():
            self._live.console.print(markdown_of(whole))
        began = monotonic()
        if whole or began >= self._draw_at:
            self._live.update(markdown_of(self._text), refresh=True)
            self._draw_at = max(began + FRAME_SECONDS, began + (monotonic() - began) / DRAWING_SHARE)

    def finish(self) -> None:
        """Ends the text."""
        if not self.is_open:
            return
        self.is_open = False
        if self._live is None:
            if not self._text.endswith("\n"):
                write(b"\n")
        else:
            self._live.update(Text(""), refresh=True)
            self._live.stop()
            if self._text.strip():
                self._live.console.print(markdown_of(self._text))
        self._text, self._live = "", None

    def _begin(self) -> None:
        if sys.stdout.isatty() and has_spinner():
            console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
            self._live.start()


def markdown_of(text: str) -> Markdown:
    """A text as a terminal is shown it."""
    markdown = Markdown(text, hyperlinks=False)
    for token in markdown.parsed:
        for part in (token, *(token.children or ())):
            part.content = clean(part.content, lines=True)  # `&#x202e;` is what it stands for only now
    return markdown


def split_blocks(text: str) -> tuple[str, str]:
    """The blocks of Markdown that are whole, and what is still being written: what follows the last empty line that is not
    within a code block. One that is too long is split: of code, both pieces are blocks of it."""
    fence, opening, end, at = "", "", 0, 0
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if fence:
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fence = ""
        elif bare.startswith(FENCES):
            fence, opening = bare[: len(bare) - len(bare.lstrip(bare[0]))], line
        at += len(line)
        if not bare and not fence and line.endswith("\n"):
            end = at
    if fence and len(text) - end > MAX_CODE_CHARS + len(opening):
        cut = text.rfind("\n") + 1
        cut = cut if len(text) - cut <= MAX_CODE_CHARS else len(text)
        return f"{text[:cut].removesuffix(chr(10))}\n{fence}\n", opening + text[cut:]
    if len(text) - end > MAX_BLOCK_CHARS:
        end = text.rfind("\n") + 1 or len(text)
    return text[:end], text[end:]
