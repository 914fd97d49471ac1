"""Steps of something that takes a while, with the time that each has taken: on stderr, and only where that is a terminal."""

import sys
from contextlib import ExitStack
from time import monotonic
from typing import Self

from toolgate.cli.output import note
from toolgate.cli.spinner import Spinner, elapsed, has_spinner


class Steps:
    """Shows the step that is under way, and those that are done. A terminal that can't erase a line (TERM=dumb) gets a line
    when a step begins; what is no terminal gets nothing."""

    def __init__(self) -> None:
        self._words = ""
        self._began = 0.0
        self._stack = ExitStack()
        self._spinner = Spinner("preparing") if has_spinner() else None
        self._shows = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Self:
        if self._spinner is not None:
            self._stack.enter_context(self._spinner.running())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._done()
        self._words, self._shows = "", False
        self._stack.close()

    def __call__(self, words: str) -> None:
        """A step begins, which ends the one before."""
        if not self._shows or words == self._words:
            return
        self._done()
        self._words, self._began = words, monotonic()
        if self._spinner is not None:
            self._spinner.restart(words)
        else:
            note((f"… {words}", "dim"))

    def _done(self) -> None:
        if self._words and self._spinner is not None:
            note((f"✓ {self._words}  {elapsed(monotonic() - self._began)}", "dim"))
