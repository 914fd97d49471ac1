"""Keeps messages of agents to the users that they work for, tells listeners of them, and sends them to the users' channels
and push tokens.

A message that no channel takes is kept all the same: a notification is what is kept, channels only point at it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import orjson

from toolgate.conversation.channels import Channels, Delivery
from toolgate.conversation.push_tokens import PushTokens
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
    """The channels and push tokens that took it."""
    failed: list[str]
    call_id: str
    created_at: str
    title: str | None = None
    data: dict[str, Any] | None = None
    """Data that a program which shows the notification may need."""


class Notifications:
    """The notifications of all users."""

    def __init__(
        self, store: Store, channels: Channels, tokens: PushTokens, redactor: Redactor, *, record: Record, tell: Tell
    ) -> None:
        self._store = store
        self._channels = channels
        self._tokens = tokens
        self._redactor = redactor
        self._record = record
        self._tell = tell

    async def send(self, actor: Actor, message: str, call_id: str, known: tuple[str, ...] = ()) -> tuple[str, Delivery]:
        """Tells the user of an actor something, secrets masked: gives the id of the notification, and what became of it.
        `known`: values of secrets."""
        row = await self._row(f"ntf_{new_id()}", actor, call_id, message, known=known)
        await finish(self._keep(row))
        return row.id, await finish(self._deliver(row, actor, "notify_user"))

    async def send_once(
        self, id: str, actor: Actor, title: str, message: str, data: dict[str, Any] | None, *, again: bool = False
    ) -> Delivery:
        """Sends a notification under an id of the caller's. Under the same id again it goes only to those channels and
        tokens that may take it now. `again`: it was sent before, so that where it is gone, somebody has dismissed it."""
        row = await self._store.read(table.find(id))
        if row is None and again:
            return Delivery()
        if row is None:
            row = await self._row(id, actor, id, message, title=title, data=data)
            await finish(self._keep(row))
        return await finish(self._deliver(row, actor, ""))

    async def _row(
        self,
        id: str,
        actor: Actor,
        call_id: str,
        message: str,
        *,
        title: str | None = None,
        data: dict[str, Any] | None = None,
        known: tuple[str, ...] = (),
    ) -> NotificationRow:
        """A notification without what looks like a secret, or is one."""
        said = {"message": plain(message), "title": None if title is None else plain(title), "data": data}
        if not said["message"]:
            raise InvalidInput("The message is empty.")
        if not self._redactor.ready:
            await self._redactor.prepare(said)
        masked = self._redactor.mask(said, known=known)
        kept = None if data is None else orjson.dumps(masked["data"]).decode()
        return NotificationRow(
            id, actor.tenant, actor.user, actor.persona, call_id, masked["message"], "[]", "[]", now(), masked["title"], kept
        )

    async def _keep(self, row: NotificationRow) -> None:
        await self._store.transact(table.keep(row, MAX_NOTIFICATIONS))
        self._tell(SENT, {**_shown(row)._asdict(), "scope": {"tenant": row.tenant_id}})

    async def _deliver(self, row: NotificationRow, actor: Actor, tool: str) -> Delivery:
        """Sends a notification to the user's channels and push tokens, and puts on record what became of it. Its words are
        not in the record, but for the title: they are among the call's arguments."""
        title = row.title or f"Message from {actor.persona or 'your agent'}"
        only = None if row.retry is None else orjson.loads(row.retry)
        if only == []:
            return Delivery()  # there is nobody left who may take it
        sent, pushed = await asyncio.gather(
            self._channels.send(actor, title, row.message, only), self._tokens.send(actor, title, row.message, only)
        )
        both = sent.and_also(pushed)
        delivered = [*orjson.loads(row.delivered), *both.delivered]
        failed = [name for name in orjson.loads(row.failed) if only is None or name not in only] + list(both.failed)
        await self._store.transact(table.note_delivery(row.id, *map(_json, (delivered, failed, both.passing))))
        details = {
            "notification": row.id,
            "title": title,
            "token_count": len(pushed.delivered) + len(pushed.failed),
            "success_count": len(pushed.delivered),
            "delivered": list(both.delivered),
            "failed": dict(both.failed),
        }
        await self._record(SENT, actor, tool, {**details, "call": row.call_id})
        return both

    # -- for people

    async def list(self, tenant: str, user: str | None, limit: int, before: str | None = None) -> list[Notification]:
        """The latest notifications of a user, or of all users of a tenant, oldest first."""
        return [_shown(row) for row in await self._store.read(table.listed(tenant, user, limit, before))]

    async def dismiss(self, id: str, actor: Actor) -> bool:
        """Removes a notification of an actor's user; gives whether there was one."""
        return await finish(self._store.transact(table.dismiss(id, actor.tenant, actor.user)))


def plain(text: str) -> str:
    """A text without control characters, which a terminal or a service might obey."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text).strip()


def _json(names: Iterable[str]) -> str:
    return orjson.dumps(list(names)).decode()


def _shown(row: NotificationRow) -> Notification:
    delivered, failed = orjson.loads(row.delivered), orjson.loads(row.failed)
    at = row.created_at.isoformat(timespec="seconds")
    data = None if row.data is None else orjson.loads(row.data)
    who = row.tenant_id, row.user_id, row.persona_id
    return Notification(row.id, *who, row.message, delivered, failed, row.call_id, at, row.title, data)
