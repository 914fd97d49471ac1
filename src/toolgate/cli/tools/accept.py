"""`toolgate tools accept`: what MCP servers and OpenAPI documents offer and nobody has accepted yet, shown one by one."""

from itertools import groupby
from typing import Annotated

import typer

from toolgate.app.app import App
from toolgate.cli.context import NotFound, Usage, argument, opened, option
from toolgate.cli.output import answered, as_json, emit, note, say
from toolgate.cli.prompt import ask, at_a_terminal
from toolgate.cli.teams import accept_shown
from toolgate.errors import CallError, nearest, plural
from toolgate.mcp.review import PendingDefinition, visible
from toolgate.openapi.records import METHOD, PIN_PREFIX

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
MAX_DIFF_LINES = 400
"""Of one definition; `--json` has it whole."""
BRIEF_LINES = 16
"""Of one, until it is asked for in full."""
STOP = ("q", "quit", "stop")


async def accept(
    ctx: typer.Context,
    named: Annotated[list[str] | None, argument("NAME|SERVER", "Tools, MCP servers or OpenAPI documents.")] = None,
    everything: Annotated[
        bool, option("--all", "All of a server in one question; without a name, of every server.")
    ] = False,
    yes: Annotated[bool, option("--yes", "Accept what is shown without asking.")] = False,
    full: Annotated[bool, option("--full", "Show definitions whole, with their schemas.")] = False,
) -> int:
    """Accept new and changed tools of MCP servers.

    Also those of OpenAPI documents and, by name, of the organisation. They are shown first. Until then nobody calls them."""
    names = named or []
    if not names and not everything:
        raise Usage(
            "Name a tool or a server, or say --all.", suggestion="`toolgate servers list` shows where something waits."
        )
    code, rest = await _accept_of_organisation(ctx, names, yes=yes)
    if names and not rest:
        return code
    names = rest
    if yes:
        return await _accept_all(ctx, names, full=full) or code
    if as_json():
        async with opened(ctx) as app:
            emit({"waiting": [one.to_dict() for one in await chosen(app, names)], "accepted": []})
        return 0
    if not at_a_terminal():
        raise Usage(
            "There is no terminal to ask at.", suggestion="Say --yes if you have seen what waits (`--json` shows it)."
        )
    return await _ask(ctx, names, everything=everything, full=full)


async def _accept_of_organisation(ctx: typer.Context, names: list[str], *, yes: bool) -> tuple[int, list[str]]:
    """Accepts the tools of the organisation among those that are named; gives an exit code, and the other names."""
    async with opened(ctx) as app:
        waiting = {one.name: one for one in await app.teams.waiting()}
        chosen = [waiting[name] for name in names if name in waiting]
        if waiting and not names:
            note((f"{plural(len(waiting), 'definition')} of the organisation: `toolgate teams accept`.", "dim"))
        code = await accept_shown(app, chosen, yes=yes) if chosen else 0
    return code, [name for name in names if name not in waiting]


async def _accept_all(ctx: typer.Context, names: list[str], *, full: bool) -> int:
    async with opened(ctx) as app:
        shown = await chosen(app, names)
        if not as_json():
            for one in shown:
                say_waiting(one, full=full)
        accepted = await app.servers.accept(shown)
    left = [one for one in shown if one not in accepted]
    taken = [{"name": one.name, "server": one.server, "tool": one.label, "hash": one.hash} for one in accepted]
    if not answered({"waiting": [one.to_dict() for one in left], "accepted": taken}):
        _say_accepted(accepted, left)
    return 1 if left else 0


async def _ask(ctx: typer.Context, names: list[str], *, everything: bool, full: bool) -> int:
    async with opened(ctx) as app:
        waiting = await chosen(app, names)
        review = Review(app, full)
        for server, group in groupby(waiting, key=lambda one: one.server):
            those = list(group)
            going_on = await (review.all_of(server, those) if everything else review.each_of(server, those))
            if not going_on:
                break
    _say_accepted(review.accepted, review.changed)
    left = len(waiting) - len(review.accepted)
    if left:
        note((f"{_count(left, waiting)} still to be accepted.", "dim"))
    return 1 if review.changed else 0


class Review:
    """A person looks at what waits, and says what is accepted."""

    def __init__(self, app: App, full: bool) -> None:
        self._app = app
        self._full = full
        self.accepted: list[PendingDefinition] = []
        self.changed: list[PendingDefinition] = []
        """Definitions that were said yes to, and had changed by then."""

    async def each_of(self, server: str, those: list[PendingDefinition]) -> bool:
        """Ask about one after another. False: the person has had enough."""
        for number, one in enumerate(those):
            say_waiting(one, full=self._full)
            answer = await self._answer(one, those[number:], len(those))
            if answer in ("a", "all"):
                return await self.all_of(server, those[number:], seen=1)
            if answer in STOP:
                return False
            if answer in ("y", "yes"):
                await self._accept([one])
        return True

    async def _answer(self, one: PendingDefinition, left: list[PendingDefinition], of: int) -> str:
        question = f"Accept {visible(one.name)}?" + (f" ({of - len(left) + 1} of {of})" if of > 1 else "")
        more = (f"[a] all {len(left)} that are left of {one.server}",) if len(left) > 1 else ()
        while True:
            answer = await ask(question, "[y] yes", "[n] no", *more, "[f] show in full", "[q] stop")
            if answer not in ("f", "full"):
                return STOP[0] if answer is None else answer
            say_waiting(one, full=True)

    async def all_of(self, server: str, those: list[PendingDefinition], seen: int = 0) -> bool:
        """Show all of them, but for those that were `seen`, and ask once."""
        for one in those[seen:]:
            say_waiting(one, full=self._full)
        risky = sum(bool(one.warnings()) for one in those)
        words = f" ({risky:,} with a warning)" if risky else ""
        question = f"Accept all {_count(len(those), those)} of {_whose(those[0])}?{words}"
        while True:
            answer = await ask(question, "[y] yes, all", "[o] one by one", "[n] no", "[f] show in full", "[q] stop")
            if answer in ("o", "one"):
                return await self.each_of(server, those)
            if answer not in ("f", "full"):
                break
            for one in those:
                say_waiting(one, full=True)
        if answer in ("y", "yes"):
            await self._accept(those)
        return answer is not None and answer not in STOP

    async def _accept(self, those: list[PendingDefinition]) -> None:
        taken = await self._app.servers.accept(those)
        self.accepted += taken
        self.changed += [one for one in those if one not in taken]


def _count(number: int, those: list[PendingDefinition]) -> str:
    kinds = {one.kind for one in those}
    return plural(number, kinds.pop() if len(kinds) == 1 else "definition")


async def chosen(app: App, names: list[str]) -> list[PendingDefinition]:
    """The definitions that wait under these names; all of them if there are none."""
    known = {status.name for status in await app.servers.list()}
    documents = {one.name for one in await app.openapi.list()}
    for name in names:
        if name in known and not app.servers.is_listed(name):
            try:
                await app.servers.refresh(name)
            except CallError as error:
                raise NotFound(
                    f"Server {name} cannot be asked what it has: {error.message}", suggestion=error.suggestion
                ) from None
    waiting = await app.servers.quarantined()
    if not names:
        return waiting
    named = [f"{PIN_PREFIX}{name}" if name in documents - known else name for name in names]
    known |= {f"{PIN_PREFIX}{name}" for name in documents}
    meant = {(one.server, one.key) for name in named for one in _meant(app, name, known, waiting)}
    return [one for one in waiting if (one.server, one.key) in meant]


def _meant(app: App, name: str, servers: set[str], waiting: list[PendingDefinition]) -> list[PendingDefinition]:
    """The definitions that wait under a name: a server's, a tool's here, or SERVER/TOOL. What a tool is called at its server
    is no name on its own: any server could call one of its tools like another server, or like a tool of it."""
    if name in servers:
        return [one for one in waiting if one.server == name]
    server, slash, tool = name.partition("/")
    if slash and server in servers:
        found = [one for one in waiting if one.server == server and one.label == tool]
    else:
        found = [one for one in waiting if one.name == name]
    if len(found) > 1:
        several = " and ".join(f"{one.server}/{one.label}" for one in found)
        raise Usage(f"{name[:64]} is the name of {several}.", suggestion="Name the server too, or the server alone.")
    if not found:
        there = any(entry.name == name for entry in app.tools.entries())
        why = "is accepted already" if there else "is neither a server nor a tool that waits"
        like = next((f"{one.server}/{one.tool}" for one in waiting if one.tool == name), None)
        like = like or nearest(name, [*servers, *(one.name for one in waiting)])
        advice = f"Did you mean {like}?" if like and not there else "`toolgate servers list` shows where something waits."
        raise NotFound(f"{name[:64]} {why}.", suggestion=advice)
    return found


def say_waiting(one: PendingDefinition, *, full: bool) -> None:
    """A definition that waits, in brief: what it is, or what has changed in it. One that should be looked at twice is shown
    in full, and so is every one if that is wanted."""
    warnings = one.warnings()
    full = full or bool(warnings)
    what = "new" if one.is_new else "changed"
    whose = f"  {one.tier}" if one.tier else f"  {one.kind}" if one.kind != "tool" else ""
    own = f"  ({visible(one.tool)} of {_whose(one)})" if one.kind == "tool" and one.tool else ""
    say(
        (visible(one.name), "bold"), whose, own, "  ", (what, "yellow"), (f"  sha256 {one.hash[:16]}" if full else "", "dim")
    )
    lines, most = (one.diff(), MAX_DIFF_LINES) if full else (one.brief(), BRIEF_LINES)
    for line in lines[:most]:
        style = DIFF_STYLES.get(line.strip()[:1], "") if not one.is_new else ""
        say("  ", (line, style))
    if len(lines) > most:
        more = "`--json` shows all" if full else "`--full` shows all"
        say((f"  … {plural(len(lines) - most, 'line')} more; {more}.", "dim"))
    for warning in warnings:
        say(("  ! ", "red"), (warning, "red"))
    if one.wrong is not None:
        say(("  ! ", "yellow"), (f"it cannot be offered even if it is accepted: {one.wrong}", "yellow"))
    say("")


def _whose(one: PendingDefinition) -> str:
    return f"document {one.server.removeprefix(PIN_PREFIX)}" if one.method == METHOD else f"server {one.server}"


def _say_accepted(accepted: list[PendingDefinition], left: list[PendingDefinition]) -> None:
    if accepted:
        say(("✓ Accepted ", "green"), f"{_count(len(accepted), accepted)}: {', '.join(one.name for one in accepted)}")
    for one in left:
        note((f"{one.name} has changed since it was shown, and was not accepted: look again.", "yellow"))
    if not accepted and not left:
        note(("Nothing was accepted.", "dim"))
