"""A line on stderr while a call runs: how long it has taken, and how far the tool says it has got.

It is shown on a terminal only, after a moment, and is gone when the call ends. While a person is asked something it is gone
too. What tools print meanwhile goes before it.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import isfinite
from shutil import get_terminal_size
from time import monotonic
from typing import Any, NoReturn, Self, TextIO, cast

from rich.cells import set_cell_size

from toolgate.cli.output import clean, note
from toolgate.mcp.runner import NO_CALLER_TO_ASK
from toolgate.tasks import start_task

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_FRAMES = "|/-\\"
FIRST_SECONDS = 0.3
"""A call that ends sooner shows nothing."""
FRAME_SECONDS = 0.1
ERASE = "\r\x1b[2K"


def has_spinner() -> bool:
    """True if stderr is a terminal that can erase a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Spinner:
    """A `model.Caller` that shows progress at the terminal. Nothing else can be asked of it."""

    capabilities: Mapping[str, Any] = {}
    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
    log_level: str | None = None
    can_come_again = False

    def __init__(self, title: str) -> None:
        self._title = clean(title)
        self._told = ""
        self._pauses = 0
        self._waited = 0.0
        self._begun = monotonic()
        self._drawn = False
        self._stream = sys.stderr
        encoding = getattr(self._stream, "encoding", None) or "ascii"
        self._frames = FRAMES if encoding.lower().replace("-", "") == "utf8" else PLAIN_FRAMES

    # -- what a tool reports

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Keep the latest; the next frame shows it. Without tabs: they make a line longer than it counts, and what runs over
        its end is not erased."""
        done = f"{progress:g}" if isfinite(progress) else ""
        if total is not None and isfinite(progress) and isfinite(total) and total > 0:
            done = f"{min(max(progress / total, 0.0), 1.0):.0%}"
        self._told = "  ".join(part for part in (done, clean(message[:500].replace("\t", " ")) if message else "") if part)

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Nothing: messages of servers are not for this line."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002 - nobody is asked
        raise NO_CALLER_TO_ASK

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        """Nothing: it does not come again."""

    def goes_on(self) -> None:
        """Nothing: whoever waits here goes on waiting."""

    # -- the line

    @contextmanager
    def running(self) -> Iterator[None]:
        """Draw it until the end, on a terminal that can erase it."""
        drawing = start_task(self._draw())
        before = sys.stderr
        sys.stderr = cast("TextIO", _Above(self))
        try:
            yield
        finally:
            sys.stderr = before
            drawing.cancel()
            self.erase()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Out of the way, while a person is asked. Their time is not the call's."""
        begun = monotonic()
        self._pauses += 1
        self.erase()
        try:
            yield
        finally:
            self._pauses -= 1
            self._waited += monotonic() - begun

    def restart(self, title: str) -> None:
        """Show something else from now on, and count its time."""
        self._title, self._told, self._begun, self._waited = clean(title), "", monotonic(), 0.0

    def erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._write(ERASE)

    async def _draw(self) -> None:
        self._begun, number = monotonic(), 0
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            if not self._pauses:
                seconds = monotonic() - self._begun - self._waited
                text = f"{self._frames[number % len(self._frames)]} {self._title}  {elapsed(seconds)}"
                line = f"{text}  {self._told}" if self._told else text
                width = max(get_terminal_size().columns - 1, 1)
                self._drawn = True
                self._write(ERASE + set_cell_size(line, width).rstrip())
                number += 1
            await asyncio.sleep(FRAME_SECONDS)

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


class _Above:
    """Stderr for what is printed while the line is drawn: the line makes way for it."""

    def __init__(self, spinner: Spinner) -> None:
        self._spinner = spinner
        self._stream = spinner._stream

    def write(self, text: str) -> int:
        self._spinner.erase()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def elapsed(seconds: float) -> str:
    """Seconds, for people."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


# -- several steps, each with its time


class StepProgress:
    """Shows the step that is under way, and those that are done. A terminal that cannot erase a line (TERM=dumb) gets a line
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
