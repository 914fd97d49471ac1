"""Times as people write and read them: ages such as 7d, and dates of this machine's zone; shown as local time with its zone.
Programs get ISO 8601 in UTC.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from toolgate.cli.context import Usage

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"([0-9]{1,9})([smhdw])\Z")


def seconds_of(text: str, option: str = "--for") -> float:
    """The seconds of a duration: 90s, 30m, 1h, 2d, 1w."""
    seconds = _span(text)
    if not seconds:
        raise Usage(f"{option} must be a time such as 90s, 30m, 1h, 2d or 1w, not {text!r:.40}.")
    return seconds


def since_when(text: str, at: datetime, option: str = "--since") -> datetime:
    """A moment in the past: an age, or a date or time, which is of this machine's zone unless it names another."""
    seconds = _span(text)
    try:
        moment = at - timedelta(seconds=seconds) if seconds is not None else datetime.fromisoformat(text.strip())
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise Usage(f"{option} must be such as 90s, 30m, 24h, 7d, 4w or 2026-11-01, not {text[:40]!r}.") from None
    if moment > at:
        raise Usage(f"{option} is in the future.")
    return moment


def until_when(text: str, at: datetime, option: str = "--until") -> datetime:
    """A moment in the future: a time from now, or a date or time, of this machine's zone unless it names another."""
    seconds = _span(text)
    try:
        moment = at + timedelta(seconds=seconds) if seconds is not None else datetime.fromisoformat(text.strip())
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise Usage(f"{option} must be such as 12h, 30d, 4w or 2027-01-31T12:00, not {text[:40]!r}.") from None
    if moment <= at:
        raise Usage(f"{option} is in the past.")
    return moment


def _span(text: str) -> int | None:
    found = _SPAN.match(text.strip())
    return int(found[1]) * UNITS[found[2]] if found is not None else None


def shown(moment: datetime, zone: tzinfo | None = None, *, seconds: bool = False) -> str:
    """For people: in this machine's zone, or in another, as in `2026-11-15 14:05 CET`."""
    return f"{moment.astimezone(zone):%Y-%m-%d {'%H:%M:%S' if seconds else '%H:%M'} %Z}"


def iso(moment: datetime) -> str:
    """For programs."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
