"""`toolgate notifications`: messages of agents to their users."""

from datetime import datetime
from typing import Annotated

import typer

from toolgate.cli.context import CommandGroup, NotFound, Tenant, Usage, User, actor_of, argument, opened, option
from toolgate.cli.credentials import read_credential
from toolgate.cli.output import Part, answer, clean
from toolgate.cli.table import listing
from toolgate.cli.times import shown
from toolgate.conversation.notifications import Notification
from toolgate.conversation.push_tokens import PushToken

group = CommandGroup(help="Messages of agents to their users.", no_args_is_help=True)
tokens = CommandGroup(
    help="Push tokens of users. They are the services at which a user wants their notifications.", no_args_is_help=True
)
group.add_typer(tokens, name="tokens")


@group.command("list")
async def list_notifications(
    ctx: typer.Context,
    tenant: Tenant = None,
    user: User = None,
    everybody: Annotated[bool, option("--all", "Those of all users of the tenant.")] = False,
) -> int:
    """List the latest notifications of a user."""
    if everybody and user is not None:
        raise Usage("--all is for everybody: it does not go with --user.")
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        found = await app.notifications.list(actor=whose, all_users=everybody)
    whom = f"Tenant {whose.tenant}" if everybody else f"User {whose.user} of tenant {whose.tenant}"
    return listing(
        {"notifications": [one._asdict() for one in found]},
        ["id", "at", "for", "from", "message", "sent to", "not sent to"],
        [_row(one) for one in found],
        none=f"{whom} has no notifications. The tool notify_user sends one.",
    )


@group.command()
async def dismiss(
    ctx: typer.Context,
    notification_id: Annotated[str, argument("ID", "The id of a notification.")],
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Remove a notification of a user."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        dismissed = await app.notifications.dismiss(notification_id, actor=whose)
    if not dismissed:
        raise NotFound(
            f"User {whose.user} has no notification {clean(notification_id[:80])!r}.",
            suggestion="`toolgate notifications list` shows them.",
        )
    return answer({"id": notification_id, "dismissed": True}, ("✓ Dismissed", "green"), f" {notification_id}")


@tokens.command("add")
async def add_token(
    ctx: typer.Context,
    name: Annotated[str | None, argument("[NAME]", "A name for it; without it, one is made.")] = None,
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Add a push token of a user. Its apprise URL is asked for, or read from stdin, and kept encrypted: it is a credential.

    \b
      toolgate notifications tokens add phone --tenant acme --user ann < url.txt
    """
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        url = read_credential("Apprise URL: ", "toolgate notifications tokens add")
        added = await app.push_tokens.add(url, name, actor=whose)
    return answer(added._asdict(), ("✓ Added", "green"), f" {added.name} ({added.kind}) for user {whose.user}")


@tokens.command("list")
async def list_tokens(ctx: typer.Context, tenant: Tenant = None, user: User = None) -> int:
    """List the push tokens of a user, without their URLs."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        found = await app.push_tokens.list(actor=whose)
    return listing(
        {"tokens": [one._asdict() for one in found]},
        ["name", "id", "url", "added", "last delivery", "last error"],
        [_token_row(one) for one in found],
        none=f"User {whose.user} of tenant {whose.tenant} has no push tokens. `toolgate notifications tokens add` adds one.",
    )


@tokens.command("remove")
async def remove_token(
    ctx: typer.Context,
    token: Annotated[str, argument("NAME", "The name or id of a push token.")],
    tenant: Tenant = None,
    user: User = None,
) -> int:
    """Remove a push token of a user."""
    whose = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        removed = await app.push_tokens.remove(token, actor=whose)
    if removed is None:
        raise NotFound(
            f"User {whose.user} has no push token {clean(token[:80])!r}.",
            suggestion="`toolgate notifications tokens list` shows them.",
        )
    return answer({"id": removed.id, "name": removed.name, "removed": True}, ("✓ Removed", "green"), f" {removed.name}")


def _token_row(one: PushToken) -> list[Part]:
    delivered = "" if one.delivered_at is None else shown(datetime.fromisoformat(one.delivered_at))
    added = shown(datetime.fromisoformat(one.created_at))
    return [one.name, one.id, one.url, added, delivered, (one.last_error or "", "red")]


def _row(one: Notification) -> list[Part]:
    failed: Part = (", ".join(one.failed), "red")
    at = shown(datetime.fromisoformat(one.created_at))
    message = one.message if one.title is None else f"{one.title}: {one.message}"
    return [one.id, at, one.user, one.persona or "", message, ", ".join(one.delivered), failed]
