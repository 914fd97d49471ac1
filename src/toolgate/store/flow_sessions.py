"""The user's own words of sessions (flow_sessions), and the last messages of each (flow_messages)."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Rows, Transaction, moment
from toolgate.store.sql import insert, select

KEY_COLUMNS = ("tenant_id", "user_id", "session_id")
OWN = "tenant_id = :tenant AND user_id = :user AND session_id = :session"
MAX_PRUNED_SESSIONS = 1_000
"""Rows that one transaction prunes."""


class FlowKey(NamedTuple):
    """The owner of the session; '' for the calls of a user that name none."""

    tenant: str
    user: str
    session: str


class UserMessageRow(NamedTuple):
    """A row of flow_messages, without whose it is."""

    id: str
    sealed: str
    said_at: datetime


def say(
    key: FlowKey,
    merged: Callable[[bytes], bytes | None],
    message: UserMessageRow | None,
    at: datetime,
    *,
    idle_since: datetime,
    most_messages: int,
    most_sessions: int,
) -> Transaction[bool]:
    """Adds a message to a session: to its words by `merged`, which gives None where that changes nothing, and as one of its
    last messages. A session that was last used before `idle_since` begins anew. A user's sessions beyond so many are
    forgotten, those first that were not used for longest. False: nothing has changed."""
    named = dict(zip(KEY_COLUMNS, key, strict=True))
    sql, values = insert("flow_sessions", {**named, "words": b"", "updated_at": at})
    # The upsert holds the session until the end: two messages at once are both added.
    rows = yield (
        f"{sql} ON CONFLICT ({', '.join(KEY_COLUMNS)}) DO UPDATE SET updated_at = flow_sessions.updated_at "
        "RETURNING words, updated_at",
        values,
    )
    before, used_at = bytes(rows[0][0]), moment(rows[0][1])
    if used_at < idle_since:
        yield f"DELETE FROM flow_messages WHERE {OWN}", key._asdict()
        before = b""
    words = merged(before)
    changed = {**key._asdict(), "words": before if words is None else words, "moment": at}
    yield f"UPDATE flow_sessions SET words = :words, updated_at = :moment WHERE {OWN}", changed
    if words is None:
        return False
    if message is not None:
        yield insert("flow_messages", {**named, **message._asdict()})
        yield (
            f"DELETE FROM flow_messages WHERE {OWN} AND id NOT IN "
            f"(SELECT id FROM flow_messages WHERE {OWN} ORDER BY id DESC LIMIT :most)",
            {**key._asdict(), "most": most_messages},
        )
    if not before:
        yield (
            "DELETE FROM flow_sessions WHERE tenant_id = :tenant AND user_id = :user AND session_id NOT IN "
            "(SELECT session_id FROM flow_sessions WHERE tenant_id = :tenant AND user_id = :user "
            "ORDER BY updated_at DESC LIMIT :most)",
            {"tenant": key.tenant, "user": key.user, "most": most_sessions},
        )
    return True


def words(key: FlowKey, idle_since: datetime) -> Transaction[tuple[bytes, datetime] | None]:
    """Reads the words of a session, and when it was last used; None: there are none, or they are forgotten."""
    rows: Rows = yield (
        f"SELECT words, updated_at FROM flow_sessions WHERE {OWN} AND updated_at >= :idle",
        {**key._asdict(), "idle": idle_since},
    )
    return (bytes(rows[0][0]), moment(rows[0][1])) if rows else None


def last_messages(key: FlowKey, most: int) -> Transaction[list[UserMessageRow]]:
    """Reads the last messages of a session, newest first."""
    return select(
        UserMessageRow, "flow_messages", f"WHERE {OWN} ORDER BY id DESC LIMIT :most", {**key._asdict(), "most": most}
    )


def touch(key: FlowKey, at: datetime) -> Transaction[None]:
    """Notes that a session is in use."""
    yield f"UPDATE flow_sessions SET updated_at = :moment WHERE {OWN}", {**key._asdict(), "moment": at}


def prune(named_since: datetime, unnamed_since: datetime) -> Transaction[int]:
    """Forgets sessions that were last used before these, by whether they have a name; gives how many."""
    rows = yield (
        "DELETE FROM flow_sessions WHERE (tenant_id, user_id, session_id) IN (SELECT tenant_id, user_id, session_id FROM "
        "flow_sessions WHERE updated_at < :named OR (session_id = '' AND updated_at < :unnamed) LIMIT :most) "
        "AND (updated_at < :named OR (session_id = '' AND updated_at < :unnamed)) RETURNING session_id",
        {"named": named_since, "unnamed": unnamed_since, "most": MAX_PRUNED_SESSIONS},
    )
    return len(rows)
