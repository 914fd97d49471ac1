"""Times on the command line: ages and local dates in, local time out; and never anything but a moment or a usage error."""

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.cli.context import Usage
from toolgate.cli.times import iso, seconds_of, shown, since_when

pytestmark = pytest.mark.requirement("DOOR-1")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
INDIA = ZoneInfo("Asia/Kolkata")


@pytest.fixture
def in_india() -> Iterator[None]:
    """This machine is in India for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", INDIA.key)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_india")
@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("90s", NOON - timedelta(seconds=90)),
        ("30m", NOON - timedelta(minutes=30)),
        ("24h", NOON - timedelta(days=1)),
        ("4w", NOON - timedelta(weeks=4)),
        ("0d", NOON),
        ("2026-11-01", datetime(2026, 10, 31, 18, 30, tzinfo=UTC)),
        ("2026-11-15T17:00", NOON - timedelta(minutes=30)),
        ("2026-11-15T12:30+01:00", NOON - timedelta(minutes=30)),
    ],
)
def test_a_moment_is_an_age_or_a_date_of_this_machine(text: str, begin: datetime) -> None:
    assert since_when(text, NOON) == begin


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "1y", "7 d", "yesterday", "2026-13-01", "9999999999d", "999999w"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="--since must be such as"):
        since_when(text, NOON)


@pytest.mark.parametrize("text", ["2026-11-17", "2026-11-15T12:00:01Z"])
def test_the_future_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="--since is in the future"):
        since_when(text, NOON)


@given(st.text(max_size=20) | st.from_regex(r"[0-9]{1,10}[smhdw]", fullmatch=True) | st.datetimes().map(str))
def test_any_text_is_a_moment_in_the_past_or_usage(text: str) -> None:
    with contextlib.suppress(Usage):
        assert since_when(text, NOON) <= NOON


@given(st.text(max_size=12) | st.from_regex(r"[0-9]{1,10}[smhdw]", fullmatch=True))
def test_any_text_is_a_time_above_nothing_or_usage(text: str) -> None:
    with contextlib.suppress(Usage):
        assert seconds_of(text) > 0


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_programs_get_the_very_moment_and_people_its_minute(moment: datetime) -> None:
    assert datetime.fromisoformat(iso(moment)) == moment
    assert iso(moment.astimezone(INDIA)) == iso(moment)
    told = datetime.fromisoformat(shown(moment, INDIA).removesuffix(" IST")).replace(tzinfo=INDIA)
    assert told == moment.replace(second=0, microsecond=0)


@pytest.mark.usefixtures("in_india")
def test_people_see_the_time_of_their_machine_and_which_zone_it_is() -> None:
    assert shown(NOON) == "2026-11-15 17:30 IST"
    assert shown(NOON, seconds=True) == "2026-11-15 17:30:00 IST"
    assert shown(NOON, UTC) == "2026-11-15 12:00 UTC"
