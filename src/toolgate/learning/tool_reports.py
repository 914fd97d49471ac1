"""Reports how tools did: from the counts of calls, and what past outcomes taught."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolgate.learning.outcome_factors import factor, reliability
from toolgate.store import call_counts, call_statistics, tool_outcomes
from toolgate.store.call_counts import CountFilter
from toolgate.store.database import Transaction
from toolgate.store.tool_outcomes import OutcomeRow

MAX_REPORTED = 100


class ToolReport(NamedTuple):
    """The calls of a tool in a tenant: how many, how they ended, how long they took."""

    tool: str
    calls: int
    successes: int
    failures: int
    """Calls that failed or took too long; denied ones say nothing about the tool."""
    nano: int
    percentiles: tuple[float | None, ...]
    """Milliseconds within which half, 95 % and 99 % of its calls ended."""
    reasons: tuple[tuple[str, int], ...]
    """Error codes, the most frequent first."""
    reliability: float | None
    """The share of its next calls that is expected to succeed; None: of all tenants together it is not known."""
    factor: float | None
    """The factor by which it is moved in searches."""


def durations(tool: str, period: tuple[int, int]) -> Transaction[list[list[int]]]:
    """The calls of a tool that ran, by slot, of each tenant that made some."""
    found: list[list[int]] = []
    for tenant in (yield from call_counts.tenants()):
        found += (yield from call_counts.durations(CountFilter(tenant=tenant, tool=tool), *period)).values()
    return found


def report(wanted: CountFilter, period: tuple[int, int], at: int) -> Transaction[list[ToolReport]]:
    """Gives how tools did in a period, the least successful first; `at`: the moment at which past outcomes are weighed."""
    by_tool: dict[str, list[call_counts.CallCount]] = {}
    for one in (yield from call_counts.counts(wanted, *period, by="tool")):
        by_tool.setdefault(one.name, []).append(one)
    rows = [] if wanted.tenant is None else (yield from tool_outcomes.of_tenant(wanted.tenant))
    outcomes = {row.tool_name: row.aged(at) for row in rows}
    most = sorted(by_tool, key=lambda name: -sum(one.ran for one in by_tool[name]))[:MAX_REPORTED]
    found = []
    for name in most:
        of_tool = wanted._replace(tool=name)
        slots = (yield from call_counts.durations(of_tool, *period)).get(0, [])
        codes: dict[str, int] = {}
        for one in (yield from call_counts.counts(of_tool, *period, by="code")):
            if one.name and one.status in ("failure", "timeout"):
                codes[one.name] = codes.get(one.name, 0) + one.calls
        # What all users' calls taught is told to a user who had the tool run: others would learn that there is such a tool.
        known = outcomes.get(name) if wanted.user is None or any(slots) else None
        found.append(_tool_report(name, by_tool[name], slots, codes, known))
    return sorted(found, key=lambda one: (_share(one), one.tool))


def _tool_report(
    tool: str,
    counted: Sequence[call_counts.CallCount],
    slots: Sequence[int],
    codes: Mapping[str, int],
    row: OutcomeRow | None,
) -> ToolReport:
    by_status: dict[str, int] = {}
    for one in counted:
        by_status[one.status] = by_status.get(one.status, 0) + one.calls
    return ToolReport(
        tool, sum(by_status.values()), by_status.get("success", 0),
        by_status.get("failure", 0) + by_status.get("timeout", 0), sum(one.nano for one in counted),
        tuple(call_statistics.percentile(slots, share) for share in (0.5, 0.95, 0.99)),
        tuple(sorted(codes.items(), key=lambda item: (-item[1], item[0]))),
        None if row is None else reliability(row.good, row.bad), None if row is None else factor(row.good, row.bad),
    )  # fmt: skip


def _share(one: ToolReport) -> float:
    """The part of the calls that ended well; of a tool without any, 1."""
    return one.successes / (one.successes + one.failures) if one.successes + one.failures else 1.0
