"""The clock of demo content: it runs as that of the machine does, some days behind it, until it has caught up."""

import time
from datetime import UTC, datetime, timedelta

NANOSECONDS = 1_000_000_000


class DemoClock:
    """Stands in for the module `time` while demo content is made. It never goes back, and never ahead of the machine."""

    def __init__(self, behind: timedelta) -> None:
        self._began = self._behind = round(behind.total_seconds() * NANOSECONDS)

    def time_ns(self) -> int:
        return time.time_ns() - self._behind

    def time(self) -> float:
        return self.time_ns() / NANOSECONDS

    def now(self) -> datetime:
        """The date and time that it shows, in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def monotonic(self) -> float:
        return time.monotonic() + (self._began - self._behind) / NANOSECONDS

    def move_to(self, moment: datetime) -> None:
        """Goes on to a moment; not back to one that is over, nor into the future."""
        ahead = round((moment - self.now()).total_seconds() * NANOSECONDS)
        self._behind -= min(max(ahead, 0), self._behind)

    def catch_up(self) -> None:
        """Goes on to the present."""
        self._behind = 0
