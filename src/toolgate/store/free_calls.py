"""Calls within free tiers: free_calls, one row for each tool, account and period."""

from typing import NamedTuple

from toolgate.store.database import Transaction


class FreeAccount(NamedTuple):
    """A tool, whoever pays for its calls, and the first day of the period."""

    tool: str
    account: str
    starts: str


def used(account: FreeAccount) -> Transaction[int]:
    """The calls that were counted in the period."""
    rows = yield (
        "SELECT used FROM free_calls WHERE tool = :tool AND account = :account AND starts = :starts",
        account._asdict(),
    )
    return int(rows[0][0]) if rows else 0


def count(account: FreeAccount, calls: int) -> Transaction[int]:
    """Counts so many calls more, or fewer; gives how many there are now. Periods before the last are forgotten."""
    yield (
        "DELETE FROM free_calls WHERE tool = :tool AND account = :account AND starts < :starts",
        account._asdict(),
    )
    yield (
        "INSERT INTO free_calls (tool, account, starts, used) VALUES (:tool, :account, :starts, :calls) "
        "ON CONFLICT (tool, account, starts) DO UPDATE SET used = free_calls.used + :calls",
        {**account._asdict(), "calls": calls},
    )
    return (yield from used(account))
