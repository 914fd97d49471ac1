"""Counts of rate limits per hour and per day, where Redis does not count them: rate_counts.

Calls are counted in slices of time, and a slice counts until all of it is older than the window: no window ever holds more
calls than the limit, whatever the number of processes, and a count takes some hundred rows at most.
"""

from collections.abc import Iterable
from typing import NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import upsert

SLICES = {3_600: 60, 86_400: 900}
"""Seconds of a slice, by the seconds of the window."""
LOCK = -1
"""The slice of a row that counts nothing: whoever counts changes it first, so that they do so one after the other."""


class RateLimitCount(NamedTuple):
    """A limit, and for whom it counts."""

    name: str
    limit: int
    seconds: int


class RateExceeded(Exception):
    """A limit is reached. Raised inside the transaction, so that no other limit counts the call."""

    def __init__(self, count: RateLimitCount, wait: float) -> None:
        super().__init__(count.name)
        self.count = count
        self.wait = wait


def take(counts: Iterable[RateLimitCount], now: float) -> Transaction[None]:
    """Counts a call in all of these, or raises RateExceeded for the one with the longest wait."""
    wanted = sorted(counts)
    for count in wanted:
        yield upsert("rate_counts", {"name": count.name, "slice": LOCK, "calls": 0}, ("name", "slice"))
    refused = yield from longest_wait(wanted, now)
    if refused is not None:
        raise refused
    for count in wanted:
        length = SLICES[count.seconds]
        yield (
            "DELETE FROM rate_counts WHERE name = :name AND slice >= 0 AND slice <= :past",
            {"name": count.name, "past": int(now) - count.seconds - length},
        )
        yield (
            "INSERT INTO rate_counts (name, slice, calls) VALUES (:name, :slice, 1) "
            "ON CONFLICT (name, slice) DO UPDATE SET calls = rate_counts.calls + 1",
            {"name": count.name, "slice": int(now) // length * length},
        )


def longest_wait(counts: Iterable[RateLimitCount], now: float) -> Transaction[RateExceeded | None]:
    """The limit that a call would have to wait for longest; None: it need not wait."""
    longest: RateExceeded | None = None
    for count in counts:
        length = SLICES[count.seconds]
        rows = yield (
            "SELECT slice, calls FROM rate_counts WHERE name = :name AND slice > :past AND slice >= 0 ORDER BY slice",
            {"name": count.name, "past": int(now) - count.seconds - length},
        )
        left = sum(int(row[1]) for row in rows)
        wait = 0.0
        for begin, calls in rows:
            if left < count.limit:
                break
            left -= int(calls)
            wait = max(begin + length + count.seconds - now, 0.001)
        if wait and (longest is None or wait > longest.wait):
            longest = RateExceeded(count, wait)
    return longest


def forget(before: float) -> Transaction[None]:
    """Deletes what no limit looks at any more."""
    yield "DELETE FROM rate_counts WHERE slice <= :past", {"past": int(before)}
