"""The sessions of MCP clients on record, so that every process on the database can serve their requests.

Processes tell each other by notices that a session has changed or ended, or that a message was left for one of them. A
message can hold a person's answer, so it is encrypted as approvals are.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from toolgate.coordination.notices import Notices
from toolgate.mcp.server.identity import actor_id
from toolgate.store import mcp_sessions as table
from toolgate.store.database import Store, now
from toolgate.store.mcp_sessions import McpSessionRow
from toolgate.store.sealed_values import Seal

if TYPE_CHECKING:
    from toolgate.mcp.server.identity import Credential

PURPOSE, TOPIC = "mcp.sessions", "mcp.sessions"
MAX_SESSIONS, MAX_CREDENTIAL_SESSIONS = 5_000, 200
"""Handshake sessions, over all processes: in all, and of one credential."""
IDLE_SECONDS = 900.0
"""A session that nobody used for this long has ended."""
TOUCH_SECONDS = 60.0
"""A session's time of use is put down no oftener."""
EVERYONE = 0
KEPT_KEY = "toolgate_session"


class RelayedMessage(NamedTuple):
    """A message for a replica of a session."""

    seq: int
    session: str
    body: Any


def key_of(session_id: str) -> str:
    """The name of a session in the store: its id is a credential."""
    return sha256(session_id.encode()).hexdigest()


class KeptSession(NamedTuple):
    """A session on record, for what its client sets. In the state of its connection, under `KEPT_KEY`."""

    key: str
    records: "SessionRecords"

    async def set_level(self, level: str) -> None:
        await self.records.set_level(self.key, level)

    async def set_subscribed(self, uri: str, *, subscribed: bool) -> None:
        await self.records.set_subscribed(self.key, uri, subscribed=subscribed)


class SessionRecords:
    """The handshake sessions of this database."""

    def __init__(self, store: Store, notices: Notices) -> None:
        self._store = store
        self._notices = notices
        self._seal = Seal(store, PURPOSE)

    def watch(self, woken: Callable[[str], None]) -> Callable[[], None]:
        """Has something called with the key of a session that has news; "": any may have. Gives what ends it."""
        return self._notices.watch(TOPIC, woken)

    # -- sessions

    async def add(self, key: str, who: "Credential", client: str) -> bool:
        """Puts a session on record; False if there are too many."""
        row = McpSessionRow(key, who.id, actor_id(who.actor), client, None, "[]", 0, 1, now())
        return await self._store.transact(table.add(row, most=MAX_CREDENTIAL_SESSIONS, most_in_all=MAX_SESSIONS))

    async def find(self, key: str, who: "Credential") -> McpSessionRow | None:
        """A session of this credential; None: unknown, another's, or over."""
        row = await self.get(key)
        return row if row is not None and (row.credential, row.actor) == (who.id, actor_id(who.actor)) else None

    async def get(self, key: str) -> McpSessionRow | None:
        """A session, whosever; None: unknown, or over."""
        row = await self._store.read(table.find(key))
        return None if row is None or row.seen_at <= now() - timedelta(seconds=IDLE_SECONDS) else row

    async def versions(self) -> dict[str, int]:
        return await self._store.read(table.versions())

    async def take_up(self, key: str) -> int | None:
        """Gives the number of a new replica; None: the session has ended."""
        return await self._store.transact(table.take_up(key))

    async def touch(self, keys: Collection[str]) -> None:
        await self._store.transact(table.touch(keys, now()))

    async def prune(self) -> None:
        """Ends sessions that nobody uses."""
        await self._store.transact(table.prune(now(), timedelta(seconds=IDLE_SECONDS)))

    async def end(self, key: str) -> None:
        await self._store.transact(table.end(key))
        await self._notices.announce(TOPIC, key)

    # -- what a client has set

    async def set_client(self, key: str, client: str) -> None:
        await self._store.transact(table.set_client(key, client))
        await self._notices.announce(TOPIC, key)

    async def set_level(self, key: str, level: str) -> None:
        await self._store.transact(table.set_level(key, level))
        await self._notices.announce(TOPIC, key)

    async def set_subscribed(self, key: str, uri: str, *, subscribed: bool) -> None:
        await self._store.transact(table.set_subscribed(key, uri, subscribed=subscribed))
        await self._notices.announce(TOPIC, key)

    # -- messages between replicas

    async def send(self, key: str, body: Any, *, sender: int, receiver: int = EVERYONE) -> int | None:
        """Leaves a message for other replicas, and gives its number; None: too many wait already."""
        sealed = await self._seal.close(key, orjson.dumps(body))
        if sealed is None:
            return None
        seq = await self._store.transact(table.send(key, sender, receiver, sealed, now()))
        await self._notices.announce(TOPIC, key)
        return seq

    async def messages(self, numbers: dict[str, int], only: str | None) -> list[RelayedMessage]:
        """The messages for replicas, given by session with their numbers: of one session, or of all."""
        found = []
        for row in await self._store.read(table.messages(only)):
            number = numbers.get(row.session_id)
            if number is None or row.sender == number or row.receiver not in (EVERYONE, number):
                continue
            body = await self._seal.open(row.session_id, row.body)
            if body is not None:
                found.append(RelayedMessage(row.seq, row.session_id, orjson.loads(body)))
        return found
