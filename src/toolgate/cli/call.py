"""`toolgate call`: run one tool, through the same pipeline as every other door."""

import asyncio
import math
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from toolgate.cli.arguments import Given, merge, read_object, schema_of, split
from toolgate.cli.opening import AsJson, Persona, Scopes, Tenant, Usage, User, actor_of, diverted, naming, opened, readable
from toolgate.cli.prompt import approver_for
from toolgate.cli.screen import emit, note, show
from toolgate.model import NANO, Actor, Outcome
from toolgate.quota.money import dollars

EXIT = {"success": 0, "pending": 3}
"""By the status of the outcome; every other is 1."""


def call(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Arguments: key=value, or key:=JSON.", show_default=False),
    ] = None,
    args: Annotated[
        str | None, typer.Option("--args", metavar="JSON|@FILE|-", help="Arguments as a JSON object; key=value wins.")
    ] = None,
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="S", help="The session that the call belongs to.")
    ] = None,
    scope: Scopes = None,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="Run once for this key; again, give what came of it."),
    ] = None,
    approval: Annotated[
        str | None, typer.Option("--approval", metavar="ID", help="Use this approval, for the call that it was given for.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve the call as the person at this machine.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Give up sooner than the tool's own limit.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Call a tool, and show what it gives. Where a person must agree, it asks at a terminal; else the call is pending.

    A value is taken as text or read as JSON, as the tool's schema says of its key. Some ways to say the same:

    \b
      toolgate call datetime operation=add date=2026-11-15 amount=3 unit=days
      toolgate call datetime operation=add date=2026-11-15 amount:=3 unit=days
      toolgate call datetime operation=add --args '{"date": "2026-11-15", "amount": 3, "unit": "days"}'
      toolgate call datetime --args @arguments.json
    """
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise Usage("--timeout must be a number of seconds above 0.")
    readable("--session", session)
    actor = actor_of(tenant, persona, user, scope or ())
    given = [split(word) for word in words or ()]
    whole = read_object(args) if args is not None else None
    if whole is None and (given or approval is None):
        whole = {}
    options = Options(session, key, approval, yes, timeout)
    outcome = asyncio.run(_call(ctx, name, whole, given, actor, options))
    if as_json:
        emit(outcome.to_json())
    else:
        show_outcome(outcome, actor)
    return EXIT.get(outcome.status, 1)


class Options(NamedTuple):
    """What is said of a call besides its arguments."""

    session: str | None
    key: str | None
    approval: str | None
    yes: bool
    timeout: float | None


async def _call(
    ctx: typer.Context,
    name: str,
    whole: dict[str, Any] | None,
    given: Sequence[Given],
    actor: Actor,
    options: Options,
) -> Outcome:
    async with opened(ctx) as app:
        approver = approver_for(name, app._canonical, yes=options.yes)
        if approver is not None:
            app.add_approver(approver)
        arguments = None  # those that were approved
        if whole is not None:
            arguments = merge(whole, given, schema_of(app, name, actor))
        with diverted():
            return await app.invoke(
                name, arguments, actor=actor, session=options.session, idempotency_key=options.key,
                approval=options.approval, timeout=options.timeout, door="cli",
            )  # fmt: skip


def show_outcome(outcome: Outcome, actor: Actor) -> None:
    if outcome.status == "success":
        show(outcome.output)
    else:
        _show_fault(outcome)
    if outcome.artifact is not None:
        for cut in outcome.artifact.cut:
            note((f"cut: {cut}", "yellow"))
        if outcome.artifact.id:
            note((f"whole output: toolgate artifacts get {outcome.artifact.id}{naming(actor)}", "yellow"))
    note((_summary(outcome), "dim"))


def _show_fault(outcome: Outcome) -> None:
    error = outcome.error
    if error is None:
        return
    details = error.details or {}
    faults = details.get("errors")
    several = isinstance(faults, list) and len(faults) > 1
    message = error.message.partition(": ")[0] if several else error.message
    note((f"{error.code}: {message}", "yellow" if outcome.status == "pending" else "red"), lines=True)
    for fault in faults if several and isinstance(faults, list) else ():
        note("  ", (str(fault.get("path") or "(top)"), "bold"), f": {fault.get('message')}")
    if error.suggestion:
        note(error.suggestion, lines=True)
    if outcome.pending is not None and outcome.pending.kind == "approval" and sys.stderr.isatty():
        note(f"Whoever may answer does it with: toolgate approvals show|approve|reject {outcome.pending.id}")
    if isinstance(details.get("retry_after"), int | float):
        note(f"Try again in {details['retry_after']:g} s.")


def _summary(outcome: Outcome) -> str:
    metrics = outcome.metrics
    parts = [outcome.status, f"{metrics.duration_ms:,.1f} ms"]
    if metrics.attempts > 1:
        parts.append(f"{metrics.attempts} attempts")
    if metrics.cached:
        parts.append("cached")
    if metrics.tokens_used is not None:
        parts.append(f"{metrics.tokens_used:,} tokens")
    if metrics.cost_usd:
        parts.append(dollars(round(metrics.cost_usd * NANO)))
    return " · ".join((*parts, f"call {outcome.id}"))
