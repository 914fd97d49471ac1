"""`toolgate notifications`: messages of agents to their users."""

from datetime import datetime
from typing import Annotated

import typer

from toolgate.cli.context import CommandGroup, NotFound, Tenant, Usage, User, actor_of, argument, opened, option
from toolgate.cli.output import Part, answer, clean
from toolgate.cli.table import listing
from toolgate.cli.times import shown
from toolgate.conversation.notifications import Notification

group = CommandGroup(help="Messages of agents to their users.", no_args_is_help=True)


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


def _row(one: Notification) -> list[Part]:
    failed: Part = (", ".join(one.failed), "red")
    at = shown(datetime.fromisoformat(one.created_at))
    return [one.id, at, one.user, one.persona or "", one.message, ", ".join(one.delivered), failed]
