"""Learning: past outcomes order searches and give recommendations; feedback is taken from those whom a call concerns."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import Actor, App, ToolError, tool
from toolgate.app.learning import REFRESH_SECONDS
from toolgate.errors import CallError, InvalidInput
from toolgate.learning import past_tasks
from toolgate.learning.feedback import WEIGHED_PER_HOUR, Feedback
from toolgate.learning.outcome_factors import MAX_FACTOR, MIN_FACTOR, factor
from toolgate.learning.refusal import FeedbackRefused
from toolgate.store.tool_outcomes import Observed, OutcomeRow
from toolgate.testing import ManualClock, memory_app

pytestmark = pytest.mark.requirement("AUD-4")

ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("other", user="ann")
TASK = "translate sentences into French"
FOLLOWS_WITHIN = 50
"""Calls after which the order of a search must have followed what the tools do."""


class World:
    """Three tools that do the same; each fails with a probability of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.failing = {"translate_a": 0.0, "translate_b": 0.0, "translate_c": 0.0}
        self.chance = random.Random(seed)

    def tools(self) -> list[object]:
        return [self._tool(name) for name in self.failing]

    def _tool(self, name: str) -> object:
        @tool(name=name, tier="read_only", description="Translate sentences into French or another language.")
        async def translate(text: str = "") -> str:
            if self.chance.random() < self.failing[name]:
                raise ToolError("the upstream is away", code="CONNECTION_ERROR")
            return text

        return translate


@pytest.fixture
async def app(database: str, tmp_path: Path) -> AsyncIterator[App]:
    async with App.open(
        home=tmp_path / "home", database_url=database, auto_load_custom_tools=False, entry_points=False
    ) as app:
        yield app


async def best(app: App, actor: Actor = ANN) -> str:
    return (await app.tools.search(TASK, actor, limit=3)).found[0].tool.name


async def calls_until(app: App, clock: ManualClock, wanted: set[str], *, most: int) -> int:
    """Calls the tool that a search puts first, until one of those that are wanted stays first ten times."""
    first = 0
    for made in range(most + 10):
        name = await best(app)
        first = first + 1 if name in wanted else 0
        if first == 10:
            return made - 9
        await app.invoke(name, {"text": "hello"}, actor=ANN)
        clock.advance(REFRESH_SECONDS)
    raise AssertionError(f"none of {wanted} came to stand first within {most} calls")


@pytest.mark.parametrize("seed", range(5))
async def test_search_follows_which_of_three_similar_tools_works(seed: int) -> None:
    world, clock = World(seed), ManualClock()
    async with memory_app(clock=clock) as app:
        app.tools.register_many(world.tools())
        assert await best(app) == "translate_a"
        world.failing["translate_a"] = 0.6
        learned = await calls_until(app, clock, {"translate_b", "translate_c"}, most=FOLLOWS_WITHIN)
        for _ in range(40):
            await app.invoke("translate_b", {}, actor=ANN)
        clock.advance(REFRESH_SECONDS)
        assert await best(app) == "translate_b"
        world.failing = {"translate_a": 0.6, "translate_b": 0.6, "translate_c": 0.0}
        followed = await calls_until(app, clock, {"translate_c"}, most=FOLLOWS_WITHIN)
        assert max(learned, followed) <= FOLLOWS_WITHIN, (learned, followed)
        found = {one.tool.name for one in (await app.tools.search(TASK, ANN)).found}
        assert {"translate_a", "translate_b", "translate_c"} <= found  # none is hidden for having failed


async def test_what_one_tenant_sees_orders_no_other_tenants_searches(app: App) -> None:
    world = World()
    app.tools.register_many(world.tools())
    world.failing["translate_a"] = 1.0
    for _ in range(10):
        await app.invoke("translate_a", {}, actor=ANN)
    assert (await app.learning.weights(ANN))["translate_a"] < 0.9
    assert await best(app) != "translate_a"
    assert "translate_a" not in await app.learning.weights(EVE)
    assert await best(app, EVE) == "translate_a"


async def test_callers_errors_say_nothing_about_a_tool(app: App) -> None:
    @tool(tier="read_only")
    async def slow(text: str) -> str:
        """Wait long."""
        await asyncio.sleep(5)
        return text

    app.register(slow)
    await app.invoke("slow", {"wrong": 1}, actor=ANN)
    ended = await app.invoke("slow", {"text": "hello"}, actor=ANN, timeout=0.01)
    assert ended.error is not None and ended.error.code == "TIMEOUT"
    assert "slow" not in await app.learning.weights(ANN)
    [report] = await app.learning.show(tenant="acme", tool="slow")
    assert report.failures == 2 and dict(report.reasons) == {"VALIDATION_ERROR": 1, "TIMEOUT": 1}


async def test_feedback_is_taken_once_from_the_user_whose_call_it_is(app: App) -> None:
    call = await app.invoke("echo", {"text": "hello"}, actor=ANN)
    said = Feedback(
        tool_name="echo", success=False, call_id=call.id, score=0.2, comment="wrong\x00 words\x1b[31m", duration_ms=9e9
    )
    row = await app.learning.feedback(said, actor=ANN)
    assert row.comment == "wrong words [31m"
    assert row.duration_ms == pytest.approx(call.metrics.duration_ms)  # the record's, not the caller's
    assert row.is_weighed
    assert (await app.learning.weights(ANN))["echo"] < 1
    with pytest.raises(FeedbackRefused, match="already") as again:
        await app.learning.feedback(said, actor=ANN)
    assert again.value.category == "conflict"
    for stranger in (BOB, EVE):
        with pytest.raises(FeedbackRefused) as refused:
            await app.learning.feedback(said, actor=stranger)
        assert refused.value.category == "missing"
    await app.learning.feedback(said, actor=BOB, all_users=True)
    assert "echo" not in await app.learning.weights(EVE)
    assert [one.user_id for one in await app.learning.said(tenant="acme")] == ["bob", "ann"]
    assert await app.learning.said(tenant="other") == []


async def test_feedback_for_another_tenant_is_refused_as_if_the_call_were_missing(app: App) -> None:
    call = await app.invoke("echo", {"text": "hello"}, actor=EVE)
    refusals = set()
    for said in (
        Feedback(tool_name="echo", success=False, call_id=call.id),
        Feedback(tool_name="echo", success=False, tenant="other"),
        Feedback(tool_name="echo", success=False, persona_id="chief"),
        Feedback(tool_name="echo", success=False, call_id="no-such-call"),
        Feedback(tool_name="echo", success=False, call_id="x" * 1_000_000),
    ):
        with pytest.raises(FeedbackRefused) as refused:
            await app.learning.feedback(said, actor=ANN)
        refusals.add(str(refused.value))
    assert len(refusals) == 1
    assert await app.learning.said(tenant="other") == []


async def test_a_flood_of_feedback_is_bounded_and_hardly_moves_a_tool() -> None:
    async with memory_app(learning={"feedback_per_hour": 12}, clock=(clock := ManualClock())) as app:
        calls = [(await app.invoke("echo", {"text": str(number)}, actor=ANN)).id for number in range(13)]
        before = (await app.learning.weights(ANN))["echo"]
        for call in calls[:12]:
            await app.learning.feedback(Feedback(tool_name="echo", success=False, call_id=call), actor=ANN)
        with pytest.raises(CallError) as limited:
            await app.learning.feedback(Feedback(tool_name="echo", success=False, call_id=calls[12]), actor=ANN)
        assert limited.value.code == "RATE_LIMITED"
        weighed = [one for one in await app.learning.said(tenant="acme") if one.is_weighed]
        assert len(weighed) == WEIGHED_PER_HOUR
        assert MIN_FACTOR < (await app.learning.weights(ANN))["echo"] < before
        clock.advance(hours=1, minutes=1)
        await app.learning.feedback(Feedback(tool_name="echo", success=True, call_id=calls[12]), actor=ANN)


async def test_what_is_sent_at_once_is_counted_as_what_is_sent_one_after_the_other(database: str, tmp_path: Path) -> None:
    limits = {"feedback_per_hour": 12, "notes_per_hour": 2}
    async with memory_app(database_url=database, home=tmp_path / "home", learning=limits) as app:
        calls = [(await app.invoke("echo", {"text": str(number)}, actor=ANN)).id for number in range(30)]
        said = [Feedback(tool_name="echo", success=False, call_id=call) for call in calls]
        await asyncio.gather(*(app.learning.feedback(one, actor=ANN) for one in said), return_exceptions=True)
        kept = await app.learning.said(tenant="acme")
        assert (len(kept), sum(one.is_weighed for one in kept)) == (12, WEIGHED_PER_HOUR)
        notes = (app.learning.remember(f"note {number}", actor=ANN) for number in range(10))
        refused = [one for one in await asyncio.gather(*notes, return_exceptions=True) if not isinstance(one, str)]
        assert [one.code for one in refused if isinstance(one, CallError)] == ["RATE_LIMITED"] * 8


@pytest.mark.requirement("POL-7")
async def test_feedback_about_a_call_that_was_stopped_weighs_nothing(app: App) -> None:
    app.tools.register_many(World().tools())
    await app.tools.disable("translate_a", persona="clerk")
    clerk = Actor("acme", "clerk", "carl")
    for name in ("translate_a", "translate_z"):
        call = (await app.invoke(name, actor=clerk)).id
        row = await app.learning.feedback(Feedback(tool_name=name, success=False, call_id=call), actor=clerk)
        assert not row.is_weighed
    assert await app.learning.weights(ANN) == {}


async def test_many_words_of_one_user_do_not_outvote_another() -> None:
    async with memory_app() as app:
        task = "compute the total price of the order"
        await app.learning.feedback(Feedback(tool_name="calculator", success=True, task=task), actor=BOB)
        for tool_name, success in (("calculator", False), ("echo", True)):
            for _ in range(20):
                await app.learning.feedback(Feedback(tool_name=tool_name, success=success, task=task), actor=ANN)
        found = await app.learning.recommend(task, actor=BOB)
        assert {one.tool: (one.successes, one.failures) for one in found} == {"calculator": (1, 1), "echo": (1, 0)}


@pytest.mark.parametrize("by", ["meaning", "words"])
async def test_notes_of_one_user_take_no_place_from_what_others_told_of_tools(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "words":
        monkeypatch.setattr(past_tasks, "is_installed", lambda _extra: False)
    monkeypatch.setattr(past_tasks, "NEAREST", 3)
    monkeypatch.setattr(past_tasks, "MAX_USER_VOTES", 2)
    async with memory_app() as app:
        await app.learning.feedback(
            Feedback(tool_name="calculator", success=True, task="compute the whole price of the order"), actor=BOB
        )
        task = "compute the total price of the order"
        for _ in range(5):
            await app.learning.remember(task, actor=ANN)
        others = [one.name for one in await app.tools.list(ANN) if one.name != "calculator"][:4]
        for tool_name in (*others, *others):
            await app.learning.feedback(Feedback(tool_name=tool_name, success=False, task=task), actor=ANN)
        found = await app.learning.recommend(task, actor=BOB)
        assert [(one.tool, one.successes, one.failures) for one in found] == [("calculator", 1, 0)]


async def test_feedback_without_a_call_is_kept_and_weighs_nothing(app: App) -> None:
    row = await app.learning.feedback(Feedback(tool_name="echo", success=False), actor=ANN)
    assert not row.is_weighed
    assert "echo" not in await app.learning.weights(ANN)
    with pytest.raises(CallError, match="no tool"):
        await app.learning.feedback(Feedback(tool_name="no_such_tool", success=True), actor=ANN)


@pytest.mark.parametrize(
    "said",
    [
        Feedback(tool_name="echo", success=True, comment="x" * 1_000_000),
        Feedback(tool_name="echo", success=True, task="x" * 1_000_000),
        Feedback(tool_name="echo", success=True, score=float("nan")),
        Feedback(tool_name="echo", success=True, response_size=2**70),
        Feedback(tool_name="ec\x00ho", success=True),
        Feedback(tool_name="echo", success=True, args_hash="ghp_" + "a1B2" * 9),
        Feedback(tool_name="echo", success=True, args_hash="sha256:" + "\x1b" * 64),
    ],
)
async def test_feedback_that_is_too_long_or_no_number_is_refused(app: App, said: Feedback) -> None:
    with pytest.raises((InvalidInput, CallError)):
        await app.learning.feedback(said, actor=ANN)
    assert await app.learning.said(tenant="acme") == []


@pytest.mark.parametrize("by", ["meaning", "words"])
async def test_tools_that_did_similar_tasks_are_recommended_within_the_tenant(
    app: App, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "words":
        monkeypatch.setattr(past_tasks, "is_installed", lambda _extra: False)
    assert app.learning.by_meaning is (by == "meaning")
    for tool_name, success, task in (
        ("calculator", True, "compute the total price of the order"),
        ("echo", False, "compute the total price of the order"),
        ("datetime", True, "download the weather forecast"),
    ):
        await app.learning.feedback(Feedback(tool_name=tool_name, success=success, task=task), actor=ANN)
    await app.learning.remember("the total price of an order has the tax in it", tags=["shop"], actor=BOB)
    query = "compute the total price of an order"
    assert [one.tool for one in await app.learning.recommend(query, actor=BOB)] == ["calculator"]
    own = await app.learning.recall(query, actor=BOB)
    assert [(one.kind, one.tags) for one in own] == [("note", ("shop",))]  # others' words are not shown
    everybody = await app.learning.recall(query, actor=BOB, all_users=True)
    tools = {use.tool: (use.successes, use.failures) for one in everybody for use in one.tools}
    assert tools == {"calculator": (1, 0), "echo": (0, 1)}
    assert await app.learning.recall(query, actor=EVE, all_users=True) == []
    assert await app.learning.recommend(query, actor=EVE) == []


@pytest.mark.parametrize("by", ["meaning", "words"])
async def test_a_user_recalls_their_own_note_however_many_alike_others_keep(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "words":
        monkeypatch.setattr(past_tasks, "is_installed", lambda _extra: False)
    monkeypatch.setattr(past_tasks, "NEAREST", 3)
    monkeypatch.setattr(past_tasks, "MAX_WORD_NOTES", 3)
    odd = Actor("acme", user="o'b\\' or user != '")
    async with memory_app() as app:
        await app.learning.remember("the tax of an order is part of its total price", actor=odd)
        for number in range(5):
            await app.learning.remember(f"the total price of order {number}", actor=ANN)
        assert [one.text for one in await app.learning.recall("the total price of an order", actor=odd)] == [
            "the tax of an order is part of its total price"
        ]
        assert len(await app.learning.recall("the total price of an order", actor=ANN)) == 3


@pytest.mark.requirement("POL-7")
async def test_the_report_of_a_user_does_not_tell_which_hidden_tools_there_are(app: App) -> None:
    """A user may call any name: what others' calls of it taught is no answer to whether there is such a tool."""
    app.tools.register_many(World().tools())
    clerk = Actor("acme", "clerk", "carl")
    await app.tools.disable("translate_a", persona="clerk")
    for name in ("translate_a", "translate_b"):
        await app.invoke(name, actor=BOB)
    for name in ("translate_a", "translate_b", "translate_z"):
        await app.invoke(name, actor=clerk)
    await app.statistics.catch_up()
    hidden, missing, ran = sorted(
        await app.learning.show(tenant="acme", user="carl"), key=lambda one: (one.successes, one.tool)
    )
    assert hidden._replace(tool="translate_z") == missing
    assert ran.reliability is not None


@pytest.mark.parametrize("by", ["meaning", "words"])
async def test_secrets_in_notes_are_masked_and_notes_are_bounded(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "words":
        monkeypatch.setattr(past_tasks, "is_installed", lambda _extra: False)
    async with memory_app(learning={"notes_per_hour": 2}) as app:
        token = "ghp_" + "a1B2" * 9
        await app.learning.remember(f"the token is {token}", tags=["access", token], actor=ANN)
        [found] = await app.learning.recall("what is the token", actor=ANN)
        assert token not in found.text
        assert found.tags == ("access", "[REDACTED]")
        with pytest.raises(InvalidInput, match="at most"):
            await app.learning.remember("x" * 1_000_000, actor=ANN)
        await app.learning.remember("two\x00\x1b", actor=ANN)
        with pytest.raises(CallError) as limited:
            await app.learning.remember("three", actor=ANN)
        assert limited.value.code == "RATE_LIMITED"
        await app.learning.remember("another user's", actor=BOB)


async def test_what_is_learned_is_forgotten_by_age_and_on_request(database: str, tmp_path: Path) -> None:
    clock = ManualClock(1_790_000_000)
    settings = {"home": tmp_path / "home", "database_url": database, "learning": {"keep_days": 1}}
    async with memory_app(clock=clock, **settings) as app:
        for actor in (ANN, BOB, EVE):
            call = await app.invoke("echo", {"text": "hello"}, actor=actor)
            await app.learning.feedback(
                Feedback(tool_name="echo", success=True, call_id=call.id, task="say hello"), actor=actor
            )
        assert await app.learning.forget("acme", user="ann") == 2
        assert [one.user_id for one in await app.learning.said(tenant="acme")] == ["bob"]
        assert "echo" in await app.learning.weights(BOB)
        assert await app.learning.forget("acme") == 2
        assert await app.learning.weights(BOB) == {}
        assert len(await app.learning.recall("say hello", actor=EVE)) == 1
        later = app.parts.now() + timedelta(days=2)
        assert await app.learning.forget("other", before=later) == 2


@given(st.lists(st.sampled_from(["good", "bad", "transient"]), max_size=200))
def test_a_factor_stays_within_its_bounds_and_rises_with_each_success(verdicts: list[str]) -> None:
    row = OutcomeRow("acme", "echo")
    for at, verdict in enumerate(verdicts):
        row = row.after(Observed(verdict, at))  # type: ignore[arg-type]
    assert MIN_FACTOR <= factor(row.good, row.bad) <= MAX_FACTOR
    assert row.recovered <= row.transient + 1e-9 and row.transient <= row.bad + 1e-9
    better, worse = row.after(Observed("good", len(verdicts))), row.after(Observed("bad", len(verdicts)))
    assert factor(worse.good, worse.bad) <= factor(better.good, better.bad)
    assert abs(factor(*row.aged(10**9)[2:4]) - 1) < 1e-6  # what is long past says nothing
