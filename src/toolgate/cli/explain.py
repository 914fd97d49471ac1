"""`toolgate explain`: what every gate would say to a call, without making it."""

from typing import Annotated

import typer

from toolgate.cli.arguments import merge, read_words, schema_of
from toolgate.cli.catalog import why_missing
from toolgate.cli.completion import ArgumentsJson, ArgumentWords, ToolName
from toolgate.cli.context import CallerOptions, Session, WorkspaceFolder, check_workspace, entry_named, opened, option
from toolgate.cli.output import answered, note, say
from toolgate.errors import plural
from toolgate.model import NANO
from toolgate.pipeline.explain import CallEstimate, Explanation
from toolgate.pipeline.usage import dollars

SIGNS = {"pass": ("✓", "green"), "deny": ("✗", "red"), "ask": ("?", "yellow"), "unknown": ("·", "dim")}
ENDS = {
    "run": ("It would run", "green"),
    "ask": ("It would wait for a person", "yellow"),
    "deny": ("It would be refused", "red"),
}
EXIT = {"run": 0, "ask": 3, "deny": 1}
"""As the call itself would."""
GATE_WIDTH = 12


async def explain(
    ctx: typer.Context,
    name: ToolName,
    whose: CallerOptions,
    words: ArgumentWords = None,
    args: ArgumentsJson = None,
    session: Session = None,
    workspace: WorkspaceFolder = None,
    key: Annotated[str | None, option("--idempotency-key KEY", "The key that the call would come with.")] = None,
) -> int:
    """Show what every gate would say to a call, and why. Nothing is run, asked, counted or recorded."""
    actor = whose.actor
    check_workspace(workspace)
    given, whole = read_words(words or (), args)
    async with opened(ctx) as app:
        arguments = merge(whole or {}, given, schema_of(app, name, actor))
        found = await app.explain(
            name, arguments, actor=actor, session=session, idempotency_key=key, workspace=workspace, door="cli"
        )
        advice = await why_missing(app, name, actor) if entry_named(app, name, actor) is None else None
    if not answered(found.to_dict()):
        _show(found)
        if advice is not None:
            note(advice)
    return EXIT[found.verdict]


def estimate_words(estimate: CallEstimate) -> str:
    """What a call would cost and how long it may take, for people."""
    price = dollars(round(estimate.cost_usd * NANO))
    known = {"exact": price, "estimate": f"about {price}", "unknown": "no price named"}[estimate.confidence]
    tokens = f", about {plural(estimate.tokens, 'token')}" if estimate.tokens is not None else ""
    free = f", {plural(estimate.free_calls_left, 'free call')} left" if estimate.free_calls_left is not None else ""
    bill = f"; bill: {estimate.billing_url}" if estimate.billing_url else ""
    usual = f", usually {estimate.latency_ms / 1000:g} s" if estimate.latency_ms < estimate.limit_ms else ""
    return f"{known}{tokens}{free}{usual}, at most {estimate.limit_ms / 1000:g} s{bill}"


def _show(found: Explanation) -> None:
    words, style = ENDS[found.verdict]
    say((words, style), f": {found.reason}" if found.verdict != "run" else "")
    for gate in found.gates:
        sign, colour = SIGNS[gate.verdict]
        say("  ", (sign, colour), f" {gate.gate:<{GATE_WIDTH}} ", gate.reason, hang=GATE_WIDTH + len("  ✓  "))
    if found.estimate is not None:
        say(
            "  ",
            ("$", "cyan"),
            f" {'estimate':<{GATE_WIDTH}} ",
            estimate_words(found.estimate),
            hang=GATE_WIDTH + len("  ✓  "),
        )
