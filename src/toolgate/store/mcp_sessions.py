"""Sessions of MCP clients that begin with a handshake: mcp_sessions, mcp_session_messages.

Each process that serves a session has a replica of it, with a number of its own. A message that reached the wrong one is
left here for the right one.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

import orjson

from toolgate.store.database import Transaction
from toolgate.store.sql import column, insert, select, select_one, value

MESSAGE_LIFE = timedelta(minutes=1)
"""A message that nobody took for so long is for a process that is gone."""
MAX_MESSAGES = 200
"""Messages of one session that may lie here at a time."""


class McpSessionRow(NamedTuple):
    """A row of mcp_sessions."""

    id: str
    credential: str
    actor: str
    client: str
    log_level: str | None
    uris: str
    version: int
    replicas: int
    seen_at: datetime


class McpSessionMessageRow(NamedTuple):
    """A row of mcp_session_messages, without when it was sent."""

    seq: int
    session_id: str
    sender: int
    receiver: int
    body: str


def add(row: McpSessionRow, *, most: int, most_in_all: int) -> Transaction[bool]:
    """Adds a session; False if its credential has so many already, or all have."""
    own = yield from value(
        "SELECT count(*) FROM mcp_sessions WHERE credential = :credential", {"credential": row.credential}
    )
    if int(own) >= most or int((yield from value("SELECT count(*) FROM mcp_sessions"))) >= most_in_all:
        return False
    yield insert("mcp_sessions", row._asdict())
    return True


def find(id: str) -> Transaction[McpSessionRow | None]:
    """A session by the hash of its id."""
    return select_one(McpSessionRow, "mcp_sessions", "WHERE id = :id", {"id": id})


def versions() -> Transaction[dict[str, int]]:
    """The versions of all sessions."""
    rows = yield "SELECT id, version FROM mcp_sessions", {}
    return {id: int(version) for id, version in rows}


def take_up(id: str) -> Transaction[int | None]:
    """Gives the number of a new replica; None: there is no such session."""
    found = yield from value("UPDATE mcp_sessions SET replicas = replicas + 1 WHERE id = :id RETURNING replicas", {"id": id})
    return None if found is None else int(found)


def set_client(id: str, client: str) -> Transaction[None]:
    """Puts down a handshake that was made again."""
    yield "UPDATE mcp_sessions SET client = :client, version = version + 1 WHERE id = :id", {"id": id, "client": client}


def set_level(id: str, level: str) -> Transaction[None]:
    """Puts down the level of the log messages that a client wants."""
    yield "UPDATE mcp_sessions SET log_level = :level, version = version + 1 WHERE id = :id", {"id": id, "level": level}


def set_subscribed(id: str, uri: str, *, subscribed: bool) -> Transaction[None]:
    """Puts down that a client has subscribed to a resource, or no longer is."""
    changed = yield from column("UPDATE mcp_sessions SET version = version + 1 WHERE id = :id RETURNING uris", {"id": id})
    for text in changed:  # none, if the session has ended; the row is ours until the end of the transaction
        others = [one for one in orjson.loads(text) if one != uri]
        uris = orjson.dumps([*others, uri] if subscribed else others).decode()
        yield "UPDATE mcp_sessions SET uris = :uris WHERE id = :id", {"id": id, "uris": uris}


def touch(ids: Collection[str], at: datetime) -> Transaction[None]:
    """Puts down that sessions are in use."""
    for id in ids:
        yield "UPDATE mcp_sessions SET seen_at = :at WHERE id = :id", {"id": id, "at": at}


def end(id: str) -> Transaction[None]:
    """Ends a session."""
    yield "DELETE FROM mcp_sessions WHERE id = :id", {"id": id}
    yield "DELETE FROM mcp_session_messages WHERE session_id = :id", {"id": id}


def prune(at: datetime, idle: timedelta) -> Transaction[None]:
    """Ends sessions that were idle for too long, and forgets messages that nobody took."""
    yield "DELETE FROM mcp_sessions WHERE seen_at <= :since", {"since": at - idle}
    yield "DELETE FROM mcp_session_messages WHERE sent_at <= :since", {"since": at - MESSAGE_LIFE}


def send(session: str, sender: int, receiver: int, body: str, at: datetime) -> Transaction[int | None]:
    """Leaves a message, and gives its number; None: there are too many."""
    there = yield from value("SELECT count(*) FROM mcp_session_messages WHERE session_id = :id", {"id": session})
    if int(there) >= MAX_MESSAGES:
        return None
    sql, values = insert(
        "mcp_session_messages",
        {"session_id": session, "sender": sender, "receiver": receiver, "body": body, "sent_at": at},
    )
    return int((yield from value(f"{sql} RETURNING seq", values)))


def messages(session: str | None) -> Transaction[list[McpSessionMessageRow]]:
    """The messages that lie here: of one session, or of all."""
    rest = "ORDER BY seq" if session is None else "WHERE session_id = :id ORDER BY seq"
    return select(McpSessionMessageRow, "mcp_session_messages", rest, {} if session is None else {"id": session})
