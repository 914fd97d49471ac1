"""Feedback about calls, and operators' answers to proposals: learning_feedback and tool_limits. Past tasks and notes lie
among the memories, in a space of their own."""

from datetime import datetime
from typing import Any, Literal, NamedTuple

from toolgate.store import catalog, memories
from toolgate.store.database import Rows, Transaction
from toolgate.store.sql import column, insert, select, upsert, value

LimitKind = Literal["timeout", "retry", "breaker"]
LimitState = Literal["accepted", "rejected"]
RECENT_NOTES = 5_000
"""The last notes of a tenant among which those of a user in the last hour are counted."""


class FeedbackRow(NamedTuple):
    """A row of learning_feedback."""

    id: str
    tenant_id: str
    user_id: str
    persona_id: str | None
    tool_name: str
    call_id: str | None
    success: bool
    score: float | None
    comment: str | None
    duration_ms: float | None
    args_hash: str | None
    response_size: int | None
    is_weighed: bool
    created_at: datetime


class LimitRow(NamedTuple):
    """A row of tool_limits."""

    tool_name: str
    kind: LimitKind
    value: float
    state: LimitState
    decided_by: str
    decided_at: datetime


class OwnedNote(NamedTuple):
    """A kept task or note: what a search by words looks at, and whose it is."""

    seq: int
    id: str
    user_id: str
    text: str
    metadata: str
    created_at: datetime


# -- feedback


def end_of_call(call_id: str, tenant: str) -> Transaction[tuple[str, str] | None]:
    """The tool and the record of a tenant's call that ended; None: there is none."""
    rows: Rows = yield (
        "SELECT tool, body FROM audit_log WHERE call_id = :call AND tenant = :tenant AND kind = 'end' AND seq > 0 "
        "ORDER BY seq DESC LIMIT 1",
        {"call": call_id, "tenant": tenant},
    )
    return (rows[0][0], rows[0][1]) if rows else None


def add_feedback(row: FeedbackRow) -> Transaction[bool]:
    """Keeps feedback; gives False if the user gave some about this call before."""
    values = {**row._asdict(), "success": int(row.success), "is_weighed": int(row.is_weighed)}
    sql, values = insert("learning_feedback", values)  # type: ignore[assignment]
    return bool((yield f"{sql} ON CONFLICT (tenant_id, user_id, call_id) DO NOTHING RETURNING id", values))


def given_since(tenant: str, user: str, since: datetime, tool: str | None = None) -> Transaction[int]:
    """Counts what a user said since then; of one tool, what was weighed."""
    more = "" if tool is None else " AND tool_name = :tool AND is_weighed = 1"
    values = {"tenant": tenant, "user": user, "since": since, "tool": tool}
    found = yield from value(
        "SELECT count(*) FROM learning_feedback WHERE tenant_id = :tenant AND user_id = :user AND created_at > :since"
        + more,
        {name: one for name, one in values.items() if one is not None},
    )
    return int(found)


def list_feedback(tenant: str, user: str | None, tool: str | None, most: int) -> Transaction[list[FeedbackRow]]:
    """The latest feedback of a tenant, the newest first; of one user or tool, or of all."""
    given = {"user_id": user, "tool_name": tool}
    wanted = {name: one for name, one in given.items() if one is not None}
    where = "".join(f" AND {name} = :{name}" for name in wanted)
    return select(
        FeedbackRow, "learning_feedback", f"WHERE tenant_id = :tenant{where} ORDER BY created_at DESC, id LIMIT :most",
        {**wanted, "tenant": tenant, "most": most},
    )  # fmt: skip


def remove_feedback(tenant: str | None, user: str | None, before: datetime | None) -> Transaction[int]:
    """Removes feedback: of a tenant or of all, of a user, from before a moment. Gives how much there was."""
    given: dict[str, Any] = {"tenant_id = :tenant": tenant, "user_id = :user": user, "created_at < :before": before}
    wanted = {clause: one for clause, one in given.items() if one is not None}
    values = {clause.rpartition(":")[2]: one for clause, one in wanted.items()}
    rows = yield f"DELETE FROM learning_feedback WHERE {' AND '.join(wanted) or '1 = 1'} RETURNING id", values
    return len(rows)


# -- past tasks and notes


def spaces(persona: str, tenant: str | None) -> Transaction[list[int]]:
    """The spaces of past tasks: of a tenant, or of all."""
    where, values = ("", {}) if tenant is None else (" AND tenant_id = :tenant", {"tenant": tenant})
    return column(f"SELECT id FROM memory_spaces WHERE persona_id = :persona{where}", {"persona": persona, **values})


def notes_since(space: int, user: str, since: datetime) -> Transaction[int]:
    """Counts the notes of a user that were kept since then, among the last ones."""
    found = yield from value(
        "SELECT count(*) FROM (SELECT user_id, created_at FROM memories WHERE space_id = :space "
        "ORDER BY seq DESC LIMIT :most) AS recent WHERE user_id = :user AND created_at > :since",
        {"space": space, "most": RECENT_NOTES, "user": user, "since": since},
    )
    return int(found)


def latest_notes(space: int, user: str | None, most: int) -> Transaction[list[OwnedNote]]:
    """The last notes of a space, the newest first; of one user, or of all."""
    where, values = ("", {}) if user is None else (" AND user_id = :user", {"user": user})
    return select(
        OwnedNote, "memories", f"WHERE space_id = :space{where} ORDER BY seq DESC LIMIT :most",
        {"space": space, "most": most, **values},
    )  # fmt: skip


def notes_of_user(space: int, user: str) -> Transaction[list[int]]:
    """The numbers of a user's notes, the oldest first."""
    return column(
        "SELECT seq FROM memories WHERE space_id = :space AND user_id = :user ORDER BY seq", {"space": space, "user": user}
    )


def remove_notes(space: int, user: str | None, before: datetime | None) -> Transaction[int]:
    """Removes notes of a space: of a user or of all, from before a moment. Gives how many there were."""
    given: dict[str, Any] = {"user_id = :user": user, "created_at < :before": before}
    wanted = {clause: one for clause, one in given.items() if one is not None}
    values = {clause.rpartition(":")[2]: one for clause, one in wanted.items()}
    where = " AND ".join(("space_id = :space", *wanted))
    numbers = yield from column(f"SELECT seq FROM memories WHERE {where}", {"space": space, **values})
    return len((yield from memories.remove(space, "seq", numbers))) if numbers else 0


# -- limits


def limits() -> Transaction[list[LimitRow]]:
    """All answers to proposals."""
    return select(LimitRow, "tool_limits", "ORDER BY tool_name, kind")


def decide(row: LimitRow) -> Transaction[None]:
    """Keeps the answer to a proposal, for all processes."""
    yield upsert("tool_limits", row._asdict(), ("tool_name", "kind"))
    yield from catalog.changed()
