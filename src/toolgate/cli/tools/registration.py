"""`toolgate tools register` and `unregister`: tools that a tenant has from now on, without a file in the project."""

from typing import Annotated

import typer

from toolgate.cli.completion import ToolName
from toolgate.cli.context import ActorOptions, Usage, argument, opened, option
from toolgate.cli.files import content_of, json_of
from toolgate.cli.output import answered, note, say

ANYBODY = ActorOptions()


async def register(
    ctx: typer.Context,
    file: Annotated[str, argument("FILE", "The definition as JSON; - for stdin.")],
    replace: Annotated[bool, option("--replace", "Replace the registered tool of the same name.")] = False,
    whose: ActorOptions = ANYBODY,
) -> int:
    """Register a tool at run time for a tenant. With --persona, the policy says whether it may (tool.enable)."""
    fields = json_of(content_of(file), file)
    if not isinstance(fields, dict):
        raise Usage(f"{file} is not the definition of a tool: it must be a JSON object.")
    async with opened(ctx) as app:
        made = await app.tools.add_dynamic(
            fields, whose.actor, replace=replace, door="cli", by_operator=whose.persona is None
        )
        entry = app.tools.get(made.name, whose.actor)
    told = {
        "tool": made.name, "tenant": made.tenant, "kind": made.kind, "tier": entry.tier, "asks": entry.asks,
        "fingerprint": entry.fingerprint,
    }  # fmt: skip
    if answered(told):
        return 0
    say(("✓ Registered tool", "green"), f" for tenant {made.tenant}: {made.name} ({made.kind}, tier {entry.tier})")
    if entry.asks:
        note(f"A person is asked before it runs: {entry.asks}.")
    return 0


async def unregister(ctx: typer.Context, name: ToolName, whose: ActorOptions = ANYBODY) -> int:
    """Remove a tool that was registered at run time for a tenant."""
    async with opened(ctx) as app:
        gone = await app.tools.remove_dynamic(name, whose.actor, by_operator=whose.persona is None)
    if answered({"tool": gone.name, "tenant": gone.tenant}):
        return 0
    say(("✓ Removed tool", "green"), f" of tenant {gone.tenant}: {gone.name}")
    return 0
