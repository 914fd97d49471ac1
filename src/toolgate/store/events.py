"""Calls that came over an event stream, and what came of each."""

from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import is_any, select, select_one, upsert

KEY = ("key_name", "id")


class EventRow(NamedTuple):
    """A row of event_requests."""

    key_name: str
    id: str
    digest: str
    tenant_id: str
    session_id: str | None
    order_key: str
    pending_kind: str | None
    pending_id: str | None
    result: str | None
    published: int
    deadline: datetime
    updated_at: datetime


def find(key_name: str, id: str) -> Transaction[EventRow | None]:
    """A row of events: a message, and what became of it."""
    return select_one(EventRow, "event_requests", "WHERE key_name = :key AND id = :id", {"key": key_name, "id": id})


def keep(row: EventRow) -> Transaction[None]:
    """Keeps what came of a message, in place of what was known of it."""
    yield upsert("event_requests", row._asdict(), KEY)


def waiting(most: int, after: datetime) -> Transaction[list[EventRow]]:
    """Messages that are not answered for good, those that were looked at longest ago first, and none since `after`."""
    rest = "WHERE published = 0 AND updated_at <= :after ORDER BY updated_at LIMIT :most"
    return select(EventRow, "event_requests", rest, {"most": most, "after": after})


def take(row: EventRow, now: datetime) -> Transaction[bool]:
    """Takes a message that waits, for this process; False: another one was quicker."""
    return is_any(
        "UPDATE event_requests SET updated_at = :now WHERE key_name = :key AND id = :id AND updated_at = :seen "
        "AND published = 0 RETURNING id",
        {"now": now, "key": row.key_name, "id": row.id, "seen": row.updated_at},
    )


def prune(before: datetime) -> Transaction[None]:
    """Forgets messages whose deadline was long ago, and which are answered."""
    yield "DELETE FROM event_requests WHERE deadline < :before AND published = 1", {"before": before}
