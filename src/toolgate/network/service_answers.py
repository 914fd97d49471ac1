"""What clients of services share: a credential that can be sent, a text that can be shown, a time to wait."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from toolgate.errors import shortened

MAX_TOLD_CHARS = 400
"""Characters of what a service says that are passed on."""
MAX_RETRY_AFTER_SECONDS = 86_400.0
DEFAULT_RETRY_AFTER_SECONDS = 30.0
CREDENTIAL = re.compile(r"[!-~]{1,8192}\Z")
"""What can stand in a header: visible characters and no white space."""


def told(text: object) -> str | None:
    """A text of a service, fit for a message: bounded, on one line, without control characters."""
    if not isinstance(text, str) or not text.strip():
        return None
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: MAX_TOLD_CHARS * 4]).split())
    return shortened(line, MAX_TOLD_CHARS)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait, as the header Retry-After says: a number, or a date."""
    value = headers.get("retry-after", "").strip()
    try:
        wait = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
            wait = (at - datetime.now(UTC if at.tzinfo else None)).total_seconds()
        except (ValueError, TypeError, OverflowError):  # of a zone that is years away
            wait = DEFAULT_RETRY_AFTER_SECONDS
    return wait if 0 <= wait <= MAX_RETRY_AFTER_SECONDS else DEFAULT_RETRY_AFTER_SECONDS
