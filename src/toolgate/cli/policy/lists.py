"""`toolgate policy`: the commands that change the lists which the policy looks at."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NamedTuple

import typer

from toolgate.app.app import App
from toolgate.cli.context import AsJson, opened, readable
from toolgate.cli.output import Part, emit, note, say

lists = typer.Typer()

ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="The tool.", show_default=False)]
TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.", show_default=False)]
PersonaName = Annotated[str, typer.Argument(metavar="PERSONA", help="The persona.", show_default=False)]


class ListChange(NamedTuple):
    """A change of a list: how it stands, how it is made, and what is said of it."""

    is_so: Callable[[App], bool]
    make: Callable[[App], Coroutine[Any, Any, None]]
    told: dict[str, Any]
    mark: Part
    already: str
    subject: str
    wants: str | None = None
    """The tool that should be there, if one should."""


@lists.command()
async def deny(
    ctx: typer.Context,
    tool: ToolName,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="R", help="Why; it is in the audit log and in explain.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Deny a tool to everybody. It can't be seen, called or added."""
    readable("TOOL", tool)
    readable("--reason", reason)
    return await _change(
        ctx,
        ListChange(
            lambda app: tool in (denied := app.policy.data.global_deny) and reason in (None, denied[tool]),
            lambda app: app.policy.deny(tool, True, reason=reason),
            {"tool": tool, "denied": True, "reason": reason},
            ("✓ Denied to everybody", "green"), "Already denied to everybody", tool, tool,
        ),
        as_json,
    )  # fmt: skip


@lists.command()
async def undeny(ctx: typer.Context, tool: ToolName, as_json: AsJson = False) -> int:
    """Take a tool off the global deny list."""
    readable("TOOL", tool)
    return await _change(
        ctx,
        ListChange(
            lambda app: tool not in app.policy.data.global_deny,
            lambda app: app.policy.deny(tool, False),
            {"tool": tool, "denied": False, "reason": None},
            ("✓ No longer denied to everybody", "green"), "It was not denied to everybody", tool,
        ),
        as_json,
    )  # fmt: skip


@lists.command("restrict-code")
async def restrict_code(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> int:
    """Keep a tenant from running code or commands. No tool of tier execute, and no custom tool, runs for it."""
    return await _restrict(ctx, tenant, True, ("✓ May not run code", "green"), "It already may not run code", as_json)


@lists.command("unrestrict-code")
async def unrestrict_code(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> int:
    """Let a tenant call tools that run code or commands again."""
    return await _restrict(ctx, tenant, False, ("✓ May run code", "green"), "It was not kept from running code", as_json)


async def _restrict(ctx: typer.Context, tenant: str, restricted: bool, mark: Part, already: str, as_json: bool) -> int:
    readable("TENANT", tenant)
    return await _change(
        ctx,
        ListChange(
            lambda app: (tenant in app.policy.data.restricted_tenants) == restricted,
            lambda app: app.policy.restrict_code(tenant, restricted),
            {"tenant": tenant, "restricted": restricted},
            mark, already, f"tenant {tenant}",
        ),
        as_json,
    )  # fmt: skip


@lists.command()
async def permit(ctx: typer.Context, persona: PersonaName, as_json: AsJson = False) -> int:
    """Let a persona add tools."""
    return await _allow_adding(ctx, persona, True, ("✓ May add tools", "green"), "It already may add tools", as_json)


@lists.command()
async def forbid(ctx: typer.Context, persona: PersonaName, as_json: AsJson = False) -> int:
    """Keep a persona from adding tools."""
    return await _allow_adding(
        ctx, persona, False, ("✓ May not add tools", "green"), "It already may not add tools", as_json
    )


async def _allow_adding(ctx: typer.Context, persona: str, allowed: bool, mark: Part, already: str, as_json: bool) -> int:
    readable("PERSONA", persona)
    return await _change(
        ctx,
        ListChange(
            lambda app: app.policy.data.can_add_tools.get(persona, False) == allowed,
            lambda app: app.policy.allow_adding_tools(persona, allowed),
            {"persona": persona, "can_add_tools": allowed},
            mark, already, f"persona {persona}",
        ),
        as_json,
    )  # fmt: skip


async def _change(ctx: typer.Context, change: ListChange, as_json: bool) -> int:
    async with opened(ctx) as app:
        if change.wants is not None and not any(entry.name == change.wants for entry in app.tools.entries()):
            note((f"There is no tool {change.wants} now; the denial applies once there is.", "yellow"))
        changed = not change.is_so(app)
        if changed:
            await change.make(app)
    if as_json:
        emit({**change.told, "changed": changed})
    elif changed:
        say(change.mark, f": {change.subject}")
    else:
        say(f"{change.already}: {change.subject}")
    return 0
