"""Settings of time zones: which one holds where a caller names none."""

from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from toolgate.settings.section import Section


def known_zone(name: str) -> str:
    """The name of a time zone. Raises ValueError if there is none of it."""
    try:
        if name != "UTC":  # which is known also where no time zones are installed
            ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}") from None
    return name


Timezone = Annotated[str, AfterValidator(known_zone)]
"""An IANA name, such as Africa/Kigali."""


class TimezoneRule(Section):
    """The time zone of a tenant, or of one of its users."""

    tenant: str = Field(min_length=1)
    user: str | None = Field(default=None, min_length=1)
    """None: all users of the tenant who have no rule of their own."""
    timezone: Timezone


def each_once(rules: tuple[TimezoneRule, ...]) -> tuple[TimezoneRule, ...]:
    """The rules, if none contradicts another."""
    seen: set[tuple[str, str | None]] = set()
    for rule in rules:
        if (rule.tenant, rule.user) in seen:
            whose = f"tenant {rule.tenant}" if rule.user is None else f"user {rule.user} of tenant {rule.tenant}"
            raise ValueError(f"{whose} has two time zones: keep one")
        seen.add((rule.tenant, rule.user))
    return rules
