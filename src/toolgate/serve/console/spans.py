"""The ranges of time that pages with plots offer."""

from datetime import timedelta
from typing import Literal

from toolgate.serve.console.page import PageRequest

DAY = 86_400
Span = Literal["24h", "7d", "30d"]
SPANS: dict[Span, tuple[str, timedelta, int]] = {
    "24h": ("24 hours", timedelta(hours=24), 3_600),
    "7d": ("7 days", timedelta(days=7), DAY),
    "30d": ("30 days", timedelta(days=30), DAY),
}
"""Of each range: its words, its length, and the seconds from one point of a plot to the next."""


def spans_of(request: PageRequest) -> dict[Span, tuple[str, timedelta, int]]:
    """Those that a reader may choose: calls of one user are counted by day."""
    return SPANS if request.all_users else {name: one for name, one in SPANS.items() if one[2] == DAY}
