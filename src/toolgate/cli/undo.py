"""`toolgate undo`: put back what a call changed."""

from typing import Annotated

import typer

from toolgate.app.app import App
from toolgate.cli.context import NotFound, Tenant, User, actor_of, argument, opened, option
from toolgate.cli.output import answered, note
from toolgate.cli.table import table
from toolgate.model import Actor
from toolgate.undo import Undone

MIN_PREFIX_CHARS = 6
"""Characters of an id that may stand for all of it."""
PATH_STYLES = {"restored": "green", "removed": "yellow", "unchanged": "dim", "left": "red"}


async def undo(
    ctx: typer.Context,
    call_id: Annotated[str, argument("CALL_ID", "The id of a call, or how it alone begins.")],
    force: Annotated[bool, option("--force", "Also what was changed again since: that is lost.")] = False,
    dry_run: Annotated[bool, option("--dry-run", "Only say what would be done.")] = False,
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Put back what a call changed. Files become as they were, and what it made is removed."""
    actor = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        found = await _one(app, call_id, actor)
        if dry_run:
            done = await app.undo.preview(found, actor=actor, force=force)
        else:
            done = await app.undo.revert(found, actor=actor, force=force)
    if not answered({"call_id": found, "dry_run": dry_run, "paths": [one._asdict() for one in done]}):
        table(["", ""], [[(one.done, PATH_STYLES[one.done]), one.path] for one in done])
        note((_summary(done, dry_run=dry_run), "dim"))
    return 0


async def _one(app: App, beginning: str, actor: Actor) -> str:
    """The id of the one call that begins so."""
    found = await app.undo.calls(beginning, actor)
    if beginning in found or not found:
        return beginning
    if len(found) > 1:
        raise NotFound(f"{len(found)} calls begin with {beginning}.", suggestion=f"Name one: {', '.join(found[:5])}.")
    if len(beginning) < MIN_PREFIX_CHARS:
        raise NotFound(f"{beginning} is too short.", suggestion=f"Give at least {MIN_PREFIX_CHARS} characters of the id.")
    return found[0]


def _summary(done: list[Undone], *, dry_run: bool) -> str:
    changed = sum(one.done in ("restored", "removed") for one in done)
    left = sum(one.done == "left" for one in done)
    words = f"{changed} of {len(done)} paths {'would be' if dry_run else 'were'} put back"
    return f"{words}; {left} folders stay, because they are not empty" if left else words
