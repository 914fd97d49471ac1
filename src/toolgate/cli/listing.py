"""What the `tools` commands know of a tool for one actor, and how they write it: badge, tokens, bars, money."""

from dataclasses import dataclass
from typing import Any

from toolgate.app.app import App
from toolgate.cli.output import clean
from toolgate.errors import Failed, did_you_mean
from toolgate.model import Actor, Entry, Source

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
NAME_WIDTH = 25
BAR_WIDTH = 40
BAR_SCALE = 1000
"""Tokens that fill a bar, unless a tool has more."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as an actor has it."""

    entry: Entry
    tokens: int
    why_off: str | None

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def on(self) -> bool:
        return self.why_off is None

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
            "token_cost": self.tokens,
            "declared_tokens": tool.declared_tokens,
            "description": tool.description,
            "tags": list(tool.tags),
        }


async def listed(app: App, actor: Actor, *, of_all_tenants: bool = False) -> list[Listed]:
    """Every tool by name, and whether the actor has it. Dynamic tools of other tenants are left out unless asked for."""
    tokens = await app.token_costs()
    return [
        Listed(entry, tokens[entry.name], await why_off(app, entry, actor))
        for entry in sorted(app.catalog.entries(), key=lambda entry: entry.name)
        if of_all_tenants or entry.tool.tenant in (None, actor.tenant)
    ]


async def why_off(app: App, entry: Entry, actor: Actor) -> str | None:
    """Why an actor does not have a tool; None if it has."""
    if entry.tool.tenant not in (None, actor.tenant):
        return f"{entry.name} belongs to tenant {entry.tool.tenant}"
    off = app.catalog.why_off(entry, actor.tenant)
    if off is not None:
        return off
    decision = await app.guard.decide(actor, "tool.view", entry.name, tier=entry.tier, door="cli")
    return None if decision.allow else decision.reason


def total(tools: list[Listed]) -> int:
    """What the enabled ones cost together."""
    return sum(tool.tokens for tool in tools if tool.on)


def width(tools: list[Listed]) -> int:
    return max([NAME_WIDTH, *(len(tool.name) for tool in tools)])


def bar(tokens: int, largest: int) -> str:
    filled = min(round(tokens / max(BAR_SCALE, largest) * BAR_WIDTH), BAR_WIDTH)
    return "█" * filled + "░" * (BAR_WIDTH - filled)


def price(tokens: int, per_million: float) -> str:
    """Roughly, in four decimals, as document B shows it."""
    return f"~${tokens * per_million / 1_000_000:.4f}"


def declared(tool: Listed) -> str:
    """What the definition says of its tokens, where that is not what was counted."""
    said = tool.entry.tool.declared_tokens
    return "" if said is None or said == tool.tokens else f" (declared {said})"


async def find(app: App, name: str, actor: Actor, *, only_on: bool = False) -> Listed:
    """The tool of a name; with `only_on`, what the actor does not have is not there."""
    known = {tool.name: tool for tool in await listed(app, actor) if tool.on or not only_on}
    if name in known:
        return known[name]
    from toolgate.cli.missing import LIST, why_missing

    # what an actor does not have is not there for it, whatever the cause
    advice = did_you_mean(name, known) or LIST if only_on else await why_missing(app, name, actor)
    raise Failed("TOOL_NOT_FOUND", f"Tool not found: {clean(name[:64])}", suggestion=advice)
