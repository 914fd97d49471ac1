"""The times of cron lines, against time zones reckoned minute by minute."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate.jobs.cron import least_gap, next_time, read_cron

pytestmark = pytest.mark.requirement("JOB-1")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")
CHANGES = {
    "Europe/Berlin": (date(2026, 3, 29), date(2026, 10, 25)),
    "America/New_York": (date(2026, 3, 8), date(2026, 11, 1)),
    "Australia/Lord_Howe": (date(2026, 4, 5), date(2026, 10, 4)),  # by half an hour
    "Pacific/Apia": (date(2011, 12, 30), date(2026, 3, 1)),  # a day that there was not
    "Africa/Casablanca": (date(2026, 2, 15), date(2026, 3, 22)),
    "Asia/Kathmandu": (date(2026, 6, 1), date(2026, 6, 2)),  # a quarter of an hour off, and no changes
}


@st.composite
def moments(draw: st.DrawFn) -> tuple[ZoneInfo, datetime]:
    """A time zone, and a moment near a change of its clocks."""
    name = draw(st.sampled_from(sorted(CHANGES)))
    day = draw(st.sampled_from(CHANGES[name]))
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    return ZoneInfo(name), noon + timedelta(seconds=draw(st.integers(-40 * 3600, 24 * 3600)))


def minute_sets() -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, 59), min_size=1, max_size=4)


def hour_sets() -> st.SearchStrategy[set[int]]:
    return st.sets(st.sampled_from((0, 1, 2, 3, 4, 5, 23)), min_size=1, max_size=3)


def field(values: set[int]) -> str:
    return ",".join(map(str, sorted(values)))


def real(naive: datetime, zone: ZoneInfo) -> datetime:
    """The first moment at which a clock shows this time or, where it passes it over, a later one."""
    while True:
        moment = naive.replace(tzinfo=zone).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == naive:
            return moment
        naive += MINUTE


@given(moments(), minute_sets(), hour_sets())
@at_most(300)
def test_a_time_of_day_fires_once_on_each_day_however_clocks_change(
    near: tuple[ZoneInfo, datetime], minutes: set[int], hours: set[int]
) -> None:
    zone, after = near
    today = after.astimezone(zone).date()
    days = [datetime(today.year, today.month, today.day) + number * DAY for number in range(-2, 4)]  # noqa: DTZ001
    times = [day.replace(hour=hour, minute=minute) for day in days for hour in hours for minute in minutes]
    wanted = min(moment for moment in (real(time, zone) for time in times) if moment > after)
    assert next_time(f"{field(minutes)} {field(hours)} * * *", zone, after) == wanted


@given(moments(), st.sampled_from(("*", "*/7", "*/30", "*/59")), st.one_of(st.just(set(range(24))), hour_sets()))
@at_most(150)
def test_a_line_that_goes_by_real_time_fires_whenever_a_clock_shows_it(
    near: tuple[ZoneInfo, datetime], minutes: str, hours: set[int]
) -> None:
    zone, after = near
    shown = set(range(0, 60, int(minutes[2:] or 1)))
    moment = after.replace(second=0)
    while True:
        moment += MINUTE
        local = moment.astimezone(zone)
        if local.minute in shown and local.hour in hours:
            break
    assert next_time(f"{minutes} {field(hours)} * * *", zone, after) == moment


@pytest.mark.parametrize(
    ("cron", "after", "times"),
    [
        # left out: at 2 o'clock it is 3
        ("30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        # twice: only the first time
        ("30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=UTC), ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        # after the first, and before the second
        ("50 2 * * *", datetime(2026, 10, 25, 1, 45, tzinfo=UTC), ["2026-10-26T02:50+01:00"]),
        # every hour is every hour
        ("0 * * * *", datetime(2026, 10, 24, 23, 30, tzinfo=UTC), ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00"]),
        ("0 0 29 2 *", datetime(2026, 1, 1, tzinfo=UTC), ["2028-02-29T00:00+01:00", "2032-02-29T00:00+01:00"]),
        ("0 0 L 2 *", datetime(2027, 1, 1, tzinfo=UTC), ["2027-02-28T00:00+01:00", "2028-02-29T00:00+01:00"]),
        ("0 0 29 2 */7", datetime(2026, 1, 1, tzinfo=UTC), ["2032-02-29T00:00+01:00"]),
    ],
)
def test_clocks_that_change_and_leap_years(cron: str, after: datetime, times: list[str]) -> None:
    for wanted in times:
        found = next_time(cron, BERLIN, after)
        assert found is not None and found.astimezone(BERLIN).isoformat(timespec="minutes") == wanted
        after = found


def test_there_is_an_end_of_time() -> None:
    last = datetime(9999, 12, 31, 23, 58, 30, tzinfo=UTC)
    assert next_time("* * * * *", UTC, last) == last.replace(minute=59, second=0)
    for zone in (UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")):
        assert next_time("0 12 1 1 *", zone, last) is None
        assert next_time("0 0 29 2 *", zone, last) is None
    assert next_time("0 0 29 2 *", UTC, datetime(2096, 3, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)


@given(minute_sets(), hour_sets())
@example({0, 59}, {0, 23})
@at_most(100)
def test_the_least_gap_is_that_of_the_times(minutes: set[int], hours: set[int]) -> None:
    line = read_cron(f"{field(minutes)} {field(hours)} * * *")
    times = [datetime(2026, 6, 1, tzinfo=UTC)]
    for _ in range(len(minutes) * len(hours) * 2 + 1):
        found = next_time(line, UTC, times[-1])
        assert found is not None
        times.append(found)
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    assert least_gap(line) == min(gaps)
