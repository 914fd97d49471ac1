"""`datetime`: right across time zones, clock changes and ends of months; a refusal where a text could mean two things."""

import re
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import Actor, App
from toolgate.errors import SettingsError
from toolgate.model import ErrorInfo
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-1")

ZONES = ["UTC", "Africa/Kigali", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
SPAN = 200 * 365 * 86_400
MOMENTS = st.integers(-SPAN, SPAN).map(lambda seconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        yield app


async def run(app: App, operation: str, **arguments: Any) -> dict[str, Any]:
    outcome = await app.invoke("datetime", {"operation": operation, **arguments})
    assert outcome.ok, outcome.error
    answer: dict[str, Any] = outcome.output
    return answer


async def refusal(app: App, operation: str, **arguments: Any) -> ErrorInfo:
    began = time.process_time()
    outcome = await app.invoke("datetime", {"operation": operation, **arguments})
    assert time.process_time() - began < 5
    assert outcome.error is not None, outcome.output
    assert outcome.error.code == "INVALID_INPUT"
    return outcome.error


# -- now


async def test_now_is_the_current_time_in_utc_and_formatted_in_the_zone(app: App) -> None:
    before = int(time.time() * 1000)
    answer = await run(app, "now", timezone="Asia/Kathmandu", format="YYYY-MM-DDTHH:mm:ss.SSSZ")
    assert set(answer) == {"iso", "formatted", "timezone", "timestamp"}
    assert before <= answer["timestamp"] <= time.time() * 1000
    assert answer["timezone"] == "Asia/Kathmandu"
    assert answer["iso"].endswith("Z")
    assert answer["formatted"].endswith("+05:45")
    for text in (answer["iso"], answer["formatted"]):
        assert round(datetime.fromisoformat(text).timestamp() * 1000) == answer["timestamp"]


async def test_without_a_zone_it_is_utc(app: App) -> None:
    answer = await run(app, "now")
    assert answer["timezone"] == "UTC"
    assert answer["formatted"] == answer["iso"][:19].replace("T", " ")


ACME = [
    {"tenant": "acme", "timezone": "Europe/Berlin"},
    {"tenant": "acme", "user": "anna", "timezone": "Asia/Tokyo"},
    {"tenant": "other", "user": "bert", "timezone": "America/New_York"},
]


@pytest.mark.parametrize(
    ("actor", "zone"),
    [
        (Actor(tenant="acme", user="anna"), "Asia/Tokyo"),
        (Actor(tenant="acme", user="bert"), "Europe/Berlin"),
        (Actor(tenant="acme", user="anna", persona="admin"), "Asia/Tokyo"),
        (Actor(tenant="other", user="anna"), "Africa/Kigali"),
        (Actor(tenant="other", user="bert"), "America/New_York"),
        (None, "Africa/Kigali"),
    ],
)
async def test_the_default_zone_is_the_users_then_the_tenants_then_the_installations(actor: Actor | None, zone: str) -> None:
    async with memory_app(timezone="Africa/Kigali", timezones=ACME) as app:
        now = await app.invoke("datetime", {"operation": "now"}, actor=actor)
        assert now.output["timezone"] == zone
        read = await app.invoke("datetime", {"operation": "parse", "date": "2024-07-01T12:00"}, actor=actor)
        assert read.output["formatted"] == "2024-07-01 12:00:00"
        noon = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo(zone))
        assert read.output["timestamp"] == noon.timestamp() * 1000
        named = await app.invoke("datetime", {"operation": "now", "timezone": "UTC"}, actor=actor)
        assert named.output["timezone"] == "UTC"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"timezone": "Mars/Base"}, "no time zone"),
        ({"timezones": [{"tenant": "acme", "timezone": "../../etc/passwd"}]}, "no time zone"),
        ({"timezones": [{"user": "anna", "timezone": "UTC"}]}, "tenant"),
        ({"timezones": [ACME[0], ACME[0]]}, "tenant acme has two time zones"),
        ({"timezones": [ACME[1], ACME[1]]}, "user anna of tenant acme has two time zones"),
    ],
)
def test_a_wrong_default_zone_is_refused_when_settings_are_read(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        memory_app(**settings)


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "../../etc/passwd", "/etc/passwd", "", "+02:00", "a\0b", pytest.param("x" * 2000, id="long")]
)
async def test_an_unknown_zone_is_refused(app: App, zone: str) -> None:
    assert "no time zone" in (await refusal(app, "now", timezone=zone)).message


# -- parse


@pytest.mark.parametrize(
    ("text", "zone", "iso"),
    [
        ("2024-01-15T10:30:00Z", "UTC", "2024-01-15T10:30:00.000Z"),
        ("2024-01-15T10:30:00.1239+02:00", "UTC", "2024-01-15T08:30:00.123Z"),
        ("  2024-01-15 10:30:00  ", "Africa/Kigali", "2024-01-15T08:30:00.000Z"),
        ("2024-01-15T10:30", "America/New_York", "2024-01-15T15:30:00.000Z"),
        ("20240115T103000Z", "UTC", "2024-01-15T10:30:00.000Z"),
        ("2024-01-15", "Asia/Tokyo", "2024-01-14T15:00:00.000Z"),
        ("20240115", "UTC", "2024-01-15T00:00:00.000Z"),
        ("2024-W03-1", "UTC", "2024-01-15T00:00:00.000Z"),
        ("2024-01-15T10:30+01:00[Europe/Paris]", "UTC", "2024-01-15T09:30:00.000Z"),
        ("1705314600", "UTC", "2024-01-15T10:30:00.000Z"),
        ("1705314600.5", "UTC", "2024-01-15T10:30:00.500Z"),
        ("1705314600041", "UTC", "2024-01-15T10:30:00.041Z"),
        ("-1705314600", "UTC", "1915-12-18T13:30:00.000Z"),
        ("15 January 2024 at 10:30", "Europe/Paris", "2024-01-15T09:30:00.000Z"),
        ("Jan 15th, 2024 3:04pm", "UTC", "2024-01-15T15:04:00.000Z"),
        ("2024-01-02 10:30:00 UTC", "Asia/Tokyo", "2024-01-02T10:30:00.000Z"),
        ("2024-01-02 5pm", "UTC", "2024-01-02T17:00:00.000Z"),
        ("Mon, 15 Jan 2024 10:30:00 -0500", "UTC", "2024-01-15T15:30:00.000Z"),
    ],
)
@pytest.mark.sample(4)
async def test_it_reads_iso_8601_unix_timestamps_and_english(app: App, text: str, zone: str, iso: str) -> None:
    answer = await run(app, "parse", date=text, timezone=zone)
    local = datetime.fromisoformat(iso).astimezone(ZoneInfo(zone))
    assert answer == {
        "iso": iso,
        "formatted": f"{local:%Y-%m-%d %H:%M:%S}",
        "timestamp": round(datetime.fromisoformat(iso).timestamp() * 1000),
    }


@pytest.mark.parametrize(
    ("local", "zone", "iso"),
    [
        ("2024-03-31T02:30", "Europe/Paris", "2024-03-31T01:30:00.000Z"),  # skipped: moved on to 03:30
        ("2024-10-27T02:30", "Europe/Paris", "2024-10-27T00:30:00.000Z"),  # twice: the first
        ("2024-04-26", "Africa/Cairo", "2024-04-25T22:00:00.000Z"),  # a day that starts at 01:00
    ],
)
async def test_times_that_clocks_skip_or_show_twice_are_settled(app: App, local: str, zone: str, iso: str) -> None:
    assert (await run(app, "parse", date=local, timezone=zone))["iso"] == iso


@pytest.mark.parametrize(
    ("text", "days", "clock"),
    [("tomorrow at noon", 1, "12:00:00"), ("yesterday 14:00", -1, "14:00:00"), ("today at 5pm", 0, "17:00:00")],
)
async def test_english_days_are_counted_in_the_zone(app: App, text: str, days: int, clock: str) -> None:
    zone = ZoneInfo("Asia/Tokyo")
    before = datetime.now(zone)
    answer = await run(app, "parse", date=text, timezone="Asia/Tokyo")
    possible = {f"{at + timedelta(days=days):%Y-%m-%d} {clock}" for at in (before, datetime.now(zone))}
    assert answer["formatted"] in possible


async def test_english_weekdays_and_spans_start_from_now(app: App) -> None:
    friday = await run(app, "format", date="next friday", format="dddd")
    assert friday["formatted"] == "Friday"
    before = time.time()
    soon = await run(app, "parse", date="in 2 hours")
    assert before + 7200 - 1 <= soon["timestamp"] / 1000 <= time.time() + 7200


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "hello", "may", "15", "2024", "2024-01", "March 2024", "10:30", "5/6", "01/02/2024", "25/12/2024"),
        *("01/02/03 at 5pm", "2024-13-01", "2024-13-01 5pm", "2024-02-30", "2024-01-15T25:00", "12024-01-01"),
        *("2024-01-15 10:00+03:00[Europe/Paris]", "2024-01-15T10:00[../../etc/passwd]", "2024-01-15T10:00Z[Mars/Base]"),
        *("9999-12-31T23:59:59-10:00", "0001-01-01T00:00+10:00", "in 99999 years", "in 999999999999999 days", "9" * 99),
        *("\0", "1:" * 50, "in 1 day " * 12, pytest.param("1" * 200_000, id="long")),
    ],
)
@pytest.mark.sample(5)
async def test_what_is_no_date_or_could_be_several_is_refused(app: App, text: str) -> None:
    await refusal(app, "parse", date=text)


async def test_without_dateparser_iso_works_and_english_says_what_to_install(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("dateparser", "dateparser.date"):
        monkeypatch.setitem(sys.modules, module, None)
    assert (await run(app, "parse", date="2024-01-15"))["iso"] == "2024-01-15T00:00:00.000Z"
    assert "toolgate[dates]" in ((await refusal(app, "parse", date="tomorrow")).suggestion or "")


# -- format


@pytest.mark.parametrize(
    ("pattern", "formatted"),
    [
        ("YYYY-MM-DD HH:mm:ss", "2024-03-05 00:07:09"),
        ("YY M D H:m:s", "24 3 5 0:7:9"),
        ("dddd, MMMM D, YYYY", "Tuesday, March 5, 2024"),
        ("ddd MMM DD", "Tue Mar 05"),
        ("hh:mm A", "12:07 AM"),
        ("h:mma", "12:07am"),
        ("HH:mm:ss.SSS", "00:07:09.045"),
        ("YYYY-MM-DDTHH:mm:ssZ", "2024-03-05T00:07:09-05:00"),
        ("ZZ", "-0500"),
        ("[Today is] dddd [MM] [[]", "Today is Tuesday MM ["),
    ],
)
async def test_formats_are_made_of_tokens(app: App, pattern: str, formatted: str) -> None:
    answer = await run(app, "format", date="2024-03-05T05:07:09.045Z", timezone="America/New_York", format=pattern)
    assert answer == {"formatted": formatted}


async def test_afternoons_are_pm(app: App) -> None:
    answer = await run(app, "format", date="2024-03-05T12:00Z", format="hh:mm A | h a")
    assert answer["formatted"] == "12:00 PM | 12 pm"


async def test_format_without_a_date_formats_now(app: App) -> None:
    before = datetime.now(UTC)
    answer = await run(app, "format", format="YYYY-MM-DD")
    assert answer["formatted"] in {f"{at:%Y-%m-%d}" for at in (before, datetime.now(UTC))}


@pytest.mark.parametrize("pattern", ["", "?", "%Y-%m-%d", "Y" * 101])
async def test_what_is_no_format_is_refused(app: App, pattern: str) -> None:
    await refusal(app, "now", format=pattern)


# -- diff


@pytest.mark.parametrize(
    ("date1", "date2", "unit", "difference"),
    [
        ("2024-01-01", "2024-01-02", "hours", 24),
        ("2024-01-02", "2024-01-01", "hours", -24),
        ("2024-01-01T00:00Z", "2024-01-01T01:30Z", "hour", 1.5),
        ("2024-01-01T00:00Z", "2024-01-01T00:00:00.001Z", "milliseconds", 1),
        ("2024-01-01T00:00+02:00", "2024-01-01T00:00Z", "minutes", 120),
        ("2024-01-01", "2024-02-01", "weeks", 31 / 7),
        ("2024-01-31", "2024-02-29", "months", 1),
        ("2024-01-15", "2025-07-15", "months", 18),
        ("2000-02-29", "2024-02-29", "years", 24),
        ("2023-01-01", "2024-07-02", "years", 1.5),
    ],
)
@pytest.mark.sample(4)
async def test_diff_is_the_time_from_date1_to_date2(app: App, date1: str, date2: str, unit: str, difference: float) -> None:
    answer = await run(app, "diff", date1=date1, date2=date2, unit=unit)
    assert answer["difference"] == pytest.approx(difference)
    assert answer["unit"] == unit.removesuffix("s") + "s"


async def test_a_day_is_a_day_though_clocks_change(app: App) -> None:
    dates = {"date1": "2024-03-09T12:00", "date2": "2024-03-10T12:00", "timezone": "America/New_York"}
    assert (await run(app, "diff", unit="days", **dates))["difference"] == 1
    assert (await run(app, "diff", unit="hours", **dates))["difference"] == 23


# -- add


@pytest.mark.parametrize(
    ("date", "amount", "unit", "zone", "formatted"),
    [
        ("2024-01-31", 1, "month", "UTC", "2024-02-29 00:00:00"),
        ("2023-01-31", 1, "months", "UTC", "2023-02-28 00:00:00"),
        ("2024-03-31", -1, "months", "UTC", "2024-02-29 00:00:00"),
        ("2024-02-29", 1, "year", "UTC", "2025-02-28 00:00:00"),
        ("2024-02-28", 2, "days", "UTC", "2024-03-01 00:00:00"),
        ("2024-12-31T23:59:59", 1, "second", "UTC", "2025-01-01 00:00:00"),
        ("2024-01-01", 1.5, "hours", "UTC", "2024-01-01 01:30:00"),
        ("2024-01-01", 2.0, "weeks", "UTC", "2024-01-15 00:00:00"),
        ("2024-03-09T12:00", 1, "day", "America/New_York", "2024-03-10 12:00:00"),
        ("2024-03-09T12:00", 24, "hours", "America/New_York", "2024-03-10 13:00:00"),
        ("2024-03-30T02:30", 1, "day", "Europe/Paris", "2024-03-31 03:30:00"),
    ],
)
async def test_add_follows_the_calendar_of_the_zone(
    app: App, date: str, amount: float, unit: str, zone: str, formatted: str
) -> None:
    answer = await run(app, "add", date=date, amount=amount, unit=unit, timezone=zone)
    assert set(answer) == {"original", "result", "formatted"}
    assert answer["formatted"] == formatted
    assert datetime.fromisoformat(answer["original"]) == datetime.fromisoformat(date).replace(tzinfo=ZoneInfo(zone))
    assert f"{datetime.fromisoformat(answer['result']).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}" == formatted


async def test_add_without_a_date_starts_from_now(app: App) -> None:
    before = datetime.now(UTC)
    answer = await run(app, "add", amount=-1, unit="hours")
    assert before - timedelta(hours=1, milliseconds=1) <= datetime.fromisoformat(answer["result"])
    assert datetime.fromisoformat(answer["original"]) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("arguments", "part_of_message"),
    [
        ({"amount": 1.5, "unit": "months"}, "Months can only be added whole"),
        ({"amount": 1, "unit": "fortnights"}, "no unit 'fortnights'"),
        ({"amount": 1, "unit": ""}, "no unit"),
        ({"amount": 10**4, "unit": "years"}, "outside the years"),
        ({"amount": -(10**18), "unit": "days"}, "outside the years"),
        ({"amount": 1e300, "unit": "hours"}, "outside the years"),
        ({"amount": 1e300, "unit": "months"}, "outside the years"),
        ({"amount": 1}, "needs unit"),
        ({"unit": "days"}, "needs amount"),
    ],
)
async def test_what_can_not_be_added_is_refused(app: App, arguments: dict[str, Any], part_of_message: str) -> None:
    assert part_of_message in (await refusal(app, "add", **arguments)).message


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [("parse", {}), ("diff", {"date1": "2024-01-01", "unit": "days"}), ("diff", {"date2": "2024-01-01", "unit": "days"})],
)
async def test_an_operation_says_which_argument_it_lacks(app: App, operation: str, arguments: dict[str, Any]) -> None:
    assert f"{operation} needs date" in (await refusal(app, operation, **arguments)).message


async def test_an_unknown_operation_does_not_fit_the_schema(app: App) -> None:
    outcome = await app.invoke("datetime", {"operation": "sleep"})
    assert outcome.error is not None
    assert outcome.error.code == "VALIDATION_ERROR"


# -- properties


@given(
    moment=MOMENTS,
    zone=st.sampled_from(ZONES),
    unit=st.sampled_from(["seconds", "minutes", "hours"]),
    amount=st.integers(-(10**6), 10**6),
)
async def test_diff_finds_what_add_added(app: App, moment: datetime, zone: str, unit: str, amount: int) -> None:
    added = await run(app, "add", date=moment.isoformat(), timezone=zone, amount=amount, unit=unit)
    assert datetime.fromisoformat(added["result"]) == moment + timedelta(**{unit: amount})
    found = await run(app, "diff", date1=added["original"], date2=added["result"], timezone=zone, unit=unit)
    assert found["difference"] == amount


@given(moment=MOMENTS, unit=st.sampled_from(["days", "weeks", "months", "years"]), amount=st.integers(-500, 500))
async def test_diff_finds_what_add_added_of_the_calendar(app: App, moment: datetime, unit: str, amount: int) -> None:
    added = await run(app, "add", date=moment.isoformat(), amount=amount, unit=unit)
    found = await run(app, "diff", date1=added["original"], date2=added["result"], unit=unit)
    assert found["difference"] == amount


@given(moment=MOMENTS, zone=st.sampled_from(ZONES))
async def test_what_was_formatted_with_its_offset_is_read_as_the_same_moment(app: App, moment: datetime, zone: str) -> None:
    text = (await run(app, "format", date=moment.isoformat(), timezone=zone, format="YYYY-MM-DD HH:mm:ssZ"))["formatted"]
    local = moment.astimezone(ZoneInfo(zone))
    assert text.startswith(f"{local.replace(tzinfo=None)}")
    assert datetime.fromisoformat((await run(app, "parse", date=text))["iso"]) == moment


@given(moment=MOMENTS)
async def test_its_own_formats_and_timestamps_can_be_read_again(app: App, moment: datetime) -> None:
    answer = await run(app, "parse", date=moment.isoformat())
    again = [await run(app, "parse", date=answer["iso"]), await run(app, "parse", date=answer["formatted"])]
    again.append(await run(app, "parse", date=f"{moment:%Y-%m-%d} {moment.hour % 12 or 12}:{moment:%M:%S %p}"))
    if abs(answer["timestamp"]) >= 10**11:
        again.append(await run(app, "parse", date=str(answer["timestamp"])))
    assert again == [answer] * len(again)


PIECES = [
    *("jan", "1", "2024", "99999", "at", "ago", "in", "5pm", "hours", "utc", "th", "noon", "week", "next"),
    *(":", "-", "/", ".", "+", "(", "[", "T", "Z", " ", "\0", "é"),
]


@given(text=st.text(max_size=110) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
async def test_any_text_is_read_or_refused(app: App, text: str) -> None:
    for arguments in ({"date": text}, {"date": "2024-01-15", "format": text}, {"date": "2024-01-15", "timezone": text}):
        outcome = await app.invoke("datetime", {"operation": "parse", **arguments})
        if outcome.ok:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", outcome.output["iso"])
        else:
            assert outcome.error is not None
            assert outcome.error.code == "INVALID_INPUT"
