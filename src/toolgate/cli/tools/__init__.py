"""`toolgate tools`: what there is, what it costs a model to read, and who has it."""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal

import typer

from toolgate.app.app import App
from toolgate.cli.catalog import BADGES, ListedTool, bar, declared, find, listed, served_report, tiers_of, total
from toolgate.cli.completion import ToolName
from toolgate.cli.context import (
    ActorOptions,
    AsJson,
    CommandGroup,
    Reason,
    Usage,
    actor_of,
    argument,
    opened,
    option,
    typed_as,
)
from toolgate.cli.output import Part, Unwritable, answer, answered, as_json, emit, note, say, show, use_json
from toolgate.cli.table import listing, table
from toolgate.cli.tools.accept import accept
from toolgate.cli.tools.custom import add, new, test
from toolgate.cli.tools.info import info
from toolgate.cli.tools.prompt import prompt
from toolgate.cli.tools.registration import register, unregister
from toolgate.errors import StoreError, plural
from toolgate.extras import install_command
from toolgate.model import DISCOVERY_TOOLS, LOCAL, SOURCES, Actor, Source
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.export import is_exact

BAR_SCALE = 1000
"""Tokens that fill a bar, unless a tool has more."""
USAGE = """
Usage:
  {tools} enable <name>   - Enable a tool
  {tools} disable <name>  - Disable a tool
  {tools} info <name>     - Show tool details
  {tools} tokens          - Show token breakdown"""

Format = Literal["openai", "anthropic", "gemini", "mcp", "typescript", "python"]
ANYBODY = ActorOptions()

group = CommandGroup(help="What tools there are, and who has them.", invoke_without_command=True)


@group.callback()
def tools(ctx: typer.Context, as_json: AsJson = False) -> int | Coroutine[None, None, int]:
    if ctx.invoked_subcommand is None:
        use_json(as_json)
        return list_tools(ctx)
    if as_json:
        raise Usage(f"--json comes after the command: toolgate tools {ctx.invoked_subcommand} --json.")
    return 0


# -- what there is


@group.command("list")
async def list_tools(
    ctx: typer.Context,
    source: Annotated[Source | None, option("--source SOURCE", f"Only of this source: {', '.join(SOURCES)}.")] = None,
    everything: Annotated[
        bool, option("--all", "Also what the tenant or persona does not have, and why; dynamic tools of all tenants.")
    ] = False,
    whose: ActorOptions = ANYBODY,
) -> int:
    """List all tools, or those that a tenant or persona has."""
    async with opened(ctx) as app:
        await app.tools.check()
        found = await listed(app, whose.actor, of_all_tenants=everything)
        served = await served_report(app, found, whose.actor)
        problems, withheld = list(app.tools.problems), app.tools.withheld
        with_tokens = app.settings.show_token_costs
    found = [tool for tool in found if source in (None, tool.entry.tool.source) and (tool.on or everything or not whose)]
    told = {
        "tools": [tool.to_dict() for tool in found],
        "total_tokens": total(found),
        "served": served.to_dict(),
        "problems": [problem._asdict() for problem in problems],
        "waiting": withheld,
    }  # fmt: skip
    if answered(told):
        return 0
    say("Available Tools:\n" if found else _none(source, bool(whose)), lines=True)
    table([""] * 5, [_row(tool, with_tokens=with_tokens, why=everything) for tool in found])
    if found and with_tokens:
        which = f"Total of source {source}" if source else "Total system prompt cost"
        say(f"\n{which}: ~{total(found)} tokens", lines=True)
        if served.is_discovery:
            say(str(served), lines=True)
    say(USAGE.format(tools=typed_as("tools")), lines=True)
    _note_problems(problems)
    if withheld:
        note((f"\n{plural(len(withheld), 'tool')} to be looked at: toolgate tools accept --all", "yellow"), lines=True)
    return 0


FIRST: dict[Source, str] = {
    "mcp": "`toolgate servers add NAME -- COMMAND …` plugs in an MCP server",
    "custom": "`toolgate tools new NAME` writes one",
    "dynamic": "`toolgate tools register FILE` registers one",
    "python": "put a Python file with @tool functions into .toolgate/tools/",
}
"""The way in which a source gets its first tool, where that is up to whoever runs Toolgate."""


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
        _tokens(tool) if with_tokens else "",
        (tiers_of(tool.entry), "dim"),
        (tool.why_off if why and tool.why_off else "", "yellow"),
    ]


def _tokens(tool: ListedTool) -> str:
    """What a tool costs a model to read; of a second name, which models are not shown, the first."""
    if tool.entry.internal:
        return "internal"
    if tool.name in DISCOVERY_TOOLS:
        return "discovery"
    return f"as {tool.entry.tool.alias_of}" if tool.second_name else f"~{tool.tokens} tokens{declared(tool)}"


def _note_problems(problems: list[ToolProblem]) -> None:
    if problems:
        note(("\nCould not be loaded:", "yellow"), lines=True)
        for problem in problems:
            note((f"  {problem.where}: {problem.why}", "yellow"))


group.command("info")(info)


@group.command()
async def tokens(ctx: typer.Context, whose: ActorOptions) -> int:
    """Show what each enabled tool costs a model to read."""
    async with opened(ctx) as app:
        found, per_million = await listed(app, whose.actor), app.settings.token_price
        served = await served_report(app, found, whose.actor)
    found = sorted((tool for tool in found if tool.on and tool.is_shown), key=lambda tool: (-tool.tokens, tool.name))
    cost = total(found) * per_million / 1_000_000
    if as_json():
        costs = [
            {"name": tool.name, "token_cost": tool.tokens, "declared_tokens": tool.entry.tool.declared_tokens}
            for tool in found
        ]
        told = {"tools": costs, "total_tokens": total(found), "tokens_exact": is_exact(), "cost_usd": round(cost, 9)}
        emit({**told, "served": served.to_dict()})
        return 0
    if not found:
        note(("No tools are enabled for this actor. `toolgate tools list --all` shows the others, and why.", "dim"))
        return 0
    say("Token Cost Breakdown:\n", lines=True)
    largest = max(BAR_SCALE, *(tool.tokens for tool in found))
    table(
        ["", ""],
        [[f"{tool.name:<24}", (f"{bar(tool.tokens, largest)} {tool.tokens}{declared(tool)}", "cyan")] for tool in found],
    )
    say(f"\nTotal: {total(found)} tokens (~${cost:.4f})", lines=True)
    if served.is_discovery:
        say(str(served), lines=True)
    if not is_exact():
        note((f"Estimated from length. To count them: {install_command('tokens')}", "dim"))
    return 0


@group.command()
async def search(
    ctx: typer.Context,
    query: Annotated[list[str], argument("QUERY", "The task that a tool is looked for.")],
    whose: ActorOptions,
    phrase: Annotated[
        list[str] | None, option("--phrase P", "The same task in other words, which may find more; several times.")
    ] = None,
    limit: Annotated[int, option("-n --limit N", "How many to show.", min=1, max=1000)] = 10,
) -> int:
    """Find tools that fit a task."""
    async with opened(ctx) as app:
        known = {tool.name: tool for tool in await listed(app, whose.actor) if tool.on}
        ranking = await app.tools.search([" ".join(query), *(phrase or ())], whose.actor, limit=limit)
    found = [(known[tool.name], score) for tool, score in ranking.found if tool.name in known]
    code = listing(
        {
            "tools": [{**tool.to_dict(), "score": score} for tool, score in found],
            "is_sure": ranking.is_sure,
            "basis": ranking.basis,
        },
        ["name", ">score", "description"],
        [
            [(tool.name, "bold"), f"{score:.2f}", shorten(tool.entry.tool.description, 72, placeholder=" …")]
            for tool, score in found
        ],
        none="Nothing fits. Say it in other words (--phrase), or look through all: `toolgate tools list`.",
    )
    if as_json():  # is_sure and basis say it
        return code
    if found and not ranking.is_sure:
        note(("None of these is sure to fit. Other words may find more: --phrase.", "dim"))
    if ranking.basis == "words":
        how = f"{plural(ranking.pending, 'tool')} are still being read" if ranking.pending else install_command("embeddings")
        note((f"Compared by words, not by meaning: {how}.", "dim"))
    else:
        note(("Compared by meaning.", "dim"))
    return code


@group.command("export")
async def export_tools(
    ctx: typer.Context,
    whose: ActorOptions,
    names: Annotated[list[str] | None, argument("NAMES", "With --skill: these tools; without them, all.")] = None,
    shape: Annotated[Format | None, option("--format", "Whose shape.", show_default=False)] = None,
    skill: Annotated[Path | None, option("--skill DIR", "Write an agent skill to this folder instead.")] = None,
    force: Annotated[bool, option("--force", "With --skill: overwrite a folder that was not written so.")] = False,
) -> int:
    """Print definitions, or write an agent skill.

    For models, MCP clients or programs: a program gets functions to call."""
    if (shape is None) == (skill is None):
        raise Usage("Name a shape with --format, or a folder with --skill.")
    if skill is None and (names or force):
        raise Usage("Names of tools and --force go with --skill.")
    async with opened(ctx) as app:
        if skill is not None:
            return await _export_skill(app, skill, names or (), whose.actor, force=force)
        assert shape is not None
        found: list[dict[str, Any]] | str
        if shape == "typescript" or shape == "python":
            found = await app.tools.typed(shape, whose.actor)
        else:
            found = await app.tools.export(shape, whose.actor)
    if as_json():
        emit(found)
    elif isinstance(found, str):
        say(found, lines=True)
    else:
        show(found)
    return 0


async def _export_skill(app: App, folder: Path, names: Sequence[str], actor: Actor, *, force: bool) -> int:
    try:
        written = await app.tools.export_skill(folder.absolute(), names, actor=actor, force=force)
    except OSError as error:
        raise Unwritable(folder, error) from None
    told = {"folder": str(folder), "tools": list(written.tools), "files": list(written.files)}
    return answer(told, ("✓ Skill written", "green"), f": {folder} ({plural(len(written.tools), 'tool')})")


group.command("prompt")(prompt)


# -- who has it


@dataclass(frozen=True, slots=True)
class FlagOptions:
    """Whose flag is set, and why."""

    tenant: Annotated[str | None, option("--tenant T", "Only for this tenant.")] = None
    persona: Annotated[str | None, option("--persona P", "Only for this persona.")] = None
    reason: Reason = None

    def __str__(self) -> str:
        if self.tenant is not None:
            return f" for tenant {self.tenant}"
        return "" if self.persona is None else f" for persona {self.persona}"


@group.command()
async def enable(ctx: typer.Context, name: ToolName, flag: FlagOptions) -> int:
    """Enable a tool for everybody, a tenant or a persona."""
    return await _switch(ctx, name, True, flag)


@group.command()
async def disable(ctx: typer.Context, name: ToolName, flag: FlagOptions) -> int:
    """Disable a tool for everybody, a tenant or a persona."""
    return await _switch(ctx, name, False, flag)


async def _switch(ctx: typer.Context, name: str, on: bool, flag: FlagOptions) -> int:
    tenant, persona = flag.tenant, flag.persona
    if tenant is not None and persona is not None:
        raise Usage("A tool is switched for a tenant or for a persona, not for both at once.")
    whose = actor_of(tenant, persona, None)
    async with opened(ctx) as app:
        before = await find(app, name, whose)
        changed = app.tools.flag(name, tenant=tenant, persona=persona) != on
        if changed:
            await app.tools.set_enabled(name, on, tenant=tenant, persona=persona, reason=flag.reason)
            if app.tools.flag(name, tenant=tenant, persona=persona) != on:
                raise StoreError(f"{name} could not be switched: it belongs to tenant {before.entry.tool.tenant}.")
        after = await find(app, name, whose)
    told = {
        "tool": name, "enabled": after.on, "changed": changed, "tenant": tenant, "persona": persona,
        "token_cost": after.tokens, "why_disabled": after.why_off,
    }  # fmt: skip
    if answered(told):
        return 0
    if changed:
        tokens = f" ({'+' if on else '-'}{after.tokens} tokens)" if before.on != after.on else ""
        say((f"✓ {'Enabled' if on else 'Disabled'}", "green"), f" tool{flag}: {name}{tokens}")
    else:
        say(f"Tool already {'enabled' if on else 'disabled'}{flag}: {name}")
    if on and not after.on:
        note((f"It is still not available: {after.why_off}.", "yellow"))
    elif not on and after.on:
        note((f"Tenant {LOCAL.tenant} still has it, because it has a flag of its own.", "yellow"))
    return 0


# -- what comes from others

group.command("accept")(accept)
group.command("add")(add)
group.command("register")(register)
group.command("unregister")(unregister)
group.command("new")(new)
group.command("test")(test)
