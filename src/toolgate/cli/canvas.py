"""`toolgate canvas`: what agents showed to people."""

from datetime import datetime
from typing import Annotated

import typer

from toolgate.cli.context import CommandGroup, NotFound, Tenant, User, actor_of, argument, naming, opened, text_option
from toolgate.cli.output import answer, answered, clean, pretty, say
from toolgate.cli.table import listing
from toolgate.cli.times import shown
from toolgate.errors import plural

group = CommandGroup(help="What agents showed to people, by session.", no_args_is_help=True)
SessionArgument = Annotated[str, argument("SESSION", "The session.")]


@group.command("list")
async def list_canvases(ctx: typer.Context, tenant: Tenant = None, user: User = None) -> int:
    """List the sessions of a user that have a canvas."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        found = await app.canvas.list(actor=whose)
    return listing(
        {"canvases": [row._asdict() for row in found]},
        ["session", ">blocks", ">bytes", "changed"],
        [[row.session_id, f"{row.blocks:,}", f"{row.size_bytes:,}", shown(row.updated_at)] for row in found],
        none=f"User {whose.user} of tenant {whose.tenant} has no canvas. The tool canvas_append makes one.",
    )


@group.command()
async def show(
    ctx: typer.Context,
    session: SessionArgument,
    pane: Annotated[str | None, text_option("--pane P", "Only this part of the canvas.")] = None,
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Show the canvas of a session, block by block."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        blocks = await app.canvas.read(session, pane=pane, limit=10_000, actor=whose)
    if not blocks and pane is None:
        raise NotFound(
            f"User {whose.user} has no canvas in session {clean(session[:80])!r}.",
            suggestion=f"`toolgate canvas list{naming(whose, user=True)}` shows the sessions that have one.",
        )
    if not answered({"session": session, "blocks": [block._asdict() for block in blocks]}):
        for block in blocks:
            at = shown(datetime.fromisoformat(block.created_at))
            say((f"{block.number} {block.pane} · {block.created_by} · {at}", "dim"))
            say(block.content if isinstance(block.content, str) else pretty(block.content), lines=True)
    return 0


@group.command()
async def clear(ctx: typer.Context, session: SessionArgument, tenant: Tenant = None, user: User = None) -> int:
    """Remove the canvas of a session."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        removed = await app.canvas.clear(session, actor=whose)
    return answer({"session": session, "removed": removed}, ("✓ Removed", "green"), f" {plural(removed, 'block')}")
