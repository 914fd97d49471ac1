"""`toolgate tools accept`: what MCP servers offer that nobody has accepted yet, shown and asked about one by one."""

import asyncio
import sys

import typer

from toolgate.app import App
from toolgate.cli.opening import NotFound, Usage, opened
from toolgate.cli.prompt import at_a_terminal
from toolgate.cli.screen import emit, note, plural, say
from toolgate.errors import CallError
from toolgate.registry.sources.mcp_review import Waiting, visible

STYLES = {"+": "green", "-": "red", "@": "cyan"}
MOST_LINES = 400
"""Of one definition; `--json` has it whole."""


def accept_tools(ctx: typer.Context, names: list[str], *, everything: bool, yes: bool, as_json: bool) -> int:
    """Show what waits, ask, and accept what the answer is yes to."""
    if not names and not everything:
        raise Usage(
            "Name a tool or a server, or say --all.", suggestion="`toolgate servers list` shows where something waits."
        )
    if yes and as_json:
        return asyncio.run(_accept_all(ctx, names, as_json=True))
    if as_json:
        return asyncio.run(_show(ctx, names))
    if not yes and not at_a_terminal():
        raise Usage("There is nobody here to ask.", suggestion="Say --yes if you have seen what waits (`--json` shows it).")
    return asyncio.run(_accept_all(ctx, names, as_json=False) if yes else _ask(ctx, names))


async def _show(ctx: typer.Context, names: list[str]) -> int:
    async with opened(ctx) as app:
        emit({"waiting": [one.to_dict() for one in await chosen(app, names)], "accepted": []})
    return 0


async def _accept_all(ctx: typer.Context, names: list[str], *, as_json: bool) -> int:
    async with opened(ctx) as app:
        shown = await chosen(app, names)
        if not as_json:
            for one in shown:
                say_waiting(one)
        accepted = await app.accept_tools(shown)
    left = [one for one in shown if one not in accepted]
    if as_json:
        emit({"waiting": [one.to_dict() for one in left], "accepted": [_brief(one) for one in accepted]})
    else:
        _say_accepted(accepted, left)
    return 1 if left else 0


async def _ask(ctx: typer.Context, names: list[str]) -> int:
    async with opened(ctx) as app:
        accepted: list[Waiting] = []
        left: list[Waiting] = []
        for one in await chosen(app, names):
            say_waiting(one)
            answer = await asyncio.to_thread(_line, f"Accept {one.name}? [y] yes [n] no [q] stop > ")
            if answer in ("q", "quit", "stop"):
                break
            if answer in ("y", "yes"):
                taken = await app.accept_tools([one])
                accepted += taken
                left += [] if taken else [one]
    _say_accepted(accepted, left)
    return 1 if left else 0


def _line(question: str) -> str:
    """What a person types; the end of the input is a no to all that follows."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.strip().lower() if line else "q"


async def chosen(app: App, names: list[str]) -> list[Waiting]:
    """What waits under these names; all of it if there are none."""
    known = {status.name for status in await app.servers()}
    for name in names:
        if name in known and not app.mcp_tools.is_listed(name):
            try:
                await app.refresh_server(name)
            except CallError as error:
                raise NotFound(
                    f"Server {name} can't be asked what it has: {error.message}", suggestion=error.suggestion
                ) from None
    waiting = await app.quarantined()
    if not names:
        return waiting
    meant = {(one.server, one.key) for name in names for one in _meant(app, name, known, waiting)}
    return [one for one in waiting if (one.server, one.key) in meant]


def _meant(app: App, name: str, servers: set[str], waiting: list[Waiting]) -> list[Waiting]:
    """What waits under a name: a server's, a tool's here, or SERVER/TOOL. What a tool is called at its server is no name on
    its own: any server could call one of its tools like another server, or like a tool of it."""
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
        there = any(entry.name == name for entry in app.catalog.entries())
        why = "is accepted already" if there else "is neither a server nor a tool that waits"
        like = next((f"{one.server}/{one.tool}" for one in waiting if one.tool == name), None)
        advice = f"Do you mean {like}?" if like and not there else "`toolgate servers list` shows where something waits."
        raise NotFound(f"{name[:64]} {why}.", suggestion=advice)
    return found


def say_waiting(one: Waiting) -> None:
    """A definition that waits: what has changed in it, or all of it if it is new, and what to look at twice."""
    what = "new" if one.is_new else "changed"
    own = f" ({one.tool})" if one.tool and one.tool != one.name and one.kind == "tool" else ""
    whose = f"{own} of server {one.server}" if one.kind == "tool" else f" ({one.kind})"
    say((visible(one.name), "bold"), f"{whose}: ", (what, "yellow"), (f"  sha256 {one.hash[:16]}", "dim"))
    lines = one.diff()
    for line in lines[:MOST_LINES]:
        style = STYLES.get(line.strip()[:1], "") if not one.is_new else ""
        say("  ", (line, style))
    if len(lines) > MOST_LINES:
        say((f"  … {plural(len(lines) - MOST_LINES, 'line')} more; `--json` shows all.", "dim"))
    for warning in one.warnings():
        say(("  ! ", "red"), (warning, "red"))
    if one.wrong is not None:
        say(("  ! ", "yellow"), (f"it can't be offered even if it is accepted: {one.wrong}", "yellow"))
    say("")


def _say_accepted(accepted: list[Waiting], left: list[Waiting]) -> None:
    if accepted:
        kinds = {one.kind for one in accepted}
        what = kinds.pop() if len(kinds) == 1 else "definition"
        say(("✓ Accepted ", "green"), f"{plural(len(accepted), what)}: {', '.join(one.name for one in accepted)}")
    for one in left:
        note((f"{one.name} has changed since it was shown, and was not accepted: look again.", "yellow"))
    if not accepted and not left:
        note(("Nothing was accepted.", "dim"))


def _brief(one: Waiting) -> dict[str, str]:
    return {"name": one.name, "server": one.server, "tool": one.label, "hash": one.hash}
