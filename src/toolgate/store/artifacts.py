"""Outputs that were too long to give out whole: artifacts."""

from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction, now
from toolgate.store.sql import insert


class ArtifactRow(NamedTuple):
    """A row of artifacts."""

    id: str
    call_id: str
    tenant_id: str
    user_id: str
    content: bytes
    expires_at: datetime


def keep(row: ArtifactRow) -> Transaction[None]:
    """Keeps one, and drops those whose time is over."""
    moment = now()
    yield "DELETE FROM artifacts WHERE expires_at < :moment", {"moment": moment}
    yield insert("artifacts", {**row._asdict(), "created_at": moment})


def fetch(artifact_id: str, tenant: str, user: str | None = None) -> Transaction[bytes | None]:
    """The content, if it belongs to this tenant, and of a user to that user's call, and its time is not over."""
    rows = yield (
        "SELECT content, user_id FROM artifacts WHERE id = :id AND tenant_id = :tenant AND expires_at >= :moment",
        {"id": artifact_id, "tenant": tenant, "moment": now()},
    )
    return bytes(rows[0][0]) if rows and user in (None, rows[0][1]) else None
