"""Repetitions: a request that a model's server refused as busy is made again, when and as often as is right, and never one
that may have been paid for."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Said
from tests.model_servers import KEY, Reply, Talk, events, modelled, streamed
from tests.services import failed, hang_up, never, records
from toolgate import App
from toolgate.llm.completion import Conversations
from toolgate.llm.retries import hint, wait_before
from toolgate.model import Outcome

pytestmark = pytest.mark.requirement("AGENT-1")
TURN = {"conversation": "talk", "messages": [{"role": "user", "text": "And now?"}]}
PRICED = {"input_price": 100, "output_price": 100, "retries": 2}
SOON = {"retry-after-ms": "1"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


async def ask(app: App, talk: Talk | None = None) -> Outcome:
    app.provide(Conversations, talk or Talk(streams=False))
    return await app.invoke("ask_model", TURN, internal=True)


def busy(status: int, **headers: str) -> Said:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Said(status, {"error": {"type": "x", "message": "busy"}}, named or SOON)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_busy_server_is_asked_again_and_only_its_answer_paid(dialect: str, streams: bool) -> None:
    talk = Talk(streams=streams)
    answers = busy(429), busy(529), Reply("at last", read=100, written=100)
    async with modelled(dialect, *answers, model=PRICED) as (app, server):
        outcome = await ask(app, talk)
        assert outcome.output["text"] == "at last"
        assert len(server.asked) == 3
        assert outcome.metrics.cost_usd == pytest.approx(0.02)
        assert "asked again in" in await records(app)


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_each_failure_that_did_nothing_is_repeated(status: int) -> None:
    async with modelled("openai", busy(status), Reply("ok"), model=PRICED) as (app, server):
        assert (await ask(app)).ok
        assert len(server.asked) == 2


async def test_the_number_of_repetitions_has_a_limit() -> None:
    async with modelled("openai", busy(503), model=PRICED) as (app, server):
        outcome = await ask(app)
        failed(outcome, "CONNECTION_ERROR")
        assert len(server.asked) == 3
        assert outcome.metrics.cost_usd == 0


@pytest.mark.parametrize("answer", [busy(400), busy(401), busy(404), busy(408), busy(504), Said(402, {})])
async def test_other_refusals_are_not_repeated(answer: Said) -> None:
    async with modelled("openai", answer, model=PRICED) as (app, server):
        assert (await ask(app)).error is not None
        assert len(server.asked) == 1


async def test_an_account_without_credit_is_not_asked_again() -> None:
    said = Said(429, {"error": {"type": "insufficient_quota", "message": "You exceeded your current quota"}}, SOON)
    async with modelled("openai", said, model=PRICED) as (app, server):
        failed(await ask(app), "INVOCATION_ERROR")
        assert len(server.asked) == 1


async def test_a_server_that_wants_no_repetition_gets_none() -> None:
    async with modelled("openai", busy(500, x_should_retry="false"), model=PRICED) as (app, server):
        failed(await ask(app), "CONNECTION_ERROR")
        assert len(server.asked) == 1


async def test_a_server_that_asks_for_more_patience_than_there_is_is_not_waited_for() -> None:
    began = time.monotonic()
    async with modelled("openai", busy(429, retry_after="300"), model=PRICED) as (app, server):
        error = failed(await ask(app), "RATE_LIMITED")
        assert error.details == {"retry_after": 300.0}
        assert len(server.asked) == 1
    assert time.monotonic() - began < 20


async def test_the_patience_is_for_all_repetitions_together() -> None:
    model = {**PRICED, "retries": 10, "retry_seconds": 0.5}
    async with modelled("openai", busy(429, retry_after="0.2"), model=model) as (app, server):
        failed(await ask(app), "RATE_LIMITED")
        assert 2 <= len(server.asked) <= 3


async def test_the_hint_is_waited_for() -> None:
    async with modelled("openai", busy(429, retry_after="0.3"), Reply("ok"), model=PRICED) as (app, _):
        began = time.monotonic()
        assert (await ask(app)).ok
        assert time.monotonic() - began >= 0.3


async def test_a_server_that_is_not_there_yet_is_tried_again() -> None:
    async with modelled("openai", Reply("ok"), model={**PRICED, "retries": 4}) as (app, server):
        await server.stop()
        asking = asyncio.ensure_future(ask(app))
        await asyncio.sleep(0.2)
        await server.start()
        assert (await asking).ok


# -- what may have been paid for


async def test_a_connection_that_breaks_before_the_answer_is_not_tried_again_and_is_paid() -> None:
    async with modelled("openai", Said(raw=hang_up), Reply("x"), model=PRICED) as (app, server):
        outcome = await ask(app)
        assert not failed(outcome, "CONNECTION_ERROR").retryable
        assert len(server.asked) == 1
        assert outcome.metrics.cost_usd > 0.8  # nobody knows: as much as it might have cost


async def test_an_answer_that_does_not_come_in_time_is_not_asked_for_again() -> None:
    async with modelled("openai", never, model={**PRICED, "timeout": 0.3}) as (app, server):
        failed(await ask(app), "TIMEOUT")
        assert len(server.asked) == 1


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_stream_that_breaks_off_says_so_and_what_came_is_paid(dialect: str) -> None:
    talk = Talk()
    reply = Reply("word " * 100, read=1000, cut=20)
    async with modelled(dialect, reply, model=PRICED) as (app, server):
        outcome = await ask(app, talk)
        error = failed(outcome, "CONNECTION_ERROR")
        assert "broke off after" in error.message
        assert not error.retryable
        assert error.details == {"characters": len("".join(talk.streamed))}
        assert "word" in "".join(talk.streamed)
        assert talk.answers == []
        assert len(server.asked) == 1
        assert 0 < outcome.metrics.cost_usd < 0.3


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_stream_that_breaks_off_before_a_word_may_be_asked_for_again_by_the_caller(dialect: str) -> None:
    async with modelled(dialect, Reply("word", cut=1), model=PRICED) as (app, server):
        outcome = await ask(app, Talk())
        error = failed(outcome, "CONNECTION_ERROR")
        assert "before it said anything" in error.message
        assert error.retryable
        assert len(server.asked) == 1
        assert outcome.metrics.cost_usd > 0


async def test_a_stream_that_ends_without_saying_why_is_broken_off() -> None:
    parts = events("openai", Reply("half of it"))[:2]
    async with modelled("openai", streamed(parts), model=PRICED) as (app, _):
        assert "broke off" in failed(await ask(app, Talk()), "CONNECTION_ERROR").message


@pytest.mark.parametrize("missing", [1, 2])
async def test_what_is_missing_after_the_end_is_not_missed(missing: int) -> None:
    parts = events("openai", Reply("all of it"))[:-missing]
    async with modelled("openai", streamed([*parts, b""], cut=len(parts)), model=PRICED) as (app, _):
        assert (await ask(app, Talk())).output["text"] == "all of it"


ERROR_EVENTS = {
    "openai": b'data: {"error": {"message": "overloaded", "code": 503}}\n\n',
    "anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}\n\n',
}


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_an_error_in_a_stream_is_repeated_if_nothing_was_said(dialect: str) -> None:
    begun = events(dialect, Reply("a text of several words"))
    async with modelled(dialect, streamed([ERROR_EVENTS[dialect]]), Reply("ok"), model=PRICED) as (app, server):
        assert (await ask(app, Talk())).ok
        assert len(server.asked) == 2
    talk = Talk()
    async with modelled(dialect, streamed([*begun[:5], ERROR_EVENTS[dialect]]), Reply("ok"), model=PRICED) as (app, server):
        outcome = await ask(app, talk)
        failed(outcome, "CONNECTION_ERROR")
        assert len(server.asked) == 1
        assert talk.streamed
        assert outcome.metrics.cost_usd > 0


async def test_silence_in_a_stream_has_a_limit() -> None:
    parts = events("openai", Reply("word word"))[:2]
    model = {**PRICED, "idle_timeout": 0.3}
    async with modelled("openai", streamed(parts, ends=False), model=model) as (app, server):
        outcome = await ask(app, Talk())
        assert "sent nothing for 0.3 s" in failed(outcome, "TIMEOUT").message
        assert len(server.asked) == 1


# -- hints


def test_hints_are_read_as_servers_write_them() -> None:
    now = datetime.now(UTC)
    assert hint({}) is None
    assert hint({"retry-after": "7"}) == 7
    assert hint({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert hint({"retry-after": format_datetime(now + timedelta(seconds=30), usegmt=True)}) == pytest.approx(30, abs=2)
    assert hint({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "20ms"}) == 360
    assert hint({"x-ratelimit-reset-tokens": "1m30.5s", "x-ratelimit-remaining-tokens": "0"}) == 90.5
    limits = {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "59"}
    assert hint({**limits, "x-ratelimit-reset-tokens": "2s", "x-ratelimit-remaining-tokens": "0"}) == 2
    assert hint({"x-ratelimit-reset": str(int((now.timestamp() + 9) * 1000))}) == pytest.approx(9, abs=2)
    reset = (now + timedelta(seconds=12)).isoformat()
    left = {"anthropic-ratelimit-tokens-reset": reset, "anthropic-ratelimit-tokens-remaining": "0"}
    assert hint(left) == pytest.approx(12, abs=2)
    assert hint({**left, "anthropic-ratelimit-tokens-remaining": "500"}) is None


HEADERS = st.dictionaries(
    st.sampled_from(
        ["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens",
         "x-should-retry", "anthropic-ratelimit-tokens-reset"]
    ),
    st.text(max_size=30) | st.floats().map(str) | st.integers().map(str) | st.datetimes().map(str) | st.just("9" * 300),
)  # fmt: skip


@given(headers=HEADERS, attempt=st.integers(1, 11), left=st.floats(0, 3600), chance=st.floats(0, 1))
def test_whatever_a_server_hints_the_wait_is_within_what_is_left(
    headers: dict[str, str], attempt: int, left: float, chance: float
) -> None:
    wait = wait_before(attempt, headers, left, chance)
    assert wait is None or 0 <= wait <= left


@given(attempt=st.integers(1, 11), chance=st.floats(0, 1))
def test_without_a_hint_waits_grow_up_to_a_limit(attempt: int, chance: float) -> None:
    wait: Any = wait_before(attempt, {}, 3600, chance)
    assert min(0.5 * 2 ** (attempt - 1), 8) <= wait <= 10
