"""The last health check of each tool that has one, and when the next is due: shared by all processes of a store."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import insert, is_any, select, select_one


class HealthRow(NamedTuple):
    """The last health check of a tool (`state`: healthy, unhealthy, or unchecked), and when the next is due."""

    tool: str
    state: str
    message: str | None
    last_check: datetime | None
    next_check: datetime

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON: instants in ISO 8601 and UTC."""
        last = None if self.last_check is None else _iso(self.last_check)
        return {"state": self.state, "message": self.message, "lastCheck": last, "nextCheck": _iso(self.next_check)}


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def list_health() -> Transaction[list[HealthRow]]:
    return (yield from select(HealthRow, "tool_health", "ORDER BY tool"))


def health_of(tool: str) -> Transaction[HealthRow | None]:
    return (yield from select_one(HealthRow, "tool_health", "WHERE tool = :tool", {"tool": tool}))


def plan_check(tool: str, due: datetime) -> Transaction[None]:
    """Notes when the first check of a tool is due, unless another process has."""
    statement, values = insert("tool_health", {"tool": tool, "state": "unchecked", "next_check": due})
    yield f"{statement} ON CONFLICT (tool) DO NOTHING", values


def claim_check(tool: str, planned: datetime, following: datetime) -> Transaction[bool]:
    """Takes the check that was planned for a moment, by planning the one after it; False if another process took it."""
    values = {"tool": tool, "planned": planned, "following": following}
    taken = "UPDATE tool_health SET next_check = :following WHERE tool = :tool AND next_check = :planned RETURNING tool"
    return (yield from is_any(taken, values))


def record_check(tool: str, state: str, message: str | None, at: datetime) -> Transaction[None]:
    """Notes the result of a check."""
    yield (
        "UPDATE tool_health SET state = :state, message = :message, last_check = :at WHERE tool = :tool",
        {"tool": tool, "state": state, "message": message, "at": at},
    )
