"""Proposes limits of tools from what was seen of them: a timeout, retries, a circuit breaker. An operator accepts or rejects
a proposal; nothing is applied by itself.

Seen is what all tenants' calls did: a tool's limits are everybody's, so only operators are shown them. A timeout is that of
the tenant whose calls take longest: many quick calls of one do not make it too short for another.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from toolgate.model import Entry
from toolgate.registry.tool_limits import ToolLimits, may_repeat
from toolgate.store.call_statistics import percentile
from toolgate.store.learning import LimitKind, LimitRow
from toolgate.store.tool_outcomes import OutcomeRow

KINDS: tuple[LimitKind, ...] = ("timeout", "retry", "breaker")
MIN_CALLS = 50
"""Calls that ran before a timeout is proposed."""
TIMEOUT_FACTOR = 3
MIN_TIMEOUT = 1.0
MIN_GAIN = 0.5
"""A timeout is proposed if it is at most this part of the one that holds."""
ATTEMPTS = 3
MIN_TRANSIENT = 3.0
"""Recent failures that may pass by themselves, before retries are proposed."""
MIN_RECOVERED = 0.6
"""The part of them after which the next call must have succeeded."""
MIN_BAD = 8.0
MIN_BAD_SHARE = 0.5
"""Recent failures, and their part of all outcomes, before a breaker is proposed."""


class Proposal(NamedTuple):
    """A limit that a tool should have, or has."""

    id: str
    tool: str
    kind: LimitKind
    value: float
    """Seconds of a timeout; attempts with retries; 1 for a breaker."""
    current: float | None
    """The same as it is without; None: there is none."""
    reason: str
    state: Literal["open", "accepted", "rejected"]
    decided_by: str | None = None
    decided_at: datetime | None = None


class Seen(NamedTuple):
    """The durations and outcomes of a tool's calls."""

    durations: Sequence[Sequence[int]]
    """Calls that ran, by slot, of each tenant."""
    outcomes: OutcomeRow


def proposals(seen: Mapping[str, Seen], entries: Iterable[Entry], decided: Iterable[LimitRow]) -> list[Proposal]:
    """The proposals for tools as they are declared, and those that were answered, which are not made again."""
    answers = {(row.tool_name, row.kind): row for row in decided}
    found = [_answered(row) for row in answers.values()]
    for entry in entries:
        known = seen.get(entry.name)
        if known is not None and entry.tool.tenant is None:
            made = (_timeout(entry, known), _retry(entry, known), _breaker(entry, known))
            found += [one for one in made if one is not None and (one.tool, one.kind) not in answers]
    return sorted(found, key=lambda one: (one.state != "open", one.tool, KINDS.index(one.kind)))


def limits_of(decided: Iterable[LimitRow]) -> dict[str, ToolLimits]:
    """The accepted limits, by tool."""
    found: dict[str, ToolLimits] = {}
    for row in decided:
        if row.state != "accepted":
            continue
        known = found.get(row.tool_name, ToolLimits())
        if row.kind == "timeout":
            known = known._replace(timeout=row.value)
        elif row.kind == "retry":
            known = known._replace(attempts=int(row.value))
        else:
            known = known._replace(breaker=True)
        found[row.tool_name] = known
    return found


def _timeout(entry: Entry, seen: Seen) -> Proposal | None:
    ran = sum(map(sum, seen.durations))
    if ran < MIN_CALLS:
        return None
    p99 = max(percentile(slots, 0.99) or 0.0 for slots in seen.durations)
    value = round(max(MIN_TIMEOUT, TIMEOUT_FACTOR * p99 / 1000), 1)
    if value > entry.timeout * MIN_GAIN:
        return None
    reason = f"99 % of {ran:,} calls took at most {p99:,.0f} ms"
    return _made(entry, "timeout", value, entry.timeout, reason)


def _retry(entry: Entry, seen: Seen) -> Proposal | None:
    row = seen.outcomes
    if not may_repeat(entry) or row.transient < MIN_TRANSIENT or row.recovered < MIN_RECOVERED * row.transient:
        return None
    share = row.recovered / row.transient
    reason = f"after {share:.0%} of its recent timeouts and connection errors the next call succeeded"
    return _made(entry, "retry", ATTEMPTS, None, reason)


def _breaker(entry: Entry, seen: Seen) -> Proposal | None:
    row = seen.outcomes
    total = row.good + row.bad
    if entry.target is not None or row.bad < MIN_BAD or row.bad < MIN_BAD_SHARE * total:
        return None
    return _made(entry, "breaker", 1, None, f"{row.bad / total:.0%} of its recent calls failed")


def _made(entry: Entry, kind: LimitKind, value: float, current: float | None, reason: str) -> Proposal:
    return Proposal(f"{kind}:{entry.name}", entry.name, kind, float(value), current, reason, "open")


def _answered(row: LimitRow) -> Proposal:
    return Proposal(
        f"{row.kind}:{row.tool_name}", row.tool_name, row.kind, row.value, None, f"{row.state} by an operator", row.state,
        row.decided_by, row.decided_at,
    )  # fmt: skip
