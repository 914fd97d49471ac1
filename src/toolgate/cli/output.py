"""Output for the terminal: lines for people, in colour where there is colour, and JSON for programs, a value to a line.

What comes from a tool, a file or a caller is data. It is cleaned before a terminal gets it: a control character could
move the cursor, hide text or set the window's title.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import orjson
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from toolgate.errors import ToolgateError

Part = str | tuple[str, str]
"""A piece of a line: text, or text and its style."""

STDOUT = "The output"
MAX_COLOURED_CHARS = 100_000
"""Characters of JSON that are coloured; more takes longer than a person wants to wait."""

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, marks that turn the direction of writing, halves of surrogate pairs."""


class Unwritable(ToolgateError):
    """A file, or the output itself, cannot be written."""

    def __init__(self, place: object, error: OSError) -> None:
        super().__init__(f"{place} cannot be written: {error.strerror or error}.")
        self.to_stdout = place is STDOUT


def clean(text: str, *, lines: bool = False) -> str:
    """The text with what a terminal might obey written out, as in `\\x1b`; newlines too, unless `lines`."""
    text = UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return text if lines else text.replace("\n", "\\n")


def say(*parts: Part, lines: bool = False, hang: int = 0) -> None:
    """A line on stdout; on a terminal that is too narrow for it, what follows is indented by `hang`."""
    with _writing():
        _print(sys.stdout, parts, lines, hang)


def note(*parts: Part, lines: bool = False, hang: int = 0) -> None:
    """A line on stderr: what accompanies the answer, and what went wrong. If nobody can hear it, so be it."""
    with suppress(OSError):
        _print(sys.stderr, parts, lines, hang)


def complain(message: str, suggestion: str | None = None) -> None:
    """Prints an error, and what to do about it."""
    note((message, "red"), lines=True)
    if suggestion:
        note(suggestion, lines=True)


_as_json = False


def use_json(wanted: bool) -> None:
    """Says for the rest of the command whether a program reads its answer."""
    global _as_json
    _as_json = wanted


def as_json() -> bool:
    """True if the command was given --json."""
    return _as_json


def emit(value: Any) -> None:
    """A value as one line of JSON on stdout; bytes are JSON already."""
    write((value if isinstance(value, bytes) else orjson.dumps(value)) + b"\n")


def emit_error(code: str, message: str, suggestion: str | None, details: dict[str, Any] | None = None) -> None:
    """Prints an error for programs."""
    message, suggestion = clean(message, lines=True), clean(suggestion, lines=True) if suggestion else None
    emit({"error": {"code": code, "message": message, "retryable": False, "suggestion": suggestion, "details": details}})


def answered(value: Any) -> bool:
    """Prints the answer for programs, if one reads it; False if it is still to be shown to people."""
    if _as_json:
        emit(value)
    return _as_json


def answer(value: Any, *parts: Part, code: int = 0) -> int:
    """Prints what a command did: the value for programs, a line for people. Gives the exit code."""
    if not answered(value):
        say(*parts)
    return code


def write(content: bytes) -> None:
    """Bytes on stdout, whatever encoding the terminal has."""
    with _writing():
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def pretty(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def show(value: Any) -> None:
    """A tool's output: text as it is, anything else as JSON that can be read. A file or a pipe gets it unchanged."""
    text = value if isinstance(value, str) else pretty(value)
    if not sys.stdout.isatty():
        write(text.encode("utf-8", "backslashreplace") + b"\n")
        return
    shown = Text(clean(text, lines=True))
    if not isinstance(value, str) and len(text) <= MAX_COLOURED_CHARS:
        JSONHighlighter().highlight(shown)
    with _writing():
        _console(sys.stdout).print(shown, soft_wrap=True)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(STDOUT, error) from None


def _print(stream: TextIO, parts: Iterable[Part], lines: bool, hang: int = 0) -> None:
    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(clean(text, lines=lines), style)
    console = _console(stream)
    if hang and stream.isatty() and line.cell_len > console.width:
        folds = line.wrap(console, max(console.width - hang, 20))
        for number, fold in enumerate(folds):
            fold.rstrip()
            if number:
                fold.pad_left(hang)
        line = Text("\n").join(folds)
    console.print(line)


def _console(stream: TextIO) -> Console:
    """Made for each use, because tests and `diverted` put other streams in place. Lines are broken for a terminal only."""
    return Console(file=stream, soft_wrap=not stream.isatty(), markup=False, emoji=False, highlight=False)
