"""Readiness: can calls be served now? The store, the policy engine and Redis are asked, MCP servers are known already.

Each is asked for real, with little time, and the answer holds for a second, so that being asked often costs nothing. An MCP
server or n8n that is down makes its own tools fail and no others: that is a warning, and the rest is ready.
"""

import asyncio
import time
from collections.abc import Callable

from toolgate.app.app import App
from toolgate.app.checks import Check, answers, ask_policy
from toolgate.app.checks.workflows import n8n_check
from toolgate.store.live_processes import LiveProcess, living

PROBE_SECONDS = 2.0
"""The time that each has to answer."""
VALID_SECONDS = 1.0
DOWN_STATES = frozenset({"waiting", "resting"})
"""States of an MCP server that should be up and is not."""


class Readiness:
    """The checks that calls need, as of the last second."""

    def __init__(self, app: App, *known: Callable[[], Check]) -> None:
        """With checks of what is known without asking."""
        self._app = app
        self._known = known
        self.is_stopping = False
        """True once whatever is asked has been told to stop: it serves what comes, and should be sent nothing more."""
        self._last: list[Check] = []
        self._until = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def checks(self) -> list[Check]:
        async with self._one_at_a_time:
            if time.monotonic() >= self._until:
                self._last = await self._probe()
                self._until = time.monotonic() + VALID_SECONDS
            return self._last

    async def processes(self) -> list[LiveProcess]:
        """Gives the processes that work on this database, as far as they have shown that they are alive."""
        presence = self._app.parts.presence
        return await self._app.parts.store.read(living(presence.seconds))

    async def _probe(self) -> list[Check]:
        app = self._app
        asked = [answers("store", app.parts.store.ping, PROBE_SECONDS), answers("policy", self._policy, PROBE_SECONDS)]
        if app.parts.redis is not None:
            asked.append(answers("redis", app.parts.redis.ping, PROBE_SECONDS))
        if app.settings.n8n.base_url is not None:
            asked.append(n8n_check(app, PROBE_SECONDS))
        if app.settings.events.url is not None:
            asked.append(self._events())
        return [*await asyncio.gather(*asked), *(known() for known in self._known), *self._servers()]

    async def _events(self) -> Check:
        """Calls of the other doors are served without it."""
        found = await answers("events", lambda: self._app.parts.event_calls.stream().ping(), PROBE_SECONDS)
        return found if found.status == "ok" else found._replace(status="warning")

    async def _policy(self) -> None:
        """The engine must answer; what it says of a tool that can't exist does not matter here."""
        verdict = await ask_policy(self._app.parts)
        if not verdict.sure:
            raise RuntimeError(verdict.decision.reason)

    def _servers(self) -> list[Check]:
        """Connections to MCP servers are supervised, so their state is known. One that nobody has needed yet is well."""
        return [
            Check(f"server {one.name}", "warning", one.failure or one.state)
            if one.state in DOWN_STATES
            else Check(f"server {one.name}", "ok", one.state)
            for one in self._app.parts.servers_engine.statuses()
        ]
