"""The state of files before a tool changed them: backups. Paths and states; the contents are files beside the database."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction, now
from toolgate.store.sql import column, insert, is_any, select

MAX_LISTED_CALLS = 20
"""Calls that are named when a beginning fits several."""


class BackupRow(NamedTuple):
    """A row of backups: one path."""

    id: str
    call_id: str
    tenant_id: str
    user_id: str
    path: str
    kind: str
    kept: str | None
    mode: int | None
    before_hash: str
    after_hash: str | None
    undone_at: datetime | None = None


def add(rows: Sequence[BackupRow]) -> Transaction[None]:
    """Notes what is there, in this order after what the call changed before. One that says what was left is done."""
    if not rows:
        return
    found = yield "SELECT coalesce(max(seq), 0) FROM backups WHERE call_id = :call_id", {"call_id": rows[0].call_id}
    for seq, row in enumerate(rows, int(found[0][0]) + 1):
        state = "open" if row.after_hash is None else "done"
        yield insert("backups", {**row._asdict(), "seq": seq, "state": state, "created_at": now()})


def finish(afters: Iterable[tuple[str, str]], more: Sequence[BackupRow]) -> Transaction[None]:
    """Notes what a tool left: of rows that are open, and of what it made besides."""
    for identity, after in afters:
        yield (
            "UPDATE backups SET after_hash = :after, state = 'done' WHERE id = :id AND state = 'open'",
            {"id": identity, "after": after},
        )
    yield from add(more)


def of_call(call_id: str, tenant: str, user: str) -> Transaction[list[BackupRow]]:
    """The changes of a call of this user, first change first."""
    return select(
        BackupRow,
        "backups",
        "WHERE call_id = :call_id AND tenant_id = :tenant AND user_id = :user ORDER BY seq, id",
        {"call_id": call_id, "tenant": tenant, "user": user},
    )


def calls(beginning: str, tenant: str, user: str) -> Transaction[list[str]]:
    """The calls of this user that have backups and whose id begins so, the latest first."""
    return column(
        "SELECT DISTINCT call_id FROM backups WHERE tenant_id = :tenant AND user_id = :user AND "
        "substr(call_id, 1, length(CAST(:beginning AS TEXT))) = :beginning ORDER BY call_id DESC LIMIT :most",
        {"tenant": tenant, "user": user, "beginning": beginning, "most": MAX_LISTED_CALLS},
    )


def mark_undone(ids: Iterable[str]) -> Transaction[None]:
    moment = now()
    for identity in ids:
        yield (
            "UPDATE backups SET state = 'undone', undone_at = :moment WHERE id = :id AND state <> 'undone'",
            {"id": identity, "moment": moment},
        )


def prune(before: datetime) -> Transaction[list[str]]:
    """Forgets backups older than this; gives the calls that they were of."""
    sql = "DELETE FROM backups WHERE created_at < :before RETURNING call_id"
    return sorted(set((yield from column(sql, {"before": before}))))


def known(call_ids: Sequence[str]) -> Transaction[set[str]]:
    """Those of the calls that have backups."""
    found: set[str] = set()
    for call_id in call_ids:
        if (yield from is_any("SELECT 1 FROM backups WHERE call_id = :call_id LIMIT 1", {"call_id": call_id})):
            found.add(call_id)
    return found
