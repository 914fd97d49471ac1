"""Outcomes of tools, for their order in searches: tool_outcomes, one row for each tool of a tenant.

`good` and `bad` are sums in which each outcome weighs less with every later one of the same tool (`CALL_DECAY`) and with
time (`TIME_HALF_LIFE`), so that they follow when a tool becomes better or worse. They are added where calls are counted
(`call_statistics`), in the transaction that moves its watermark: the log is read once, and nothing happens while a call
runs.
Feedback is added too; whoever adds holds the row of the watermark, so that no two of them compute at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import columns, made, select, upsert

CALL_HALF_LIFE = 20
"""Later outcomes of a tool after which one weighs half."""
CALL_DECAY = 0.5 ** (1 / CALL_HALF_LIFE)
TIME_HALF_LIFE = 14 * 86_400
"""Seconds after which an outcome weighs half."""
FAULTS = frozenset(
    {"TIMEOUT", "CONNECTION_ERROR", "MCP_ERROR", "N8N_ERROR", "INVOCATION_ERROR", "OUTPUT_INVALID", "OUTCOME_UNKNOWN"}
)
"""Codes that are the tool's fault. All others say more of the caller: its arguments, rights, money, code, or patience."""
TRANSIENT = frozenset({"TIMEOUT", "CONNECTION_ERROR"})
"""Faults that may pass by themselves."""
MAX_TOOLS = 10_000
"""Rows of a tenant that are read at once."""

ToolKey = tuple[str, str]
"""A tenant and a tool."""
Verdict = Literal["good", "bad", "transient"]
"""`transient` is bad too."""


class Observed(NamedTuple):
    """An outcome that says something about a tool."""

    verdict: Verdict
    at: int
    """Seconds since 1970."""


class OutcomeRow(NamedTuple):
    """A row of tool_outcomes."""

    tenant_id: str
    tool_name: str
    good: float = 0.0
    bad: float = 0.0
    transient: float = 0.0
    recovered: float = 0.0
    is_broken: bool = False
    at: int = 0

    def aged(self, at: int) -> "OutcomeRow":
        """The same with what time takes from it by then."""
        keep = 0.5 ** (max(0, at - self.at) / TIME_HALF_LIFE)
        return self._scaled(keep)._replace(at=max(at, self.at))

    def after(self, seen: Observed) -> "OutcomeRow":
        """The same with one more outcome."""
        row = self.aged(seen.at)._scaled(CALL_DECAY)
        if seen.verdict == "good":
            recovered = min(row.transient, row.recovered + self.is_broken)
            return row._replace(good=row.good + 1, recovered=recovered, is_broken=False)
        is_transient = seen.verdict == "transient"
        return row._replace(bad=row.bad + 1, transient=row.transient + is_transient, is_broken=is_transient)

    def _scaled(self, by: float) -> "OutcomeRow":
        return self._replace(
            good=self.good * by, bad=self.bad * by, transient=self.transient * by, recovered=self.recovered * by
        )


def verdict_of(status: str, body: Mapping[str, Any]) -> Verdict | None:
    """The verdict on a tool by the end of a call; None: it was not run, or the fault is the caller's."""
    attempts = body.get("attempts")
    if not isinstance(attempts, int) or attempts < 1:
        return None
    if status == "success":
        return "good"
    code = body.get("code")
    if code not in FAULTS or (code == "TIMEOUT" and body.get("timeout") is not None):  # the caller's own short limit
        return None
    return "transient" if code in TRANSIENT else "bad"


def add(seen: Mapping[ToolKey, Sequence[Observed]]) -> Transaction[None]:
    """Adds outcomes in their order. The watermark's row must be held."""
    known: dict[ToolKey, OutcomeRow] = {}
    for tenant in sorted({tenant for tenant, _ in seen}):
        tools = sorted(tool for owner, tool in seen if owner == tenant)
        known |= {(tenant, row.tool_name): row for row in (yield from _of_tools(tenant, tools))}
    for key, outcomes in sorted(seen.items()):
        row = known.get(key, OutcomeRow(*key))
        for one in outcomes:
            row = row.after(one)
        yield upsert("tool_outcomes", {**row._asdict(), "is_broken": int(row.is_broken)}, ("tenant_id", "tool_name"))


def hold() -> Transaction[None]:
    """Holds the watermark's row until the transaction ends: whoever counts meanwhile waits."""
    yield "UPDATE call_statistics_progress SET seq = seq WHERE id = 1", {}


def of_tenant(tenant: str) -> Transaction[list[OutcomeRow]]:
    """The outcomes of a tenant's tools, those of the tools that were used last."""
    return select(
        OutcomeRow, "tool_outcomes", "WHERE tenant_id = :tenant ORDER BY at DESC LIMIT :most",
        {"tenant": tenant, "most": MAX_TOOLS},
    )  # fmt: skip


def of_all_tenants() -> Transaction[list[OutcomeRow]]:
    """The outcomes of each tool, of all tenants together."""
    rows = yield (
        "SELECT tool_name, SUM(good), SUM(bad), SUM(transient), SUM(recovered), MAX(at) FROM tool_outcomes "
        "GROUP BY tool_name ORDER BY MAX(at) DESC LIMIT :most",
        {"most": MAX_TOOLS},
    )
    return [
        OutcomeRow("", tool, float(good), float(bad), float(transient), float(recovered), at=at)
        for tool, good, bad, transient, recovered, at in rows
    ]


def forget(tenant: str | None = None) -> Transaction[None]:
    """Removes the outcomes of a tenant, or all."""
    where, values = ("", {}) if tenant is None else (" WHERE tenant_id = :tenant", {"tenant": tenant})
    yield f"DELETE FROM tool_outcomes{where}", values


def _of_tools(tenant: str, tools: Iterable[str]) -> Transaction[list[OutcomeRow]]:
    names = list(tools)
    found: list[OutcomeRow] = []
    for start in range(0, len(names), 100):
        chosen = names[start : start + 100]
        chosen += [chosen[-1]] * (100 - len(chosen))  # one length, so that a database has read the statement before
        values = {f"n{number}": name for number, name in enumerate(chosen)}
        rows = yield (
            f"SELECT {columns(OutcomeRow)} FROM tool_outcomes WHERE tenant_id = :tenant "
            f"AND tool_name IN ({', '.join(f':{name}' for name in values)})",
            {**values, "tenant": tenant},
        )
        found += [made(OutcomeRow, row) for row in rows]
    return found
