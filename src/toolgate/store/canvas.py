"""Canvases: blocks that agents append for people to see, in order, a canvas to a session."""

from datetime import datetime
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import insert, select

OWN = "tenant_id = :tenant AND user_id = :user AND session_id = :session"


class CanvasKey(NamedTuple):
    """Whose canvas: that of a user's session; user '' for a session that users share."""

    tenant: str
    user: str
    session: str


class CanvasRow(NamedTuple):
    """A row of canvases."""

    tenant_id: str
    user_id: str
    session_id: str
    blocks: int
    size_bytes: int
    updated_at: datetime


class BlockRow(NamedTuple):
    """A row of canvas_blocks, without whose it is."""

    number: int
    pane: str
    content: str
    created_by: str
    created_at: datetime


class CanvasFull(Exception):
    """A canvas has no room for another block."""


def append(
    key: CanvasKey, pane: str, content: str, by: str, at: datetime, *, most: int, most_bytes: int, most_canvases: int
) -> Transaction[int]:
    """Appends a block; gives its number. Raises CanvasFull if the canvas has so many blocks or bytes. A user's canvases
    beyond so many are dropped, those first that have not changed for longest."""
    size = len(content.encode())
    names = ("tenant_id", "user_id", "session_id")
    counted = {**dict(zip(names, key, strict=True)), "blocks": 1, "size_bytes": size, "updated_at": at}
    sql, values = insert("canvases", counted)
    # The upsert holds the canvas until the end: two callers at once get two numbers.
    rows = yield (
        f"{sql} ON CONFLICT ({', '.join(names)}) DO UPDATE SET blocks = canvases.blocks + 1, "
        "size_bytes = canvases.size_bytes + excluded.size_bytes, updated_at = excluded.updated_at "
        "RETURNING blocks, size_bytes",
        values,
    )
    number, total = rows[0]
    if number > most or total > most_bytes:
        raise CanvasFull
    block = {**dict(zip(names, key, strict=True)), "number": number, "pane": pane, "content": content}
    yield insert("canvas_blocks", {**block, "created_by": by, "created_at": at})
    old = yield (
        "SELECT session_id FROM canvases WHERE tenant_id = :tenant AND user_id = :user "
        "ORDER BY updated_at DESC, session_id LIMIT 100 OFFSET :most",
        {"tenant": key.tenant, "user": key.user, "most": most_canvases},
    )
    for (session,) in old:
        yield from clear(key._replace(session=session))
    return int(number)


def clear(key: CanvasKey) -> Transaction[int]:
    """Removes a canvas with all its blocks; gives how many those were."""
    rows = yield f"DELETE FROM canvas_blocks WHERE {OWN} RETURNING number", key._asdict()
    yield f"DELETE FROM canvases WHERE {OWN}", key._asdict()
    return len(rows)


def blocks(key: CanvasKey, pane: str | None, after: int, most: int) -> Transaction[list[BlockRow]]:
    """The blocks of a canvas after a number, in order; of one pane, or of all."""
    chosen = "" if pane is None else " AND pane = :pane"
    return select(
        BlockRow,
        "canvas_blocks",
        f"WHERE {OWN} AND number > :after{chosen} ORDER BY number LIMIT :most",
        {**key._asdict(), "after": after, "most": most, **({} if pane is None else {"pane": pane})},
    )


def listed(tenant: str, user: str) -> Transaction[list[CanvasRow]]:
    """The canvases of a user, and those of sessions that are shared in the tenant; those first that changed last."""
    return select(
        CanvasRow,
        "canvases",
        "WHERE tenant_id = :tenant AND user_id IN (:user, '') ORDER BY updated_at DESC, session_id",
        {"tenant": tenant, "user": user},
    )
