"""`toolgate servers`: MCP servers, how they stand, and what they offer."""

from typing import Annotated, Any

import typer

from toolgate.app.checks import Check
from toolgate.app.checks.servers import server_state
from toolgate.cli.context import CommandGroup, NotFound, opened, option
from toolgate.cli.output import Part, answer, answered, note, say
from toolgate.cli.servers.add import Name, add, compared_words, import_file, known, say_compared
from toolgate.cli.table import table
from toolgate.errors import Denied, SettingsError, plural
from toolgate.mcp.presets import PRESETS
from toolgate.settings import ServerSettings

SHOWN_FIELDS = (
    "origin", "transport", "isolation", "cwd", "read", "write", "blocked", "bring_in", "domains", "env", "headers", "only",
    "limits", "issuer", "protocol", "failure",
)  # fmt: skip
DEFINITION_STYLES = {"accepted": "green", "new": "yellow", "changed": "red"}

group = CommandGroup(help="MCP servers whose tools are offered.", no_args_is_help=True)
group.command("add")(add)
group.command("import")(import_file)


@group.command("list")
async def list_servers(ctx: typer.Context) -> int:
    """List the servers. Of each: what it is, whether its tools can be called, and what to do if not."""
    async with opened(ctx) as app:
        found = [(one, server_state(one, app.servers.missing_secrets(one.settings))) for one in await app.servers.list()]
        problems, enabled = list(app.servers.problems), app.settings.mcp.enabled
    if answered({"servers": [one.to_dict() for one, _ in found], "problems": [problem._asdict() for problem in problems]}):
        return 0
    table(["name", "what", "state"], [[one.name, one.to_dict()["what"], _cell(check)] for one, check in found])
    if not found and not problems:
        note(("No servers yet: `toolgate servers add NAME -- COMMAND …`, or one of `toolgate servers presets`.", "dim"))
    if not enabled:
        note(("None of them is used: the setting mcp.enabled is false.", "yellow"))
    for problem in problems:
        note((f"{problem.where}: {problem.why}", "yellow"))
    for one, check in found:
        if check.advice:
            note((f"{one.name} ({check.message}): {check.advice}", "yellow"))
    return 0


def _cell(check: Check) -> Part:
    return check.message, {"ok": "", "unused": "dim", "warning": "yellow", "fault": "red"}[check.status]


@group.command("show")
async def show_server(ctx: typer.Context, name: Name) -> int:
    """Show one server. What it is, what it may do, and all of its tools, prompts and resources."""
    async with opened(ctx) as app:
        status = await known(app, name)
        aside = [one for one in app.workspace.changes() if one.by == f"server {name}"]
        offered = [
            {"name": entry.name, "tier": entry.tier, "state": "accepted"}
            for entry in app.tools.entries()
            if entry.kind == "mcp" and entry.implementation.server == name
        ]
        offered += [{"name": f"{name}/{item}", "tier": "", "state": "accepted"} for item in app.servers.items(name)]
        waiting = [
            {"name": one.name, "tier": "", "state": "new" if one.is_new else "changed"}
            for one in await app.servers.quarantined(name)
        ]
        tools = sorted([*offered, *waiting], key=lambda tool: tool["name"])
    plain = status.to_dict()
    if answered({**plain, "tool_list": tools, "set_aside": [one.id for one in aside]}):
        return 0
    say((status.name, "bold"), f"  {plain['what']}")
    for field in SHOWN_FIELDS:
        value = FIELD_WORDS[field](plain) if field in FIELD_WORDS else plain[field]
        if value:
            say(f"  {field.ljust(10)} ", ", ".join(value) if isinstance(value, list) else str(value))
    for tool in tools:
        say(
            "  ",
            (tool["state"].ljust(10), DEFINITION_STYLES[tool["state"]]),
            f" {tool['name']}",
            (f"  {tool['tier']}", "dim"),
        )
    for one in aside:
        say("  ", ("set aside".ljust(10), "yellow"), f" {one.id}  {plural(len(one.changes), 'change')} in {one.workspace}")
    if status.waiting:
        note((f"toolgate tools accept {status.name}", "dim"))
    return 0


def _held(plain: dict[str, Any]) -> str | None:
    """The isolation of a server's program; None for an address, which runs elsewhere."""
    if plain["transport"] != "stdio":
        return None
    if plain["isolation"] == "none":
        return "none: it runs with the rights of whoever runs Toolgate"
    return f"required: held by {plain['jail']}" if plain["jail"] else "required: it was not started yet"


def _limits(plain: dict[str, Any]) -> list[str]:
    """Those that are not as they are for any server."""
    usual = ServerSettings()
    return [f"{name} {value:,.12g}" for name, value in plain["limits"].items() if value != getattr(usual, name)]


FIELD_WORDS = {"isolation": _held, "limits": _limits}
"""Words for people, in place of those that programs get."""


@group.command("remove")
async def remove(ctx: typer.Context, name: Name) -> int:
    """Remove a server that was added. Its tools, and what was accepted of them, go with it."""
    async with opened(ctx) as app:
        try:
            await app.servers.remove(name)
        except SettingsError as error:
            there = app.servers.has(name)
            raise error if there else NotFound(error.message, suggestion=error.suggestion) from None
    return answer({"name": name, "removed": True}, ("✓ Removed ", "green"), name)


@group.command("restart")
async def restart(ctx: typer.Context, name: Name) -> int:
    """Restart a server, wherever it runs. That may be `toolgate serve`, `toolgate mcp`, or a program."""
    async with opened(ctx) as app:
        await known(app, name)
        await app.servers.restart(name)
    told = {"name": name, "restarted": True}
    return answer(told, ("✓ Restarted ", "green"), f"{name}, where it was running")


@group.command("refresh")
async def refresh(ctx: typer.Context, name: Name) -> int:
    """Ask a server what it offers now. It is started if need be; what is new, changed or gone is shown."""
    async with opened(ctx) as app:
        await known(app, name)
        compared, status = await app.servers.refresh(name), await app.servers.get(name)
    if not answered({**status.to_dict(), **compared_words(compared)}):
        say_compared(status, compared)
    return 0


@group.command("login")
async def log_in(
    ctx: typer.Context,
    name: Name,
    browser: Annotated[bool, option("--browser/--no-browser", "Open a browser, if there is one.")] = True,
    accept_issuer: Annotated[
        str | None, option("--accept-issuer URL", "The authorization server, where it is not the one pinned.")
    ] = None,
) -> int:
    """Log in to a remote server in a browser. Its tokens are kept as secrets, its authorization server is pinned."""
    from toolgate.mcp.client.oauth.login import LoginFailed

    async with opened(ctx) as app:
        await known(app, name)
        try:
            issuer = await app.servers.log_in(
                name, lambda url: note(f"Log in here: {url}"), browser=browser, accept_issuer=accept_issuer
            )
        except LoginFailed as error:
            raise Denied("MISSING_AUTH", error.message, suggestion=error.suggestion) from None
    pinned = f", authorization server {issuer} (pinned)" if issuer else ""
    told = {"name": name, "logged_in": True, "issuer": issuer}
    return answer(told, ("✓ Logged in ", "green"), f"to {name}{pinned}")


@group.command("presets")
def presets() -> int:
    """List the servers that Toolgate knows, and what they need."""
    if answered({"presets": [_preset(name) for name in PRESETS]}):
        return 0
    width = max(map(len, PRESETS))
    for name, preset in PRESETS.items():
        say((name.ljust(width), "bold"), f"  {preset.about}")
        for need in preset.needs:
            where = f", from {need.url}" if need.url else ""
            say(" " * width, (f"  needs {need.what}{where}: toolgate secrets set {need.secret} --servers", "dim"))
        if preset.advice:
            say(" " * width, (f"  {preset.advice}", "dim"))
    say(f"\ntoolgate servers add NAME --preset {next(iter(PRESETS))}", lines=True)
    return 0


def _preset(name: str) -> dict[str, Any]:
    preset = PRESETS[name]
    named = {said["name"]: tool for tool, said in preset.settings.get("tools", {}).items() if "name" in said}
    return {
        "name": name,
        "about": preset.about,
        "package": preset.settings.get("npm") or preset.settings.get("pypi"),
        "tools": named,
        "needs": [need._asdict() for need in preset.needs],
        "domains": preset.settings.get("domains", []),
        "advice": preset.advice,
    }
