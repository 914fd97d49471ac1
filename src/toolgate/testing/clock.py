"""A clock that moves only when told to."""


class ManualClock:
    """Stands in for the module `time` where an App measures how old something is (cache, breaker, rate limits)."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
