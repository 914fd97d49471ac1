"""Keeps messages of agents to the users that they work for, tells listeners of them, and sends them to the users' channels.

A message that no channel takes is kept all the same: a notification is what is kept, channels only point at it."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from toolgate.conversation.channels import Channels, Delivery
from toolgate.errors import InvalidInput
from toolgate.gates.redaction import Redactor
from toolgate.model import Actor, new_id
from toolgate.store import notifications as table
from toolgate.store.database import Store, now
from toolgate.store.notifications import NotificationRow
from toolgate.tasks import finish

MAX_MESSAGE_CHARS = 4_000
MAX_NOTIFICATIONS = 500
"""Of a user; older ones are dropped."""
SENT = "notification.sent"

Record = Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]
Tell = Callable[[str, dict[str, Any]], None]


class Notification(NamedTuple):
    """A message to a user."""

    id: str
    tenant: str
    user: str
    persona: str | None
    """Of the agent that sent it."""
    message: str
    delivered: list[str]
    """The channels that took it."""
    failed: list[str]
    call_id: str
    created_at: str


class Notifications:
    """The notifications of all users."""

    def __init__(self, store: Store, channels: Channels, redactor: Redactor, *, record: Record, tell: Tell) -> None:
        self._store = store
        self._channels = channels
        self._redactor = redactor
        self._record = record
        self._tell = tell

    async def send(self, actor: Actor, message: str, call_id: str, known: tuple[str, ...] = ()) -> tuple[str, Delivery]:
        """Tells the user of an actor something, secrets masked: gives the id of the notification, and what became of it.
        `known`: values of secrets."""
        message = plain(message)
        if not message:
            raise InvalidInput("The message is empty.")
        if not self._redactor.ready:
            await self._redactor.prepare(message)
        message = self._redactor.text(message, known)
        row = NotificationRow(
            f"ntf_{new_id()}", actor.tenant, actor.user, actor.persona, call_id, message, "[]", "[]", now()
        )
        await finish(self._store.transact(table.keep(row, MAX_NOTIFICATIONS)))
        self._tell(SENT, {**_shown(row)._asdict(), "scope": {"tenant": actor.tenant}})
        return row.id, await finish(self._deliver(row, actor))

    async def _deliver(self, row: NotificationRow, actor: Actor) -> Delivery:
        """Sends a notification to the user's channels, and puts on record what became of it. Its words are not in the
        record: they are among the call's arguments."""
        sent = await self._channels.send(actor, f"Message from {actor.persona or 'your agent'}", row.message)
        if sent.delivered or sent.failed:
            names = orjson.dumps(sent.delivered).decode(), orjson.dumps(list(sent.failed)).decode()
            await self._store.transact(table.note_delivery(row.id, *names))
        details = {"notification": row.id, "delivered": list(sent.delivered), "failed": dict(sent.failed)}
        await self._record(SENT, actor, "notify_user", {**details, "call": row.call_id})
        return sent

    # -- for people

    async def list(self, tenant: str, user: str | None, limit: int) -> list[Notification]:
        """The latest notifications of a user, or of all users of a tenant, oldest first."""
        return [_shown(row) for row in await self._store.read(table.listed(tenant, user, limit))]

    async def dismiss(self, id: str, actor: Actor) -> bool:
        """Removes a notification of an actor's user; gives whether there was one."""
        return await finish(self._store.transact(table.dismiss(id, actor.tenant, actor.user)))


def plain(text: str) -> str:
    """A text without control characters, which a terminal or a service might obey."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text).strip()


def _shown(row: NotificationRow) -> Notification:
    delivered, failed = orjson.loads(row.delivered), orjson.loads(row.failed)
    at = row.created_at.isoformat(timespec="seconds")
    return Notification(row.id, row.tenant_id, row.user_id, row.persona_id, row.message, delivered, failed, row.call_id, at)
