"""`datetime`: the time now, and dates read, written, compared and moved, in any time zone.

Clock, zones and calendar are `whenever`'s. What is not ISO 8601 or a Unix timestamp is read as English by `dateparser`
(the extra `dates`), but only where it can mean one thing: 01/02/2024 is refused.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, get_args

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput, quoted
from toolgate.model import ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.timezones import Timezones

if TYPE_CHECKING:
    from whenever import ZonedDateTime

MAX_TEXT = 100
FORMAT = "YYYY-MM-DD HH:mm:ss"
Value = TypeVar("Value")
Text = Annotated[str | None, WithJsonSchema({"type": ["string", "null"]})]
"""Shorter for a model to read than the choice of two schemas that it stands for."""
Operation = Literal["now", "parse", "format", "diff", "add"]

Unit = Literal["milliseconds", "seconds", "minutes", "hours", "days", "weeks", "months", "years"]
UNITS: tuple[Unit, ...] = get_args(Unit)
EXACT: dict[Unit, int] = {"milliseconds": 10**6, "seconds": 10**9, "minutes": 60 * 10**9, "hours": 3600 * 10**9}
"""The units that are always equally long, in nanoseconds. The others depend on the calendar and on the time zone."""


class DateResult(TypedDict, total=False):
    """What the operation gives. now: iso, formatted, timezone, timestamp. parse: iso, formatted, timestamp. format:
    formatted. diff: difference, unit. add: original, result, formatted. Times in iso, original and result are UTC."""

    iso: str
    formatted: str
    timezone: str
    timestamp: int
    difference: float
    unit: str
    original: str
    result: str


@tool(
    name="datetime",
    tier="read_only",
    category="development",
    tags=["time"],
    capabilities=["now", "parse", "format", "diff", "add"],
    pure=True,
    errors=[
        ErrorCase("INVALID_INPUT", "a date cannot be read, or could mean several days", "Write it as ISO 8601."),
        ErrorCase("INVALID_INPUT", "the time zone, the unit or the format is unknown", "Use one of those documented."),
        ErrorCase("INVALID_INPUT", "the operation lacks an argument", "Add the argument that the message names."),
    ],
    examples=[
        Example(name="now in a time zone", arguments={"operation": "now", "timezone": "Africa/Kigali"}),
        Example(
            name="the end of a month",
            arguments={"operation": "add", "date": "2024-01-31", "amount": 1, "unit": "month", "timezone": "UTC"},
            output={
                "original": "2024-01-31T00:00:00.000Z",
                "result": "2024-02-29T00:00:00.000Z",
                "formatted": "2024-02-29 00:00:00",
            },
        ),
        Example(
            name="hours of a day on which clocks change",
            arguments={
                "operation": "diff",
                "date1": "2024-03-09T12:00",
                "date2": "2024-03-10T12:00",
                "unit": "hours",
                "timezone": "America/New_York",
            },
            output={"difference": 23, "unit": "hours"},
        ),
    ],
)
def date_time(
    ctx: InvokeContext,
    operation: Operation,
    timezone: Text = None,
    date: Text = None,
    format: str = FORMAT,  # noqa: A002
    date1: Text = None,
    date2: Text = None,
    unit: Text = None,
    amount: Annotated[float | None, WithJsonSchema({"type": ["number", "null"]})] = None,
) -> DateResult:
    """Get the current time, parse and format dates, calculate differences, add to dates; aware of time zones.

    Args:
        operation: now; parse date; format date, else now; diff from date1 to date2 in unit; add amount of unit to date,
            else to now.
        timezone: IANA name; else the caller's.
        date: ISO 8601, Unix timestamp, or English such as "next friday".
        format: Also MMMM MMM dddd ddd hh A SSS Z [text].
        unit: milliseconds, seconds, minutes, hours, days, weeks, months or years.
        amount: Negative to subtract; whole for days and longer.
    """
    timezone = _default(ctx) if timezone is None else timezone
    now = _now(timezone)
    match operation:
        case "now":
            return {"iso": _iso(now), "formatted": _write(now, format), "timezone": timezone, "timestamp": _unix(now)}
        case "parse":
            moment = _read(_given(date, "date", operation), now)
            return {"iso": _iso(moment), "formatted": _write(moment, format), "timestamp": _unix(moment)}
        case "format":
            return {"formatted": _write(now if date is None else _read(date, now), format)}
        case "diff":
            start = _read(_given(date1, "date1", operation), now)
            end = _read(_given(date2, "date2", operation), now)
            known = _unit(_given(unit, "unit", operation))
            return {"difference": _difference(start, end, known), "unit": known}
        case "add":
            start = now if date is None else _read(date, now)
            moment = _add(start, _given(amount, "amount", operation), _unit(_given(unit, "unit", operation)))
            return {"original": _iso(start), "result": _iso(moment), "formatted": _write(moment, format)}


def _given(value: Value | None, name: str, operation: str) -> Value:
    if value is None:
        raise InvalidInput(f"The operation {operation} needs {name}.")
    return value


@contextmanager
def _in_range() -> Iterator[None]:
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise InvalidInput("That is outside the years 1 to 9999.") from error


# -- reading


def _now(timezone: str) -> "ZonedDateTime":
    from whenever import TimeZoneNotFoundError, ZonedDateTime

    try:
        return ZonedDateTime.now(timezone)
    except TimeZoneNotFoundError as error:
        raise InvalidInput(
            f"There is no time zone {quoted(timezone)}.", suggestion="Use an IANA name such as UTC or Africa/Kigali."
        ) from error


def _default(ctx: InvokeContext) -> str:
    zones: Timezones = ctx.try_get(Timezones) or Timezones()
    return zones.of(ctx.actor)


def _zone(moment: "ZonedDateTime") -> str:
    return moment.tz_id or "UTC"


def _read(text: str, now: "ZonedDateTime") -> "ZonedDateTime":
    """The moment that a text names, in the zone of `now`."""
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"The date is {len(text)} characters long; {MAX_TEXT} is the most.")
    if _UNIX.fullmatch(text):
        return _read_unix(text, now)
    moment = _read_iso(text, now)
    if moment is None and _is_english(text):
        moment = _read_english(text, now)
    if moment is None:
        raise InvalidInput(
            f"{text!r} cannot be read as a date.", suggestion="Write it as ISO 8601, such as 2026-01-31T14:30:00Z."
        )
    return moment


_UNIX = re.compile(r"[+-]?[0-9]{9,}(\.[0-9]+)?")


def _read_unix(text: str, now: "ZonedDateTime") -> "ZonedDateTime":
    """Seconds, or milliseconds from 12 digits on: as seconds those would lie beyond the year 5000."""
    from whenever import Instant

    number = float(text)
    with _in_range():
        instant = Instant.from_timestamp(round(number if abs(number) >= 10**11 else number * 1000), unit="millisecond")
        return instant.to_tz(_zone(now))


def _read_iso(text: str, now: "ZonedDateTime") -> "ZonedDateTime | None":
    """A time without an offset is one of the zone: moved on if clocks skip it, the first if they show it twice."""
    from whenever import Date, Instant, IsoWeekDate, PlainDateTime, Time, ZonedDateTime

    zone = _zone(now)
    readers: list[Callable[[], Instant | PlainDateTime | ZonedDateTime]] = [
        lambda: Instant.parse_iso(text),
        lambda: PlainDateTime.parse_iso(text),
        lambda: Date.parse_iso(text).at(Time()),
        lambda: IsoWeekDate.parse_iso(text).date().at(Time()),
    ]
    if "[" in text:  # the others would overlook that offset and [zone] contradict each other
        readers = [lambda: ZonedDateTime.parse_iso(text, disambiguation="compatible")]
    for read in readers:
        with suppress(ValueError):
            moment = read()
            if isinstance(moment, PlainDateTime):
                return moment.assume_tz(zone, disambiguation="compatible")
            return moment.to_tz(zone)
    return None


_LETTERS = re.compile(r"[a-z]{2}", re.IGNORECASE)
_LEADING_ISO_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2} ")
_NUMERIC_DATE_OR_ZONE = re.compile(r"[0-9][/.-][0-9]+[/.-][0-9]|[0-9]/[0-9]|\[")


def _is_english(text: str) -> bool:
    """Has words, and no numeric date but an ISO one at its start: which number is the month would be a guess."""
    return bool(_LETTERS.search(text)) and not _NUMERIC_DATE_OR_ZONE.search(_LEADING_ISO_DATE.sub("", text, count=1))


def _read_english(text: str, now: "ZonedDateTime") -> "ZonedDateTime | None":
    from whenever import Instant, PlainDateTime

    try:
        from dateparser.date import DateDataParser
    except ImportError as error:
        raise InvalidInput(
            f"{text!r} is not ISO 8601, and reading English dates is not installed.",
            suggestion="Write it as ISO 8601, such as 2026-01-31T14:30:00Z, or install the extra toolgate[dates].",
        ) from error
    for kind in ("relative-time", "absolute-time"):
        settings = {"RELATIVE_BASE": now.to_stdlib(), "TIMEZONE": "UTC", "PARSERS": [kind]}
        found = DateDataParser(languages=["en"], settings=settings).get_date_data(text)
        named_no_day = kind == "absolute-time" and found.period != "day"
        if found.date_obj is not None and not named_no_day:
            with _in_range():
                if found.date_obj.tzinfo is not None:
                    return Instant(found.date_obj).to_tz(_zone(now))
                return PlainDateTime(found.date_obj).assume_tz(_zone(now), disambiguation="compatible")
    return None


# -- calculating


def _unit(name: str) -> Unit:
    for unit in UNITS:
        if name.strip().lower() in (unit, unit.removesuffix("s")):
            return unit
    raise InvalidInput(f"There is no unit {quoted(name)}.", suggestion=f"Use {', '.join(UNITS)}.")


def _difference(start: "ZonedDateTime", end: "ZonedDateTime", unit: Unit) -> float:
    with _in_range():
        if unit in EXACT:
            nanoseconds = (end - start).total("nanoseconds")
            return nanoseconds // EXACT[unit] if nanoseconds % EXACT[unit] == 0 else nanoseconds / EXACT[unit]
        difference = end.since(start, total=unit)
        return int(difference) if difference.is_integer() else difference


def _add(start: "ZonedDateTime", amount: float, unit: Unit) -> "ZonedDateTime":
    with _in_range():
        if unit in EXACT:
            return start.add(nanoseconds=round(amount * EXACT[unit]))
        if amount != int(amount):
            raise InvalidInput(f"{unit.capitalize()} can only be added whole.", suggestion="Use a smaller unit.")
        return start.add(**{unit: int(amount)}, disambiguation="compatible")


# -- writing


def _iso(moment: "ZonedDateTime") -> str:
    return moment.to_instant().format_iso(unit="millisecond")


def _unix(moment: "ZonedDateTime") -> int:
    return moment.timestamp(unit="millisecond")


def _write(moment: "ZonedDateTime", pattern: str) -> str:
    if len(pattern) > MAX_TEXT:
        raise InvalidInput(f"The format is {len(pattern)} characters long; {MAX_TEXT} is the most.")
    if "%" in pattern or not _TOKEN.search(pattern):
        raise InvalidInput(
            f"The pattern {quoted(pattern)} is not a format.",
            suggestion=f'Write it like "{FORMAT}", with words in [brackets].',
        )
    return _TOKEN.sub(lambda token: token[0][1:-1] if token[0][0] == "[" else _WRITE[token[0]](moment), pattern)


def _offset(moment: "ZonedDateTime", separator: str) -> str:
    """The offset from UTC; with its seconds, which only times of long ago have."""
    total = round(moment.offset.total("seconds"))
    parts = abs(total) // 3600, abs(total) // 60 % 60, abs(total) % 60
    return ("-" if total < 0 else "+") + separator.join(f"{part:02}" for part in (parts if parts[2] else parts[:2]))


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WRITE: dict[str, Callable[["ZonedDateTime"], str]] = {
    "YYYY": lambda at: f"{at.year:04}",
    "YY": lambda at: f"{at.year % 100:02}",
    "MMMM": lambda at: _MONTHS[at.month - 1],
    "MMM": lambda at: _MONTHS[at.month - 1][:3],
    "MM": lambda at: f"{at.month:02}",
    "M": lambda at: f"{at.month}",
    "DD": lambda at: f"{at.day:02}",
    "D": lambda at: f"{at.day}",
    "dddd": lambda at: _DAYS[at.day_of_week().value - 1],
    "ddd": lambda at: _DAYS[at.day_of_week().value - 1][:3],
    "HH": lambda at: f"{at.hour:02}",
    "H": lambda at: f"{at.hour}",
    "hh": lambda at: f"{(at.hour - 1) % 12 + 1:02}",
    "h": lambda at: f"{(at.hour - 1) % 12 + 1}",
    "mm": lambda at: f"{at.minute:02}",
    "m": lambda at: f"{at.minute}",
    "ss": lambda at: f"{at.second:02}",
    "s": lambda at: f"{at.second}",
    "SSS": lambda at: f"{at.nanosecond // 10**6:03}",
    "A": lambda at: "AM" if at.hour < 12 else "PM",
    "a": lambda at: "am" if at.hour < 12 else "pm",
    "ZZ": lambda at: _offset(at, ""),
    "Z": lambda at: _offset(at, ":"),
}
_TOKEN = re.compile(r"\[[^\]]*\]|" + "|".join(_WRITE))
