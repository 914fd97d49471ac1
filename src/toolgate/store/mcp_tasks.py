"""Calls of MCP clients that go on after their request was answered: mcp_tasks, mcp_task_answers.

A task belongs to one process at a time. Each write of that process names the process and its turn (`runs`), so one that
stood still for so long that another took the task over writes nothing. A task that has ended is never changed again.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from toolgate.store.database import Transaction, now
from toolgate.store.live_processes import IS_DEAD, alive_since, beat
from toolgate.store.sql import column, columns, insert, is_any, made, select, value

LIVE = "state IN ('working', 'input_required')"
ORPHAN = f"(process_id IS NULL OR {IS_DEAD})"
OURS = f"id = :id AND process_id = :process AND runs = :runs AND {LIVE}"
FORGET = timedelta(days=1)
"""After this long beyond its time, a task is forgotten whatever its state."""
MAX_PRUNED_TASKS = 200
MAX_ORPHANS = 50
"""Tasks that are looked at, and pruned, at once: each may have a large result."""


class McpTaskRow(NamedTuple):
    """A row of mcp_tasks."""

    id: str
    kind: str
    credential: str
    actor: str
    tenant_id: str
    tool_name: str
    request: str | None
    state: str
    message: str | None
    approval_id: str | None
    questions: str | None
    result: str | None
    process_id: str | None
    runs: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime

    @property
    def is_live(self) -> bool:
        return self.state in ("working", "input_required")


def add(row: McpTaskRow, most: int) -> Transaction[bool]:
    """Adds a task; False if its credential has so many already. Those whose time is over are forgotten."""
    yield from prune(row.created_at)
    count = yield from value(
        "SELECT count(*) FROM mcp_tasks WHERE credential = :credential AND actor = :actor AND expires_at > :moment",
        {"credential": row.credential, "actor": row.actor, "moment": row.created_at},
    )
    if int(count) >= most:
        return False
    yield insert("mcp_tasks", row._asdict())
    return True


def prune(at: datetime) -> Transaction[None]:
    """Forgets tasks whose time is over: those that have ended, and after a day the others too."""
    gone = yield from column(
        f"SELECT id FROM mcp_tasks WHERE expires_at <= :moment AND (NOT {LIVE} OR expires_at <= :long_ago) LIMIT :most",
        {"moment": at, "long_ago": at - FORGET, "most": MAX_PRUNED_TASKS},
    )
    for id in gone:
        yield from drop(id)


def drop(id: str) -> Transaction[None]:
    """Forgets a task and its answers."""
    yield "DELETE FROM mcp_tasks WHERE id = :id", {"id": id}
    yield "DELETE FROM mcp_task_answers WHERE task_id = :id", {"id": id}


def find(id: str, credential: str, actor: str, *, lease: float) -> Transaction[tuple[McpTaskRow, bool] | None]:
    """A task of this credential, and whether its process is gone. None: there is none, or its time is over."""
    rows = yield (
        f"SELECT {columns(McpTaskRow)}, {ORPHAN} FROM mcp_tasks "
        "WHERE id = :id AND credential = :credential AND actor = :actor",
        {"id": id, "credential": credential, "actor": actor, **alive_since(lease)},
    )
    if not rows:
        return None
    row, is_orphan = made(McpTaskRow, rows[0][:-1]), bool(rows[0][-1])
    return None if row.expires_at <= now() and (is_orphan or not row.is_live) else (row, is_orphan)


def save(id: str, process: str, runs: int, changes: Mapping[str, Any], asked: Collection[str] = ()) -> Transaction[bool]:
    """Changes a task that a process has, and forgets the answers to what is not `asked` any more; False if it does not have
    it any more, or it has ended."""
    taken = ", ".join(f"{name} = :{name}" for name in changes)
    names = {"id": id, "process": process, "runs": runs}
    if not (yield from is_any(f"UPDATE mcp_tasks SET {taken} WHERE {OURS} RETURNING id", {**changes, **names})):
        return False
    for question in (yield from answered(id)) - frozenset(asked):
        sql = "DELETE FROM mcp_task_answers WHERE task_id = :id AND question = :question"
        yield sql, {"id": id, "question": question}
    return True


def cancel(id: str, at: datetime) -> Transaction[bool]:
    """Cancels a task, whoever has it; False if it has ended."""
    return is_any(
        f"UPDATE mcp_tasks SET state = 'cancelled', questions = NULL, updated_at = :moment WHERE id = :id AND {LIVE} "
        "RETURNING id",
        {"id": id, "moment": at},
    )


def answer(id: str, answers: Mapping[str, str]) -> Transaction[None]:
    """Keeps answers for the process that has a task; the first to each question counts."""
    if not (yield from is_any(f"SELECT 1 FROM mcp_tasks WHERE id = :id AND {LIVE}", {"id": id})):
        return
    for question, given in answers.items():
        sql, values = insert("mcp_task_answers", {"task_id": id, "question": question, "answer": given})
        yield f"{sql} ON CONFLICT (task_id, question) DO NOTHING", values


def answered(id: str) -> Transaction[frozenset[str]]:
    """The questions of a task whose answers its process has not taken yet."""
    return frozenset((yield from column("SELECT question FROM mcp_task_answers WHERE task_id = :id", {"id": id})))


def held_by(process: str, only: str | None = None) -> Transaction[tuple[dict[str, int], list[tuple[str, str, str]]]]:
    """The live tasks of a process with their turns, and answers to them: task, question, answer. `only`: of one task."""
    mine = f"process_id = :process AND {LIVE}" + ("" if only is None else " AND id = :id")
    names = {"process": process, **({} if only is None else {"id": only})}
    rows = yield f"SELECT id, runs FROM mcp_tasks WHERE {mine}", names
    answers = yield (
        f"SELECT task_id, question, answer FROM mcp_task_answers WHERE task_id IN (SELECT id FROM mcp_tasks WHERE {mine})",
        names,
    )
    return {id: int(runs) for id, runs in rows}, [(id, question, given) for id, question, given in answers]


def orphans(at: datetime, *, lease: float) -> Transaction[list[McpTaskRow]]:
    """Tasks whose process is gone and that have not ended, oldest first."""
    return select(
        McpTaskRow,
        "mcp_tasks",
        f"WHERE {LIVE} AND kind = 'task' AND expires_at > :moment AND {ORPHAN} ORDER BY created_at, id LIMIT :most",
        {"moment": at, "most": MAX_ORPHANS, **alive_since(lease)},
    )


def claim(row: McpTaskRow, process: str, at: datetime, *, lease: float) -> Transaction[bool]:
    """Takes a task whose process is gone; False if another was quicker, or it has ended. Whoever takes it is alive: one that
    stood still would else lose it again before it has shown that."""
    yield from beat(process)
    taken = yield (
        "UPDATE mcp_tasks SET process_id = :process, runs = runs + 1, state = 'working', questions = NULL, "
        f"updated_at = :moment WHERE id = :id AND runs = :runs AND {LIVE} AND {ORPHAN} RETURNING id",
        {"id": row.id, "runs": row.runs, "process": process, "moment": at, **alive_since(lease)},
    )
    if taken:  # their questions are asked anew, under other names
        yield "DELETE FROM mcp_task_answers WHERE task_id = :id", {"id": row.id}
    return bool(taken)


def fail(row: McpTaskRow, result: str, at: datetime, *, lease: float) -> Transaction[bool]:
    """Ends a task whose process is gone and that can't go on; False if somebody has taken it, or it has ended."""
    return is_any(
        "UPDATE mcp_tasks SET state = 'failed', result = :result, questions = NULL, updated_at = :moment "
        f"WHERE id = :id AND runs = :runs AND {LIVE} AND {ORPHAN} RETURNING id",
        {"id": row.id, "runs": row.runs, "result": result, "moment": at, **alive_since(lease)},
    )
