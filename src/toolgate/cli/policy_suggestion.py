"""`toolgate policy suggest`, and the commands that apply allow lists of tools or take them away."""

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from toolgate.cli.catalog import note_missing
from toolgate.cli.context import OnlyTenant, Reason, Usage, argument, opened, option, readable, text_option
from toolgate.cli.files import json_of, output_to, text_of
from toolgate.cli.output import answer, answered, note, say
from toolgate.cli.table import table
from toolgate.errors import plural
from toolgate.gates.policy.documents import AllowList
from toolgate.gates.policy.suggestion import ArgumentRule, PersonaUse, PolicySuggestion

SHOWN_TOOLS = 20
ListFile = Annotated[Path, argument("FILE", "Policy data with allow lists, as `toolgate policy suggest --out` writes it.")]


async def suggest(
    ctx: typer.Context,
    tenant: OnlyTenant = None,
    persona: Annotated[str | None, text_option("--persona P", "Only of this persona; '': of callers without one.")] = None,
    days: Annotated[int, option("--days N", "The calls of so many days.", min=1, max=366)] = 30,
    out: Annotated[Path | None, option("--out FILE", "Write the suggested policy data to this file.")] = None,
    rego: Annotated[Path | None, option("--rego FILE", "Write the policy with rules on arguments to this file.")] = None,
) -> int:
    """Suggest the smallest data that allows what was used. Nothing is applied."""
    async with opened(ctx) as app:
        found: PolicySuggestion = await app.policy.suggest(tenant=tenant, persona=persona, days=days)
    if rego is not None and found.rego is None:
        raise Usage("There are no rules on arguments to write, so no file was written: leave --rego out.")
    for file, content in ((out, orjson.dumps(found.data, option=orjson.OPT_INDENT_2) + b"\n"), (rego, _text(found))):
        if file is not None:
            with output_to(file) as put:
                put(content)
    if not answered(found.to_dict()):
        _say(found, out, rego)
    return 0


def _text(found: PolicySuggestion) -> bytes:
    return (found.rego or "").encode()


def _say(found: PolicySuggestion, out: Path | None, rego: Path | None) -> None:
    say(f"{plural(found.calls, 'call')} since {found.since:%Y-%m-%d} used a tool.")
    if not found.personas:
        say("No call is on record, so nothing is suggested.")
    for one in found.personas:
        _say_persona(one)
    rules = sum(len(one.rules) for one in found.personas)
    if found.read_calls < found.calls and found.personas:
        note(
            (f"Arguments are those of the newest {plural(found.read_calls, 'call')}; older ones may have had others.", "dim")
        )
    if rules and rego is None:
        note((f"--rego FILE writes a policy with the {plural(rules, 'rule')} on arguments.", "dim"))
    if out is None:
        note(("Nothing is applied. --out FILE writes the data for `toolgate policy replay --data FILE`.", "dim"))
    else:
        also = "" if rego is None else f" {rego}"
        note((f"Nothing is applied. Try it first: toolgate policy replay{also} --data {out}", "dim"))


def _say_persona(one: PersonaUse) -> None:
    who = "callers without a persona" if one.persona is None else f"persona {one.persona}"
    say((f"{one.tenant}: {who}", "bold"))
    if not one.used:
        say("  made no call that ran: nothing is suggested as allowed.")
    rows = [["used", use.tool, f"{use.calls:,}", f"{use.last}"] for use in one.used[:SHOWN_TOOLS]]
    rows += [["stopped", each.tool, f"{each.calls:,}", ""] for each in one.stopped[:SHOWN_TOOLS]]
    rows += [["removed", use.tool, f"{use.calls:,}", f"{use.last}"] for use in one.removed[:SHOWN_TOOLS]]
    if one.used:
        rows += [
            ["unused", each.tool, "0", "never" if each.last is None else f"{each.last}"] for each in one.unused[:SHOWN_TOOLS]
        ]
    if rows:
        table(["", "tool", ">calls", "last used"], rows)
    for rule in one.rules:
        say(f"  {rule.tool}: {rule_words(rule)}")
    unused = f"{plural(one.unused_count, 'tool')} would no longer be there" if one.unused_count else ""
    if unused:
        say(f"  {unused}{'' if one.unused_count <= SHOWN_TOOLS else '; --json names them'}")


def rule_words(rule: ArgumentRule) -> str:
    """A rule on an argument, as a sentence."""
    if rule.under is not None:
        return f"{rule.argument} was always under {rule.under} ({plural(rule.calls, 'call')})"
    values = ", ".join(orjson.dumps(value).decode() for value in rule.values)
    return f"{rule.argument} was only {values} ({plural(rule.calls, 'call')})"


async def set_allow_list(ctx: typer.Context, file: ListFile, tenant: OnlyTenant = None, reason: Reason = None) -> int:
    """Leave tenants only the tools on their allow lists."""
    given = json_of(text_of(file), file)
    lists = given.get("tenant_tool_allow") if isinstance(given, dict) else None
    if not isinstance(lists, dict) or not lists:
        raise Usage(f"{file} holds no allow list: it needs tenant_tool_allow, with a list for each tenant.")
    if tenant is not None and tenant not in lists:
        raise Usage(f"{file} holds no allow list for tenant {tenant}.")
    chosen = lists if tenant is None else {tenant: lists[tenant]}
    async with opened(ctx) as app:
        for name, document in chosen.items():
            await app.policy.set_allow_list(name, document, reason=reason)
        note_missing(app, (tool for document in chosen.values() for tool in _tools_on(document)), "the allow list")
    return answer({"tenants": sorted(chosen)}, ("✓ Allow list set", "green"), f": {', '.join(sorted(chosen))}")


def _tools_on(document: dict[str, Any]) -> frozenset[str]:
    found = AllowList.of_document(document)
    return frozenset().union(*found.personas.values(), found.no_persona or (), found.everybody)


async def remove_allow_list(
    ctx: typer.Context, tenant: Annotated[str, argument("TENANT", "The tenant.", callback=readable)], reason: Reason = None
) -> int:
    """Take the allow list of a tenant away."""
    async with opened(ctx) as app:
        if changed := tenant in app.policy.data.allow_lists:
            await app.policy.set_allow_list(tenant, None, reason=reason)
    value = {"tenant": tenant, "changed": changed}
    if not changed:
        return answer(value, f"Tenant {tenant} has no allow list.")
    return answer(value, ("✓ Allow list removed", "green"), f": tenant {tenant}")
