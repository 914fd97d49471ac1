"""Notifications: messages of agents to the users that they work for."""

from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import insert, is_any, select, select_one

OWN = "tenant_id = :tenant AND user_id = :user"


class NotificationRow(NamedTuple):
    """A row of notifications."""

    id: str
    tenant_id: str
    user_id: str
    persona_id: str | None
    call_id: str
    message: str
    delivered: str
    failed: str
    created_at: datetime
    title: str | None = None
    data: str | None = None
    retry: str | None = None
    """The channels that it is to be sent to when it is sent again, as JSON; None: everywhere, for it was not sent yet."""


def keep(row: NotificationRow, most: int) -> Transaction[None]:
    """Keeps a notification, and drops the oldest ones of the user beyond so many."""
    yield insert("notifications", row._asdict())
    yield (
        f"DELETE FROM notifications WHERE {OWN} AND id NOT IN "
        f"(SELECT id FROM notifications WHERE {OWN} ORDER BY id DESC LIMIT :most)",
        {"tenant": row.tenant_id, "user": row.user_id, "most": most},
    )


def find(id: str) -> Transaction[NotificationRow | None]:
    """A notification; None: there is none of this id."""
    return select_one(NotificationRow, "notifications", "WHERE id = :id", {"id": id})


def note_delivery(id: str, delivered: str, failed: str, retry: str) -> Transaction[None]:
    """Notes which channels took a notification, which did not, and which of those may do so later."""
    yield (
        "UPDATE notifications SET delivered = :delivered, failed = :failed, retry = :retry WHERE id = :id",
        {"id": id, "delivered": delivered, "failed": failed, "retry": retry},
    )


def listed(tenant: str, user: str | None, most: int, before: str | None = None) -> Transaction[list[NotificationRow]]:
    """The latest notifications of a user, or of all users of a tenant, oldest first; those before an id, if one is given."""
    chosen = ("tenant_id = :tenant" if user is None else OWN) + ("" if before is None else " AND id < :before")
    given = {"user": user, "before": before}
    values = {"tenant": tenant, "most": most, **{name: part for name, part in given.items() if part is not None}}
    rows = yield from select(NotificationRow, "notifications", f"WHERE {chosen} ORDER BY id DESC LIMIT :most", values)
    return rows[::-1]


def dismiss(id: str, tenant: str, user: str) -> Transaction[bool]:
    """Removes a notification of a user; gives whether there was one."""
    return is_any(
        f"DELETE FROM notifications WHERE id = :id AND {OWN} RETURNING id", {"id": id, "tenant": tenant, "user": user}
    )
