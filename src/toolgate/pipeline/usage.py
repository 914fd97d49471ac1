"""The cost of a call: as it is estimated, and as its tool reports it."""

from typing import Literal

import msgspec

from toolgate.model import NANO

Confidence = Literal["exact", "estimate", "unknown"]


class Estimate(msgspec.Struct, frozen=True):
    """The cost of all attempts that a call may make. `unknown`: nothing is counted until the tool reports something."""

    nano: int
    confidence: Confidence
    tokens: int | None = None
    expected_ms: int | None = None
    attempts: int = 1
    free_left: int | None = None
    """Free calls that are left of the service's free tier; above 0 this call is one of them. None: it has none."""

    @property
    def each(self) -> int:
        return self.nano // self.attempts


UNPRICED = Estimate(0, "unknown")
"""Of a tool that names no price: it may be free, or may only not say."""


class UsageReport(msgspec.Struct):
    """The tokens, dollars and resources that a tool says its call took."""

    tokens_used: int | None = None
    cost_usd: float | None = None
    resources_used: tuple[str, ...] | None = None
    attempts: int = 0
    """Attempts in which tokens or a cost were reported."""
    last_attempt: int = 0

    def count(self, attempt: int) -> None:
        if attempt != self.last_attempt:
            self.last_attempt = attempt
            self.attempts += 1


def dollars(amount: int) -> str:
    """Nano-dollars for people: at least cents, and no zeros after them that say nothing."""
    whole, rest = divmod(abs(amount), NANO)
    decimals = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{'-' if amount < 0 else ''}${whole:,}.{decimals}"
