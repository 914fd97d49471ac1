"""`toolgate keys`: who may call over HTTP, and as whom."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from toolgate.app.keys import KEY_PREFIX, check_name, check_user, own_user
from toolgate.cli.context import (
    CommandGroup,
    NotFound,
    Persona,
    Tenant,
    Usage,
    actor_of,
    argument,
    opened,
    option,
    text_option,
)
from toolgate.cli.output import Part, answer, answered, clean, note, say
from toolgate.cli.table import listing, state
from toolgate.cli.times import iso, seconds_of, shown
from toolgate.errors import KeyRefused, nearest
from toolgate.model import LOCAL
from toolgate.model.roles import DEFAULT_ROLES, checked_roles
from toolgate.store.database import now
from toolgate.store.keys import ApiKey

group = CommandGroup(help="API keys: who may call over HTTP, and as whom.", no_args_is_help=True)

MAX_NAMED_KEYS = 5


@group.command()
async def create(
    ctx: typer.Context,
    name: Annotated[str, argument("NAME", "What it is for, or who has it.")],
    tenant: Tenant = None,
    persona: Persona = None,
    user: Annotated[str | None, option("--user U", "The user; without it, key:NAME.")] = None,
    scope: Annotated[
        list[str] | None, text_option("--scope S", "What tools may ask for (tool:web_search); repeatable.")
    ] = None,
    expires: Annotated[str | None, option("--expires TIME", "How long it is valid: 12h, 30d, 52w.")] = None,
    role: Annotated[
        list[str] | None,
        text_option(
            "--role R", "What its holder may do over HTTP: guest, viewer, caller, approver, admin or operator; repeatable."
        ),
    ] = None,
    may_approve: Annotated[
        bool, option("--may-approve", "Whoever holds it may approve calls, like a person at this machine.")
    ] = False,
    may_speak: Annotated[
        bool,
        option(
            "--may-speak-for-the-user",
            "Whoever holds it may pass on what the user typed, as the user's own words: for hosts, never for a model.",
        ),
    ] = False,
    same_user: Annotated[
        bool, option("--same-user", "Act as key:NAME, also if an earlier key did: with its grants and budgets.")
    ] = False,
) -> int:
    """Make a key. It is shown once, now."""
    if same_user and user is not None:
        raise Usage("--same-user and --user cannot be used together.")
    try:
        check_name(name)
        check_user(user or "")
        roles = checked_roles(role or DEFAULT_ROLES)
    except ValueError as error:
        raise Usage(str(error)) from None
    except KeyRefused as error:
        raise Usage(error.message, suggestion=error.suggestion) from None
    # Without a user, one of its own: as `local` its holder would have the sessions of the person at this machine.
    actor = actor_of(tenant, persona, user or own_user(name), scope or ())
    lasting = None if expires is None else _lasting(expires)
    by = actor_of(tenant, None, LOCAL.user)
    async with opened(ctx) as app:
        key, text = await app.keys.create(
            name, actor, lasting=lasting, roles=roles, may_approve=may_approve, may_speak=may_speak, same_user=same_user,
            by=by,
        )  # fmt: skip
    if answered({**_to_dict(key), "key": text}):
        return 0
    say(text)
    until = "does not expire" if key.expires_at is None else f"expires {shown(key.expires_at)}"
    note(("✓ Created", "green"), f" key {key.id} for {_whom(key)}; it {until}. It is not shown again.")
    note(("Send it as `Authorization: Bearer tg_…`.", "dim"))
    return 0


@group.command("list")
async def list_keys(ctx: typer.Context, tenant: Tenant = None) -> int:
    """List the keys: of all tenants, or of one."""
    whose = None if tenant is None else actor_of(tenant, None, None).tenant
    async with opened(ctx) as app:
        found = await app.keys.list(whose)
    return listing(
        {"keys": [_to_dict(key) for key in found]},
        ["id", "state", "name", "acts as", "roles", "scopes", "approves", "speaks", "expires", "used"],
        [_row(key) for key in found],
        none="There are no keys. `toolgate keys create NAME` makes one.",
    )


@group.command()
async def revoke(
    ctx: typer.Context,
    key: Annotated[str, argument("KEY", "Its name, its id, or enough of the id's beginning.")],
) -> int:
    """Revoke a key, at once and in every process."""
    wanted = key.split("_")[1] if key.startswith(KEY_PREFIX) else key  # a whole key will do too: it may be all that one has
    if not wanted:
        raise Usage("KEY must be the name or the id of a key; `toolgate keys list` shows them.")
    async with opened(ctx) as app:
        found = _chosen(wanted, await app.keys.list())
        revoked = await app.keys.revoke(found.id, by=actor_of(found.actor.tenant, None, LOCAL.user))
    words = f" key {revoked.id} ({revoked.name}) of {_whom(revoked)}"
    return answer(_to_dict(revoked), ("✓ Revoked", "green"), words)


def _chosen(wanted: str, keys: list[ApiKey]) -> ApiKey:
    """The one key that is meant: by its id or name, else by how its id begins. A revoked key gives its name up."""
    found = [key for key in keys if key.id == wanted or (key.name == wanted and key.revoked_at is None)]
    found = found or [key for key in keys if key.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(f"{key.id} ({key.name}, tenant {key.actor.tenant})" for key in found[:MAX_NAMED_KEYS])
        raise NotFound(f"{len(found)} keys match {clean(wanted[:64])}: {named}.", suggestion="Give the whole id of one.")
    known = {spelling: key for key in keys if key.revoked_at is None for spelling in (key.id, key.name)}
    near = nearest(wanted, known)
    raise NotFound(
        f"There is no key named {clean(wanted[:64])!r}: see toolgate keys list.",
        suggestion=f"Did you mean {near} ({known[near].id})?" if near else None,
    )


def _lasting(text: str) -> timedelta:
    try:
        return timedelta(seconds=seconds_of(text, "--expires"))
    except OverflowError:
        raise Usage("--expires is too long; omit it for a key that does not expire.") from None


def _whom(key: ApiKey) -> str:
    persona = "" if key.actor.persona is None else f" as {key.actor.persona}"
    return f"{key.actor.user} of tenant {key.actor.tenant}{persona}"


def _to_dict(key: ApiKey) -> dict[str, Any]:
    actor = key.actor
    return {
        "id": key.id,
        "name": key.name,
        "state": key.state(now()),
        "tenant": actor.tenant,
        "persona": actor.persona,
        "user": actor.user,
        "scopes": list(actor.scopes),
        "roles": list(key.roles),
        "may_approve": key.may_approve,
        "may_speak": key.may_speak,
        "created_by": key.created_by,
        "created_at": iso(key.created_at),
        "expires_at": key.expires_at and iso(key.expires_at),
        "revoked_at": key.revoked_at and iso(key.revoked_at),
        "revoked_by": key.revoked_by,
        "last_used_at": key.last_used_at and iso(key.last_used_at),
    }


def _row(key: ApiKey) -> list[Part]:
    expires = "never" if key.expires_at is None else shown(key.expires_at)
    used = "never" if key.last_used_at is None else f"about {shown(key.last_used_at)}"
    approves, speaks = (("yes", "yellow") if may else "" for may in (key.may_approve, key.may_speak))
    roles, scopes = ", ".join(key.roles), ", ".join(key.actor.scopes)
    return [key.id, state(key.state(now())), key.name, _whom(key), roles, scopes, approves, speaks, expires, used]
