"""`toolgate tools`: what there is, what it costs a model to read, and who has it."""

from collections.abc import Coroutine
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal

import typer

from toolgate.cli.catalog import BADGES, ListedTool, bar, declared, find, listed, price, total
from toolgate.cli.completion import ToolName
from toolgate.cli.context import AsJson, Persona, Tenant, Usage, User, actor_of, opened
from toolgate.cli.output import Part, emit, note, say, show
from toolgate.cli.table import table
from toolgate.cli.tools.flags import switch
from toolgate.cli.tools.info import say_info, to_dict
from toolgate.cli.tools.search import rank
from toolgate.errors import plural
from toolgate.extras import install_command
from toolgate.model import SOURCES, Runtime, Source
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.export import is_exact

USAGE = """
Usage:
  toolgate tools enable <name>   - Enable a tool
  toolgate tools disable <name>  - Disable a tool
  toolgate tools info <name>     - Show tool details
  toolgate tools tokens          - Show token breakdown"""

Format = Literal["openai", "anthropic", "gemini", "mcp", "typescript", "python"]

group = typer.Typer(help="What tools there are, and who has them.", invoke_without_command=True)


@group.callback()
def tools(ctx: typer.Context, as_json: AsJson = False) -> int | Coroutine[None, None, int]:
    if ctx.invoked_subcommand is None:
        return list_tools(ctx, as_json=as_json)
    if as_json:
        raise Usage(f"--json comes after the command: toolgate tools {ctx.invoked_subcommand} --json.")
    return 0


# -- what there is


@group.command("list")
async def list_tools(
    ctx: typer.Context,
    source: Annotated[
        Source | None, typer.Option("--source", help=f"Only of this source: {', '.join(SOURCES)}.", metavar="SOURCE")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Also what the tenant or persona does not have, and why; dynamic tools of all tenants."),
    ] = False,
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    as_json: AsJson = False,
) -> int:
    """List all tools, or those that a tenant or persona has."""
    somebody = (tenant, persona, user) != (None, None, None)

    async with opened(ctx) as app:
        await app.tools.check()
        found = await listed(app, actor_of(tenant, persona, user), of_all_tenants=everything)
        problems, withheld = list(app.tools.problems), app.tools.withheld
        with_tokens = app.settings.show_token_costs
    found = [tool for tool in found if source in (None, tool.entry.tool.source) and (tool.on or everything or not somebody)]
    if as_json:
        emit(
            {
                "tools": [tool.to_dict() for tool in found],
                "total_tokens": total(found),
                "problems": [problem._asdict() for problem in problems],
                "waiting": withheld,
            }
        )
        return 0
    say("Available Tools:\n" if found else _none(source, somebody), lines=True)
    table([""] * 5, [_row(tool, with_tokens=with_tokens, why=everything) for tool in found])
    if found and with_tokens:
        which = f"Total of source {source}" if source else "Total system prompt cost"
        say(f"\n{which}: ~{total(found)} tokens", lines=True)
    say(USAGE, lines=True)
    _note_problems(problems)
    if withheld:
        note(
            (f"\n{plural(len(withheld), 'tool')} of MCP servers to be looked at: toolgate tools accept --all", "yellow"),
            lines=True,
        )
    return 0


FIRST: dict[Source, str] = {
    "mcp": "`toolgate servers add NAME -- COMMAND …` plugs in an MCP server",
    "custom": "`toolgate tools new NAME` writes one",
    "python": "put a Python file with @tool functions into .toolgate/tools/",
}
"""How a source gets its first tool, where that is up to whoever runs Toolgate."""


def _none(source: Source | None, somebody: bool) -> str:
    """An empty list, as a sentence that says what would fill it."""
    if somebody:
        return "No tools that this actor has. Add --all to see the others, and why."
    if source is None:
        return "No tools are enabled in the settings. `toolgate doctor` shows which settings are read."
    return f"No tools of source {source}{f': {FIRST[source]}' if source in FIRST else ''}."


def _row(tool: ListedTool, *, with_tokens: bool, why: bool) -> list[Part]:
    return [
        (f"✓ {tool.name:<24}", "green") if tool.on else (f"✗ {tool.name:<24}", "red"),
        (f"{BADGES[tool.entry.tool.source]:<11}", "cyan"),
        f"~{tool.tokens} tokens{declared(tool)}" if with_tokens else "",
        (tool.entry.tier, "dim"),
        (tool.why_off if why and tool.why_off else "", "yellow"),
    ]


def _note_problems(problems: list[ToolProblem]) -> None:
    if problems:
        note(("\nCould not be loaded:", "yellow"), lines=True)
        for problem in problems:
            note((f"  {problem.where}: {problem.why}", "yellow"))


@group.command()
async def info(
    ctx: typer.Context,
    name: ToolName,
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    as_json: AsJson = False,
) -> int:
    """Show everything about one tool."""
    somebody = (tenant, persona, user) != (None, None, None)

    async with opened(ctx) as app:
        actor = actor_of(tenant, persona, user)
        tool = await find(app, name, actor, only_on=somebody)
        auth = tool.entry.auth
        enforced = app.tools.is_enforced(tool.name)
        has_credential = auth is not None and app.secrets.has(auth.config_key, actor)
    if as_json:
        emit(to_dict(tool, enforced=enforced))
    else:
        say_info(tool, enforced=enforced, has_credential=has_credential)
    return 0


@group.command()
async def tokens(
    ctx: typer.Context, tenant: Tenant = None, persona: Persona = None, user: User = None, as_json: AsJson = False
) -> int:
    """Show what each enabled tool costs a model to read."""

    async with opened(ctx) as app:
        found, per_million = await listed(app, actor_of(tenant, persona, user)), app.settings.token_price
    found = sorted((tool for tool in found if tool.on), key=lambda tool: (-tool.tokens, tool.name))
    if as_json:
        costs = [
            {"name": tool.name, "token_cost": tool.tokens, "declared_tokens": tool.entry.tool.declared_tokens}
            for tool in found
        ]
        cost = total(found) * per_million / 1_000_000
        emit({"tools": costs, "total_tokens": total(found), "tokens_exact": is_exact(), "cost_usd": round(cost, 9)})
        return 0
    if not found:
        note(("No tools are enabled for this actor. `toolgate tools list --all` shows the others, and why.", "dim"))
        return 0
    say("Token Cost Breakdown:\n", lines=True)
    largest = max(tool.tokens for tool in found)
    table(
        ["", ""],
        [[f"{tool.name:<24}", (f"{bar(tool.tokens, largest)} {tool.tokens}{declared(tool)}", "cyan")] for tool in found],
    )
    say(f"\nTotal: {total(found)} tokens ({price(total(found), per_million)})", lines=True)
    if not is_exact():
        note((f"Estimated from length. To count them: {install_command('tokens')}", "dim"))
    return 0


@group.command()
async def search(
    ctx: typer.Context,
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="Words to look for.", show_default=False)],
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, metavar="N", help="How many to show.")] = 10,
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    as_json: AsJson = False,
) -> int:
    """Find tools by words in their names, tags and descriptions."""

    async with opened(ctx) as app:
        known = {tool.name: tool for tool in await listed(app, actor_of(tenant, persona, user)) if tool.on}
    ranked = rank(" ".join(query), (tool.entry.tool for tool in known.values()))
    found = [(known[tool.name], score) for tool, score in ranked[:limit]]
    if as_json:
        emit({"tools": [{**tool.to_dict(), "score": score} for tool, score in found]})
        return 0
    if not found:
        note("No tool was found. `toolgate tools list` shows them all.")
    table(
        ["", ""],
        [[(tool.name, "bold"), shorten(tool.entry.tool.description, 72, placeholder=" …")] for tool, _ in found],
    )
    return 0


@group.command("export")
async def export_tools(
    ctx: typer.Context,
    shape: Annotated[Format, typer.Option("--format", help="Whose shape.", show_default=False)],
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    as_json: AsJson = False,
) -> int:
    """Print definitions for models, MCP clients or programs. A program gets functions that it can call."""

    actor = actor_of(tenant, persona, user)
    async with opened(ctx) as app:
        found: list[dict[str, Any]] | str
        if shape == "typescript" or shape == "python":
            found = await app.tools.typed(shape, actor)
        else:
            found = await app.tools.export(shape, actor)
    if as_json:
        emit(found)
    elif isinstance(found, str):
        say(found, lines=True)
    else:
        show(found)
    return 0


# -- who has it


Reason = Annotated[str | None, typer.Option("--reason", metavar="WHY", help="Why, for the audit log and for those who ask.")]
ForTenant = Annotated[str | None, typer.Option("--tenant", metavar="T", help="Only for this tenant.")]
ForPersona = Annotated[str | None, typer.Option("--persona", metavar="P", help="Only for this persona.")]


@group.command()
async def enable(
    ctx: typer.Context,
    name: ToolName,
    tenant: ForTenant = None,
    persona: ForPersona = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> int:
    """Enable a tool for everybody, a tenant or a persona."""
    return await switch(ctx, name, True, tenant, persona, reason, as_json)


@group.command()
async def disable(
    ctx: typer.Context,
    name: ToolName,
    tenant: ForTenant = None,
    persona: ForPersona = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> int:
    """Disable a tool for everybody, a tenant or a persona."""
    return await switch(ctx, name, False, tenant, persona, reason, as_json)


@group.command("accept")
async def accept(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|SERVER", help="Tools, or MCP servers.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All of a server in one question; without a name, of every server.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Accept what is shown without asking.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Show definitions whole, with their schemas.")] = False,
    as_json: AsJson = False,
) -> int:
    """Accept new and changed tools of MCP servers. They are shown first. Until then nobody can call them."""
    from toolgate.cli.tools.accept import accept_tools

    return await accept_tools(ctx, names or [], everything=everything, yes=yes, full=full, as_json=as_json)


# -- custom tools: files of their own, and code that is imported when it is wanted


@group.command("add")
async def add(
    ctx: typer.Context,
    from_file: Annotated[
        Path, typer.Option("--from-file", metavar="FILE", help="The YAML file of the tool.", show_default=False)
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace the custom tool of the same name.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check a custom tool's file and add it. All of it is checked, its code too; it is put where Toolgate loads it from."""
    from toolgate.cli.tools.custom import add_tool

    return await add_tool(ctx, from_file, force=force, as_json=as_json)


@group.command("new")
async def new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the tool is to be called.", show_default=False)],
    runtime: Annotated[Runtime, typer.Option("--runtime", help="What it is written in.")] = "typescript",
    as_json: AsJson = False,
) -> int:
    """Write a custom tool to start from. It works as it is, and is to be changed into the one that is wanted."""
    from toolgate.cli.tools.custom import new_tool

    return await new_tool(ctx, name, runtime, as_json=as_json)


@group.command("test")
async def test(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The custom tool.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Approve each example as the person at this machine.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a custom tool's own examples, and compare. Exit 0 if all of them pass."""
    from toolgate.cli.tools.examples import run_examples

    return await run_examples(ctx, name, yes=yes, as_json=as_json)
