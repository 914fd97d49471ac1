"""Rate limits: rules for tenants, personas, users and tools, the same counted in memory and in Redis."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pytest
import redis as client_library
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import Actor, App, Outcome, RateLimit, tool
from toolgate.coordination.redis import Redis
from toolgate.gates.quota.rate import Rates
from toolgate.model import Call, new_id
from toolgate.settings import RateRule
from toolgate.testing import ManualClock, memory_app

pytestmark = pytest.mark.requirement("COST-4")

ADA, BOB, EVE = Actor("acme", "analyst", "ada"), Actor("acme", "clerk", "bob"), Actor("globex", "analyst", "ada")


@tool(tier="read_only")
async def look() -> int:
    """Looks."""
    return 1


@tool(tier="read_only")
async def read() -> int:
    """Reads."""
    return 2


@pytest.fixture(params=["memory", "redis"])
def shared(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings: limits counted here, or in Redis."""
    return {} if request.param == "memory" else {"redis_url": request.getfixturevalue("redis_url")}


async def allowed(app: App, *calls: tuple[str, Actor]) -> str:
    """Which of these calls were let through: y or n for each."""
    outcomes = [await app.invoke(name, actor=actor) for name, actor in calls]
    assert {outcome.error.code for outcome in outcomes if outcome.error} <= {"RATE_LIMITED"}
    return "".join("y" if outcome.ok else "n" for outcome in outcomes)


CASES: list[tuple[dict[str, Any], str]] = [
    # the calls are: look ADA, look BOB, look EVE, read ADA, look ADA, read EVE
    ({"by": []}, "ynnnnn"),
    ({"by": ["user"]}, "yyynnn"),
    ({"by": ["tenant"]}, "ynynnn"),
    ({"by": ["persona"]}, "yynnnn"),
    ({"by": ["tool"]}, "ynnynn"),
    ({"by": ["tool", "user"]}, "yyyyny"),
    ({"by": ["tenant", "persona"]}, "yyynnn"),
    ({"by": [], "tenant": "acme"}, "ynynny"),
    ({"by": [], "persona": "analyst"}, "yynnnn"),
    ({"by": [], "user": "ada"}, "yyynnn"),
    ({"by": [], "tool": "read"}, "yyyyyn"),
    ({"tool": "look"}, "yyyyny"),
    ({"tenant": "acme", "user": "ada", "tool": "look"}, "yyyyny"),
    ({"tenant": "nobody"}, "yyyyyy"),
]


@pytest.mark.parametrize(("rule", "expected"), CASES, ids=[str(rule) for rule, _ in CASES])
async def test_a_rule_is_for_the_calls_it_names_and_counts_by_the_fields_it_names(
    rule: dict[str, Any], expected: str, shared: dict[str, Any]
) -> None:
    async with memory_app(rate_limits=[{**rule, "per_day": 1}], **shared) as app:
        app.tools.register_many([look, read])
        calls = [("look", ADA), ("look", BOB), ("look", EVE), ("read", ADA), ("look", ADA), ("read", EVE)]
        assert await allowed(app, *calls) == expected


async def test_a_call_is_counted_only_if_every_rule_allows_it(shared: dict[str, Any]) -> None:
    rules = [{"tool": "look", "by": [], "per_hour": 1}, {"by": ["user"], "per_hour": 2}]
    async with memory_app(rate_limits=rules, **shared) as app:
        app.tools.register_many([look, read])
        assert await allowed(app, *[("look", ADA)] * 5, ("read", ADA), ("read", ADA)) == "ynnnnyn"


async def test_the_refusal_names_the_rule_and_the_longest_wait(shared: dict[str, Any]) -> None:
    rules = [{"by": ["user"], "per_minute": 1}, {"tenant": "acme", "by": ["tenant"], "per_hour": 1, "per_day": 5}]
    async with memory_app(rate_limits=rules, **shared) as app:
        app.register(look)
        assert (await app.invoke("look", actor=ADA)).ok
        refused = await app.invoke("look", actor=ADA)
    assert refused.error is not None
    assert (refused.status, refused.error.code, refused.error.retryable) == ("denied", "RATE_LIMITED", True)
    assert "1 call an hour" in refused.error.message
    assert "rule 2: tenant acme, counted by tenant" in refused.error.message
    assert refused.error.details is not None
    assert 3590 < refused.error.details["retry_after"] <= 3600


async def test_a_declared_limit_is_one_user_of_one_tenant(shared: dict[str, Any]) -> None:
    @tool(tier="read_only", rate_limit=RateLimit(per_hour=2))
    async def rare() -> int:
        """Rare."""
        return 1

    async with memory_app(**shared) as app:
        app.register(rare)
        calls = [
            ("rare", ADA),
            ("rare", BOB),
            ("rare", ADA),
            ("rare", EVE),
            ("rare", ADA),
            ("rare", Actor("acme", None, "ada")),
        ]
        assert await allowed(app, *calls) == "yyyynn"


async def test_names_that_look_like_two_are_counted_as_one(shared: dict[str, Any]) -> None:
    """Whatever separates names in a key must not be something that a name can hold."""
    twins = [Actor('a","b', None, "c"), Actor("a", None, 'b","c'), Actor("a:b", None, "c"), Actor("a", None, "b:c")]
    async with memory_app(rate_limits=[{"by": ["user"], "per_day": 1}], **shared) as app:
        app.register(look)
        assert await allowed(app, *(("look", actor) for actor in twins)) == "yyyy"


async def test_looking_says_what_would_happen_and_counts_nothing(shared: dict[str, Any]) -> None:
    redis = Redis(shared["redis_url"]) if shared else None
    rates = Rates(ManualClock().monotonic, [RateRule(by=("user",), per_hour=1)], redis)
    async with memory_app() as app:
        app.register(look)
        entry = app.parts.catalog.resolve("look", "acme")

        async def count(actor: Actor) -> None:
            counted = rates.enter(Call(new_id(), "look", {}, actor), entry)
            if counted is not None:
                await counted

        assert [await rates.look(Call(new_id(), "look", {}, ADA), entry) for _ in range(3)] == [None] * 3
        await count(ADA)
        words = await rates.look(Call(new_id(), "look", {}, ADA), entry)
        assert words is not None
        assert "1 call an hour" in words
        assert await rates.look(Call(new_id(), "look", {}, BOB), entry) is None
        await count(BOB)
    if redis is not None:
        await redis.close()


@pytest.mark.matrix("needs Redis")
async def test_a_call_that_redis_is_asked_about_twice_is_counted_once(redis_url: str) -> None:
    """When a connection is lost after Redis counted, the client asks again."""
    redis = Redis(redis_url)
    rates = Rates(ManualClock().monotonic, [RateRule(by=(), per_hour=2), RateRule(by=("user",), per_day=9)], redis)
    async with memory_app() as app:
        app.register(look)
        entry = app.parts.catalog.resolve("look", "acme")
        calls = [Call(new_id(), "look", {}, ADA) for _ in range(2)]
        for call in (calls[0], calls[0], calls[1], calls[1], calls[0]):
            await (rates.enter(call, entry) or asyncio.sleep(0))
        assert await rates.look(calls[0], entry) is not None, "two were counted, and there is no room for a third"
    await redis.close()


async def test_what_nobody_asked_for_in_a_day_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gates.quota.rate.MOST_COUNTS", 10)
    clock = ManualClock()
    rates = Rates(clock.monotonic, [RateRule(by=("user",), per_hour=5)])
    async with memory_app() as app:
        app.register(look)
        entry = app.parts.catalog.resolve("look", "acme")
        for day in range(5):
            for number in range(30):
                rates.enter(Call(new_id(), "look", {}, Actor("acme", None, f"{day}-{number}")), entry)
            clock.advance(90_000)
        assert len(rates._counts) <= 60


# -- memory and Redis against a model that keeps everything


class Step(NamedTuple):
    """Some seconds pass, then a call is made."""

    seconds: int
    actor: Actor
    tool: Literal["look", "read"]


RULES = st.builds(
    RateRule,
    tenant=st.sampled_from([None, None, "acme"]),
    persona=st.sampled_from([None, None, "analyst"]),
    user=st.sampled_from([None, None, "ada"]),
    tool=st.sampled_from([None, None, "look"]),
    by=st.lists(st.sampled_from(["tenant", "persona", "user", "tool"]), unique=True, max_size=2).map(tuple),
    per_minute=st.integers(1, 3),
    per_hour=st.one_of(st.none(), st.integers(1, 5)),
    per_day=st.one_of(st.none(), st.integers(1, 6)),
)
STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 0, 1, 20, 30, 59, 60, 61, 1800, 3540, 86_400]),
        st.sampled_from([ADA, BOB, EVE]),
        st.sampled_from(["look", "read"]),
    ),
    min_size=5,
    max_size=25,
)


def model(rules: list[RateRule], steps: list[Step]) -> list[float]:
    """For each step, the wait; 0 if it is allowed. As the words of the documentation have it, one after another."""
    now = 0
    past: list[tuple[int, Step]] = []
    waits: list[float] = []
    for step in steps:
        now += step.seconds
        wait = 0
        for rule in rules:
            if not _applies(rule, step):
                continue
            times = [at for at, other in past if _applies(rule, other) and _group(rule, other) == _group(rule, step)]
            for limit, span in ((rule.per_minute, 60), (rule.per_hour, 3600), (rule.per_day, 86_400)):
                recent = [at for at in times if at > now - span]
                if limit is not None and len(recent) >= limit:
                    wait = max(wait, recent[-limit] + span - now)
        if not wait:
            past.append((now, step))
        waits.append(wait)
    return waits


def _applies(rule: RateRule, step: Step) -> bool:
    actor = step.actor
    named = ((rule.tenant, actor.tenant), (rule.persona, actor.persona), (rule.user, actor.user), (rule.tool, step.tool))
    return all(wanted is None or wanted == found for wanted, found in named)


def _group(rule: RateRule, step: Step) -> tuple[Any, ...]:
    fields = {**{field: getattr(step.actor, field) for field in ("tenant", "persona", "user")}, "tool": step.tool}
    tenant = step.actor.tenant if rule.user or "user" in rule.by else None
    return (tenant, *(fields[field] for field in rule.by))


async def waits_of(app: App, steps: list[Step], advance: Callable[[int], None]) -> list[float]:
    waits = []
    async with app:
        app.tools.register_many([look, read])
        for step in steps:
            advance(step.seconds)
            waits.append(_wait(await app.invoke(step.tool, actor=step.actor)))
    return waits


def _wait(outcome: Outcome) -> float:
    if outcome.ok:
        return 0
    assert outcome.error is not None
    assert outcome.error.code == "RATE_LIMITED"
    assert outcome.error.details is not None
    wait: float = outcome.error.details["retry_after"]
    return wait


@at_most(80)
@given(rules=st.lists(RULES, min_size=1, max_size=3), steps=STEPS)
def test_memory_answers_as_the_model_does(rules: list[RateRule], steps: list[Step]) -> None:
    clock = ManualClock()
    app = memory_app(clock=clock, rate_limits=[rule.model_dump() for rule in rules])
    assert asyncio.run(waits_of(app, steps, clock.advance)) == model(rules, steps)


SHIFT = """
for _, key in ipairs(redis.call('KEYS', 'toolgate:rate:*')) do
    for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ARGV[1] * 1000000, id) end
end
"""


@pytest.mark.matrix("needs Redis")
async def test_a_redis_whose_clock_was_set_back_asks_nobody_to_wait_longer_than_the_window(redis_url: str) -> None:
    async with memory_app(redis_url=redis_url, rate_limits=[{"by": [], "per_minute": 1}]) as app:
        app.register(look)
        assert (await app.invoke("look")).ok
        with client_library.Redis.from_url(redis_url) as client:
            client.eval(SHIFT, 0, -7200)
        assert _wait(await app.invoke("look")) == 60


@pytest.mark.matrix("needs Redis")
@at_most(40)
@given(rules=st.lists(RULES, min_size=1, max_size=3), steps=STEPS)
def test_redis_answers_as_the_model_does(redis_url: str, rules: list[RateRule], steps: list[Step]) -> None:
    """Redis's clock can't be set. So that time passes, what is on record there is made older."""
    app = memory_app(redis_url=redis_url, rate_limits=[rule.model_dump() for rule in rules])
    with client_library.Redis.from_url(redis_url) as client:
        client.flushall()
        found = asyncio.run(waits_of(app, steps, lambda seconds: client.eval(SHIFT, 0, seconds)))
    expected = model(rules, steps)
    assert [bool(wait) for wait in found] == [bool(wait) for wait in expected]
    assert all(math.isclose(one, other, abs_tol=0.9) for one, other in zip(found, expected, strict=True))
