"""Steps of something that takes a while, with the time that each has taken: on stderr, and only where that is a terminal."""

import os
import sys
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Self

from toolgate.cli.screen import clean, note

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PER_SECOND = 10


class Steps:
    """Shows the step that is under way, and those that are done. A terminal that can't go back in a line (TERM=dumb) gets a
    line when a step begins; what is no terminal gets nothing."""

    def __init__(self) -> None:
        self._words = ""
        self._began = 0.0
        self._stack = ExitStack()
        self._live: Live | None = None
        self._shows = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Self:
        if self._shows and os.environ.get("TERM", "dumb") != "dumb":
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)
            self._live = self._stack.enter_context(
                Live(self, console=console, refresh_per_second=PER_SECOND, transient=True, redirect_stdout=False)
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._done()
        self._words, self._shows = "", False
        self._stack.close()
        self._live = None

    def __call__(self, words: str) -> None:
        """A step begins, which ends the one before."""
        if words == self._words:
            return
        self._done()
        self._words, self._began = words, monotonic()
        if self._shows and self._live is None:
            note((f"… {words}", "dim"))

    def _done(self) -> None:
        if self._live is not None and self._words:
            self._live.console.print(self._line("✓"))

    def _line(self, mark: str) -> "Text":
        from rich.text import Text

        return Text(f"{mark} {clean(self._words)}  {monotonic() - self._began:.1f} s", "dim")

    def __rich__(self) -> "Text":
        from rich.text import Text

        return self._line(FRAMES[int(monotonic() * PER_SECOND) % len(FRAMES)]) if self._words else Text()
