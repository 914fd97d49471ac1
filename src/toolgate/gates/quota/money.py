"""Money: what a call is expected to cost, what it did cost, and how people write it.

Prices are decimals, sums are integer nano-dollars, and what does not come out even is rounded up: what is counted is never
less than what is owed. Nothing here is negative or too large for a database, whatever arguments or tools say.
"""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

from toolgate.model import EXACT, MAX_DOLLARS, NANO, Entry, UnitCost, nano
from toolgate.pipeline.usage import Estimate, UsageReport

MAX_NANO_DOLLARS = int(MAX_DOLLARS) * NANO
"""Nano-dollars that one call can cost, a billion dollars: the sum of a few still fits into 64 bits."""
CHARACTERS_A_TOKEN = 4
FLOAT_DIGITS = 12
"""Decimals of a dollar that a float of a tool is trusted with: 0.1 + 0.2 is 0.3, not a nano-dollar more."""

_AMOUNT = re.compile(r"\$?([0-9]{1,40})(?:\.([0-9]{1,40}))?\Z")


def parse_dollars(text: str) -> int:
    """An amount that a person wrote, such as `10`, `$2.50` or `0.000001`, as nano-dollars."""
    found = _AMOUNT.match(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is not an amount in dollars: write it as 10 or 2.50, not negative")
    whole, decimals = found[1], found[2] or ""
    if len(whole.lstrip("0")) > 9:
        raise ValueError("the amount is too large: at most 9 digits before the point")
    if len(decimals) > 9:
        raise ValueError("the amount is too fine: at most 9 digits after the point")
    return int(whole) * NANO + int(decimals.ljust(9, "0"))


# -- before the call


def estimate(entry: Entry, arguments: Mapping[str, Any]) -> Estimate:
    """The most that a call may cost: every attempt that its retry rule allows is charged."""
    once = _estimate_once(entry, arguments)
    attempts = 1 if entry.retry is None else entry.retry.max_attempts
    if attempts == 1 or not once.nano:
        return once
    return Estimate(min(once.nano * attempts, MAX_NANO_DOLLARS), "estimate", once.tokens, once.expected_ms, attempts)


def _estimate_once(entry: Entry, arguments: Mapping[str, Any]) -> Estimate:
    price = entry.unit_cost
    if price is None:
        if entry.capability_nano and not entry.fixed_nano:
            return Estimate(min(entry.capability_nano, MAX_NANO_DOLLARS), "estimate", None, entry.expected_ms)
        return Estimate(
            min(entry.fixed_nano, MAX_NANO_DOLLARS), "exact" if entry.fixed_nano else "unknown", None, entry.expected_ms
        )
    units = _units(price, entry, arguments)
    tokens = math.ceil(units) if price.unit == "token" else None
    return Estimate(_metered(entry, price, units), "estimate", tokens, entry.expected_ms)


def reservable(expected: Estimate) -> int:
    """The sum to reserve for an estimate. Never 0: where nothing is left, a call that may turn out to cost something is
    refused too."""
    return max(min(expected.nano, MAX_NANO_DOLLARS), 1)


def _metered(entry: Entry, price: UnitCost, units: float) -> int:
    return min(entry.fixed_nano + nano(EXACT.multiply(Decimal(str(units)), price.price)), MAX_NANO_DOLLARS)


def _units(price: UnitCost, entry: Entry, arguments: Mapping[str, Any]) -> float:
    if price.unit == "second":
        return entry.timeout
    measured = arguments if price.field is None else arguments.get(price.field)
    if price.unit == "record":
        return _records(measured, whole=price.field is None)
    length = _length(measured)
    return -(-length // CHARACTERS_A_TOKEN) if price.unit == "token" else length


def _records(measured: Any, *, whole: bool) -> float:
    """A number of records, or the records themselves. What is neither is one: so is a negative number, with which many tools
    mean `all`."""
    if isinstance(measured, list) and not whole:
        return len(measured)
    if isinstance(measured, bool) or not isinstance(measured, int | float) or math.isnan(measured) or measured < 0:
        return 1
    return MAX_NANO_DOLLARS if measured > MAX_NANO_DOLLARS else math.ceil(measured)


def _length(measured: Any) -> int:
    """Characters: of a text itself, of anything else as JSON."""
    if measured is None:
        return 0
    if isinstance(measured, str):
        return len(measured)
    try:
        return len(orjson.dumps(measured).decode())
    except TypeError:  # integers of more than 64 bits
        return len(str(measured))


# -- after the call


def actual(entry: Entry, expected: Estimate, report: UsageReport | None, *, charged: int, failed: bool) -> int:
    """The cost of a call in nano-dollars: what the tool reports, and the estimate for each other attempt that may have had
    its effect (`charged` counts them all)."""
    assumed = min(expected.each * charged, MAX_NANO_DOLLARS)
    if report is None or (expected.free_left and report.cost_usd is None):
        return assumed
    unreported = expected.each * max(charged - report.attempts, 0)
    if report.cost_usd is not None:
        return min(_reported(report.cost_usd, expected.each) + unreported, MAX_NANO_DOLLARS)
    price, tokens = entry.unit_cost, report.tokens_used
    if price is None or price.unit != "token" or type(tokens) is not int or tokens < 0 or not charged:
        return assumed
    used = min(_metered(entry, price, min(tokens, MAX_NANO_DOLLARS)) + unreported, MAX_NANO_DOLLARS)
    return max(used, assumed) if failed else used


def _reported(cost: Any, otherwise: int) -> int:
    """A cost that a tool reports. One that makes no sense is no report: then the estimate counts."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or cost != cost or cost < 0:
        return otherwise
    if cost * NANO >= MAX_NANO_DOLLARS:
        return MAX_NANO_DOLLARS
    counted = nano(Decimal(str(round(cost, FLOAT_DIGITS))))
    return max(counted, 1) if cost > 0 else 0
