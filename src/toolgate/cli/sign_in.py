"""`toolgate sign-in`: links that sign a browser in, once, and the browsers that are signed in."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolgate.cli.context import (
    AsJson,
    CommandGroup,
    NotFound,
    OnlyTenant,
    Persona,
    Scopes,
    Tenant,
    Usage,
    User,
    actor_of,
    argument,
    opened,
    text_option,
)
from toolgate.cli.output import Part, answer, answered, clean, note, say, use_json
from toolgate.cli.table import listing, state
from toolgate.cli.times import iso, shown
from toolgate.errors import KeyRefused, NotServing
from toolgate.model import LOCAL, Actor
from toolgate.model.roles import Role, checked_roles
from toolgate.store.database import now
from toolgate.store.web_sessions import WebSession

if TYPE_CHECKING:
    from toolgate.app.app import App

group = CommandGroup(help="Sign a browser in by a one-time link.", invoke_without_command=True)


@group.callback()
def sign_in(
    ctx: typer.Context,
    tenant: Tenant = None,
    persona: Persona = None,
    user: User = None,
    scope: Scopes = None,
    role: Annotated[
        list[str] | None,
        text_option("--role R", "What they may do: guest, viewer, caller, approver, admin or operator; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> int | Coroutine[None, None, int]:
    """Print a link that signs in whoever opens it first: you, as operator, or the user that is named."""
    given = (tenant, persona, user, scope)
    if ctx.invoked_subcommand is not None:
        if any(given) or role or as_json:
            raise Usage(f"Options come after the command: toolgate sign-in {ctx.invoked_subcommand} …")
        return 0
    use_json(as_json)
    if any(given) and not role:
        raise Usage("--role must say what they may do.", suggestion="For somebody who answers approvals: --role approver")
    try:
        roles = checked_roles(role or ("operator",))
    except ValueError as error:
        raise Usage(str(error)) from None
    return _link(ctx, actor_of(tenant, persona, user, scope or ()), roles)


async def _link(ctx: typer.Context, actor: Actor, roles: tuple[Role, ...]) -> int:
    async with opened(ctx) as app:
        address = await app.sign_ins.address()
        if address is None:
            raise NotServing("No server runs on this database.", suggestion="Start one first: toolgate serve")
        try:
            link = await new_link(app, address, actor, roles)
        except KeyRefused as error:
            raise Usage(error.message, suggestion=error.suggestion) from None
    if answered(link):
        return 0
    say(link["url"])
    words = f"It signs in {actor.user} of tenant {actor.tenant} as {', '.join(roles)}, once, until {shown(link['until'])}."
    note((words, "dim"))
    return 0


async def new_link(
    app: "App", address: str, actor: Actor = LOCAL, roles: tuple[Role, ...] = ("operator",)
) -> dict[str, Any]:
    """A new link to a server, and until when it can be opened."""
    link, token = await app.sign_ins.create_link(actor, roles=roles)
    return {"url": f"{address}/sign-in?token={token}", "until": link.expires_at}


@group.command("list")
async def list_sessions(ctx: typer.Context, tenant: OnlyTenant = None) -> int:
    """List the browsers that are signed in, or were."""
    async with opened(ctx) as app:
        found, idle = await app.sign_ins.list(tenant), app.sign_ins.idle
    at = now()
    told = [
        {**_to_dict(one), "state": one.state(at, idle), "ends_at": iso(one.ends_at(idle))} for one in found
    ]  # fmt: skip
    return listing(
        {"sessions": told},
        ["id", "state", "user", "roles", "signed in", "used", "ends"],
        [
            [
                one.id, state(one.state(at, idle)), _whom(one), ", ".join(one.roles), shown(one.created_at),
                f"about {shown(one.last_used_at)}", shown(one.ends_at(idle)),
            ]
            for one in found
        ],
        none="No browser is signed in. `toolgate sign-in` prints a link that signs one in.",
    )  # fmt: skip


@group.command()
async def revoke(
    ctx: typer.Context,
    session: Annotated[str, argument("SESSION", "Its id, or enough of the id's end or beginning.")],
) -> int:
    """Sign a browser out, at once and in every process."""
    async with opened(ctx) as app:
        at, idle = now(), app.sign_ins.idle
        valid = [one for one in await app.sign_ins.list() if one.state(at, idle) == "valid"]
        found = [one for one in valid if one.id.startswith(session) or one.id.endswith(session)] if session else []
        if len(found) != 1:
            many = f"{len(found)} browsers that are signed in match" if found else "No browser that is signed in matches"
            raise NotFound(f"{many} {clean(session[:64])!r}: see toolgate sign-in list.")
        revoked = await app.sign_ins.revoke(found[0].id, by=actor_of(found[0].actor.tenant, None, LOCAL.user))
    parts: list[Part] = [("✓ Signed out", "green"), f" {_whom(revoked)} (session {revoked.id})"]
    return answer(_to_dict(revoked), *parts)


def _whom(session: WebSession) -> str:
    persona = "" if session.actor.persona is None else f" as {session.actor.persona}"
    return f"{session.actor.user} of tenant {session.actor.tenant}{persona}"


def _to_dict(session: WebSession) -> dict[str, Any]:
    actor = session.actor
    return {
        "id": session.id,
        "tenant": actor.tenant,
        "persona": actor.persona,
        "user": actor.user,
        "scopes": list(actor.scopes),
        "roles": list(session.roles),
        "created_by": session.created_by,
        "created_at": iso(session.created_at),
        "expires_at": iso(session.expires_at),
        "last_used_at": iso(session.last_used_at),
        "revoked_at": session.revoked_at and iso(session.revoked_at),
        "revoked_by": session.revoked_by,
    }
