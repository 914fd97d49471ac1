"""`toolgate grants`: what runs unasked because a person allowed it for a while."""

from typing import Annotated

import msgspec
import typer

from toolgate.app.app import App
from toolgate.cli.approvals import Cap, Uses, cap_of, short_arguments, whole_id
from toolgate.cli.arguments import read_object
from toolgate.cli.context import (
    ActorOptions,
    CommandGroup,
    Reason,
    Tenant,
    Usage,
    User,
    actor_of,
    argument,
    entry_named,
    naming,
    opened,
    option,
    text_option,
)
from toolgate.cli.output import Part, answer
from toolgate.cli.table import listing, state
from toolgate.cli.times import seconds_of, shown
from toolgate.errors import plural
from toolgate.gates.approval.request import Grant, GrantScope, GrantTerms
from toolgate.model import LOCAL, NANO, Actor
from toolgate.pipeline.usage import dollars
from toolgate.store.database import now

group = CommandGroup(help="Tools that may run without asking for a while.", no_args_is_help=True)


@group.command("list")
async def list_grants(
    ctx: typer.Context,
    everything: Annotated[bool, option("--all", "Those too that ended or were revoked.")] = False,
    tenant: Tenant = None,
) -> int:
    """List the grants that hold."""
    whose = actor_of(tenant, None, None)
    async with opened(ctx) as app:
        grants = await app.grants.list(active=not everything, actor=whose)
        found = [(grant, _is_exhausted(app, grant)) for grant in grants]
    holding = "" if everything else " that hold"
    command = f"toolgate grants add TOOL --for 1h{naming(whose)}"
    return listing(
        {"grants": [{**msgspec.to_builtins(grant), "exhausted": exhausted} for grant, exhausted in found]},
        ["id", "state", "tool", "arguments", "for", "until", "granted by", "used"],
        [_row(grant, exhausted=exhausted) for grant, exhausted in found],
        none=f"Tenant {whose.tenant} has no grants{holding}. `{command}` makes one.",
    )


@group.command()
async def add(
    ctx: typer.Context,
    tool: Annotated[str, argument("TOOL", "The tool that may run without asking.")],
    lasting: Annotated[str, option("--for TIME", "How long: 90s, 30m, 1h, 2d.", show_default=False)],
    whom: ActorOptions,
    session: Annotated[str | None, text_option("--session S", "Only in this session of the user.")] = None,
    whole_tenant: Annotated[bool, option("--whole-tenant", "For everybody of the tenant.")] = False,
    cap: Cap = None,
    uses: Uses = None,
    args: Annotated[str | None, option("--args JSON|@FILE|-", "Only with these arguments.")] = None,
    reason: Reason = None,
) -> int:
    """Let a tool run without asking for a while. For a user (without any option the local one), a persona, a session or a
    whole tenant."""
    if whole_tenant and (whom.persona, whom.user, session) != (None, None, None):
        raise Usage("--whole-tenant is for everybody: it goes with neither --persona nor --user nor --session.")
    scope: GrantScope = "tenant" if whole_tenant else "session" if session is not None else "user"
    if scope == "user" and whom.persona is not None and whom.user is None:
        scope = "persona"
    terms = GrantTerms(scope, seconds_of(lasting), cap_of(cap), uses)
    arguments = None if args is None else read_object(args, "--args")
    by = actor_of(whom.tenant, None, LOCAL.user)
    async with opened(ctx) as app:
        grant = await app.grants.create(
            tool, terms, actor=whom.actor, by=by, session=session, reason=reason, arguments=arguments
        )
    given = "" if grant.arguments is None else " with these arguments"
    often = "" if grant.max_uses is None else f", at most {plural(grant.max_uses, 'call')}"
    words = f" {grant.tool}{given} to {grant.whom} until {shown(grant.expires_at)}{often} ({grant.id})"
    return answer(msgspec.to_builtins(grant), ("✓ Granted", "green"), words)


@group.command()
async def revoke(
    ctx: typer.Context,
    grant_id: Annotated[str, argument("ID", "The id of a grant, or how it alone begins.")],
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Revoke a grant, at once and in every process."""
    by = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        id, _ = await whole_id(app, "grants", by.tenant, grant_id)
        grant = await app.grants.revoke(id, actor=by)
    words = f" {grant.tool} for {grant.whom} ({grant.id}), used {plural(grant.uses, 'time')}"
    return answer(msgspec.to_builtins(grant), ("✓ Revoked", "green"), words)


def _is_exhausted(app: App, grant: Grant) -> bool:
    """True if all its calls were made, or the cap has no room for another at the tool's price, or at any if the tool is gone
    or names none."""
    entry = entry_named(app, grant.tool, Actor(grant.tenant))
    price = 0 if entry is None else max(entry.fixed_nano, entry.capability_nano)
    used_up = grant.cap_usd is not None and grant.spent_usd > 0 and not grant.has_room(1)
    return used_up or not grant.has_room(price)


def _row(grant: Grant, *, exhausted: bool) -> list[Part]:
    holds = "exhausted" if exhausted else "holds"
    found = holds if grant.holds(now()) else "revoked" if grant.revoked_at is not None else "ended"
    of = "" if grant.max_uses is None else f" of {grant.max_uses:,}"
    used = f"{plural(grant.uses, 'use')}{of}{_money(grant)}"
    given = "any" if grant.arguments is None else short_arguments(grant.arguments)
    return [grant.id, state(found), grant.tool, given, grant.whom, shown(grant.expires_at), grant.granted_by, used]


def _money(grant: Grant) -> str:
    """The dollars that were spent under a grant, and its cap."""
    if not grant.spent_usd and grant.cap_usd is None:
        return ""
    cap = "" if grant.cap_usd is None else f" of {dollars(round(grant.cap_usd * NANO))}"
    return f", {dollars(round(grant.spent_usd * NANO))}{cap}"
