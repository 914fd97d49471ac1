"""`toolgate workspace`: what programs and servers changed in a workspace and was not brought in."""

import os
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from toolgate.app.app import App
from toolgate.cli.context import CommandGroup, Usage, argument, opened, option
from toolgate.cli.output import answer, as_json, clean, emit, note, say
from toolgate.cli.prompt import agrees, at_a_terminal
from toolgate.cli.table import listing
from toolgate.cli.times import shown
from toolgate.errors import plural
from toolgate.sandbox.quarantine import QuarantinedChange, QuarantineSet

MAX_DIFF_LINES = 200
"""Of one file."""

group = CommandGroup(help="File changes by programs and servers that wait for review.", no_args_is_help=True)
Id = Annotated[str, argument("ID", "The id of a set, or how it alone begins.")]
Paths = Annotated[list[str] | None, argument("[PATH]...", "Only these.")]


@group.command("list")
async def list_sets(ctx: typer.Context) -> int:
    """List the sets of changes that were not applied. Of each: who made it, when, and in which workspace."""
    async with opened(ctx) as app:
        found = app.workspace.changes()
    filled = "Changes of code_execute, commands and servers are listed here if sandbox.bring_in does not match them."
    return listing(
        {"sets": [msgspec.to_builtins(one) for one in found]},
        ["id", "at", "by", ">changes", "workspace"],
        [
            [one.id, shown(datetime.fromtimestamp(one.at, UTC)), one.by, str(len(one.changes)), one.workspace]
            for one in found
        ],
        none=f"No changes wait for review. {filled}",
    )


@group.command()
async def show(ctx: typer.Context, number: Id, paths: Paths = None) -> int:
    """Show what a set would change, with the differences of text files."""
    async with opened(ctx) as app:
        one = app.workspace.get(number)
        chosen = [change for change in one.changes if not paths or change.path in paths]
        changes = [(change, difference(app, one, change)) for change in chosen]
    if as_json():
        shown_changes = [{**msgspec.to_builtins(change), "diff": diff} for change, diff in changes]
        emit({"id": one.id, "at": one.at, "by": one.by, "workspace": one.workspace, "changes": shown_changes})
        return 0
    say((one.id, "bold"), f"  {one.by}  {one.workspace}")
    for change, diff in changes:
        say("  ", (change.kind.ljust(8), "yellow"), f" {change.path}{_also(one, change)}", (f"  {change.why}", "dim"))
        for line in diff:
            say("    ", (line, {"-": "red", "+": "green"}.get(line[:1], "dim")))
    note((f"Apply: `toolgate workspace take {one.id}`. Discard: `toolgate workspace drop {one.id}`.", "dim"))
    return 0


@group.command()
async def take(
    ctx: typer.Context,
    number: Id,
    paths: Paths = None,
    yes: Annotated[bool, option("--yes", "Without asking: you have seen what it changes.")] = False,
) -> int:
    """Apply the changes of a set to the workspace. All of them, or those to some paths."""
    if not yes and not at_a_terminal():
        raise Usage(
            "This changes files, and there is no terminal to ask at.",
            suggestion=f"Review the changes (`toolgate workspace show {clean(number[:64])}`), then add --yes.",
        )
    async with opened(ctx) as app:
        one = app.workspace.get(number)
        count = plural(len(paths or one.changes), "change")
        agreed = yes or await agrees(f"Make {count} in {clean(one.workspace)}?")
        failed = await app.workspace.take(number, paths or []) if agreed else None
    if as_json():
        emit({"taken": failed is not None, "failed": failed or []})
    elif failed is None:
        note(("Nothing was changed.", "dim"))
    else:
        for line in failed:
            say(("✗ ", "red"), line)
        say(("✓ Applied", "green") if not failed else ("Not all changes could be applied.", "yellow"))
    return 1 if failed or failed is None else 0


@group.command()
async def drop(ctx: typer.Context, number: Id) -> int:
    """Discard a set of changes."""
    async with opened(ctx) as app:
        one = app.workspace.get(number)
        await app.workspace.drop(one.id)
    return answer({"id": one.id, "dropped": True}, ("✓ Dropped ", "green"), one.id)


def difference(app: App, one: QuarantineSet, change: QuarantinedChange) -> list[str]:
    """The change of a text file, line by line; nothing for what is no text."""
    content = app.workspace.content(one, change)
    place = Path(one.workspace, change.path)
    if content is None or place.is_symlink():
        return []
    try:
        after = content.decode().splitlines()
        before = place.read_bytes().decode().splitlines() if place.is_file() else []
    except (OSError, UnicodeDecodeError):
        return []
    lines = list(unified_diff(before, after, "workspace", "set aside", lineterm=""))
    return lines if len(lines) <= MAX_DIFF_LINES else [*lines[:MAX_DIFF_LINES], f"and {len(lines) - MAX_DIFF_LINES} more"]


def _also(one: QuarantineSet, change: QuarantinedChange) -> str:
    """Words for what a file's content does not show: where a link leads, that it can be run, how much is deleted."""
    if change.target is not None:
        return f" -> {change.target}"
    if change.kind == "deleted":
        below = sum(len(files) for _, _, files in os.walk(Path(one.workspace, change.path)))
        return f" with {plural(below, 'file')} in it" if below else ""
    return " (executable)" if change.kind == "file" and change.mode & 0o111 else ""
