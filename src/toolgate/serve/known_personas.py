"""The personas that are known to whoever runs the installation: those that the policy's data names, and those of calls."""

from datetime import timedelta
from time import monotonic

from toolgate.app.app import App
from toolgate.store.call_counts import CountFilter
from toolgate.store.database import now

PERIOD = timedelta(days=30)
FRESH_SECONDS = 30.0
"""Every page of an operator names them, so the log is not asked for each."""


class KnownPersonas:
    """By name; those of calls are at most half a minute old."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._seen: frozenset[str] = frozenset()
        self._until = 0.0

    async def names(self) -> set[str]:
        if monotonic() >= self._until:
            self._until = monotonic() + FRESH_SECONDS
            found = await self._app.statistics.values(CountFilter(tenant=None), now() - PERIOD, now(), ("persona",))
            self._seen = frozenset(name for name, _ in found["persona"] if name)
        return {*self._app.policy.personas(), *self._seen}
