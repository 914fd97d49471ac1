"""The push tokens of users: services at which they want their notifications. A token is an apprise URL, which is a
credential: it is kept encrypted and never shown again."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from toolgate.conversation.channels import Delivery
from toolgate.conversation.push_sender import PushResult, PushSender
from toolgate.errors import InvalidInput, StoreError
from toolgate.model import Actor, new_id
from toolgate.store import push_tokens as table
from toolgate.store.database import Store, now
from toolgate.store.push_tokens import NameTaken, PushTokenRow, TooManyTokens
from toolgate.store.sealed_values import Seal

PURPOSE = "push.tokens"
PREFIX = "push:"
"""Before the name of a token, where it stands beside the names of channels."""
ADDED, REMOVED = "push_token.added", "push_token.removed"
_NAME = re.compile(r"[\w][\w .-]{0,63}", re.ASCII)

Record = Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]
logger = logging.getLogger("toolgate")


class PushToken(NamedTuple):
    """All that is shown of a push token."""

    id: str
    name: str
    kind: str
    url: str
    """Without anything that is secret."""
    created_at: str
    delivered_at: str | None
    last_error: str | None
    """The reason why the last message was not taken; None: it was, or there was none."""


class PushTokens:
    """The push tokens of all users; its methods work on those of one actor's user."""

    def __init__(self, store: Store, sender: PushSender, most: int, record: Record) -> None:
        self._store = store
        self._sender = sender
        self.close = sender.close
        self._most = most
        self._record = record
        self._seal = Seal(store, PURPOSE)

    async def add(self, actor: Actor, url: str, name: str | None = None) -> PushToken:
        """Adds a token. Raises InvalidInput or Denied for a URL that is not taken."""
        url = url.strip()
        kind = await self._sender.check(url)
        if name is not None and not _NAME.fullmatch(name):
            raise InvalidInput("The name of a push token has up to 64 letters, digits, spaces, dots, - and _.")
        id = new_id()
        sealed = await self._seal.close(id, url.encode())
        if sealed is None:
            raise StoreError("Push tokens need the package cryptography.", suggestion="pip install cryptography")
        name = name or f"{kind}-{id[-6:]}"
        row = PushTokenRow(id, actor.tenant, actor.user, 0, name, kind, sealed, now(), None, None)
        try:
            await self._store.transact(table.add(row, self._most))
        except NameTaken:
            raise InvalidInput(
                f"There is a push token {name!r} already.", suggestion="Remove that one first, or take another name."
            ) from None
        except TooManyTokens:
            raise InvalidInput(
                f"A user has at most {self._most} push tokens.", suggestion="Remove one that is not needed."
            ) from None
        await self._record(ADDED, actor, "", {"token": id, "name": name, "kind": kind})
        return _shown(row)

    async def list(self, actor: Actor) -> list[PushToken]:
        """The tokens of an actor's user, oldest first."""
        return [_shown(row) for row in await self._store.read(table.listed(actor.tenant, actor.user))]

    async def remove(self, actor: Actor, id_or_name: str, why: str | None = None) -> PushToken | None:
        """Removes a token of an actor's user; None: there is none."""
        removed = await self._store.transact(table.remove(id_or_name, actor.tenant, actor.user))
        if removed is None:
            return None
        details = {"token": removed.id, "name": removed.name, "kind": removed.kind}
        await self._record(REMOVED, actor, "", details if why is None else {**details, "why": why})
        return _shown(removed)

    async def send(self, actor: Actor, title: str, message: str, only: Collection[str] | None = None) -> Delivery:
        """Sends a message to all tokens of an actor's user, at the same time. `only`: to those of these names, which begin
        with the prefix. A token that its service does not know any more is removed."""
        rows = await self._store.read(table.listed(actor.tenant, actor.user))
        chosen = [row for row in rows if only is None or PREFIX + row.name in only]
        results = await asyncio.gather(*(self._send(row, title, message) for row in chosen))
        tried = dict(zip(chosen, results, strict=True))
        for row, result in tried.items():
            await self._settle(actor, row, result)
        named = {PREFIX + row.name: result for row, result in tried.items()}
        return Delivery(
            tuple(name for name, result in named.items() if result.verdict == "delivered"),
            {name: result.reason or "" for name, result in named.items() if result.verdict != "delivered"},
            tuple(name for name, result in named.items() if result.verdict == "passing"),
        )

    async def _send(self, row: PushTokenRow, title: str, message: str) -> PushResult:
        url = await self._seal.open(row.id, row.sealed)
        if url is None:
            return PushResult("failed", "it can't be decrypted: remove it and add it again")
        return await self._sender.send(url.decode(), title, message, row.tenant_id)

    async def _settle(self, actor: Actor, row: PushTokenRow, result: PushResult) -> None:
        """Logs what became of a message, and keeps it with the token."""
        if result.verdict == "delivered":
            logger.info("a notification was sent to the push token %s (%s)", row.id, row.kind)
        else:
            logger.warning("a notification was not sent to the push token %s (%s): %s", row.id, row.kind, result.reason)
        if result.verdict == "gone":
            await self.remove(actor, row.id, result.reason)
        else:
            await self._store.transact(table.note_result(row.id, now(), result.reason))


def _shown(row: PushTokenRow) -> PushToken:
    delivered = None if row.delivered_at is None else row.delivered_at.isoformat(timespec="seconds")
    created = row.created_at.isoformat(timespec="seconds")
    return PushToken(row.id, row.name, row.kind, f"{row.kind}://****", created, delivered, row.last_error)
