"""`toolgate documents`: what agents may ask questions of."""

from typing import Annotated, Any

import typer

from toolgate.cli.context import CommandGroup, NotFound, OnlyTenant, Tenant, User, actor_of, argument, opened
from toolgate.cli.output import Part, answer, clean
from toolgate.cli.table import listing
from toolgate.cli.times import shown
from toolgate.errors import plural
from toolgate.store.documents import DocumentRow

group = CommandGroup(help="Documents that agents may ask questions of.", no_args_is_help=True)


@group.command("list")
async def list_documents(ctx: typer.Context, tenant: OnlyTenant = None) -> int:
    """List the documents that were taken in."""
    async with opened(ctx) as app:
        found = await app.documents.list(tenant)
    return listing(
        {"documents": [_described(row) for row in found]},
        ["id", "name", "kind", "tenant", "persona", ">passages", ">bytes", "by", "at"],
        [_row(row) for row in found],
        none="There are no documents. The tool document_ingest takes one in.",
    )


@group.command()
async def remove(
    ctx: typer.Context,
    document_id: Annotated[str, argument("ID", "The id of a document.")],
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Remove a document, with all its passages."""
    by = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        removed = await app.documents.remove(document_id, actor=by)
    if removed is None:
        raise NotFound(
            f"Tenant {by.tenant} has no document {clean(document_id[:80])!r}.",
            suggestion="`toolgate documents list` shows them.",
        )
    return answer(_described(removed), ("✓ Removed", "green"), f" {removed.name}, {plural(removed.passages, 'passage')}")


def _described(row: DocumentRow) -> dict[str, Any]:
    return {**row._asdict(), "persona_id": row.persona_id or None}


def _row(row: DocumentRow) -> list[Part]:
    numbers = f"{row.passages:,}", f"{row.size_bytes:,}"
    return [row.id, row.name, row.kind, row.tenant_id, row.persona_id, *numbers, row.created_by, shown(row.created_at)]
