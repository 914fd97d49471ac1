"""Circuit breakers, one for each target: after repeated failures it opens for a while, then one call tries.

The state is this process's, or all processes' in Redis. Where Redis can't be asked, a process goes by what it has seen
itself: a breaker spares a failing target, it is no limit that must hold. The target of a tool that a tenant made for itself
is that tenant's own: it can't shut others out. So is that of a built-in tool: what it reaches depends on the addresses and
credentials of a tenant.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from toolgate.coordination.redis import PREFIX, CoordinationError, Redis, key
from toolgate.errors import NotReached
from toolgate.model import Entry
from toolgate.tasks import BackgroundTasks

TROUBLE = frozenset({"TIMEOUT", "CONNECTION_ERROR", "MCP_ERROR", "N8N_ERROR", "INVOCATION_ERROR"})
"""Codes that speak of the target's health, not of the caller's arguments."""
TROUBLE_OF_SERVERS = frozenset({"TIMEOUT", "CONNECTION_ERROR", "OUTCOME_UNKNOWN"})
"""The same of an MCP server or an HTTP service, whose tools share one target: it is well if it answers."""
TRIAL_GRACE = 5.0
"""Seconds beyond its time limit after which a trial of which nothing was heard is over: its process died."""
FORGOTTEN_SECONDS = 7 * 86_400
"""Redis forgets a target that nobody has called for so long."""

logger = logging.getLogger("toolgate")

Target = tuple[str, str]
"""A tenant, or "" for what is everybody's; and the name."""
Verdict = Literal["well", "trouble", "nothing"]
"""The target's health, by the end of a call."""

# Each target is a hash: failures in a row, the microsecond at which the circuit opened, and the call that tries, until when.
# ENTER: KEYS the target, ARGV the call's id, microseconds of rest, microseconds for a trial. Gives the failures so far, and
# how long to wait (0: go on; -1: go on, you are the trial).
ENTER = """
local state = redis.call('HMGET', KEYS[1], 'failures', 'opened', 'trial', 'until')
local failures, opened = tonumber(state[1] or 0), tonumber(state[2])
if not opened then return {failures, 0} end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local wait = math.min(opened + ARGV[2] - now, tonumber(ARGV[2]))
if wait > 0 then return {failures, wait} end
if state[3] and state[3] ~= ARGV[1] and tonumber(state[4]) > now then return {failures, 1} end
if tonumber(ARGV[3]) > 0 then redis.call('HSET', KEYS[1], 'trial', ARGV[1], 'until', now + ARGV[3]) end
return {failures, -1}
"""

# LEAVE: KEYS the target, ARGV the call's id, the verdict, how many failures open the circuit, seconds until it is forgotten.
LEAVE = """
if ARGV[2] == 'well' then return redis.call('DEL', KEYS[1]) end
if redis.call('HGET', KEYS[1], 'trial') == ARGV[1] then redis.call('HDEL', KEYS[1], 'trial', 'until') end
if ARGV[2] == 'trouble' then
    if redis.call('HINCRBY', KEYS[1], 'failures', 1) >= tonumber(ARGV[3]) then
        local time = redis.call('TIME')
        redis.call('HSET', KEYS[1], 'opened', time[1] * 1000000 + time[2])
    end
    redis.call('EXPIRE', KEYS[1], ARGV[4])
end
return 0
"""


class Circuit(msgspec.Struct):
    failures: int = 0
    opened_at: float | None = None
    trying: bool = False
    """Half open: one call is on its way to see whether the target is back."""


class Pass(NamedTuple):
    """A call was let through; what has to be remembered until it ends."""

    trial: bool
    """True if this call is the one that tries."""
    failures: int
    shared: bool
    """True if it was Redis that let it through."""


UNTRIED = Pass(trial=False, failures=0, shared=False)


def target_of(entry: Entry, name: str, tenant: str) -> Target:
    """The target of a tool for a caller of a tenant. It is the tenant's own for a built-in tool, and for one that reaches
    nothing outside and has a breaker because an operator accepted one: failures of one tenant say nothing of others."""
    tool = entry.tool
    is_accepted = tool.target is None and tool.http is None and entry.tier != "external_api"
    return tool.tenant or (tenant if tool.source == "builtin" or is_accepted else ""), name


class Breakers:
    def __init__(self, failures: int, reset_seconds: float, time: Callable[[], float], redis: Redis | None = None) -> None:
        self._failures = failures
        self._reset = reset_seconds
        self._time = time
        self._circuits: dict[Target, Circuit] = {}
        self._redis = redis
        self._unreachable = False
        self._leaving = BackgroundTasks()

    def enter(self, target: Target, id: str, seconds: float) -> Pass | Awaitable[Pass]:
        """Go on if the target may be called, else raise CIRCUIT_OPEN; with Redis, when awaited. There a trial of which
        nothing is heard for so many seconds is over."""
        return self._enter(target) if self._redis is None else self._enter_shared(self._redis, target, id, seconds)

    def leave(self, target: Target, passed: Pass, id: str, verdict: Verdict) -> Awaitable[None] | None:
        """Learn from how the call ended; with Redis, all processes know once it is awaited. Never fails."""
        if self._redis is None or not passed.shared:
            self._learn(target, verdict, trial=passed.trial)
            return None
        if verdict == "nothing" and not passed.trial:
            return None
        if verdict == "well" and not passed.failures:
            return None  # nothing was held against the target when the call began
        return self._leaving.finish(self._leave_shared(self._redis, target, id, verdict))

    def abandon(self, target: Target, id: str, entering: "asyncio.Future[Pass]") -> None:
        """A caller went away while it was asking whether it may: if it was to be the trial, the next may try."""
        if not entering.cancelled() and entering.exception() is None:
            self.leave(target, entering.result(), id, "nothing")

    async def close(self) -> None:
        """Let what was learned last reach the others."""
        await self._leaving.wait()

    # -- in this process

    def _enter(self, target: Target) -> Pass:
        circuit = self._circuits.get(target)
        if circuit is None or circuit.opened_at is None:
            return UNTRIED
        wait = circuit.opened_at + self._reset - self._time()
        if wait > 0 or circuit.trying:
            raise _open(target, circuit.failures, wait)
        circuit.trying = True
        return Pass(trial=True, failures=circuit.failures, shared=False)

    def _learn(self, target: Target, verdict: Verdict, *, trial: bool) -> None:
        if verdict == "well":
            self._circuits.pop(target, None)
            return
        circuit = self._circuits.get(target)
        if circuit is not None and trial:
            circuit.trying = False
        if verdict == "trouble":
            if circuit is None:
                circuit = self._circuits[target] = Circuit()
            circuit.failures += 1
            if circuit.failures >= self._failures:
                circuit.opened_at = self._time()

    # -- in all processes

    async def _enter_shared(self, redis: Redis, target: Target, id: str, seconds: float) -> Pass:
        try:
            failures, wait = await self._ask(redis, target, id, seconds + TRIAL_GRACE)
        except CoordinationError as error:
            self._on_our_own(error)
            return self._enter(target)
        self._unreachable = False
        if wait > 0:
            raise _open(target, failures, wait)
        return Pass(trial=wait < 0, failures=failures, shared=True)

    async def _ask(self, redis: Redis, target: Target, id: str = "", seconds: float = 0) -> tuple[int, float]:
        """Failures in a row, and seconds to wait; less than none: go on as the trial. Without time for one, only look."""
        times = [int(self._reset * 1_000_000), int(seconds * 1_000_000)]
        failures, wait = await redis.run(ENTER, [key("breaker", *target)], [id, *times])
        return failures, wait / 1_000_000

    async def _leave_shared(self, redis: Redis, target: Target, id: str, verdict: Verdict) -> None:
        forgotten = FORGOTTEN_SECONDS + int(self._reset)
        try:
            await redis.run(LEAVE, [key("breaker", *target)], [id, verdict, self._failures, forgotten])
        except CoordinationError as error:
            self._on_our_own(error)
            self._learn(target, verdict, trial=False)

    def _on_our_own(self, error: CoordinationError) -> None:
        if not self._unreachable:
            self._unreachable = True
            logger.warning("circuit breakers go by what this process sees until Redis is back: %s", error)

    # -- what people ask

    async def look(self, entry: Entry, tenant: str) -> str | None:
        """Why a tenant's call of a tool would be refused, if it would be; changes nothing."""
        if entry.target is None:
            return None
        target = target_of(entry, entry.target, tenant)
        failures, wait = self._look(target)
        if self._redis is not None:
            with contextlib.suppress(CoordinationError):
                failures, wait = await self._ask(self._redis, target)
        return _open(target, failures, wait).message if wait > 0 else None

    def _look(self, target: Target) -> tuple[int, float]:
        circuit = self._circuits.get(target)
        if circuit is None or circuit.opened_at is None:
            return 0, 0.0
        wait = circuit.opened_at + self._reset - self._time()
        return circuit.failures, max(wait, 1.0) if circuit.trying else wait

    def open_targets(self) -> list[Target]:
        """The targets that this process leaves alone, or did and has not heard of since."""
        return sorted(target for target, circuit in self._circuits.items() if circuit.opened_at is not None)

    async def open_everywhere(self) -> list[Target]:
        """The same for all processes that share a Redis. Raises CoordinationError."""
        if self._redis is None:
            return self.open_targets()
        names = await self._redis.ask(_open_circuits)
        return sorted(tuple(orjson.loads(name.decode().removeprefix(f"{PREFIX}breaker:"))) for name in names)


async def _open_circuits(client: Any) -> list[bytes]:
    names = [name async for name in client.scan_iter(match=f"{PREFIX}breaker:*", count=1000)]
    return [name for name in names if await client.hexists(name, "opened")]


def named_targets(targets: Iterable[Target]) -> list[str]:
    """Targets in words."""
    return sorted(f"{name} (of tenant {tenant})" if tenant else name for tenant, name in targets)


def _open(target: Target, failures: int, wait: float) -> NotReached:
    name = target[1]
    return NotReached(
        "CIRCUIT_OPEN",
        f"{name} failed {failures} times in a row: its circuit is open.",
        details={"retry_after": round(max(wait, 1.0), 3), "target": name},
    )
