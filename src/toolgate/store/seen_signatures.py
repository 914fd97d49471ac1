"""Signatures of messages that were taken, until they expire: a replay guard that all processes share."""

from datetime import datetime

from toolgate.store.database import Transaction
from toolgate.store.sql import insert, value


def take(digest: str, message_id: str, expires_at: datetime, at: datetime) -> Transaction[bool]:
    """Notes that a signature brought a message; False: it brought another one before."""
    yield "DELETE FROM seen_signatures WHERE expires_at <= :moment", {"moment": at}
    sql, values = insert("seen_signatures", {"digest": digest, "message_id": message_id, "expires_at": expires_at})
    yield f"{sql} ON CONFLICT (digest) DO NOTHING", values
    known = yield from value("SELECT message_id FROM seen_signatures WHERE digest = :digest", {"digest": digest})
    return bool(known == message_id)
