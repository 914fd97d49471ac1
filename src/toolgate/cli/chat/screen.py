"""The terminal of a chat: the answer as it is written, the tools that run, and questions in between.

The answer goes to stdout, everything else to stderr. Only one of them is drawn on at a time: while the agent writes or a
person is asked something, the line that shows what runs is gone.
"""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

import orjson

from toolgate.agent.run import RunEvent
from toolgate.cli.chat.markdown_stream import MarkdownStream
from toolgate.cli.output import Part, as_json, note
from toolgate.cli.spinner import Spinner, elapsed, has_spinner

THINKING = "thinking"
MAX_NAME_CHARS, MAX_ARGUMENT_CHARS = 64, 100
INDENT = "  "
"""Before what a subordinate does."""
MARKS: dict[str, Part] = {"success": ("✓", "green"), "pending": ("◔", "yellow")}


class Screen:
    """Shows the events of one run after the other."""

    def __init__(self) -> None:
        self._spinner = Spinner(THINKING) if has_spinner() and not as_json() else None
        self._answer = MarkdownStream()
        self._hidden = ExitStack()
        """Holds the spinner back while the agent writes."""
        self._run: str | None = None
        """The run that is watched; others whose events come are those of its subordinates."""
        self._begun: dict[tuple[str, str], tuple[str, float]] = {}
        """The calls under way, by run and request: what is shown of each, and since when."""
        self._interrupted: asyncio.Future[None] | None = None

    # -- while an agent works

    @contextmanager
    def working(self, run: str | None) -> Iterator["asyncio.Future[None]"]:
        """Draws until the end of a turn of a run; None: of the run of the first event. Gives what Ctrl-C settles."""
        self._run = run
        self._begun.clear()
        self._interrupted = asyncio.get_running_loop().create_future()
        before = signal.getsignal(signal.SIGINT)
        self._listen()
        with ExitStack() as stack:
            if self._spinner is not None:
                self._spinner.restart(THINKING)
                stack.enter_context(self._spinner.running())
            stack.enter_context(_echo(False))
            try:
                yield self._interrupted
            finally:
                self._end_answer()
                asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
                signal.signal(signal.SIGINT, before)
                self._interrupted = None

    def _listen(self) -> None:
        """Has Ctrl-C stop the agent. A question has its own meaning for it, so this is said again after each."""
        interrupted = self._interrupted
        if interrupted is not None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(
                signal.SIGINT, lambda: None if interrupted.done() else interrupted.set_result(None)
            )  # fmt: skip

    @contextmanager
    def question(self) -> Iterator[None]:
        """Makes way while a person is asked something."""
        self._end_answer()
        with ExitStack() as stack:
            if self._spinner is not None:
                stack.enter_context(self._spinner.paused())
            stack.enter_context(_echo(True))
            yield
        self._listen()

    # -- what happens

    def show(self, event: RunEvent) -> None:
        """Shows one event. Kinds that a person need not see are passed over."""
        if as_json():
            return
        self._run = self._run or event.run or None  # the first event of a new run is its own
        shown = getattr(self, f"_show_{event.kind}", None)
        if shown is not None:
            shown(event)

    def _show_text(self, event: RunEvent) -> None:
        if event.run != self._run:
            return  # what a subordinate says, it says to its caller
        if not self._answer.is_open and self._spinner is not None:
            self._hidden.enter_context(self._spinner.paused())
        self._answer.feed(str(event.data.get("text", "")))

    def _show_thoughts(self, event: RunEvent) -> None:
        headline = event.data.get("headline")
        if headline:
            self._note((f"{self._indent(event)}{headline}", "dim italic"))

    def _show_call(self, event: RunEvent) -> None:
        self._end_answer()
        words = f"{_name(event)} {_brief(event.data.get('arguments'))}".rstrip()
        self._begun[_key(event)] = words, monotonic()
        self._name_what_runs()
        if self._spinner is None:
            self._note((f"{self._indent(event)}… {words}", "dim"))

    def _show_result(self, event: RunEvent) -> None:
        words, begun = self._begun.pop(_key(event), (_name(event), monotonic()))
        mark, indent = MARKS.get(str(event.data.get("status")), ("✗", "red")), self._indent(event)
        self._note(indent, mark, f" {words}", (f"  {elapsed(monotonic() - begun)}", "dim"))
        error = event.data.get("error")
        if error:
            self._note((f"{indent}  {error.get('message')}", "red"))
        self._name_what_runs()

    def _show_pending(self, event: RunEvent) -> None:
        words, _ = self._begun.pop(_key(event), (_name(event), 0.0))
        waits = event.data.get("approval") or event.data.get("job")
        self._note(self._indent(event), MARKS["pending"], f" {words}", (f"  waits: {waits}", "yellow"))
        self._name_what_runs()

    def _show_notice(self, event: RunEvent) -> None:
        self._note((f"{self._indent(event)}{event.data.get('text', '')}", "yellow"))

    def _indent(self, event: RunEvent) -> str:
        return INDENT if event.run and event.run != self._run else ""

    def _note(self, *parts: Part) -> None:
        self._end_answer()
        note(*parts)

    def _name_what_runs(self) -> None:
        if self._spinner is not None:
            names = [words for words, _ in self._begun.values()]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self._spinner.restart(f"{names[0]}{more}" if names else THINKING)

    def _end_answer(self) -> None:
        self._answer.finish()
        self._hidden.close()


def _key(event: RunEvent) -> tuple[str, str]:
    return event.run, str(event.data.get("request"))


def _name(event: RunEvent) -> str:
    """The tool of an event. A model that invents one may write anything."""
    name = str(event.data.get("tool"))
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…"


def _brief(arguments: Any) -> str:
    """The arguments of a call on part of a line."""
    if not arguments:
        return ""
    text = orjson.dumps(arguments).decode()
    return text if len(text) <= MAX_ARGUMENT_CHARS else f"{text[:MAX_ARGUMENT_CHARS]}…"


@contextmanager
def _echo(wanted: bool) -> Iterator[None]:
    """Has the terminal show what is typed, or not: between what is drawn again and again it would be drawn over, and put
    the rest out of its place. It is not lost: the next line begins with it."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    flags = before[3] | termios.ECHO if wanted else before[3] & ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, [*before[:3], flags, *before[4:]])
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
