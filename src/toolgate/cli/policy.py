"""`toolgate policy`: what the policy says, what another would say, and the lists that it looks at."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer

from toolgate.app import App
from toolgate.cli.arguments import read_object
from toolgate.cli.columns import pieces
from toolgate.cli.opening import AsJson, Persona, Scopes, Tenant, Usage, User, actor_of, entry_named, opened, readable
from toolgate.cli.policy_lists import ToolName, lists
from toolgate.cli.screen import Part, emit, note, plural, say, show, write
from toolgate.cli.times import since_when
from toolgate.model import Actor, Decision
from toolgate.policy.documents import Data, Given
from toolgate.policy.question import FIELDS, Embedded, Question, Remote
from toolgate.policy.reading import traps
from toolgate.policy.rego import EmbeddedRego
from toolgate.policy.replay import Group, Replay

Action = Literal["tool.view", "tool.request", "tool.enable"]
SHOWN = 30
"""Groups of a replay that people are shown."""
STYLES = {"newly_denied": "red", "newly_allowed": "green", "unknown": "yellow"}

group = typer.Typer(help="Who may do what: the policy and its data.", no_args_is_help=True)

DataFile = Annotated[
    Path | None, typer.Option("--data", metavar="FILE", help="Documents from this JSON file instead of the ones in force.")
]


# -- asking


@group.command("eval")
def evaluate(
    ctx: typer.Context,
    tool: ToolName,
    action: Annotated[
        Action, typer.Option("--action", metavar="ACTION", help="tool.view, tool.request or tool.enable.")
    ] = "tool.request",
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    scope: Scopes = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON|@FILE|-", help="The call's arguments.")] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="This Rego file instead of the policy in force.")
    ] = None,
    data: DataFile = None,
    as_json: AsJson = False,
) -> int:
    """Say what the policy decides, and why. Exit 0 if it allows, 1 if it denies; nothing is run."""
    readable("TOOL", tool)
    actor = actor_of(tenant, persona, user, scope or ())
    arguments = read_object(args) if args is not None else {}
    candidate = None if policy is None else EmbeddedRego(_text(policy))
    documents = None if data is None else Given(_json(data))
    if candidate is not None and documents is not None:
        decision = _decide(candidate, documents, actor, action, tool, None, arguments)
    else:
        decision = asyncio.run(_ask(ctx, candidate, documents, actor, action, tool, arguments))
    if as_json:
        emit(
            {
                "tool": tool, "action": action, "tenant": actor.tenant, "persona": actor.persona, "user": actor.user,
                "scopes": list(actor.scopes), "allow": decision.allow, "reason": decision.reason,
            }
        )  # fmt: skip
    else:
        say(("allow", "green") if decision.allow else ("deny", "red"), f"  {decision.reason}")
    return 0 if decision.allow else 1


async def _ask(
    ctx: typer.Context,
    candidate: EmbeddedRego | None,
    documents: Given | None,
    actor: Actor,
    action: Action,
    tool: str,
    arguments: dict[str, Any],
) -> Decision:
    async with opened(ctx) as app:
        entry = entry_named(app, tool, actor)
        tier = None if entry is None else entry.tier
        if candidate is None and documents is None:
            return await app.guard.decide(actor, action, tool, tier=tier, door="cli", arguments=arguments)
        engine = candidate or _embedded(app)
        return _decide(engine, documents or app.policy_data, actor, action, tool, tier, arguments)


def _embedded(app: App) -> Embedded:
    engine: Embedded | Remote = app.guard.engine
    if engine.remote is True:
        raise Usage("An OPA server decides here, by its own data.", suggestion="Name a policy as well: --policy FILE.")
    return engine


def _decide(
    engine: Embedded, data: Data, actor: Actor, action: Action, tool: str, tier: str | None, arguments: dict[str, Any]
) -> Decision:
    question = Question(actor.tenant, actor.persona, action, tool, actor.user, actor.scopes, None, "cli", tier, arguments)
    fault = question.fault()
    return Decision(False, fault) if fault is not None else engine.decide(question, data, 0).decision


@group.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Rego file.", show_default=False)],
    data: DataFile = None,
    as_json: AsJson = False,
) -> int:
    """See whether a policy compiles, what it reads of a call, and whether documents have the right shape."""
    text = _text(file)
    policy = EmbeddedRego(text)
    if data is not None:
        Given(_json(data))
    found = traps(text)
    reads = [field for field in FIELDS if field in policy.reads.context]
    if as_json:
        emit(
            {
                "ok": True, "hash": policy.hash, "reasons": policy.has_decision, "reads": reads,
                "warnings": [{"line": trap.line, "message": trap.words} for trap in found],
            }
        )  # fmt: skip
        return 0
    say(("✓ The policy compiles", "green"), f": {policy.hash[:16]}")
    given = "it has a rule decision" if policy.has_decision else "no rule decision, so the words are ours"
    say(f"  reasons: {given}")
    say(f"  reads of the context: {', '.join(reads) or 'nothing'}")
    if data is not None:
        say(("✓ The data has the right shape", "green"))
    for trap in found:
        note((f"! line {trap.line}: {trap.words}", "yellow"))
    return 0


# -- replay


@group.command("replay")
def replay_calls(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The candidate: a Rego file.", show_default=False)],
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only calls since: 30m, 24h, 7d, 4w, or a date such as 2026-11-01."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="T", help="Only calls of this tenant.")] = None,
    as_json: AsJson = False,
) -> int:
    """Try another policy on the calls on record, and show what would change."""
    readable("--tenant", tenant)
    text, start = _text(file), None if since is None else since_when(since, datetime.now(UTC))

    async def run() -> Replay:
        async with opened(ctx) as app:
            return await app.replay_policy(text, since=start, tenant=tenant)

    found = asyncio.run(run())
    if as_json:
        emit(found.to_dict())
        return 0
    say(f"{plural(found.calls, 'call')} on record: {found.same:,} would end the same, ", *_counts(found))
    for each in found.groups[:SHOWN]:
        pieces(*_line(each))
    if len(found.groups) > SHOWN:
        note((f"and {plural(len(found.groups) - SHOWN, 'group')} more; --json shows all", "dim"))
    return 0


def _counts(found: Replay) -> list[Part]:
    return [
        (f"{found.newly_denied:,} would be denied", STYLES["newly_denied"] if found.newly_denied else ""),
        ", ",
        (f"{found.newly_allowed:,} would be allowed", STYLES["newly_allowed"] if found.newly_allowed else ""),
        ", ",
        (f"{found.unknown:,} can't be told", STYLES["unknown"] if found.unknown else ""),
    ]


def _line(each: Group) -> list[Part]:
    who = each.tenant if each.persona is None else f"{each.tenant}/{each.persona}"
    return [
        f"{each.count:>8,}",
        (f"{each.change.replace('_', ' '):<13}", STYLES[each.change]),
        each.tool,
        who,
        each.reason,
        (f"e.g. {each.examples[0]}", "dim"),
    ]


# -- what is in force


@group.command("show")
def show_policy(ctx: typer.Context, as_json: AsJson = False) -> int:
    """Show the policy in force."""

    async def look() -> dict[str, Any]:
        async with opened(ctx) as app:
            engine: Embedded | Remote = app.guard.engine
            if engine.remote is True:
                return {"engine": "opa", "hash": engine.hash, "url": getattr(engine, "url", None), "text": None}
            kind = "shipped" if engine.shipped else "file"
            return {"engine": "embedded", "policy": kind, "hash": engine.hash, "text": getattr(engine, "text", None)}

    found = asyncio.run(look())
    if as_json:
        emit(found)
    elif found["text"] is None:
        say(f"OPA server at {found['url']}")
    else:
        note((f"{found['policy']} policy, {found['hash']}", "dim"))
        write(found["text"].encode("utf-8", "backslashreplace"))
    return 0


@group.command("data")
def show_data(ctx: typer.Context, as_json: AsJson = False) -> int:
    """Show the documents that the policy looks at."""

    async def look() -> dict[str, Any]:
        async with opened(ctx) as app:
            documents: dict[str, Any] = await app.policy_documents()
            return documents

    found = asyncio.run(look())
    if as_json:
        emit(found)
    else:
        show(found)
    return 0


group.add_typer(lists)


# -- files


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{file} can't be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}.") from None


def _json(file: Path) -> Any:
    try:
        return orjson.loads(_text(file))
    except orjson.JSONDecodeError as error:
        raise Usage(f"{file} is not JSON: {error}.") from None
