"""Results kept for the next caller, here or in Redis: who gets them, and who must not."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import redis as client_library

from tests.secret_use import named
from tests.servers import Redis as RedisServer
from toolgate import Actor, App, CacheRule, Hook, InvokeContext, tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("PIPE-8")

ADA = Actor("acme", "analyst", "ada")


@pytest.fixture(params=["memory", "redis"])
def shared(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings: results kept here, or in Redis."""
    return {} if request.param == "memory" else {"redis_url": request.getfixturevalue("redis_url")}


def counting(rule: CacheRule | float, **more: Any) -> Callable[..., Any]:
    """A tool that gives another number each time it runs."""
    numbers = itertools.count(1)

    @tool(tier="read_only", cache=rule, **more)
    async def count(text: str = "") -> int:
        """Counts."""
        return next(numbers) + 0 * len(text)

    return count


async def outputs(app: App, *actors: Actor, text: str = "") -> list[Any]:
    return [(await app.invoke("count", {"text": text}, actor=actor)).output for actor in actors]


OTHERS = [
    Actor("acme", "analyst", "ada"),
    Actor("acme", "clerk", "ada"),
    Actor("acme", None, "ada"),
    Actor("acme", "analyst", "ada", ("orders:read",)),
    Actor("acme", "analyst", "bob"),
    Actor("globex", "analyst", "ada"),
]


async def test_a_tenants_answer_is_for_all_in_the_tenant(shared: dict[str, Any]) -> None:
    async with memory_app(**shared) as app:
        app.register(counting(60))
        assert await outputs(app, *OTHERS, *OTHERS) == [1, 1, 1, 1, 1, 2] * 2


async def test_an_actors_answer_is_for_nobody_else(shared: dict[str, Any]) -> None:
    async with memory_app(**shared) as app:
        app.register(counting(CacheRule(ttl=60, scope="user")))
        assert await outputs(app, *OTHERS, *OTHERS) == [1, 2, 3, 4, 5, 6] * 2


@tool(tier="read_only", cache=60)
async def count_for(ctx: InvokeContext) -> str:
    """Takes the context."""
    return ctx.actor.user


@tool(tier="read_only", cache=60)
class Count:
    """Has an object, and so more to look at than arguments."""

    name = "count_class"

    async def execute(self, n: int = 0) -> str:
        return f"{id(self)} {n}"


class Greets(Hook):
    """Sees who calls, on its way out."""

    async def did_execute(self, ctx: InvokeContext) -> None:
        ctx.output = f"{ctx.output} for {ctx.actor.user}"


@tool(tier="read_only", cache=60, hooks=[Greets()])
async def count_hooked() -> str:
    """Has a hook."""
    return "it"


@pytest.mark.parametrize("code", [count_for, Count, count_hooked])
async def test_what_can_see_who_calls_answers_them_alone(shared: dict[str, Any], code: Any) -> None:
    async with memory_app(**shared) as app:
        name = app.register(code).name
        cached = [(await app.invoke(name, {}, actor=actor)).metrics.cached for actor in (*OTHERS, *OTHERS)]
        assert cached == [False] * 6 + [True] * 6
        seen = {(await app.invoke(name, {}, actor=actor)).output for actor in (ADA, Actor("acme", "analyst", "bob"))}
        assert len(seen) == (1 if code is Count else 2)


async def test_the_code_of_the_operator_may_share_more_and_no_other_may(shared: dict[str, Any]) -> None:
    @tool(tier="read_only", cache=CacheRule(ttl=60, scope="tenant"))
    async def anything(ctx: InvokeContext) -> str:
        """Says that it is the same for all."""
        return ctx.actor.user

    async with memory_app(**shared) as app:
        app.register(anything)
        assert [(await app.invoke("anything", actor=actor)).output for actor in OTHERS] == ["ada"] * 6
    async with memory_app(**shared) as app:
        app.register(anything, source="custom")
        assert (await app.invoke("anything", actor=OTHERS[0])).output == "ada"
        assert (await app.invoke("anything", actor=OTHERS[4])).output == "bob"


async def test_what_was_fetched_with_a_credential_or_a_secret_is_the_actors_own(
    shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", "not-to-be-shown-1")
    async with memory_app(**shared) as app:
        app.register(counting(60, requires_auth="KEY"))
        assert await outputs(app, *OTHERS) == [1, 2, 3, 4, 5, 6]
        assert await outputs(app, ADA) == [1]
    async with memory_app(**shared, secrets=named("KEY", "count")) as app:
        app.register(counting(60, description="with a secret in its arguments"))
        assert await outputs(app, *OTHERS, text="{{secret:KEY}}") == [1, 2, 3, 4, 5, 6]


async def test_another_definition_of_the_tool_does_not_get_the_old_ones_results(shared: dict[str, Any]) -> None:
    for version in ("1.0.0", "1.1.0"):
        async with memory_app(**shared) as app:
            app.register(counting(60, version=version))
            assert await outputs(app, ADA, ADA) == [1, 1]


async def test_values_of_all_kinds_come_back_as_they_were(shared: dict[str, Any]) -> None:
    values: list[Any] = [None, False, 0, "", "ü\u0000", [], {}, {"a": [1, 2.5, None]}, [[]], 2**53]
    given = iter(values)

    @tool(tier="read_only", cache=60)
    async def any_value(n: int) -> Any:
        """Gives something."""
        assert n >= 0
        return next(given)

    async with memory_app(**shared) as app:
        app.register(any_value)
        first = [(await app.invoke("any_value", {"n": n})).output for n in range(len(values))]
        again = [await app.invoke("any_value", {"n": n}) for n in range(len(values))]
    assert first == [outcome.output for outcome in again] == values
    assert all(outcome.metrics.cached for outcome in again)


async def test_failed_masked_and_cut_answers_are_not_kept(shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", "not-to-be-shown-2")
    ran: list[str] = []

    @tool(tier="read_only", cache=60, requires_auth="KEY")
    async def odd(ctx: InvokeContext, how: str) -> Any:
        """Ends in many ways."""
        ran.append(how)
        if how == "fails":
            raise ValueError("no")
        return {"masked": {"said": ctx.credential}, "cut": "x" * 50_000, "fine": how}[how]

    async with memory_app(**shared) as app:
        app.register(odd)
        for how in ("fails", "masked", "cut", "fine"):
            outcomes = [await app.invoke("odd", {"how": how}) for _ in range(2)]
            assert [outcome.metrics.cached for outcome in outcomes] == [False, how == "fine"]
            assert b"not-to-be-shown" not in outcomes[-1].to_json()
    assert ran == ["fails"] * 2 + ["masked"] * 2 + ["cut"] * 2 + ["fine"]


@pytest.mark.matrix("needs Redis")
async def test_two_apps_share_what_is_in_redis_until_it_ends(redis_url: str) -> None:
    async with memory_app(redis_url=redis_url) as one, memory_app(redis_url=redis_url) as other:
        count = counting(60)
        for app in (one, other):
            app.register(count)
        assert [await outputs(app, ADA) for app in (one, other, one)] == [[1], [1], [1]]
        with client_library.Redis.from_url(redis_url) as client:
            [name] = client.keys("toolgate:cache:*")
            assert 55_000 < client.pttl(name) <= 60_000
            client.pexpire(name, 0)
        assert [await outputs(app, ADA) for app in (other, one)] == [[2], [2]]


@pytest.mark.matrix("needs Redis")
async def test_nothing_of_the_arguments_can_be_read_from_the_names_in_redis(redis_url: str) -> None:
    async with memory_app(redis_url=redis_url) as app:
        app.register(counting(60))
        await outputs(app, ADA, text="hush-hush")
        with client_library.Redis.from_url(redis_url) as client:
            names = [re.sub(rb"[0-9a-f]{32,}", b"", name) for name in client.keys("*")]  # "ada" may stand in a hash
            assert names and all(b"hush" not in name and b"ada" not in name for name in names)


@pytest.mark.matrix("needs Redis")
@pytest.mark.parametrize("rubbish", [b"", b"{", b"\xff\xfe", b"[1"])
async def test_rubbish_in_redis_is_a_miss(redis_url: str, rubbish: bytes) -> None:
    async with memory_app(redis_url=redis_url) as app:
        app.register(counting(60))
        assert await outputs(app, ADA, ADA) == [1, 1]
        with client_library.Redis.from_url(redis_url) as client:
            [name] = client.keys("toolgate:cache:*")
            client.set(name, rubbish)
            assert await outputs(app, ADA, ADA) == [2, 2]
            client.delete(name)
            client.lpush(name, "of another type")
            assert await outputs(app, ADA) == [3]


@pytest.mark.matrix("needs Redis")
async def test_without_redis_every_call_runs(own_redis: RedisServer) -> None:
    async with memory_app(redis_url=own_redis.url) as app:
        app.register(counting(60))
        assert await outputs(app, ADA, ADA) == [1, 1]
        own_redis.stop()
        assert await outputs(app, ADA, ADA) == [2, 3]
        own_redis.start()
        assert await outputs(app, ADA, ADA) == [4, 4]
