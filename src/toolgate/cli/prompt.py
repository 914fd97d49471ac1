"""The person at the terminal as an approver: sees what is asked, and says yes, no, or something in between.

Only a clear yes is one, and only a clear no: after a mistyped key the question is asked again. The end of the input
and Ctrl-C mean no.
Where there is no terminal, nobody is asked, and the call ends as pending.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import orjson

from toolgate.cli.arguments import read_object
from toolgate.cli.context import Usage
from toolgate.cli.editor import Fits, edited, editor, must_fit, show_difference
from toolgate.cli.output import clean, note
from toolgate.cli.table import GAP, INDENT, packed
from toolgate.errors import CallError
from toolgate.gates.approval.request import WHOLE, Answer, ApprovalRequest, Approver, GrantTerms, visible
from toolgate.model import LOCAL

HOUR_SECONDS = 3_600
YEAR_SECONDS = 365 * 24 * HOUR_SECONDS
SESSION_SECONDS = 12 * HOUR_SECONDS
"""A session has no end that we know of; a grant has one."""
TERMINAL = "terminal"
END = " > "
ANSWER_KEYS = {"yes": "y", "no": "n"}
SLIP_CHARS = 40
Interrupted = asyncio.Future[None]
Quiet = Callable[[], AbstractContextManager[None]]
"""Keeps whatever else writes to the terminal from doing so meanwhile."""


def approver_for(tool: str, fits: Fits, *, yes: bool, quiet: Quiet = nullcontext) -> Approver | None:
    """The one who answers when a tool is called here: `--yes`, the person at the terminal, or nobody. For whomever the call
    is made, the answer is that of the person at this machine."""
    if yes:
        return Yes(tool)
    return Prompt(fits, quiet) if at_a_terminal() else None


def at_a_terminal() -> bool:
    """True if somebody can both see a question and answer it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


class Yes:
    """`--yes`: the answer to the one call that it was given with. What that call asks for in turn is asked about."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._said = False

    def __call__(self, request: ApprovalRequest) -> Answer | None:
        if self._said or request.tool != self._tool:
            return None
        self._said = True
        return Answer("approve", by=LOCAL.user, through="--yes")


class Prompt:
    """Asks at the terminal, one question at a time."""

    def __init__(self, fits: Fits, quiet: Quiet = nullcontext) -> None:
        self._fits = fits
        self._quiet = quiet
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest) -> Answer:
        async with self._one_at_a_time:
            with self._quiet():
                return await self._ask(request)

    async def _ask(self, request: ApprovalRequest) -> Answer:
        note(request.text(most=WHOLE), lines=True)
        with interruptible() as interrupted:
            return await self._answer(request, interrupted)

    async def _answer(self, request: ApprovalRequest, interrupted: Interrupted) -> Answer:
        while True:
            chosen = await _chosen(_choices(request), interrupted)
            if chosen is None or chosen == "n":
                return await self._no(chosen, interrupted)
            if chosen in "ysha":
                return Answer("approve", grant=_terms(chosen), by=LOCAL.user, through=TERMINAL)
            answer = await self._changed(request, chosen, interrupted)
            if answer is not None:
                return answer

    async def _changed(self, request: ApprovalRequest, key: str, interrupted: Interrupted) -> Answer | None:
        """Asks a person about arguments that they have changed; None: they changed nothing, and are asked as before."""
        change = partial(edited, request, fits=self._fits) if key == "o" else partial(self._typed, request, interrupted)
        changed = await change(request.arguments)
        while changed is not None:
            choices = {"y": "yes, with these arguments", key: "edit again", "n": "no"}
            chosen = await _chosen(choices, interrupted)
            if chosen == "y":
                return Answer("edit", arguments=changed, by=LOCAL.user, through=TERMINAL)
            if chosen != key:
                return await self._no(chosen, interrupted)
            again = await change(changed)
            changed = changed if again is None else again  # no arguments at all are an edit too
        return None

    async def _typed(
        self, request: ApprovalRequest, interrupted: Interrupted, before: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Ask until there are arguments that the tool takes, or the person has had enough. The difference is shown."""
        while (typed := await _line("Arguments as JSON on one line, or @FILE > ", interrupted)) is not None:
            try:
                changed = read_object("" if typed == "-" else typed, "That")  # stdin is where the answers come from
                must_fit(request, changed, self._fits)
            except (Usage, CallError) as error:
                note((error.message, "red"))
                continue
            except orjson.JSONEncodeError:
                note(("That is nested too deeply.", "red"))
                continue
            show_difference(before, changed)
            return changed
        return None

    async def _no(self, chosen: str | None, interrupted: Interrupted) -> Answer:
        """A rejection, with the reason of whoever typed it; at the end of input nobody is there to give one."""
        reason = None if chosen is None else await _line("Why not? (may be left empty) > ", interrupted)
        return Answer("reject", reason, by=LOCAL.user, through=TERMINAL)


def _choices(request: ApprovalRequest) -> dict[str, str]:
    choices = {"y": "yes, once", "n": "no", "e": "edit the arguments"}
    if program := editor():
        choices["o"] = f"open them in {Path(program[0]).name}"
    if not request.destructive:
        if request.session is not None:
            choices["s"] = "yes, for this session"
        choices["h"] = "yes, for one hour"
        if request.proposes_grant:
            choices["a"] = "yes, and for a year"
    return choices


def _terms(chosen: str) -> GrantTerms | None:
    if chosen == "s":
        return GrantTerms("session", SESSION_SECONDS)
    return {"h": GrantTerms("user", HOUR_SECONDS), "a": GrantTerms("user", YEAR_SECONDS)}.get(chosen)


# -- the terminal


async def _chosen(choices: dict[str, str], interrupted: Interrupted) -> str | None:
    """The key of a choice that a person types; None at the end of input or when interrupted. Anything else is a slip, which
    decides nothing: it is asked again."""
    question = _folded([f"[{key}] {words}" for key, words in choices.items()])
    while (typed := await _line(question, interrupted)) is not None:
        key = typed.lower()
        key = ANSWER_KEYS.get(key, key)
        if key in choices:
            return key
        slip = f'"{visible(typed[:SLIP_CHARS])}" is not one of the answers. ' if typed else ""
        note((f"{slip}Type {', '.join(list(choices)[:-1])} or {list(choices)[-1]}; Ctrl-C rejects the call.", "yellow"))
    return None


async def agrees(question: str) -> bool:
    """True if the person at the terminal says a clear yes."""
    with interruptible() as interrupted:
        typed = await _line(f"{question} [y] yes  [n] no > ", interrupted)
    return typed is not None and typed.lower() in ("y", "yes")


def _folded(choices: list[str]) -> str:
    """The choices, with room for the answer behind them."""
    lines = packed([*choices[:-1], choices[-1] + END], get_terminal_size().columns - 2)
    return f"\n{INDENT}".join(GAP.join(line) for line in lines)


async def ask(*choices: str) -> str | None:
    """The text that a person types to a question, in small letters; None at the end of input or when interrupted."""
    with interruptible() as interrupted:
        typed = await _line(_folded([clean(choice) for choice in choices]), interrupted)
    return None if typed is None else typed.lower()


async def _line(question: str, interrupted: Interrupted) -> str | None:
    """A line that a person types; None at the end of input or when interrupted. What was typed before the question could
    be read is dropped: it was no answer to it."""
    import termios

    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    termios.tcflush(terminal, termios.TCIFLUSH)
    sys.stderr.write(question)
    sys.stderr.flush()
    loop.add_reader(terminal, _settle(ready))
    try:
        await asyncio.wait((ready, interrupted), return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(terminal)
    if interrupted.done():
        sys.stderr.write("\n")
        return None
    typed = os.read(terminal, 65_536)
    if typed.endswith(b"\n"):
        return typed.decode(errors="replace").strip()
    sys.stderr.write("\n")  # Ctrl-D left the cursor behind the question
    return None


def _settle(future: "asyncio.Future[None]") -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(None)


@contextmanager
def interruptible() -> Iterator["asyncio.Future[None]"]:
    """Ctrl-C answers the question instead of ending the program. Only where signals arrive: in another thread
    (`App.open_sync`) it goes to whoever made the call, and ends that."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[None] = loop.create_future()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, _settle(interrupted))
    try:
        yield interrupted
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
