"""The wait before a request is repeated that a model's server refused as busy or failing: as long as its own hints say.

Only what cost nothing is repeated: a connection that was never made, and an answer that says that nothing was done. Where a
connection breaks, or an answer does not come in time, the server may have answered, and charged for it.
"""

import math
import random
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from toolgate.network.service_answers import said_wait

REPEATABLE = frozenset({429, 500, 502, 503, 529})
"""Not 504: a gateway that lost patience does not know what the model did."""
FIRST_WAIT_SECONDS, MAX_UNHINTED_SECONDS = 0.5, 8.0
JITTER = 0.25
"""The part of a wait that is added at random, so that many who were refused together do not come together."""
EPOCH_SECONDS, EPOCH_MILLISECONDS = 1e9, 1e12
"""Numbers from here on are times, not spans."""
_SPAN = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?")
_RESET = re.compile(r"x-ratelimit-reset(?:-(?P<kind>\w+))?|anthropic-ratelimit-(?P<own>[\w-]+)-reset")


def wait_before(attempt: int, headers: Mapping[str, str], left: float, chance: float | None = None) -> float | None:
    """Seconds to wait after this many attempts; None: longer than what is `left`, or the server wants no repetition."""
    if headers.get("x-should-retry", "").strip().lower() == "false":
        return None
    hinted = hint(headers)
    wait = min(FIRST_WAIT_SECONDS * 2 ** (attempt - 1), MAX_UNHINTED_SECONDS) if hinted is None else hinted
    wait *= 1 + JITTER * (random.random() if chance is None else chance)
    return wait if wait <= left else None


def hint(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to be left alone for; None if it does not say."""
    for said in (_number(headers.get("retry-after-ms"), 1000), said_wait(headers)):
        if said is not None and math.isfinite(said) and said >= 0:
            return said
    return max(_resets(headers), default=None)


def _resets(headers: Mapping[str, str]) -> Iterator[float]:
    """The times until a limit is lifted, of those limits that are used up."""
    for name, value in headers.items():
        found = _RESET.fullmatch(name)
        if found is None:
            continue
        kind = found["kind"]
        own = f"anthropic-ratelimit-{found['own']}-remaining"
        remaining = headers.get(own if found["own"] else f"x-ratelimit-remaining{f'-{kind}' if kind else ''}", "0")
        span = _span(value.strip())
        if span is not None and span >= 0 and (_number(remaining) or 0) <= 0:
            yield span


def _span(text: str) -> float | None:
    """Seconds: of `1m30s`, `250ms`, `12.5`, and until a time such as 2026-01-31T10:00:00Z or 1741305600000."""
    number = _number(text)
    if number is not None:
        if number >= EPOCH_SECONDS:
            at = number / 1000 if number >= EPOCH_MILLISECONDS else number
            return at - datetime.now(UTC).timestamp()
        return number
    found = _SPAN.fullmatch(text) if text else None
    if found is not None:
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    try:
        at_date = datetime.fromisoformat(text)
        return (at_date - datetime.now(UTC if at_date.tzinfo else None)).total_seconds()
    except (ValueError, OverflowError):
        return None


def _number(text: str | None, of: float = 1) -> float | None:
    try:
        number = float(text or "") / of
    except ValueError:
        return None
    return number if math.isfinite(number) else None
