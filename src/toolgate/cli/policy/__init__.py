"""`toolgate policy`: what the policy says, what another would say, and the lists that it looks at."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from toolgate.cli.arguments import read_object
from toolgate.cli.context import AsJson, Persona, Scopes, Tenant, User, actor_of, entry_named, opened, readable
from toolgate.cli.output import Part, emit, note, say, show, write
from toolgate.cli.policy.check import DataFile, checks, embedded, json_of, text_of
from toolgate.cli.policy.lists import ToolName, lists
from toolgate.cli.table import state, table
from toolgate.cli.times import since_when
from toolgate.errors import plural
from toolgate.gates.policy.cases import decider
from toolgate.gates.policy.documents import GivenDocument
from toolgate.gates.policy.engine import EmbeddedEngine, PolicyQuestion, RemoteEngine
from toolgate.gates.policy.rego import EmbeddedRego
from toolgate.gates.policy.replay import Group, Replay
from toolgate.model import Actor, Decision

Action = Literal["tool.view", "tool.request", "tool.enable"]
SHOWN_GROUPS = 30
"""Groups of a replay that people are shown."""

group = typer.Typer(help="Who may do what: the policy and its data.", no_args_is_help=True)

# -- asking


@group.command("eval")
async def evaluate(
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
    candidate = None if policy is None else EmbeddedRego(text_of(policy))
    documents = None if data is None else GivenDocument(json_of(data))
    if candidate is not None and documents is not None:
        decision = decider(candidate, documents)(_question(actor, action, tool, None, arguments))
    else:
        decision = await _ask(ctx, candidate, documents, actor, action, tool, arguments)
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
    documents: GivenDocument | None,
    actor: Actor,
    action: Action,
    tool: str,
    arguments: dict[str, Any],
) -> Decision:
    async with opened(ctx) as app:
        entry = entry_named(app, tool, actor)
        tier = None if entry is None else entry.tier
        if candidate is None and documents is None:
            return await app.policy.decide(actor, action, tool, tier=tier, door="cli", arguments=arguments)
        decide = decider(candidate or embedded(app), documents or app.policy.data)
        return decide(_question(actor, action, tool, tier, arguments))


def _question(actor: Actor, action: Action, tool: str, tier: str | None, arguments: dict[str, Any]) -> PolicyQuestion:
    return PolicyQuestion(actor.tenant, actor.persona, action, tool, actor.user, actor.scopes, None, "cli", tier, arguments)


# -- replay

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only calls since: 30m, 24h, 7d, 4w, or a date such as 2026-11-01."),
]
OneTenant = Annotated[str | None, typer.Option("--tenant", metavar="T", help="Only calls of this tenant.")]


@group.command("replay")
async def replay_calls(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The candidate: a Rego file.", show_default=False)],
    since: Since = None,
    tenant: OneTenant = None,
    as_json: AsJson = False,
) -> int:
    """Apply another policy to the calls on record. What would change is shown."""
    readable("--tenant", tenant)
    text, start = text_of(file), None if since is None else since_when(since, datetime.now(UTC))

    async with opened(ctx) as app:
        found = await app.policy.replay(text, since=start, tenant=tenant)
    if as_json:
        emit(found.to_dict())
    else:
        _say(found)
    return 0


@group.command("observed")
async def show_observed(ctx: typer.Context, since: Since = None, tenant: OneTenant = None, as_json: AsJson = False) -> int:
    """Show what observed policies would have changed. The setting policy.observe names them."""
    readable("--tenant", tenant)
    start = None if since is None else since_when(since, datetime.now(UTC))

    async with opened(ctx) as app:
        found = await app.policy.observed(since=start, tenant=tenant)
    if as_json:
        emit({name: each.to_dict() for name, each in found.items()})
        return 0
    if not found:
        say("No call on record was observed. The setting policy.observe names the Rego files to observe.")
    for name, each in found.items():
        say((name, "bold"))
        _say(each)
    return 0


def _say(found: Replay) -> None:
    say(f"{plural(found.calls, 'call')} on record: {found.same:,} would end the same, ", *_counts(found))
    if found.groups:
        header = [">calls", "change", "tool", "who", "reason", "example"]
        table(header, [_row(each) for each in found.groups[:SHOWN_GROUPS]])
    if len(found.groups) > SHOWN_GROUPS:
        note((f"and {plural(len(found.groups) - SHOWN_GROUPS, 'group')} more; --json shows all", "dim"))


def _counts(found: Replay) -> list[Part]:
    return [
        (f"{found.newly_denied:,} would be denied", "red" if found.newly_denied else ""),
        ", ",
        (f"{found.newly_allowed:,} would be allowed", "green" if found.newly_allowed else ""),
        ", ",
        (f"{found.unknown:,} can't be told", "yellow" if found.unknown else ""),
    ]


def _row(each: Group) -> list[Part]:
    who = each.tenant if each.persona is None else f"{each.tenant}/{each.persona}"
    return [f"{each.count:,}", state(each.change.replace("_", " ")), each.tool, who, each.reason, each.examples[0]]


# -- what is in force


@group.command("show")
async def show_policy(ctx: typer.Context, as_json: AsJson = False) -> int:
    """Show the policy in force."""

    async with opened(ctx) as app:
        engine: EmbeddedEngine | RemoteEngine = app.policy.engine
        found: dict[str, Any]
        if engine.remote is True:
            found = {"engine": "opa", "hash": engine.hash, "url": getattr(engine, "url", None), "text": None}
        else:
            kind = "shipped" if engine.shipped else "file"
            found = {"engine": "embedded", "policy": kind, "hash": engine.hash, "text": getattr(engine, "text", None)}
    if as_json:
        emit(found)
    elif found["text"] is None:
        say(f"OPA server at {found['url']}")
    else:
        note((f"{found['policy']} policy, {found['hash']}", "dim"))
        write(found["text"].encode("utf-8", "backslashreplace"))
    return 0


@group.command("data")
async def show_data(ctx: typer.Context, as_json: AsJson = False) -> int:
    """Show the documents that the policy looks at."""

    async with opened(ctx) as app:
        documents: dict[str, Any] = await app.policy.documents()
        found = documents
    if as_json:
        emit(found)
    else:
        show(found)
    return 0


group.add_typer(checks)
group.add_typer(lists)
