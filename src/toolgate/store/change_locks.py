"""Locks on things that are compared and then changed. They hold among all processes; that of a dead one is anybody's."""

from toolgate.store.database import Transaction
from toolgate.store.live_processes import IS_DEAD, alive_since
from toolgate.store.sql import insert, is_any


def take(name: str, process: str, lease_seconds: float) -> Transaction[bool]:
    """Takes a lock; False: another living process has it. One that stands in this process's own name could not be given
    back: nobody here holds it any more."""
    values = {"name": name, "process_id": process}
    yield (
        f"DELETE FROM change_locks WHERE name = :name AND (process_id = :process_id OR {IS_DEAD})",
        {**values, **alive_since(lease_seconds)},
    )
    sql, _ = insert("change_locks", values)
    return (yield from is_any(f"{sql} ON CONFLICT (name) DO NOTHING RETURNING name", values))


def release(name: str, process: str) -> Transaction[None]:
    """Gives a lock back."""
    yield (
        "DELETE FROM change_locks WHERE name = :name AND process_id = :process_id",
        {"name": name, "process_id": process},
    )
