"""Which way of telling other processes an installation has."""

from pathlib import Path

from toolgate.coordination.epoch import EpochNotices
from toolgate.coordination.listen import PostgresNotices, RedisNotices
from toolgate.coordination.notices import Notices
from toolgate.coordination.redis import Redis


def open_notices(database: str, redis: Redis | None = None) -> Notices:
    """The notices for a database URL, not yet started. A SQLite file is on one machine, where a file beside it is quicker
    and surer than any server."""
    if database.startswith("sqlite:///"):
        file = Path(database.removeprefix("sqlite:///"))
        return EpochNotices(file.with_name(f"{file.name}-epoch"))
    if redis is not None:
        return RedisNotices(redis)
    if database.startswith("memory://"):
        return Notices()
    return PostgresNotices(database)
