"""`toolgate explain`: what every gate would say to a call, without making it."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from toolgate.cli.arguments import RawArgument, merge, read_words, schema_of
from toolgate.cli.catalog import why_missing
from toolgate.cli.completion import ArgumentsJson, ArgumentWords, ToolName
from toolgate.cli.context import AsJson, Persona, Scopes, Tenant, User, actor_of, entry_named, opened, readable
from toolgate.cli.output import emit, note, say
from toolgate.model import Actor
from toolgate.pipeline.explain import Explanation

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
    words: ArgumentWords = None,
    args: ArgumentsJson = None,
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    scope: Scopes = None,
    session: Annotated[str | None, typer.Option("--session", metavar="S", help="The session of the call.")] = None,
    key: Annotated[
        str | None, typer.Option("--idempotency-key", metavar="KEY", help="The key that the call would come with.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what every gate would say to a call, and why. Nothing is run, asked, counted or recorded."""
    readable("--session", session)
    actor = actor_of(tenant, persona, user, scope or ())
    given, whole = read_words(words or (), args)
    found, advice = await _explain(ctx, name, whole or {}, given, actor, session, key)
    if as_json:
        emit(found.to_dict())
    else:
        _show(found)
        if advice is not None:
            note(advice)
    return EXIT[found.verdict]


async def _explain(
    ctx: typer.Context,
    name: str,
    whole: dict[str, Any],
    given: Sequence[RawArgument],
    actor: Actor,
    session: str | None,
    key: str | None,
) -> tuple[Explanation, str | None]:
    """Asks every gate, and says why there is no such tool, if there is none."""
    async with opened(ctx) as app:
        arguments = merge(whole, given, schema_of(app, name, actor))
        found = await app.explain(name, arguments, actor=actor, session=session, idempotency_key=key, door="cli")
        is_missing = entry_named(app, name, actor) is None
        return found, await why_missing(app, name, actor) if is_missing else None


def _show(found: Explanation) -> None:
    words, style = ENDS[found.verdict]
    say((words, style), f": {found.reason}" if found.verdict != "run" else "")
    for gate in found.gates:
        sign, colour = SIGNS[gate.verdict]
        say("  ", (sign, colour), f" {gate.gate:<{GATE_WIDTH}} ", gate.reason, hang=GATE_WIDTH + len("  ✓  "))
