"""How often one user may call a tool: the limits that the tool declares, over sliding minutes, hours and days.

In this process's memory. Limits for tenants and personas, and counts shared through Redis, come with governance.
"""

from collections import deque
from collections.abc import Callable

from toolgate.errors import Denied
from toolgate.model import Call, Entry

MOST_CALLERS = 50_000
"""Callers kept in mind at which those who have not called for a day are forgotten."""
WINDOWS = (("per_minute", 60.0), ("per_hour", 3600.0), ("per_day", 86400.0))


class Rates:
    """The instants of recent calls, where a tool has a limit."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._calls: dict[tuple[str, str, str], deque[float]] = {}
        self._look_at = MOST_CALLERS

    def acquire(self, call: Call, entry: Entry) -> None:
        """Count the call, or raise RATE_LIMITED with the time to wait."""
        limit = entry.rate_limit
        now = self._time()
        past = self._calls.setdefault((entry.name, call.actor.tenant, call.actor.user), deque())
        if len(self._calls) > self._look_at:
            self._forget(now)
        while past and past[0] <= now - WINDOWS[-1][1]:
            past.popleft()
        for name, seconds in WINDOWS:
            allowed = getattr(limit, name)
            if allowed is not None and len(past) >= allowed and past[-allowed] > now - seconds:
                wait = past[-allowed] + seconds - now
                raise Denied(
                    "RATE_LIMITED",
                    f"{entry.name} may be called {allowed} times a {name[4:]}; try again in {wait:.1f} s.",
                    details={"retry_after": round(wait, 3)},
                )
        past.append(now)

    def _forget(self, now: float) -> None:
        idle = [caller for caller, past in self._calls.items() if past and past[-1] <= now - WINDOWS[-1][1]]
        for caller in idle:
            del self._calls[caller]
        self._look_at = max(MOST_CALLERS, 2 * len(self._calls))
