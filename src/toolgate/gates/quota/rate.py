"""Limits how often calls are made, over sliding minutes, hours and days: the limit that a tool declares for each user,
and the operator's rules (`rate_limits`) for tenants, personas, users and tools.

All limits on a call are looked at together, and it is counted only if every one allows it. With Redis, it counts for all
processes, by its clock. Without, minutes are counted in this process's memory, by its monotonic clock, and hours and days in
the store, so that they outlast the process and hold for all that share the database. Where Redis or the store is to count
and can't be asked, the call is refused: a limit that nobody counts is none.
"""

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from time import time as wall_time
from typing import NamedTuple

import msgspec
import orjson

from toolgate.coordination.redis import Argument, CoordinationError, Redis, key
from toolgate.errors import Denied, Failed, StoreError, span_words
from toolgate.model import Actor, Call, Entry, RateLimit
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.settings import RateRule
from toolgate.store import rates
from toolgate.store.database import Store

MOST_COUNTS = 50_000
"""Counts kept in mind at which those that nothing was added to for a day are forgotten."""
MOST_TOOLS = 200_000
UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}

Name = tuple[str, ...]
"""What a count is of: the rule's number or the tool, and the values that it is counted by."""

# KEYS: a sorted set for each rule, of call ids by the microsecond they were counted at. ARGV: the call's id, whether to
# count, and for each rule how many windows it has, then limit and microseconds of each. Gives the longest wait, and of
# which rule and window. A call that was counted already (its answer got lost on the way) passes.
SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local id, count = ARGV[1], ARGV[2] == '1'
if count and redis.call('ZSCORE', KEYS[1], id) then return {0, 0, 0} end
local longest, rule, window = 0, 0, 0
local spans, mosts, at = {}, {}, 3
for k, key in ipairs(KEYS) do
    spans[k], mosts[k] = 0, 0
    local windows = tonumber(ARGV[at])
    for w = 1, windows do
        local limit, span = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
        at = at + 2
        local earliest = redis.call('ZREVRANGE', key, limit - 1, limit - 1, 'WITHSCORES')
        if earliest[2] then
            local wait = math.min(earliest[2] + span - now, span)
            if wait > longest then longest, rule, window = wait, k, w end
        end
        spans[k], mosts[k] = math.max(spans[k], span), math.max(mosts[k], limit)
    end
    at = at + 1
end
if longest > 0 or not count then return {longest, rule, window} end
for k, key in ipairs(KEYS) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - spans[k])
    redis.call('ZADD', key, now, id)
    redis.call('ZREMRANGEBYRANK', key, 0, -(mosts[k] + 1))
    redis.call('PEXPIRE', key, math.ceil(spans[k] / 1000))
end
return {0, 0, 0}
"""


class Window(NamedTuple):
    """So many calls in so long."""

    limit: int
    unit: str
    seconds: int


class CompiledRule(msgspec.Struct, frozen=True):
    """A rule, made ready to be asked often."""

    id: str
    tenant: str | None
    persona: str | None
    user: str | None
    by: tuple[str, ...]
    windows: tuple[Window, ...]
    words: str
    kept: tuple[Window, ...] = ()
    """Windows that the store counts."""

    def matches(self, actor: Actor) -> bool:
        return (
            (self.tenant is None or self.tenant == actor.tenant)
            and (self.persona is None or self.persona == actor.persona)
            and (self.user is None or self.user == actor.user)
        )

    def name(self, actor: Actor, entry: Entry) -> Name:
        """The count that a call belongs to. Tools of one name that two tenants made for themselves are two tools."""
        parts = [self.id]
        for field in self.by:
            if field == "tool":
                parts += (entry.name, entry.tool.tenant or "")
            elif field == "persona":
                parts.append(actor.persona or "")
            else:
                parts.append(actor.tenant if field == "tenant" else actor.user)
        return tuple(parts)


StoredCounts = dict[rates.RateLimitCount, tuple[CompiledRule, Window]]
AppliedRules = Sequence[tuple[Name, CompiledRule]]
"""What applies to a call: each rule, with the name of the count that the call would be added to."""


class Rates:
    """The gate. A call without limits should not come here at all: test `entry.rate_limit is not None or rates.ruled`."""

    def __init__(
        self,
        time: Callable[[], float],
        rules: Iterable[RateRule] = (),
        redis: Redis | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        """`store`: counts hours and days, by `clock`; None, or with Redis: nothing outlasts the process."""
        self._time = time
        self._redis = redis
        self._store = store if redis is None else None
        self._clock = clock
        self._tidied = False
        ready = {made.id: (rule.tool, made) for number, rule in enumerate(rules, 1) for made in (_ready(number, rule),)}
        self._rules = tuple(ready.values())
        self._of_tools: dict[str, tuple[CompiledRule, ...]] = {}
        self._counts: dict[Name, deque[float]] = {}
        self._look_at = MOST_COUNTS
        self.ruled = bool(self._rules)
        """True if there are rules that are not a tool's own."""

    def enter(self, call: Call, entry: Entry) -> Awaitable[None] | None:
        """Counts the call, or raises RATE_LIMITED with the time to wait; with Redis, when awaited."""
        limits = self._limits(call, entry)
        if not limits:
            return None
        if self._redis is not None:
            return self._acquire_shared(self._redis, call, limits)
        now = self._time()
        wait, rule, window = self._longest_wait(limits, now)
        if wait > 0:
            raise _too_often(wait, rule, window)
        self._count(limits, now)
        if self._store is not None and (kept := _kept(limits)):
            return self._acquire_kept(self._store, limits, kept, now)
        return None

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        limited = await self.look(ctx.call, entry)
        yield GateVerdict("rate", "deny" if limited else "pass", limited or "no limit is reached")

    async def look(self, call: Call, entry: Entry) -> str | None:
        """The reason why the call would be refused, or None; counts nothing."""
        limits = self._limits(call, entry)
        if not limits:
            return None
        try:
            if self._redis is None:
                wait, rule, window = self._longest_wait(limits, self._time())
                if self._store is not None and not wait and (kept := _kept(limits)):
                    refused = await self._store.read(rates.longest_wait(kept, self._clock()))
                    if refused is not None:
                        return _too_often(refused.wait, *kept[refused.count]).message
            else:
                wait, rule, window = await _ask(self._redis, call, limits, count=False)
        except Failed as error:
            return error.message
        return _too_often(wait, rule, window).message if wait > 0 else None

    def _limits(self, call: Call, entry: Entry) -> AppliedRules:
        rules = self._of_tools.get(entry.fingerprint)
        if rules is None:
            rules = self._find_rules(entry)
        actor = call.actor
        if call.on_behalf_of:  # it counts once for each of them
            found = {rule.name(one, entry): rule for one in call.actors for rule in rules if rule.matches(one)}
            return list(found.items())
        return [(rule.name(actor, entry), rule) for rule in rules if rule.matches(actor)]

    def _find_rules(self, entry: Entry) -> tuple[CompiledRule, ...]:
        rules = tuple(rule for tool, rule in self._rules if tool in (None, entry.name, entry.tool.alias_of))
        if entry.rate_limit is not None and (windows := _windows(entry.rate_limit)):
            rules = (_declared(entry, windows), *rules)
        if self._store is not None:
            rules = tuple(_split(rule) for rule in rules)
        if len(self._of_tools) >= MOST_TOOLS:
            self._of_tools.clear()
        self._of_tools[entry.fingerprint] = rules
        return rules

    # -- in memory

    def _longest_wait(self, limits: AppliedRules, now: float) -> tuple[float, CompiledRule, Window]:
        rule = limits[0][1]
        longest, which, when = 0.0, rule, (*rule.windows, *rule.kept)[0]
        for name, rule in limits:
            past = self._counts.get(name)
            if past is None:
                continue
            for window in rule.windows:
                if len(past) >= window.limit and (wait := past[-window.limit] + window.seconds - now) > longest:
                    longest, which, when = wait, rule, window
        return longest, which, when

    def _count(self, limits: AppliedRules, now: float) -> None:
        for name, rule in limits:
            if not rule.windows:
                continue
            past = self._counts.get(name)
            if past is None:
                past = self._counts[name] = deque(maxlen=max(window.limit for window in rule.windows))
            past.append(now)
        if len(self._counts) > self._look_at:
            self._forget(now - UNIT_SECONDS["day"])

    def _forget(self, before: float) -> None:
        for name in [name for name, past in self._counts.items() if past[-1] <= before]:
            del self._counts[name]
        self._look_at = max(MOST_COUNTS, 2 * len(self._counts))

    # -- in the store

    async def _acquire_kept(self, store: Store, limits: AppliedRules, kept: "StoredCounts", now: float) -> None:
        """Count hours and days. What is refused there is not counted in memory either."""
        moment = self._clock()
        try:
            if not self._tidied:
                self._tidied = True
                await store.transact(rates.forget(moment - 2 * UNIT_SECONDS["day"]))
            await store.transact(rates.take(kept, moment))
        except rates.RateExceeded as refused:
            self._uncount(limits, now)
            raise _too_often(refused.wait, *kept[refused.count]) from None
        except StoreError as error:
            self._uncount(limits, now)
            raise _uncounted("UNEXPECTED_ERROR", error) from error

    def _uncount(self, limits: AppliedRules, now: float) -> None:
        for name, _ in limits:
            past = self._counts.get(name)
            if past is not None and now in past:
                past.remove(now)
                if not past:
                    del self._counts[name]

    # -- in Redis

    async def _acquire_shared(self, redis: Redis, call: Call, limits: AppliedRules) -> None:
        wait, rule, window = await _ask(redis, call, limits, count=True)
        if wait > 0:
            raise _too_often(wait, rule, window)


async def _ask(redis: Redis, call: Call, limits: AppliedRules, *, count: bool) -> tuple[float, CompiledRule, Window]:
    arguments: list[Argument] = [call.id, int(count)]
    for _, rule in limits:
        arguments.append(len(rule.windows))
        for window in rule.windows:
            arguments += (window.limit, window.seconds * 1_000_000)
    try:
        wait, which, when = await redis.run(SCRIPT, [key("rate", *name) for name, _ in limits], arguments)
    except CoordinationError as error:
        raise _uncounted("CONNECTION_ERROR", error) from error
    rule = limits[max(which - 1, 0)][1]
    return wait / 1_000_000, rule, rule.windows[max(when - 1, 0)]


def _split(rule: CompiledRule) -> CompiledRule:
    """A rule whose hours and days are counted by the store."""
    kept = tuple(window for window in rule.windows if window.seconds in rates.SLICES)
    short = tuple(window for window in rule.windows if window.seconds not in rates.SLICES)
    return msgspec.structs.replace(rule, windows=short, kept=kept)


def _kept(limits: AppliedRules) -> "StoredCounts":
    """The counts of a call that the store keeps, each with its rule."""
    return {
        rates.RateLimitCount(orjson.dumps([window.unit, *name]).decode(), window.limit, window.seconds): (rule, window)
        for name, rule in limits
        for window in rule.kept
    }


def _ready(number: int, rule: RateRule) -> CompiledRule:
    """A rule of the settings. A user is always one of a tenant; a tool that is named is still one of its owner."""
    by = {*rule.by, *(("tenant",) if rule.user is not None or "user" in rule.by else ())}
    if rule.tool is not None:
        by.add("tool")
    named = {"tenant": rule.tenant, "persona": rule.persona, "user": rule.user, "tool": rule.tool}
    whose = ", ".join(f"{field} {value}" for field, value in named.items() if value is not None) or "all calls"
    each = f", counted by {' and '.join(rule.by)}" if rule.by else ""
    return CompiledRule(
        rule.model_dump_json(),  # what it says, so that a rule begins to count anew when it is changed
        rule.tenant, rule.persona, rule.user, tuple(sorted(by)), _windows(rule), f"rate_limits rule {number}: {whose}{each}",
    )  # fmt: skip


def _declared(entry: Entry, windows: tuple[Window, ...]) -> CompiledRule:
    """The limit that a tool declares: so often for each user."""
    said = "/".join(f"{window.limit} a {window.unit}" for window in windows)
    return CompiledRule(
        said, None, None, None, ("tenant", "tool", "user"), windows, f"{entry.name}'s own limit for each user"
    )


def _windows(said: RateLimit | RateRule) -> tuple[Window, ...]:
    asked = (("minute", said.per_minute), ("hour", said.per_hour), ("day", said.per_day))
    return tuple(Window(limit, unit, UNIT_SECONDS[unit]) for unit, limit in asked if limit is not None)


def _uncounted(code: str, error: CoordinationError | StoreError) -> Failed:
    words = f"Rate limits cannot be counted, so the call was not run. {error.message}"
    return Failed(code, words, suggestion=error.suggestion)


def _too_often(wait: float, rule: CompiledRule, window: Window) -> Denied:
    wait = math.ceil(round(wait * 1000, 3)) / 1000
    calls, article = "call" if window.limit == 1 else "calls", "an" if window.unit == "hour" else "a"
    return Denied(
        "RATE_LIMITED",
        f"No more than {window.limit} {calls} {article} {window.unit} ({rule.words}); try again in {span_words(wait)}.",
        details={"retry_after": wait},
    )
