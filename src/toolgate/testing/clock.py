"""A clock that moves only when told to."""

from datetime import UTC, datetime, timedelta


class ManualClock:
    """Stands in for the module `time` where an App goes by the time: caches, breakers, rate limits, budgets, approvals,
    grants and idempotency keys. It begins at the moment it is made. The audit log keeps the time of the machine."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._start = self._now = now
        self._began = datetime.now(UTC)

    def monotonic(self) -> float:
        return self._now

    def now(self) -> datetime:
        """The date and time that it shows, in UTC."""
        return self._began + timedelta(seconds=self._now - self._start)

    def time(self) -> float:
        return self.now().timestamp()

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move it on."""
        self._now += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
