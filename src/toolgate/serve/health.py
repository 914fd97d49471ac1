"""Whether calls could be served now, found out by asking what they need: the store, what decides, Redis, MCP servers.

Each is asked for real, with little time, and what they said is good for a second, so that being asked often costs nothing.
An MCP server that is down makes its own tools fail and no others: that is degraded, not unready.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from toolgate.app.app import App
from toolgate.errors import described
from toolgate.gates.policy.question import Question

SECONDS = 2.0
"""What each may take to answer."""
GOOD_FOR = 1.0
NO_SUCH_TOOL = "no tool has this name"
DOWN = frozenset({"waiting", "resting"})
"""States of an MCP server that should be up and is not."""

Status = Literal["ok", "degraded", "down"]


class Part(msgspec.Struct, frozen=True):
    """How one thing that calls need is."""

    name: str
    status: Status
    message: str


class Report(msgspec.Struct, frozen=True):
    """How all of it is."""

    parts: tuple[Part, ...]

    @property
    def ready(self) -> bool:
        return all(part.status != "down" for part in self.parts)

    @property
    def status(self) -> str:
        if not self.ready:
            return "not ready"
        return "degraded" if any(part.status == "degraded" for part in self.parts) else "ready"


class Health:
    """The probes, and what they last found."""

    def __init__(self, app: App, *also: Callable[[], Part]) -> None:
        """With what else is to be told of, and is known without asking."""
        self._app = app
        self._also = also
        self._last: Report | None = None
        self._until = 0.0
        self._one_look = asyncio.Lock()

    async def look(self) -> Report:
        """How everything is, as of the last second."""
        async with self._one_look:
            if self._last is None or time.monotonic() >= self._until:
                self._last = await self._probe()
                self._until = time.monotonic() + GOOD_FOR
            return self._last

    async def _probe(self) -> Report:
        app = self._app
        asked = [_asked("store", app.store.ping), _asked("policy", self._policy)]
        if app.redis is not None:
            asked.append(_asked("redis", app.redis.ping))
        return Report((*await asyncio.gather(*asked), *(told() for told in self._also), *self._servers()))

    async def _policy(self) -> None:
        """Whatever decides must answer; what it says of a tool that can't exist does not matter here."""
        engine, question = self._app.guard.engine, Question("default", None, "tool.request", NO_SUCH_TOOL, "local")
        if engine.remote is True:
            verdict = await engine.ask(question)
        else:
            verdict = engine.decide(question, self._app.policy_data, self._app.guard.epoch)
        if not verdict.sure:
            raise RuntimeError(verdict.decision.reason)

    def _servers(self) -> list[Part]:
        """How MCP servers stand: their connections are supervised and asked regularly, so that is known already. One that
        nobody has needed yet is well."""
        return [
            Part(f"server {one.name}", "degraded", one.failure or one.state)
            if one.state in DOWN
            else Part(f"server {one.name}", "ok", one.state)
            for one in self._app.servers_engine.standings()
        ]


async def _asked(name: str, question: Callable[[], Awaitable[None]]) -> Part:
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(SECONDS):
            await question()
    except TimeoutError:
        return Part(name, "down", f"no answer within {SECONDS:g} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return Part(name, "down", described(error))
    return Part(name, "ok", f"answered in {(time.perf_counter() - begun) * 1000:.1f} ms")
