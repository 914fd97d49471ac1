"""Files that users uploaded: attachments."""

from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import insert, select, select_one, value

OWN = "tenant_id = :tenant AND user_id = :user"


class AttachmentRow(NamedTuple):
    """A row of attachments: a file without its content."""

    id: str
    tenant_id: str
    user_id: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str
    created_at: datetime


class AttachmentsFull(Exception):
    """A user has as many attachments, or bytes of them, as they may have."""


def add(row: AttachmentRow, content: bytes, most: int, most_bytes: int) -> Transaction[None]:
    """Keeps a file. Raises AttachmentsFull if its user would have more than so many files or bytes."""
    own = {"tenant": row.tenant_id, "user": row.user_id}
    found = yield f"SELECT count(*), coalesce(sum(size_bytes), 0) FROM attachments WHERE {OWN}", own
    if int(found[0][0]) >= most or int(found[0][1]) + row.size_bytes > most_bytes:
        raise AttachmentsFull
    yield insert("attachments", row._asdict())
    yield insert("attachment_contents", {"id": row.id, "content": content})


def get(id: str, tenant: str, user: str | None = None) -> Transaction[AttachmentRow | None]:
    """A file of a tenant, or of one of its users; None: there is none."""
    row = yield from select_one(
        AttachmentRow, "attachments", "WHERE id = :id AND tenant_id = :tenant", {"id": id, "tenant": tenant}
    )
    return row if row is not None and user in (None, row.user_id) else None


def content(id: str) -> Transaction[bytes]:
    """The content of a file that is there."""
    return bytes((yield from value("SELECT content FROM attachment_contents WHERE id = :id", {"id": id})) or b"")


def listed(tenant: str, user: str | None, most: int, before: str | None = None) -> Transaction[list[AttachmentRow]]:
    """The latest files of a user, or of all users of a tenant, latest first; those before an id, if one is given."""
    where = ("tenant_id = :tenant" if user is None else OWN) + ("" if before is None else " AND id < :before")
    given = {"user": user, "before": before}
    values = {"tenant": tenant, "most": most, **{name: part for name, part in given.items() if part is not None}}
    return select(AttachmentRow, "attachments", f"WHERE {where} ORDER BY id DESC LIMIT :most", values)


def remove(id: str, tenant: str, user: str | None = None) -> Transaction[AttachmentRow | None]:
    """Removes a file of a tenant, or of one of its users; gives what was removed."""
    row = yield from get(id, tenant, user)
    if row is not None:
        yield "DELETE FROM attachment_contents WHERE id = :id", {"id": id}
        yield "DELETE FROM attachments WHERE id = :id", {"id": id}
    return row
