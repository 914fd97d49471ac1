"""Push tokens: the services at which users want their notifications."""

from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import column, columns, insert, is_any, made, select, value

OWN = "tenant_id = :tenant AND user_id = :user"


class PushTokenRow(NamedTuple):
    """A row of push_tokens."""

    id: str
    tenant_id: str
    user_id: str
    number: int
    name: str
    kind: str
    sealed: str
    created_at: datetime
    delivered_at: datetime | None
    last_error: str | None


class TooManyTokens(Exception):
    """A user has as many tokens as they may have."""


class NameTaken(Exception):
    """A user has a token of this name."""


def add(row: PushTokenRow, most: int) -> Transaction[None]:
    """Adds a token in the first free place of its user. Raises NameTaken, or TooManyTokens if there are so many."""
    own = {"tenant": row.tenant_id, "user": row.user_id}
    taken = set((yield from column(f"SELECT number FROM push_tokens WHERE {OWN}", own)))
    for number in range(1, most + 1):
        if number in taken:
            continue
        sql, values = insert("push_tokens", row._replace(number=number)._asdict())
        if (yield from is_any(f"{sql} ON CONFLICT DO NOTHING RETURNING id", values)):
            return
        if (yield from is_any(f"SELECT 1 FROM push_tokens WHERE {OWN} AND name = :name", {**own, "name": row.name})):
            raise NameTaken
    raise TooManyTokens


def listed(tenant: str, user: str) -> Transaction[list[PushTokenRow]]:
    """The tokens of a user, oldest first."""
    return select(PushTokenRow, "push_tokens", f"WHERE {OWN} ORDER BY created_at, id", {"tenant": tenant, "user": user})


def remove(id_or_name: str, tenant: str, user: str) -> Transaction[PushTokenRow | None]:
    """Removes a token of a user, by id or, if none has that, by name; gives what was removed."""
    named = {"tenant": tenant, "user": user, "named": id_or_name}
    id = yield from value(
        f"SELECT id FROM push_tokens WHERE {OWN} AND (id = :named OR name = :named) "
        "ORDER BY CASE WHEN id = :named THEN 0 ELSE 1 END LIMIT 1",
        named,
    )
    rows = yield f"DELETE FROM push_tokens WHERE id = :id RETURNING {columns(PushTokenRow)}", {"id": id}
    return made(PushTokenRow, rows[0]) if rows else None


def note_result(id: str, at: datetime, error: str | None) -> Transaction[None]:
    """Notes what became of the last message to a token."""
    changed = "last_error = :error" if error is not None else "last_error = NULL, delivered_at = :at"
    values = {"id": id, "error": error} if error is not None else {"id": id, "at": at}
    yield f"UPDATE push_tokens SET {changed} WHERE id = :id", values
