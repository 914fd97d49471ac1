"""`toolgate tools info`: everything about one tool."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer

from toolgate.app.tool_health import has_check
from toolgate.cli.catalog import BADGES, ListedTool, declared, find, tiers_of
from toolgate.cli.completion import ToolName
from toolgate.cli.context import ActorOptions, opened
from toolgate.cli.explain import estimate_words
from toolgate.cli.output import answered, say, show
from toolgate.cli.times import shown
from toolgate.gates.quota.money import estimate
from toolgate.model import Entry, Tool, nano
from toolgate.pipeline.explain import CallEstimate, estimate_of
from toolgate.pipeline.usage import dollars
from toolgate.store.tool_health import HealthRow


async def info(ctx: typer.Context, name: ToolName, whose: ActorOptions) -> int:
    """Show everything about one tool."""
    async with opened(ctx) as app:
        tool = await find(app, name, whose.actor, only_on=bool(whose))
        auth = tool.entry.auth
        enforced = app.tools.is_enforced(tool.name)
        has_credential = auth is not None and app.secrets.has(auth.config_key, whose.actor)
        health = await app.tools.health(tool.name) if has_check(tool.entry) else None
    if not answered(info_to_dict(tool, enforced=enforced, health=health)):
        _say_info(tool, enforced=enforced, has_credential=has_credential, health=health)
    return 0


def info_to_dict(tool: ListedTool, *, enforced: bool, health: HealthRow | None = None) -> dict[str, Any]:
    return {
        **tool.to_dict(),
        "enforced": enforced,
        "timeout": tool.entry.time_limit,
        "timeout_from": _origin(tool.entry),
        "estimate": msgspec.to_builtins(_estimate(tool.entry)),
        "attempts": 1 if tool.entry.retry is None else tool.entry.retry.max_attempts,
        "background": tool.entry.background,
        "longest": None if tool.entry.time_limit is None else tool.entry.longest,
        "health": None if health is None else health.to_dict(),
        "fingerprint": tool.entry.fingerprint,
        "definition": tool.entry.tool.model_dump(mode="json"),
    }


def _say_info(tool: ListedTool, *, enforced: bool, has_credential: bool, health: HealthRow | None) -> None:
    definition = tool.entry.tool
    say()
    for label, text in _info_lines(tool, enforced=enforced, has_credential=has_credential):
        say((f"{label}: ", "bold"), text, lines=True)
    if has_check(tool.entry):
        say(("Health: ", "bold"), _health_words(health), lines=True)
    say("\nParameters:", lines=True)
    show(definition.input_schema)
    if definition.output_schema is not None:
        say("\nOutput:", lines=True)
        show(definition.output_schema)
    if definition.errors:
        say("\nErrors:", lines=True)
        for case in definition.errors:
            say((f"  {case.code}", "bold"), f": {sentence(case.when)} {sentence(case.advice)}", lines=True)
    if definition.examples:
        say("\nExamples:", lines=True)
        for example in definition.examples:
            show({"arguments": example.arguments} | ({"output": example.output} if example.output is not None else {}))
    if definition.documentation:
        say("\nDocumentation:\n", definition.documentation, lines=True)


def _info_lines(tool: ListedTool, *, enforced: bool, has_credential: bool) -> Iterator[tuple[str, str]]:
    entry, definition = tool.entry, tool.entry.tool
    yield "Tool", definition.name
    if definition.annotations.get("title"):
        yield "Title", str(definition.annotations["title"])
    yield "Description", definition.description
    yield "Source", BADGES[definition.source] + (f" of tenant {definition.tenant}" if definition.tenant else "")
    yield "Enabled", f"No ({tool.why_off})" if tool.why_off else "Yes (enforced)" if enforced else "Yes"
    yield "Token Cost", f"~{tool.tokens} tokens{declared(tool)}"
    yield "Version", definition.version
    yield "Category", definition.category
    yield "Tier", tiers_of(entry) + (f" (declared {definition.tier})" if entry.tier != definition.tier else "")
    if entry.operations is not None:
        yield "Operations", ", ".join(_operation(name, one) for name, one in entry.operations.items())
    if definition.alias_of is not None:
        yield "Second name of", definition.alias_of
    yield "Cost", _cost(definition)
    yield "Estimate", estimate_words(_estimate(entry)) + (", more with its input" if entry.unit_cost is not None else "")
    yield "Timeout", _timeout(entry)
    yield from _rules(entry)
    if definition.requires_auth is not None:
        yield "Credential", f"{definition.requires_auth.config_key} ({'set' if has_credential else 'not set'})"
    if definition.requires_permission is not None:
        yield "Permission", definition.requires_permission
    if definition.capabilities:
        yield (
            "Capabilities",
            ", ".join(
                capability.action + (" (asks first)" if capability.requires_confirmation else "")
                for capability in definition.capabilities
            ),
        )
    if definition.tags:
        yield "Tags", ", ".join(definition.tags)


def _health_words(health: HealthRow | None) -> str:
    """The last check, and the next. One that is long due says that no process is there to make it."""
    if health is None:
        return "not checked yet (a process that stays, such as toolgate serve, checks it)"
    message = f": {health.message}" if health.message else ""
    last = "not checked yet" if health.last_check is None else f"checked {shown(health.last_check, seconds=True)}"
    is_due = health.next_check < datetime.now(UTC)
    following = f"next check {'was due' if is_due else 'is due'} {shown(health.next_check, seconds=True)}"
    return f"{health.state}{message} ({last}; {following})"


def sentence(text: str) -> str:
    """A text as a sentence of its own, however its author wrote it."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _estimate(entry: Entry) -> CallEstimate:
    """What a call costs at least: what depends on its arguments comes on top."""
    return estimate_of(entry, estimate(entry, {}))


def _operation(name: str, entry: Entry) -> str:
    asks = "" if entry.asks is None else ", destructive: asks each time" if entry.destructive else ", asks first"
    return f"{name} ({entry.tier}{asks})"


def _timeout(entry: Entry) -> str:
    """The time limit that applies, and where it is from."""
    limit = entry.time_limit
    if limit is None:
        return "none (the function never awaits, so nothing can interrupt it)"
    words = f"{limit:g} s"
    if entry.retry is not None and entry.retry.max_attempts > 1:
        words += f" an attempt, {entry.longest:g} s for all {entry.retry.max_attempts}"
    elif entry.timeout > limit:
        words += f" in the sandbox, {entry.timeout:g} s with the wait for a place there"
    if getattr(entry.implementation, "mode", None) == "thread":
        words += "; a synchronous function goes on in its thread after that"
    origin = _origin(entry)
    return words if origin is None else f"{words} ({'set by the tool' if origin == 'tool' else f'setting {origin}'})"


def _origin(entry: Entry) -> str | None:
    """The origin of the time limit: a setting, or `tool` for the definition itself."""
    if entry.time_limit is None:
        return None
    if entry.tool.timeout is not None:
        return f"servers.{entry.implementation.server}" if entry.tool.source == "mcp" else "tool"
    return "max_execution_time" if entry.time_limit == entry.timeout else "sandbox.seconds"


def _rules(entry: Entry) -> Iterator[tuple[str, str]]:
    """The limits that are set for this tool only."""
    tool = entry.tool
    if tool.retry is not None:
        yield "Retry", f"{tool.retry.max_attempts} attempts, on {', '.join(tool.retry.codes)}"
    if entry.cache is not None:
        yield "Cache", f"{entry.cache.ttl:g} s for each {entry.cache.scope}"
    if tool.rate_limit is not None:
        limits = {"minute": tool.rate_limit.per_minute, "hour": tool.rate_limit.per_hour, "day": tool.rate_limit.per_day}
        yield "Rate limit", ", ".join(f"{most} a {period}" for period, most in limits.items() if most is not None)
    if tool.concurrency is not None:
        yield "Concurrency", f"{tool.concurrency} at once"
    if entry.background:
        yield "Background", "always: a call is queued as a job, which `toolgate worker` or `toolgate serve` runs"


def _cost(tool: Tool) -> str:
    cost = tool.cost
    parts = [f"{dollars(nano(cost.fixed))} a call"] if cost.fixed else []
    if cost.per_unit is not None:
        of = f" of {cost.per_unit.field}" if cost.per_unit.field else ""
        parts.append(f"${cost.per_unit.price:f} a {cost.per_unit.unit}{of}")
    words = " + ".join(parts) or cost.model
    if cost.free_tier_limit is not None:
        words += f", {cost.free_tier_limit} calls a {cost.free_tier_period} free"
    return f"{words}; bill: {cost.billing_url}" if cost.billing_url else words
