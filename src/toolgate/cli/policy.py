"""`toolgate policy`: what the policy says, what another would say, and the lists that it looks at."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from msgspec.structs import replace

from toolgate.app.app import App
from toolgate.cli.arguments import read_object
from toolgate.cli.catalog import note_missing
from toolgate.cli.context import (
    CallerOptions,
    CommandGroup,
    OnlyTenant,
    Reason,
    Usage,
    argument,
    entry_named,
    opened,
    option,
    readable,
)
from toolgate.cli.files import json_of, text_of
from toolgate.cli.output import Part, answer, answered, as_json, emit, note, say, show, write
from toolgate.cli.policy_suggestion import remove_allow_list, set_allow_list, suggest
from toolgate.cli.table import state, table
from toolgate.cli.times import since_when
from toolgate.errors import ToolgateError, nearest, plural
from toolgate.gates.policy.cases import Result, decider, read_cases, run_cases
from toolgate.gates.policy.documents import GivenDocument
from toolgate.gates.policy.embedded_rego import EmbeddedRego
from toolgate.gates.policy.engine import INPUT_FIELDS, EmbeddedEngine, PolicyQuestion, RemoteEngine
from toolgate.gates.policy.input_references import Trap, traps
from toolgate.gates.policy.replay import Group, Replay
from toolgate.yamltext import YamlError, read_yaml

ToolName = Annotated[str, argument("TOOL", "The tool.", callback=readable)]
TenantName = Annotated[str, argument("TENANT", "The tenant.", callback=readable)]
PersonaName = Annotated[str, argument("PERSONA", "The persona.", callback=readable)]
Action = Literal["tool.view", "tool.request", "tool.enable"]
SHOWN_GROUPS = 30
"""Groups of a replay that people are shown."""
SLOW_MS = 1.0
"""A decision that takes longer holds up every other call of the process by as much."""
DataFile = Annotated[Path | None, option("--data FILE", "Documents from this JSON file instead of the ones in force.")]

group = CommandGroup(help="Who may do what: the policy and its data.", no_args_is_help=True)

# -- asking


@group.command("eval")
async def evaluate(
    ctx: typer.Context,
    tool: ToolName,
    whose: CallerOptions,
    action: Annotated[Action, option("--action ACTION", "tool.view, tool.request or tool.enable.")] = "tool.request",
    args: Annotated[str | None, option("--args JSON|@FILE|-", "The call's arguments.")] = None,
    policy: Annotated[Path | None, option("--policy FILE", "This Rego file instead of the policy in force.")] = None,
    data: DataFile = None,
) -> int:
    """Say what the policy decides, and why. Exit 0 if it allows, 1 if it denies; nothing is run."""
    actor = whose.actor
    given = read_object(args) if args is not None else {}
    question = PolicyQuestion(actor.tenant, actor.persona, action, tool, actor.user, actor.scopes, None, "cli", None, given)
    candidate, documents = candidates(policy, data)
    if candidate is not None and documents is not None:
        decision = decider(candidate, documents)(question)
    else:
        async with opened(ctx) as app:
            entry = entry_named(app, tool, actor)
            tier = None if entry is None else entry.tier
            if candidate is None and documents is None:
                decision = await app.policy.decide(actor, action, tool, tier=tier, door="cli", arguments=given)
            else:
                decide = decider(candidate or embedded(app), documents or app.policy.data)
                decision = decide(replace(question, tier=tier))
    told = {
        "tool": tool, "action": action, "tenant": actor.tenant, "persona": actor.persona, "user": actor.user,
        "scopes": list(actor.scopes), "allow": decision.allow, "reason": decision.reason,
    }  # fmt: skip
    word = ("allow", "green") if decision.allow else ("deny", "red")
    return answer(told, word, f"  {decision.reason}", code=0 if decision.allow else 1)


# -- replay

Since = Annotated[str | None, option("--since WHEN", "Only calls since: 30m, 24h, 7d, 4w, or a date such as 2026-11-01.")]


@group.command("replay")
async def replay_calls(
    ctx: typer.Context,
    file: Annotated[Path | None, argument("FILE", "The candidate: a Rego file.")] = None,
    data: Annotated[Path | None, option("--data FILE", "Documents from this JSON file; others as in force.")] = None,
    since: Since = None,
    tenant: OnlyTenant = None,
) -> int:
    """Apply another policy or data to the calls on record. What would change is shown."""
    if file is None and data is None:
        raise Usage("Name a Rego file, or documents with --data FILE.")
    text, start = None if file is None else text_of(file), None if since is None else since_when(since, datetime.now(UTC))
    documents = None if data is None else json_of(text_of(data), data)

    async with opened(ctx) as app:
        found = await app.policy.replay(text, data=documents, since=start, tenant=tenant)
    if not answered(found.to_dict()):
        _say(found)
    return 0


@group.command("observed")
async def show_observed(ctx: typer.Context, since: Since = None, tenant: OnlyTenant = None) -> int:
    """Show what observed policies would have changed. The setting policy.observe names them."""
    start = None if since is None else since_when(since, datetime.now(UTC))

    async with opened(ctx) as app:
        found = await app.policy.observed(since=start, tenant=tenant)
    if answered({name: each.to_dict() for name, each in found.items()}):
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
        (f"{found.unknown:,} cannot be told", "yellow" if found.unknown else ""),
    ]


def _row(each: Group) -> list[Part]:
    who = each.tenant if each.persona is None else f"{each.tenant}/{each.persona}"
    return [f"{each.count:,}", state(each.change.replace("_", " ")), each.tool, who, each.reason, each.examples[0]]


group.command("suggest")(suggest)


# -- what is in force


@group.command("show")
async def show_policy(ctx: typer.Context) -> int:
    """Show the policy in force."""
    async with opened(ctx) as app:
        engine: EmbeddedEngine | RemoteEngine = app.policy.engine
        found: dict[str, Any]
        if engine.remote is True:
            found = {"engine": "opa", "hash": engine.hash, "url": getattr(engine, "url", None), "text": None}
        else:
            kind = "shipped" if engine.shipped else "file"
            found = {"engine": "embedded", "policy": kind, "hash": engine.hash, "text": getattr(engine, "text", None)}
    if as_json():
        emit(found)
    elif found["text"] is None:
        say(f"OPA server at {found['url']}")
    else:
        note((f"{found['policy']} policy, {found['hash']}", "dim"))
        write(found["text"].encode("utf-8", "backslashreplace"))
    return 0


@group.command("data")
async def show_data(ctx: typer.Context) -> int:
    """Show the documents that the policy looks at."""
    async with opened(ctx) as app:
        found: dict[str, Any] = await app.policy.documents()
    if not answered(found):
        show(found)
    return 0


# -- the lists that the policy looks at


@group.command()
async def deny(ctx: typer.Context, tool: ToolName, reason: Reason = None) -> int:
    """Deny a tool to everybody. It cannot be seen, called or added."""
    async with opened(ctx) as app:
        note_missing(app, [tool], "the denial")
        denied = app.policy.data.global_deny
        if changed := tool not in denied or reason not in (None, denied[tool]):
            await app.policy.deny(tool, True, reason=reason)
    words = "✓ Denied to everybody" if changed else "Already denied to everybody"
    return _changed(changed, {"tool": tool, "denied": True, "reason": reason}, words, tool)


@group.command()
async def undeny(ctx: typer.Context, tool: ToolName) -> int:
    """Take a tool off the global deny list."""
    async with opened(ctx) as app:
        if changed := tool in app.policy.data.global_deny:
            await app.policy.deny(tool, False)
    words = "✓ No longer denied to everybody" if changed else "It was not denied to everybody"
    return _changed(changed, {"tool": tool, "denied": False, "reason": None}, words, tool)


@group.command("restrict-code")
async def restrict_code(ctx: typer.Context, tenant: TenantName) -> int:
    """Keep a tenant from running code or commands. No tool of tier execute, and no custom tool, runs for it."""
    return await _restrict(ctx, tenant, True, "✓ May not run code", "It already may not run code")


@group.command("unrestrict-code")
async def unrestrict_code(ctx: typer.Context, tenant: TenantName) -> int:
    """Let a tenant run code and commands again."""
    return await _restrict(ctx, tenant, False, "✓ May run code", "It was not kept from running code")


async def _restrict(ctx: typer.Context, tenant: str, restricted: bool, done: str, already: str) -> int:
    async with opened(ctx) as app:
        if changed := (tenant in app.policy.data.restricted_tenants) != restricted:
            await app.policy.restrict_code(tenant, restricted)
    told = {"tenant": tenant, "restricted": restricted}
    return _changed(changed, told, done if changed else already, f"tenant {tenant}")


@group.command()
async def permit(ctx: typer.Context, persona: PersonaName) -> int:
    """Let a persona add tools."""
    return await _allow_adding(ctx, persona, True, "✓ May add tools", "It already may add tools")


@group.command()
async def forbid(ctx: typer.Context, persona: PersonaName) -> int:
    """Keep a persona from adding tools."""
    return await _allow_adding(ctx, persona, False, "✓ May not add tools", "It already may not add tools")


async def _allow_adding(ctx: typer.Context, persona: str, allowed: bool, done: str, already: str) -> int:
    async with opened(ctx) as app:
        if changed := app.policy.data.can_add_tools.get(persona, False) != allowed:
            await app.policy.allow_adding_tools(persona, allowed)
    told = {"persona": persona, "can_add_tools": allowed}
    return _changed(changed, told, done if changed else already, f"persona {persona}")


def _changed(changed: bool, told: dict[str, Any], words: str, subject: str) -> int:
    return answer({**told, "changed": changed}, (words, "green" if changed else ""), f": {subject}")


group.command("set-allow-list")(set_allow_list)
group.command("remove-allow-list")(remove_allow_list)


# -- a policy before it decides


@group.command()
async def check(ctx: typer.Context, file: Annotated[Path, argument("FILE", "A Rego file.")], data: DataFile = None) -> int:
    """Check whether a policy can be used. Shows what it reads of a call, and whether documents have the right shape."""
    text = text_of(file)
    policy = EmbeddedRego(text)
    candidates(None, data)
    milliseconds = policy.sample_milliseconds()
    warnings = [*traps(text), *await _unknown_arguments(ctx, policy)]
    if milliseconds > SLOW_MS:
        words = f"a decision takes about {milliseconds:.1f} ms: rules that differ only in values are quicker as a table"
        warnings.append(Trap(1, words))
    reads = [field for field in INPUT_FIELDS if field in policy.reads.context]
    told = {
        "ok": True, "hash": policy.hash, "reasons": policy.has_decision, "reads": reads,
        "decision_ms": round(milliseconds, 3),
        "warnings": [{"line": warning.line, "message": warning.words} for warning in warnings],
    }  # fmt: skip
    if answered(told):
        return 0
    say(("✓ The policy compiles", "green"), f": {policy.hash[:16]}")
    given = "it has a rule decision" if policy.has_decision else "no rule named decision, so Toolgate words the reasons"
    say(f"  reasons: {given}")
    say(f"  reads of the context: {', '.join(reads) or 'nothing'}")
    if data is not None:
        say(("✓ The data has the right shape", "green"))
    for warning in warnings:
        note((f"! line {warning.line}: {warning.words}", "yellow"))
    return 0


async def _unknown_arguments(ctx: typer.Context, policy: EmbeddedRego) -> list[Trap]:
    """Arguments that no tool takes: most likely misspelled, but the tool may be one that comes later."""
    if not policy.arguments:
        return []

    try:
        async with opened(ctx) as app:
            known = {name for entry in app.tools.entries() for name in entry.tool.input_schema.get("properties", ())}
    except ToolgateError:  # the policy in force may be the one that is being mended
        return []
    unknown = [(one, nearest(one.name, known)) for one in policy.arguments if one.name not in known]
    return [
        Trap(one.line, f"no tool takes an argument {one.name}" + (f": did you mean {near}?" if near else ""))
        for one, near in unknown
    ]


# -- cases


@group.command("test")
async def run_tests(
    ctx: typer.Context,
    file: Annotated[Path, argument("FILE", "Cases, as YAML or JSON.")],
    policy: Annotated[Path | None, option("--policy FILE", "This Rego file instead of the one that the cases name.")] = None,
    data: DataFile = None,
) -> int:
    """Test a policy with the cases of a file. Exit 1 if it decides one of them otherwise than expected."""
    try:
        given = read_cases(read_yaml(text_of(file).encode()).value)
    except YamlError as error:
        where = f" at line {error.position.line}" if error.position else ""
        raise Usage(f"{file} cannot be read{where}: {error.message}.") from None
    named = policy or (None if given.policy is None else file.parent / given.policy)
    candidate, documents = candidates(named, data)
    if documents is None and given.data is not None:
        documents = GivenDocument(given.data)
    if candidate is not None and documents is not None:
        results = run_cases(given.cases, decider(candidate, documents))
    else:
        async with opened(ctx) as app:
            results = run_cases(given.cases, decider(candidate or embedded(app), documents or app.policy.data))
    failed = [result for result in results if not result.ok]
    if as_json():
        emit({"passed": len(results) - len(failed), "failed": len(failed), "cases": [_told(each) for each in results]})
        return 1 if failed else 0
    for result in failed:
        expected = "allow" if result.case.allow else "deny"
        if result.case.reason:
            expected += f" with {result.case.reason!r} in its reason"
        got = "allow" if result.decision.allow else "deny"
        say(("✗ ", "red"), f"{result.case.name}: expected {expected}, got {got}: {result.decision.reason}")
    say((f"{len(results) - len(failed)} passed, {len(failed)} failed", "red" if failed else "green"))
    return 1 if failed else 0


def _told(result: Result) -> dict[str, Any]:
    case, decision = result.case, result.decision
    expected = "allow" if case.allow else "deny"
    return {"name": case.name, "ok": result.ok, "expected": expected, "allow": decision.allow, "reason": decision.reason}


# -- what the commands share


def embedded(app: App) -> EmbeddedEngine:
    engine: EmbeddedEngine | RemoteEngine = app.policy.engine
    if engine.remote is True:
        raise Usage("An OPA server decides here, by its own data.", suggestion="Name a policy as well: --policy FILE.")
    return engine


def candidates(policy: Path | None, data: Path | None) -> tuple[EmbeddedRego | None, GivenDocument | None]:
    """The policy and the documents of the files that options name; None where those in force are meant."""
    return (
        None if policy is None else EmbeddedRego(text_of(policy)),
        None if data is None else GivenDocument(json_of(text_of(data), data)),
    )
