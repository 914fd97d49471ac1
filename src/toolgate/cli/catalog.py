"""Tools as one actor has them, and why one is not found."""

import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolgate.app.app import App
from toolgate.cli.context import entry_named, naming
from toolgate.cli.output import clean, note
from toolgate.errors import Failed, did_you_mean
from toolgate.model import DISCOVERY_TOOLS, TIERS, Actor, Entry, Source
from toolgate.registry.catalog import ToolProblem
from toolgate.trust import read_regular

BADGES: dict[Source, str] = {
    "builtin": "[Built-in]",
    "teams": "[Teams]",
    "python": "[Python]",
    "workflow": "[Workflow]",
    "mcp": "[MCP]",
    "openapi": "[OpenAPI]",
    "custom": "[Custom]",
    "dynamic": "[Dynamic]",
}
BAR_WIDTH = 40
MAX_NAMED_TOOLS = 5


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as an actor has it."""

    entry: Entry
    tokens: int
    why_off: str | None
    second_name: bool = False
    """True if models are shown another name of it instead."""

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def on(self) -> bool:
        return self.why_off is None

    @property
    def is_shown(self) -> bool:
        """True if models are shown it, under this name, where they are shown all tools."""
        return not self.second_name and not self.entry.internal and self.name not in DISCOVERY_TOOLS

    def to_dict(self) -> dict[str, Any]:
        tool = self.entry.tool
        return {
            "name": tool.name,
            "enabled": self.on,
            "why_disabled": self.why_off,
            "source": tool.source,
            "version": tool.version,
            "category": tool.category,
            "tier": self.entry.tier,
            "declared_tier": tool.tier,
            "operations": {name: one.tier for name, one in (self.entry.operations or {}).items()},
            "token_cost": self.tokens,
            "declared_tokens": tool.declared_tokens,
            "alias_of": tool.alias_of,
            "internal": tool.internal,
            "description": tool.description,
            "tags": list(tool.tags),
        }


async def listed(app: App, actor: Actor, *, of_all_tenants: bool = False) -> list[ListedTool]:
    """Every tool by name, and whether the actor has it. Dynamic tools of other tenants are left out unless asked for."""
    tokens = await app.tools.token_costs()
    entries = [entry for entry in app.tools.entries() if of_all_tenants or entry.tool.tenant in (None, actor.tenant)]
    off = {entry.name: await app.tools.why_off(entry, actor, door="cli") for entry in entries}
    on = {name for name, why in off.items() if why is None} if not app.settings.list_aliases else set()
    return [
        ListedTool(entry, tokens[entry.name], off[entry.name], entry.tool.alias_of in on)
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]


@dataclass(frozen=True, slots=True)
class ServedSummary:
    """The tools that a model is listed which works for an actor."""

    names: list[str]
    tokens: int
    is_discovery: bool
    all_tokens: int
    """Of the tools that it would be listed without discovery."""
    all_count: int

    def to_dict(self) -> dict[str, Any]:
        return {"tools": self.names, "tokens": self.tokens, "discovery": self.is_discovery}

    def __str__(self) -> str:
        saved = self.all_tokens - self.tokens
        share = f", {saved / self.all_tokens:.0%} fewer" if saved > 0 else ""
        return (
            f"Discovery is on: a model is listed {len(self.names)} tools of {self.all_count} and reads ~{self.tokens} "
            f"tokens of definitions{share}. It finds the others with search_tools (settings discovery.*)."
        )


async def served_report(app: App, tools: list[ListedTool], actor: Actor) -> ServedSummary:
    """The tools that a model is listed, of all that an actor has."""
    served, costs = await app.tools.served(actor), {tool.name: tool.tokens for tool in tools}
    names = [tool.name for tool in served.tools]
    shown = [tool for tool in tools if tool.on and tool.is_shown]
    return ServedSummary(names, sum(costs.get(name, 0) for name in names), served.is_discovery, total(shown), len(shown))


def note_missing(app: App, names: Iterable[str], what: str) -> None:
    """Says of tools that something is set for, and that are not there, when it applies."""
    known = {entry.name for entry in app.tools.entries()}
    missing = sorted({*names} - known)
    if missing:
        more = len(missing) - MAX_NAMED_TOOLS
        shown = ", ".join(map(repr, missing[:MAX_NAMED_TOOLS])) + (f" and {more:,} more" if more > 0 else "")
        note((f"There is no tool named {shown} now; {what} applies once there is.", "yellow"))


def tiers_of(entry: Entry) -> str:
    """The tier of a tool; of one with operations, from the least to the most."""
    found = {one.tier for one in (entry.operations or {"": entry}).values()}
    ordered = [tier for tier in TIERS if tier in found]
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def total(tools: list[ListedTool]) -> int:
    """The tokens of the enabled ones together, as models are shown them."""
    return sum(tool.tokens for tool in tools if tool.on and tool.is_shown)


def bar(part: int, whole: int) -> str:
    """The share that a part is of a whole."""
    filled = round(part / whole * BAR_WIDTH)
    return "█" * filled + "░" * (BAR_WIDTH - filled)


def declared(tool: ListedTool) -> str:
    """The tokens that a definition declares, where that is not what was counted."""
    said = tool.entry.tool.declared_tokens
    return "" if said is None or said == tool.tokens else f" (declared {said})"


async def find(app: App, name: str, actor: Actor, *, only_on: bool = False) -> ListedTool:
    """The tool of a name; with `only_on`, what the actor does not have is not there."""
    known = {tool.name: tool for tool in await listed(app, actor) if tool.on or not only_on}
    if name in known:
        return known[name]
    # what an actor does not have is not there for it, whatever the cause
    advice = did_you_mean(name, known) or LIST if only_on else await why_missing(app, name, actor)
    raise Failed("TOOL_NOT_FOUND", f"Tool not found: {clean(name[:64])}", suggestion=advice)


# -- why a tool was not found
#
# A caller is told the same of a tool that is missing and of one that is hidden (decision 5), at every door. Whoever runs the
# CLI reads the store anyway, so that keeping the cause from them would only cost time. It is for people: `--json` gives the
# pipeline's answer alone, because programs pass it on.

LIST = "`toolgate tools list` shows all tools."


async def why_missing(app: App, name: str, actor: Actor) -> str:
    """The cause, as a sentence or two: hidden from this actor, not accepted, not loaded, or no such name."""
    entry = entry_named(app, name, actor)
    if entry is not None:
        return await _hidden(app, entry, actor)
    if (why := app.tools.withheld.get(name)) is not None:
        return f"{clean(name)} is known, but {why}: `toolgate tools accept {name}`."
    if any(one.name == name for one in await app.teams.waiting()):
        return f"{clean(name)} is a tool of the organisation and waits to be accepted: `toolgate teams accept {name}`."
    owners = sorted({str(one.tool.tenant) for one in app.tools.entries() if one.name == name})
    if owners:
        return f"{clean(name)} is a tool of tenant {clean(', '.join(owners))}: add --tenant {shlex.quote(owners[0])}."
    server = next((one for one in app.settings.servers if name.startswith(f"mcp_{one}_")), None)
    if server is not None and (why := app.servers.why_unusable(server)) is not None:
        return f"Server {server} cannot be used: {clean(why).rstrip('.')}. Correct its settings (servers.{server})."
    problem = next((one for one in app.tools.problems if _may_hold(one, name)), None)
    if problem is not None:
        return f"{problem.where} could not be loaded: {problem.why}. Correct it and call again."
    idle = _file_without(app, name)
    if idle is not None:
        return f"{idle} was loaded, but has no tool of this name: put `@tool` (from toolgate) above its function or class."
    near = did_you_mean(
        name, [one.name for one in app.tools.entries() if await app.tools.why_off(one, actor, door="cli") is None]
    )
    if near is not None:
        return near
    waiting = did_you_mean(name, app.tools.withheld)
    return f"{waiting} It has to be accepted first: `toolgate tools accept --all`." if waiting else LIST


async def _hidden(app: App, entry: Entry, actor: Actor) -> str:
    """The rule or flag that keeps a tool from an actor."""
    reason = await app.tools.why_off(entry, actor, door="cli")
    if reason is None:  # it was not for whoever called, and is for this actor: it has changed since
        return LIST
    command = f"toolgate explain {entry.name}{naming(actor, user=True)}"
    if actor.persona is not None:
        command += f" --persona {shlex.quote(actor.persona)}"
    if not app.tools.is_off(entry, actor.tenant):
        return f"The tool is there, but hidden from this caller: {reason}. `{command}` says which rule decides."
    only = "" if app.tools.flag(entry.name, tenant=actor.tenant) is None else f" --tenant {shlex.quote(actor.tenant)}"
    return f"The tool is there, but {reason}: `toolgate tools enable {entry.name}{only}`."


def _may_hold(problem: ToolProblem, name: str) -> bool:
    """True if a tool of a name could be in what did not load: its file is called so, or names it."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    if word.search(f"{problem.where} {problem.why}"):
        return True
    return bool(word.search(_text(Path(problem.where.split(":")[0]))))


def _file_without(app: App, name: str) -> Path | None:
    """A file of the tools folder that defines something of a name, and yet no tool of that name."""
    defined = re.compile(rf"^(async def|def|class) {re.escape(name)}\b", re.MULTILINE)
    files = (file for folder in app.settings.python_folders for file in sorted(folder.glob("[!_.]*.py")))
    return next((file for file in files if defined.search(_text(file))), None)


def _text(file: Path) -> str:
    with suppress(OSError, ValueError):  # a pipe is not waited for
        return read_regular(file).decode(errors="replace")
    return ""
