"""Workflows that were started and report their end by a callback."""

from datetime import datetime
from typing import Any, NamedTuple

from toolgate.store.database import Transaction
from toolgate.store.sql import columns, insert, made, select, select_one

TABLE = "workflow_invocations"
OPEN = "('running', 'timeout', 'not_started')"
"""States in which a callback may still tell how it ended: one that comes late is not lost."""


class InvocationRow(NamedTuple):
    """A row of workflow_invocations."""

    id: str
    tenant_id: str
    user_id: str
    persona_id: str | None
    workflow: str
    idempotency_key: str
    call_id: str
    state: str
    output: str | None
    error: str | None
    execution_id: str | None
    created_at: datetime
    deadline: datetime
    ended_at: datetime | None


def begin(row: InvocationRow) -> Transaction[tuple[InvocationRow, bool]]:
    """Notes that a workflow is about to be started. Gives its row, and whether it is to be started: not if it was for the
    same key, unless n8n did not take it then."""
    sql, values = insert(TABLE, row._asdict())
    key = "tenant_id = :tenant_id AND user_id = :user_id AND workflow = :workflow AND idempotency_key = :idempotency_key"
    whose = {name: values[name] for name in ("tenant_id", "user_id", "workflow", "idempotency_key")}
    yield f"{sql} ON CONFLICT (tenant_id, user_id, workflow, idempotency_key) DO NOTHING", values
    again = yield (
        f"UPDATE {TABLE} SET state = 'running', error = NULL, ended_at = NULL, deadline = :deadline "
        f"WHERE {key} AND state = 'not_started' RETURNING id",
        {**whose, "deadline": row.deadline},
    )
    found = yield from select_one(InvocationRow, TABLE, f"WHERE {key}", whose)
    assert found is not None
    return found, bool(again) or found.id == row.id


def note_execution(id: str, execution_id: str) -> Transaction[None]:
    """Notes the id of the execution in n8n, unless a callback told it."""
    yield (
        f"UPDATE {TABLE} SET execution_id = :execution_id WHERE id = :id AND execution_id IS NULL",
        {"id": id, "execution_id": execution_id},
    )


def note_not_started(id: str, error: str, at: datetime) -> Transaction[None]:
    """Notes that n8n did not take it, unless a callback told otherwise."""
    yield (
        f"UPDATE {TABLE} SET state = 'not_started', error = :error, ended_at = :at WHERE id = :id AND state = 'running'",
        {"id": id, "error": error, "at": at},
    )


class InvocationEnd(NamedTuple):
    """The end of a workflow."""

    state: str
    output: str | None
    error: str | None
    execution_id: str | None
    ended_at: datetime


def end(id: str, ending: InvocationEnd) -> Transaction[tuple[InvocationRow | None, bool]]:
    """Notes how a workflow ended, once. Gives its row, if there is one, and whether this was the first time."""
    rows = yield (
        f"UPDATE {TABLE} SET state = :state, output = :output, error = :error, ended_at = :ended_at, "
        f"execution_id = COALESCE(:execution_id, execution_id) WHERE id = :id AND state IN {OPEN} "
        f"RETURNING {columns(InvocationRow)}",
        {"id": id, **ending._asdict()},
    )
    if rows:
        return made(InvocationRow, rows[0]), True
    return (yield from find(id)), False


def expire(at: datetime, error: str) -> Transaction[list[InvocationRow]]:
    """Ends those of which nothing was heard in their time; gives them."""
    rows = yield (
        f"UPDATE {TABLE} SET state = 'timeout', error = :error, ended_at = :at WHERE state = 'running' AND deadline < :at "
        f"RETURNING {columns(InvocationRow)}",
        {"at": at, "error": error},
    )
    return [made(InvocationRow, row) for row in rows]


def forget(before: datetime) -> Transaction[None]:
    """Removes those that ended before a time."""
    yield f"DELETE FROM {TABLE} WHERE state <> 'running' AND ended_at < :before", {"before": before}


def find(id: str) -> Transaction[InvocationRow | None]:
    return select_one(InvocationRow, TABLE, "WHERE id = :id", {"id": id})


def listed(
    tenant: str, user: str | None, workflow: str | None, state: str | None, most: int
) -> Transaction[list[InvocationRow]]:
    """The latest invocations of a user, or of all users of a tenant, oldest first."""
    chosen: dict[str, Any] = {"tenant_id": tenant, "user_id": user, "workflow": workflow, "state": state}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    where = " AND ".join(f"{name} = :{name}" for name in chosen)
    rows = yield from select(InvocationRow, TABLE, f"WHERE {where} ORDER BY id DESC LIMIT :most", {**chosen, "most": most})
    return rows[::-1]
