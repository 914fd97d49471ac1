"""Factors by which past outcomes order the tools that a search finds.

A tool's reliability is the mean of a Beta distribution: a prior that every tool begins with, and its recent outcomes in its
tenant (`toolgate.store.tool_outcomes`). An unknown tool has the factor 1. Failing costs a tool up to 30 %, success earns it
up to 15 %: less, so that a tool that is used much does not keep out one that is new.
"""

from collections.abc import Iterable

from toolgate.store.tool_outcomes import OutcomeRow

PRIOR_GOOD, PRIOR_BAD = 4.25, 0.75
PRIOR_MEAN = PRIOR_GOOD / (PRIOR_GOOD + PRIOR_BAD)
MIN_FACTOR, MAX_FACTOR = 0.7, 1.15


def reliability(good: float, bad: float) -> float:
    """The mean of the posterior: the share of calls that is expected to succeed."""
    return (good + PRIOR_GOOD) / (good + bad + PRIOR_GOOD + PRIOR_BAD)


def factor(good: float, bad: float) -> float:
    """The factor of a tool with these recent outcomes, from MIN_FACTOR to MAX_FACTOR; 1 without any."""
    mean = reliability(good, bad)
    if mean >= PRIOR_MEAN:
        return 1 + (MAX_FACTOR - 1) * (mean - PRIOR_MEAN) / (1 - PRIOR_MEAN)
    return 1 - (1 - MIN_FACTOR) * (PRIOR_MEAN - mean) / PRIOR_MEAN


def factors(rows: Iterable[OutcomeRow], at: int) -> dict[str, float]:
    """The factors of a tenant's tools at a moment (seconds since 1970), by name."""
    return {row.tool_name: factor(row.good, row.bad) for row in (one.aged(at) for one in rows)}
