"""`toolgate approvals watch`: the calls that wait, as they come and go. On a terminal they are a table, in which a person
picks one and answers it; elsewhere, and for programs, each change is a line.

The store is looked at twice a second, so that it does not matter which process asks or answers.
"""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from toolgate.app.app import App
from toolgate.cli.output import as_json, clean, complain, emit, note, say
from toolgate.cli.prompt import Prompt, interruptible
from toolgate.cli.times import shown
from toolgate.errors import ToolgateError
from toolgate.gates.approval.request import Approval, State, visible
from toolgate.model import Actor
from toolgate.tasks import wait_for_any

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_SECONDS = 0.5
NEW_SECONDS = 10.0
"""How long a call that has just come is marked."""
ARGUMENT_CHARS = 40
BELL = "\a"
UP, DOWN, END_OF_INPUT = "\x1b[A", "\x1b[B", "\x04"
KEY = re.compile(r"\x1b\[[A-Z]|[0-9]+|.", re.DOTALL)
HELP = "↑ ↓ or a number: pick · Enter: answer it · q or Ctrl-C: end"

Choice = Literal["answer", "end"]


class WaitingChange(NamedTuple):
    """A call that came (`waiting`), or what became of it."""

    state: State
    approval: Approval


class WaitingCalls:
    """The calls that wait, of a tenant or of all (None), as they were at the last look."""

    def __init__(self, app: App, tenant: str | None) -> None:
        self._app = app
        self._tenant = tenant
        self.found: dict[str, Approval] = {}

    async def look(self) -> list[WaitingChange]:
        """Looks at the store; gives what has changed since."""
        actor = None if self._tenant is None else Actor(self._tenant)
        listed = await self._app.approvals.list(actor=actor, all_tenants=self._tenant is None)
        found = {one.request.id: one for one in listed}
        gone = [one for id, one in self.found.items() if id not in found]
        come = [WaitingChange("waiting", one) for id, one in found.items() if id not in self.found]
        self.found = found
        return [*[await self._ended(one) for one in gone], *come]

    async def _ended(self, before: Approval) -> WaitingChange:
        try:
            now = await self._app.approvals.get(before.request.id, before.request.actor.tenant)
        except ToolgateError:  # it is not kept any more
            return WaitingChange("expired", before)
        return WaitingChange(now.state, now)


async def print_changes(calls: WaitingCalls) -> None:
    """Prints a line for each change, until Ctrl-C."""
    with interruptible() as interrupted:
        while not interrupted.done():
            for change in await calls.look():
                if as_json():
                    plain: dict[str, Any] = msgspec.to_builtins(change.approval)
                    emit({"event": change.state, **plain.pop("request"), **plain})
                else:
                    say(_line(change))
            sys.stdout.flush()
            await asyncio.wait((interrupted,), timeout=LOOK_SECONDS)


def _line(change: WaitingChange) -> str:
    request, state = change.approval.request, change.state
    by = f" by {clean(change.approval.answered_by)}" if change.approval.answered_by else ""
    until = f" until {shown(request.expires_at)}" if state == "waiting" else ""
    at = shown(datetime.now(UTC), seconds=True)
    return f"{at}  {state}{by}  {request.id}  {visible(request.tool)}  {clean(caller(change.approval))}{until}"


def caller(approval: Approval) -> str:
    """The one who asks, in one word."""
    actor = approval.request.actor
    return "/".join(part for part in (actor.tenant, actor.persona, actor.user) if part)


class WatchScreen:
    """The table on a terminal, and the keys of the person before it."""

    def __init__(self, app: App, calls: WaitingCalls, user: str, *, bell: bool) -> None:
        self._app = app
        self._calls = calls
        self._user = user
        self._bell = bell
        self._picked: str | None = None
        self._since: dict[str, float] = {}
        self._first = True

    async def run(self) -> None:
        """Shows what waits, and has what a person picks answered, until they end it."""
        while True:
            if await self._show() == "end":
                return
            await self._answer()

    # -- the table

    async def _show(self) -> Choice:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)
        drawn = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        with interruptible() as interrupted, _pressed_keys() as keys, drawn:
            while not interrupted.done():
                await self._look()
                drawn.update(self._table(console.height - 6), refresh=True)
                await wait_for_any(keys.pressed, interrupted, seconds=LOOK_SECONDS)
                for key in keys.taken():
                    choice = self._press(key)
                    if choice is not None:
                        return choice
        return "end"

    async def _look(self) -> None:
        moment = asyncio.get_running_loop().time()
        come = [change.approval.request.id for change in await self._calls.look() if change.state == "waiting"]
        self._since |= dict.fromkeys(come, -NEW_SECONDS if self._first else moment)
        if come and self._bell and not self._first:
            sys.stderr.write(BELL)
            sys.stderr.flush()
        self._first = False
        self._since = {id: since for id, since in self._since.items() if id in self._calls.found}
        if self._picked not in self._calls.found:
            self._picked = next(iter(self._calls.found), None)

    def _table(self, room: int) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        if not self._calls.found:
            return Text("No call waits for approval. q or Ctrl-C ends this.", style="dim")
        moment = asyncio.get_running_loop().time()
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        for name in ("", "#", "approval", "tool", "tier", "caller", "arguments", "left"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        ids = list(self._calls.found)
        start = max(0, min(ids.index(self._picked or ids[0]), len(ids) - 1) - max(room, 1) + 1)
        for number, id in list(enumerate(ids, start=1))[start : start + max(room, 1)]:
            is_new = moment - self._since[id] < NEW_SECONDS
            style = "reverse" if id == self._picked else "bold yellow" if is_new else ""
            table.add_row(*map(Text, _cells(number, self._calls.found[id], is_new=is_new)), style=style)
        return Group(table, Text(f"{len(ids)} waiting · {HELP}", style="dim"))

    # -- keys

    def _press(self, key: str) -> Choice | None:
        ids = list(self._calls.found)
        if key in ("q", END_OF_INPUT):
            return "end"
        if not ids:
            return None
        at = ids.index(self._picked) if self._picked in ids else 0
        if key in ("\r", "\n"):
            return "answer"
        if key in (UP, "k"):
            at = max(at - 1, 0)
        elif key in (DOWN, "j"):
            at = min(at + 1, len(ids) - 1)
        elif key.isdecimal() and 0 < int(key) <= len(ids):
            at = int(key) - 1
        self._picked = ids[at]
        return None

    async def _answer(self) -> None:
        """Has a person answer the call that they picked, as at a call that asks. What was answered elsewhere meanwhile, or
        is not theirs to answer, is said."""
        picked = self._calls.found.get(self._picked or "")
        if picked is None:
            return
        asked = picked.request
        try:
            approval = await self._app.approvals.get(asked.id, asked.actor.tenant)
            answer = await Prompt(self._app.approvals.canonical)(approval.request)
            by = Actor(asked.actor.tenant, user=self._user)
            given = msgspec.structs.replace(answer, by="", through="")
            said = await self._app.approvals.answer(asked.id, given, actor=by, through="cli")
        except ToolgateError as error:
            complain(error.message, error.suggestion)
            return
        note(
            (
                f"{said.state} {asked.id} ({visible(asked.tool)}). It runs when its caller makes the call again."
                if said.state == "approved"
                else f"{said.state} {asked.id} ({visible(asked.tool)})",
                "green",
            )
        )


def _cells(number: int, approval: Approval, *, is_new: bool) -> list[str]:
    request = approval.request
    given = visible(msgspec.json.encode(request.arguments).decode())
    short = given if len(given) <= ARGUMENT_CHARS else f"{given[:ARGUMENT_CHARS]}…"
    left = max(int((request.expires_at - datetime.now(UTC)).total_seconds()), 0)
    minutes, seconds = divmod(left, 60)
    hours, minutes = divmod(minutes, 60)
    countdown = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    mark = "new" if is_new else ""
    return [mark, str(number), request.id, visible(request.tool), request.tier, visible(caller(approval)), short, countdown]


class PressedKeys:
    """The keys that a person has pressed and nobody has looked at yet."""

    def __init__(self) -> None:
        self.pressed = asyncio.Event()
        self._typed = b""

    def read(self) -> None:
        """Takes what was typed from the terminal."""
        typed = os.read(sys.stdin.fileno(), 1_024)
        self._typed += typed or END_OF_INPUT.encode()
        self.pressed.set()

    def taken(self) -> list[str]:
        """The keys, one by one: an arrow is one of them."""
        text, self._typed = self._typed.decode(errors="replace"), b""
        self.pressed.clear()
        return KEY.findall(text)


@contextmanager
def _pressed_keys() -> Iterator[PressedKeys]:
    """Keys as they are pressed, without Enter and without an echo; Ctrl-C stays what it is."""
    import termios
    import tty

    terminal, keys, loop = sys.stdin.fileno(), PressedKeys(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    loop.add_reader(terminal, keys.read)
    try:
        yield keys
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
