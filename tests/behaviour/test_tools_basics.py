"""`echo` and `timestamp`."""

import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import App
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-4")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


@given(text=st.text(max_size=300))
async def test_echo_gives_back_any_text_unchanged(app: App, text: str) -> None:
    outcome = await app.invoke("echo", {"text": text})
    assert outcome.status == "success"
    assert outcome.output == {"text": text}


@pytest.mark.parametrize("arguments", [{}, {"text": 1}, {"text": None}, {"text": "a", "more": "b"}])
async def test_echo_takes_one_text_and_nothing_else(app: App, arguments: dict[str, object]) -> None:
    outcome = await app.invoke("echo", arguments)
    assert outcome.error is not None
    assert outcome.error.code == "VALIDATION_ERROR"


async def test_timestamp_is_the_current_time_in_utc_as_iso_8601(app: App) -> None:
    before = datetime.now(UTC)
    outcome = await app.invoke("timestamp", {})
    text = outcome.output["timestamp"]
    assert outcome.output["format"] == "iso"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert before - timedelta(milliseconds=1) <= datetime.fromisoformat(text) <= datetime.now(UTC)


@pytest.mark.parametrize(("name", "per_second"), [("unix", 1), ("unix_ms", 1000)])
async def test_timestamp_can_be_a_whole_number_of_seconds_or_milliseconds(app: App, name: str, per_second: int) -> None:
    before = int(time.time() * per_second)
    outcome = await app.invoke("timestamp", {"format": name})
    assert outcome.output["format"] == name
    assert type(outcome.output["timestamp"]) is int
    assert before <= outcome.output["timestamp"] <= time.time() * per_second


async def test_timestamp_follows_a_strftime_pattern(app: App) -> None:
    before = datetime.now(UTC)
    outcome = await app.invoke("timestamp", {"format": "%Y/%j at 100%% é"})
    assert outcome.output["timestamp"] in {f"{moment:%Y/%j} at 100% é" for moment in (before, datetime.now(UTC))}


@pytest.mark.parametrize("pattern", ["", "ISO8601", "YYYY-MM-DD", "%Q", "%", "%Y %", "%99999999Y", "%-d", "%Y" * 101])
async def test_timestamp_refuses_what_is_no_format(app: App, pattern: str) -> None:
    outcome = await app.invoke("timestamp", {"format": pattern})
    assert outcome.status == "failure"
    assert outcome.error is not None
    assert outcome.error.code == "INVALID_INPUT"


@given(pattern=st.lists(st.sampled_from(["%", "Y", "m", "%d", "%%", "Q", "-", "9", "\0", "é", "\n"])).map("".join))
async def test_timestamp_writes_any_pattern_or_says_why_not(app: App, pattern: str) -> None:
    outcome = await app.invoke("timestamp", {"format": pattern})
    assert outcome.ok or (outcome.error is not None and outcome.error.code == "INVALID_INPUT")
