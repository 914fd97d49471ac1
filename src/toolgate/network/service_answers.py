"""Shared by clients of services: a credential that can be sent, an answer and a text that can be shown, a time to wait."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from toolgate.errors import shortened
from toolgate.jsontext import valid_text
from toolgate.network.http_response import HttpResponse

MAX_TOLD_CHARS = 400
"""Characters of what a service says that are passed on."""
MAX_RETRY_AFTER_SECONDS = 86_400.0
DEFAULT_RETRY_AFTER_SECONDS = 30.0
CREDENTIAL = re.compile(r"[!-~]{1,8192}\Z")
"""What can stand in a header: visible characters and no white space."""

SHOWN_HEADERS = (
    "content-type", "content-length", "location", "link", "etag", "last-modified", "retry-after", "date", "cache-control",
    "x-request-id", "x-total-count", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit",
)  # fmt: skip
"""The headers that a caller can use. Others are diagnostics, or cookies."""


def shown_headers(response: HttpResponse) -> dict[str, str]:
    """The headers of an answer that a caller is shown."""
    return {name: valid_text(response.headers[name]) for name in SHOWN_HEADERS if name in response.headers}


def answered_value(response: HttpResponse) -> Any:
    """The body of an answer: parsed if it is JSON, named if it is no text."""
    kind = response.media_type
    if not response.body:
        return None
    if kind == "application/json" or kind.endswith("+json"):
        return response.json()
    if b"\x00" in response.body[:4_096] or kind.startswith(("image/", "audio/", "video/", "font/")):
        return f"({len(response.body):,} bytes of {kind or 'binary data'})"
    return valid_text(response.text())


def told(text: object) -> str | None:
    """A text of a service, fit for a message: bounded, on one line, without control characters."""
    if not isinstance(text, str) or not text.strip():
        return None
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: MAX_TOLD_CHARS * 4]).split())
    return shortened(line, MAX_TOLD_CHARS)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait, as the header Retry-After says: a number, or a date."""
    wait = said_wait(headers)
    return wait if wait is not None and 0 <= wait <= MAX_RETRY_AFTER_SECONDS else DEFAULT_RETRY_AFTER_SECONDS


def said_wait(headers: Mapping[str, str]) -> float | None:
    """The same as it is said, which may make no sense; None: it is not said."""
    value = headers.get("retry-after", "").strip()
    try:
        return float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
            return (at - datetime.now(UTC if at.tzinfo else None)).total_seconds()
        except (ValueError, TypeError, OverflowError):  # of a zone that is years away
            return None
