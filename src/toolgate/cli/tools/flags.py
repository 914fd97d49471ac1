"""`toolgate tools enable` and `disable`: for everybody, for a tenant, or for a persona."""

import typer

from toolgate.app.app import App
from toolgate.cli.catalog import ListedTool, find
from toolgate.cli.context import Usage, actor_of, opened, readable
from toolgate.cli.output import emit, note, say
from toolgate.errors import StoreError
from toolgate.model import LOCAL


async def switch(
    ctx: typer.Context, name: str, on: bool, tenant: str | None, persona: str | None, reason: str | None, as_json: bool
) -> int:
    if tenant is not None and persona is not None:
        raise Usage("A tool is switched for a tenant or for a persona, not for both at once.")
    readable("--reason", reason)
    whose = actor_of(tenant, persona, None)

    async with opened(ctx) as app:
        before = await find(app, name, whose)
        changed = _is_on(app, before, tenant, persona) != on
        if changed:
            await app.tools.set_enabled(name, on, tenant=tenant, persona=persona, reason=reason)
            if _is_on(app, before, tenant, persona) != on:
                raise StoreError(f"{name} could not be switched: it belongs to tenant {before.entry.tool.tenant}.")
        after = await find(app, name, whose)
    if as_json:
        emit(
            {
                "tool": name, "enabled": after.on, "changed": changed, "tenant": tenant, "persona": persona,
                "token_cost": after.tokens, "why_disabled": after.why_off,
            }
        )  # fmt: skip
        return 0
    _say_switched(after, on, changed=changed, moved=before.on != after.on, tenant=tenant, persona=persona)
    return 0


def _is_on(app: App, tool: ListedTool, tenant: str | None, persona: str | None) -> bool | None:
    """How the switch that is asked for stands; None: a tenant has no flag of its own yet."""
    return app.tools.flag(tool.name, tenant=tenant, persona=persona)


def _say_switched(
    tool: ListedTool, on: bool, *, changed: bool, moved: bool, tenant: str | None, persona: str | None
) -> None:
    whose = f" for tenant {tenant}" if tenant is not None else f" for persona {persona}" if persona is not None else ""
    if not changed:
        say(f"Tool already {'enabled' if on else 'disabled'}{whose}: {tool.name}")
    else:
        mark = ("✓ Enabled", "green") if on else ("✓ Disabled", "green")
        tokens = f" ({'+' if on else '-'}{tool.tokens} tokens)" if moved else ""
        say(mark, f" tool{whose}: {tool.name}{tokens}")
    if on and not tool.on:
        note((f"It is still not available: {tool.why_off}.", "yellow"))
    elif not on and tool.on:
        note((f"Tenant {LOCAL.tenant} still has it, because it has a flag of its own.", "yellow"))
