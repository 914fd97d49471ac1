"""Cron lines: the times at which a schedule fires, in a time zone.

A line has five fields (minute, hour, day of month, month, day of week), as Debian's cron reads them. Where clocks go
forward, a time that is left out fires as soon as it is over; where they go back, a time that comes twice fires once. Lines
whose minute or hour begins with `*` go by real time instead: what is left out is left out, and what comes twice fires twice.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from toolgate.errors import Failed, quoted
from toolgate.settings.timezones import known_zone

MAX_CRON_CHARS = 200
MAX_REPEATED_TIMES = 10_000
"""Times that are looked at to find one that is not over: those of the hours that a clock went back."""
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
EXAMPLE = (
    "Write five fields (minute, hour, day of month, month, day of week), such as '30 8 * * MON-FRI' for 8:30 on weekdays, "
    "or one of @hourly, @daily, @weekly, @monthly, @yearly."
)


def read_cron(text: str) -> str:
    """A cron line with single blanks. Raises Failed for what is none, or names a day that no month has."""
    line = " ".join(NICKNAMES.get(text.strip().lower(), text).split()) if len(text) <= MAX_CRON_CHARS else ""
    if len(line.split(" ")) != 5 or not line.isascii():
        raise Failed("VALIDATION_ERROR", f"The schedule {quoted(text)} is no cron line.", suggestion=EXAMPLE)
    from cronsim import CronSim, CronSimError

    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise Failed("VALIDATION_ERROR", _refusal(text, line, str(error)), suggestion=EXAMPLE) from None
    return line


def _refusal(text: str, line: str, error: str) -> str:
    """The reason why a line is refused: cronsim has one error for a day that cannot be read and one that no month has."""
    from cronsim import CronSim, CronSimError

    field = error.lower().removeprefix("bad ").replace("-", " ")
    minute, hour, day, _, weekday = line.split(" ")
    if field == "day of month":
        with suppress(CronSimError):
            CronSim(f"{minute} {hour} {day} * {weekday}", datetime(2000, 1, 1, tzinfo=UTC))
            return f"The schedule {quoted(text)} never fires: no month of it has that day."
    return f"The schedule {quoted(text)} is no cron line: its {field} cannot be read."


def read_zone(name: str) -> tzinfo:
    """A time zone by its IANA name. Raises Failed if there is none."""
    try:
        return UTC if known_zone(name) == "UTC" else ZoneInfo(name)
    except ValueError:
        words = f"There is no time zone {quoted(name)}."
        raise Failed("VALIDATION_ERROR", words, suggestion="Name one as IANA does: Africa/Kigali, UTC.") from None


def next_time(line: str, zone: tzinfo, after: datetime) -> datetime | None:
    """The first time after a moment at which a line fires, in UTC; None: there is none in the next 50 years, or in the
    years that a computer can tell."""
    from cronsim import CronSim

    try:
        times = CronSim(line, after.astimezone(zone))
        for _ in range(MAX_REPEATED_TIMES):
            found = next(times).astimezone(UTC)
            if found > after:  # else the clock went back, and it was that late before
                return found if times.fixup_tz else _not_passed_over(times, zone, after, found)
    except (StopIteration, OverflowError):
        pass
    return None


def _not_passed_over(times: Any, zone: tzinfo, after: datetime, found: datetime) -> datetime:
    """The time that was found, or one in the hour before it: cronsim goes by whole hours, and passes over some minutes on a
    day on which clocks change by half an hour (Australia/Lord_Howe)."""
    if (found - timedelta(days=1)).astimezone(zone).utcoffset() == found.astimezone(zone).utcoffset():
        return found
    minute = max(after, found - timedelta(minutes=61)).replace(second=0, microsecond=0)
    while (minute := minute + timedelta(minutes=1)) < found:
        local = minute.astimezone(zone)
        is_time = local.minute in times.minutes and local.hour in times.hours
        if is_time and local.month in times.months and times.match_day(local.date()):
            return minute
    return found


def least_gap(line: str) -> timedelta:
    """The least time that can lie between two times of a line."""
    from cronsim import CronSim

    read = CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    times = sorted(hour * 60 + minute for hour in read.hours for minute in read.minutes)
    gaps = [later - earlier for earlier, later in zip(times, [*times[1:], times[0] + 24 * 60], strict=True)]
    return timedelta(minutes=min(gaps))
