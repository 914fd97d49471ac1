"""`toolgate artifacts`: whole outputs of which a call gave only a part."""

from typing import Annotated

import orjson
import typer

from toolgate.cli.context import CommandGroup, NotFound, Tenant, ToFile, actor_of, argument, opened
from toolgate.cli.files import output_to
from toolgate.cli.output import answered, as_json, clean, emit, note, show

group = CommandGroup(help="Whole outputs of which a call gave only a part.", no_args_is_help=True)


@group.callback()
def artifacts() -> None: ...


@group.command()
async def get(
    ctx: typer.Context,
    artifact_id: Annotated[str, argument("ID", "The id that the outcome gave.")],
    output: ToFile = None,
    tenant: Tenant = None,
) -> int:
    """Get a whole output: text as it is, anything else as JSON."""
    content = None
    if artifact_id.isascii() and artifact_id.isprintable():
        async with opened(ctx) as app:
            content = await app.audit.artifact_of_anybody(artifact_id, actor_of(tenant, None, None).tenant)
    if content is None:
        raise NotFound(
            f"This tenant has no artifact with the id {clean(artifact_id[:64])!r}.",
            suggestion="Artifacts are kept for a while only (limits.artifact_days).",
        )
    value = orjson.loads(content)
    if output is not None:
        with output_to(output) as put:
            put(value.encode() if isinstance(value, str) else content)
        if not answered({"id": artifact_id, "output": str(output), "bytes": output.stat().st_size}):
            note(f"{output.stat().st_size:,} bytes written to {output}")
    elif as_json():
        emit(content)
    else:
        show(value)
    return 0
