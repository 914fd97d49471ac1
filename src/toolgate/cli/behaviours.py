"""`toolgate behaviours`: sentences that agents put into the prompts of their personas."""

from typing import Annotated, Any

import typer

from toolgate.cli.context import CommandGroup, NotFound, Tenant, User, actor_of, argument, opened
from toolgate.cli.output import answer, clean
from toolgate.cli.table import listing
from toolgate.cli.times import shown
from toolgate.store.behaviours import AdjustmentRow

group = CommandGroup(help="How agents adjusted their behaviour.", no_args_is_help=True)


@group.command("list")
async def list_behaviours(ctx: typer.Context, tenant: Tenant = None) -> int:
    """List the adjustments of all personas of a tenant."""
    whose = actor_of(tenant, None, None)
    async with opened(ctx) as app:
        found = await app.behaviours.list(whose.tenant)
    return listing(
        {"behaviours": [_described(row) for row in found]},
        ["id", "persona", "adjustment", "by", "at"],
        [[row.id, row.persona_id, row.adjustment, row.created_by, shown(row.created_at)] for row in found],
        none=f"Tenant {whose.tenant} has no adjustments of behaviour.",
    )


@group.command()
async def remove(
    ctx: typer.Context,
    adjustment_id: Annotated[str, argument("ID", "The id of an adjustment.")],
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Remove an adjustment: the next prompt does without."""
    by = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        removed = await app.behaviours.remove(adjustment_id, actor=by)
    if removed is None:
        raise NotFound(
            f"Tenant {by.tenant} has no adjustment {clean(adjustment_id[:80])!r}.",
            suggestion="`toolgate behaviours list` shows them.",
        )
    return answer(_described(removed), ("✓ Removed", "green"), f" {removed.adjustment}")


def _described(row: AdjustmentRow) -> dict[str, Any]:
    return {**row._asdict(), "persona_id": row.persona_id or None}
