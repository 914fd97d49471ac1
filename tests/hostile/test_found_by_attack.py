"""What attacks on the pipeline once found; none of it may come back."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.secret_use import named
from toolgate import Actor, Hook, InvokeContext, Retry, ToolError, ToolgateError, tool
from toolgate.pipeline.hooks import Next
from toolgate.store import audit_log
from toolgate.testing import ManualClock, memory_app


class Unspeakable(Exception):
    """Refuses to say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


SOMETHING: Any = ValueError("inner")
ODD = (
    Unspeakable(),
    ToolError(SOMETHING),
    ToolError("x", suggestion=SOMETHING),
    ToolError("x", details={"o": object()}),
)


@pytest.mark.requirement("PIPE-5", "PIPE-6")
@pytest.mark.parametrize(
    "error", ODD, ids=["unspeakable", "exception as message", "exception as advice", "object in details"]
)
async def test_an_odd_error_is_an_outcome_and_its_place_comes_back(error: Exception) -> None:
    clock = ManualClock()

    @tool(tier="write", concurrency=1, target="there")
    async def odd() -> None:
        """Raises something odd."""
        raise error

    async with memory_app(clock=clock) as app:
        app.register(odd)
        for _ in range(12):
            outcome = await app.invoke("odd")
            assert outcome.error is not None
            assert outcome.error.code in ("INVOCATION_ERROR", "CIRCUIT_OPEN")
            assert orjson.loads(outcome.to_json())
            clock.advance(10)
        clock.advance(31)
        assert (await app.invoke("odd")).error.code == "INVOCATION_ERROR"  # type: ignore[union-attr]


@pytest.mark.requirement("PIPE-5")
@pytest.mark.parametrize("stage", ["did_execute", "will_audit", "on_error", "will_finalize_invoke"])
async def test_a_hook_that_fails_without_words_harms_nothing(stage: str) -> None:
    class Wordless(Hook):
        pass

    def fail(_self: Any, _ctx: InvokeContext) -> None:
        raise Unspeakable

    setattr(Wordless, stage, fail)
    async with memory_app() as app:
        app.add_hook(Wordless())
        assert (await app.invoke("echo", {"text": "x"})).ok
        assert (await app.invoke("nothing")).error.code == "TOOL_NOT_FOUND"  # type: ignore[union-attr]
        assert app.parts.running.count == 0


@pytest.mark.requirement("PIPE-4")
async def test_sessions_of_one_name_are_not_shared_between_tenants() -> None:
    @tool(tier="read_only")
    async def connect(ctx: InvokeContext, value: str) -> Any:
        """Binds what is not bound yet."""
        if ctx.try_get("connection") is None:
            ctx.bind("connection", value, scope="session")
        return ctx.get("connection")

    async with memory_app() as app:
        app.register(connect)
        mine = await app.invoke("connect", {"value": "acme's"}, actor=Actor(tenant="acme"), session="1")
        theirs = await app.invoke("connect", {"value": "globex's"}, actor=Actor(tenant="globex"), session="1")
    assert (mine.output, theirs.output) == ("acme's", "globex's")


@pytest.mark.requirement("IO-4")
async def test_a_secret_that_a_tool_hands_on_is_masked_in_the_call_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", "correct horse battery")

    @tool(tier="read_only", cache=60)
    async def child(s: str) -> str:
        """Gives it back."""
        return f"got {s}"

    @tool(tier="read_only")
    async def parent(ctx: InvokeContext, s: str) -> Any:
        """Hands it on."""
        seen = await ctx.call_tool("child", s=s)
        await ctx.call_tool(s)
        return seen.output

    async with memory_app(secrets=named("KEY", "parent")) as app:
        app.register(child)
        app.register(parent)
        outcome = await app.invoke("parent", {"s": "{{secret:KEY}}"})
        assert outcome.ok
        await app.flush()
        kept = vars(app.parts.pipeline.cache)
        everything = repr(await app.parts.store.read(audit_log.latest(50))) + repr(outcome) + repr(kept)
    assert "battery" not in everything


@pytest.mark.requirement("PIPE-7", "PIPE-5")
async def test_an_error_that_was_made_up_for_is_not_the_outcome() -> None:
    class Fallback(Hook):
        async def around_execute(self, _ctx: InvokeContext, inner: Next) -> Any:
            try:
                return await inner()
            except ToolgateError:
                return "fallback"

    @tool(tier="read_only", retry=Retry(max_attempts=2, backoff_ms=1), hooks=[Fallback])
    async def down() -> str:
        """Is down."""
        raise ConnectionError("down")

    async with memory_app() as app:
        app.register(down)
        outcome = await app.invoke("down")
    assert (outcome.status, outcome.output, outcome.error) == ("success", "fallback", None)


@pytest.mark.requirement("PIPE-4", "PIPE-7")
async def test_what_runs_is_what_was_recorded_whatever_hooks_and_attempts_do_to_it() -> None:
    ran: list[Any] = []

    class Swap(Hook):
        def will_execute(self, ctx: InvokeContext) -> None:
            ctx.input["paths"][0] = "/etc/shadow"

    @tool(tier="read_only", retry=Retry(max_attempts=2, backoff_ms=1), hooks=[Swap])
    async def read(paths: list[str]) -> None:
        """Reads."""
        ran.append(list(paths))
        paths.clear()
        raise ConnectionError("down")

    async with memory_app() as app:
        app.register(read)
        await app.invoke("read", {"paths": ["/tmp/a"]})
    assert ran == [["/tmp/a"], ["/tmp/a"]]


@pytest.mark.requirement("PIPE-6")
@pytest.mark.parametrize("where", ["inline", "thread", "will_authorize", "will_audit"])
async def test_a_cancellation_that_nobody_asked_for_is_an_outcome(where: str) -> None:
    @tool(tier="read_only", name="cancels")
    async def inline() -> None:
        """Cancels itself."""
        raise asyncio.CancelledError

    @tool(tier="read_only", name="cancels")
    def thread() -> None:
        """Cancels itself in a thread."""
        raise asyncio.CancelledError

    @tool(tier="read_only", name="cancels")
    async def fine() -> None:
        """Does nothing."""

    class Cancels(Hook):
        pass

    async def cancel(_self: Any, _ctx: InvokeContext) -> None:
        raise asyncio.CancelledError

    setattr(Cancels, where if where.startswith("will_") else "on_retry", cancel)
    async with memory_app() as app:
        app.add_hook(Cancels())
        app.register({"inline": inline, "thread": thread}.get(where, fine))
        outcome = await app.invoke("cancels")
        expected = None if where == "will_audit" else "CANCELLED"  # there the outcome stands
        assert (outcome.error.code if outcome.error else None) == expected
        assert app.parts.running.count == 0


@pytest.mark.requirement("IO-3", "PIPE-6")
async def test_an_error_has_an_end() -> None:
    @tool(tier="read_only")
    async def verbose() -> None:
        """Talks too much."""
        raise ToolError("x" * 5_000_000, details={"all": ["y" * 100] * 10_000})

    async with memory_app() as app:
        app.register(verbose)
        outcome = await app.invoke("verbose")
    assert len(outcome.to_json()) < 40_000


@pytest.mark.requirement("PIPE-6")
@pytest.mark.parametrize(
    "bad", [{"timeout": "x"}, {"timeout": -1}, {"timeout": float("nan")}, {"session": 5}, {"actor": "bob"}]
)
async def test_misuse_is_told_to_the_programmer(bad: dict[str, Any]) -> None:
    async with memory_app() as app:
        with pytest.raises((TypeError, ValueError), match=r"must be"):
            await app.invoke("echo", {"text": "x"}, **bad)
