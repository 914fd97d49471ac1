"""Idempotency keys, their holders and what came of them: idempotency_keys. Whether a call began is asked of audit_log.

A key is in one of three states. `running`: a call has it. `done`: its outcome is on record. `unknown`: its call began and
nobody knows how it ended, until that call says so after all or a person settles it. A key that had no effect has no row.

Every decision about another's row is made with that row locked: SQLite runs one transaction at a time, and on PostgreSQL
`ON CONFLICT DO UPDATE` and `UPDATE` lock what they find, also where they change nothing.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from toolgate.store.database import Transaction, moment
from toolgate.store.live_processes import IS_DEAD, alive_since
from toolgate.store.sql import insert, is_any, upsert

State = Literal["running", "done", "unknown"]
MAX_KEYS_AT_ONCE = 1_000
"""Rows that one transaction lists, reaps or prunes."""
SAME_KEY = "tenant_id = :tenant AND user_id = :user AND key = :key"
SAME = ("tenant_id", "user_id", "key")
TAKEN = ("call_id", "process_id", "tool_name", "args_hash", "role_hash", "state", "created_at", "updated_at")
"""The columns that a call changes when it takes the key of a forgotten one."""
IDEMPOTENCY_COLUMNS = (
    "tenant_id, user_id, key, call_id, process_id, tool_name, args_hash, role_hash, state, outcome, settled_by, created_at, "
    "updated_at"
)


class Scope(NamedTuple):
    """The scope in which a key is unique: every user of every tenant has keys of their own."""

    tenant: str
    user: str
    key: str


class KeyHolder(NamedTuple):
    """The call that has a key, and what the key stands for."""

    call_id: str
    process: str
    tool: str
    args_hash: str
    role_hash: str
    """Of the persona and the scopes: what a role was given, another of the same user may not see."""

    @property
    def what(self) -> tuple[str, str, str]:
        """The call that the key stands for: a call of another tool, with other arguments or in another role may not use
        it."""
        return self.tool, self.args_hash, self.role_hash


class KeyRow(NamedTuple):
    """A key on record."""

    scope: Scope
    holder: KeyHolder
    state: State
    outcome: str | None
    settled_by: str | None
    created_at: datetime
    updated_at: datetime


def _row(row: tuple[Any, ...]) -> KeyRow:
    state, outcome, settled_by, created_at, updated_at = row[8:13]
    return KeyRow(Scope(*row[:3]), KeyHolder(*row[3:8]), state, outcome, settled_by, moment(created_at), moment(updated_at))


def claim(scope: Scope, holder: KeyHolder, at: datetime, *, keep: timedelta, lease: float) -> Transaction[KeyRow | None]:
    """Takes the key; None if it is the holder's now, else the row of who has it.

    A row of a process that is dead, or of this one (which asks only for keys that none of its calls holds), belongs to
    nobody: it is taken over if its call never began, and `unknown` if it did.
    """
    sql, values = upsert("idempotency_keys", _fresh(scope, holder, at), SAME, TAKEN)
    rows = yield (
        f"{sql}, outcome = NULL, settled_by = NULL "
        "WHERE idempotency_keys.state = 'done' AND idempotency_keys.updated_at < :forgotten RETURNING call_id",
        {**values, "forgotten": at - keep},
    )
    if rows:
        return None
    rows = yield (
        f"SELECT {IDEMPOTENCY_COLUMNS}, {IS_DEAD} FROM idempotency_keys WHERE {SAME_KEY}",
        {**scope._asdict(), **alive_since(lease)},
    )
    found = _row(rows[0])
    if found.state != "running" or not (bool(rows[0][-1]) or found.holder.process == holder.process):
        return found
    if (yield from began(found.holder.call_id)):
        yield from _set_unknown(scope, at)
        return found._replace(state="unknown")
    yield (
        "UPDATE idempotency_keys SET call_id = :call_id, process_id = :process, tool_name = :tool, args_hash = :args_hash, "
        f"role_hash = :role_hash, created_at = :moment, updated_at = :moment WHERE {SAME_KEY}",
        {**scope._asdict(), **holder._asdict(), "moment": at},
    )
    return None


def _fresh(scope: Scope, holder: KeyHolder, at: datetime) -> dict[str, Any]:
    """The row of a key that its holder has just taken."""
    names = zip(IDEMPOTENCY_COLUMNS.split(", ")[:8], (*scope, *holder), strict=True)
    return {**dict(names), "state": "running", "created_at": at, "updated_at": at}


def began(call_id: str) -> Transaction[bool]:
    """Tells whether the call may have had an effect: its start is on disk before its effect."""
    return is_any("SELECT 1 FROM audit_log WHERE call_id = :call AND kind = 'start' LIMIT 1", {"call": call_id})


def _set_unknown(scope: Scope, at: datetime) -> Transaction[None]:
    yield (
        f"UPDATE idempotency_keys SET state = 'unknown', updated_at = :moment WHERE {SAME_KEY}",
        {**scope._asdict(), "moment": at},
    )


def confirm(scope: Scope, call_id: str) -> Transaction[bool]:
    """Tells whether the key is still this call's. Asked once the start record is on disk: whoever takes the call for dead
    before that takes the key from it here, and whoever does so later finds that it began."""
    return is_any(
        f"UPDATE idempotency_keys SET state = 'running' WHERE {SAME_KEY} AND call_id = :call_id AND state <> 'done' "
        "RETURNING call_id",
        {**scope._asdict(), "call_id": call_id},
    )


def is_over(scope: Scope, call_id: str, *, lease: float) -> Transaction[bool]:
    """Tells whether a call no longer has the key, or is dead."""
    rows = yield (
        f"SELECT 1 FROM idempotency_keys WHERE {SAME_KEY} AND call_id = :call_id AND state = 'running' AND NOT ({IS_DEAD})",
        {**scope._asdict(), "call_id": call_id, **alive_since(lease)},
    )
    return not rows


def finish(scope: Scope, holder: KeyHolder, at: datetime, state: State, outcome: str | None) -> Transaction[bool]:
    """Records what came of the holder's call. True unless somebody else has the key, or has settled it, meanwhile."""
    row = {**_fresh(scope, holder, at), "state": state, "outcome": outcome}
    sql, _ = upsert("idempotency_keys", row, SAME, ("state", "outcome", "updated_at"))
    return is_any(
        f"{sql} WHERE idempotency_keys.call_id = excluded.call_id AND idempotency_keys.state <> 'done' RETURNING call_id",
        row,
    )


def release(scope: Scope, call_id: str) -> Transaction[bool]:
    """Nothing came of it: the key is free again. True as of `finish`: nobody else's row is touched."""
    yield (
        f"DELETE FROM idempotency_keys WHERE {SAME_KEY} AND call_id = :call_id AND state <> 'done'",
        {**scope._asdict(), "call_id": call_id},
    )
    return True


def forget(scope: Scope, tool: str) -> Transaction[None]:
    """Frees a key whose call of this tool is over, whatever came of it: for a call that may be made again under the same
    key. A key that stands for another tool's call stays: that one may have had its effect."""
    yield (
        f"DELETE FROM idempotency_keys WHERE {SAME_KEY} AND state <> 'running' AND tool_name = :tool",
        {**scope._asdict(), "tool": tool},
    )


def withdraw(scope: Scope, holder: KeyHolder, at: datetime) -> Transaction[bool]:
    """Releases a key of which it is not known whether the holder's call was given it, because the connection was lost: the
    server may still be at it. Nobody sees a row that is not committed yet, but who inserts the same one waits for it."""
    sql, values = insert("idempotency_keys", _fresh(scope, holder, at))
    yield f"{sql} ON CONFLICT (tenant_id, user_id, key) DO UPDATE SET updated_at = idempotency_keys.updated_at", values
    return (yield from release(scope, holder.call_id))


def reap(at: datetime, *, lease: float) -> Transaction[None]:
    """Judges the running keys of dead processes as `claim` would: those whose call began are unknown, the others free."""
    dead = alive_since(lease)
    rows = yield (
        f"SELECT tenant_id, user_id, key, call_id FROM idempotency_keys WHERE state = 'running' AND {IS_DEAD} "
        "ORDER BY tenant_id, user_id, key LIMIT :most",
        {**dead, "most": MAX_KEYS_AT_ONCE},
    )
    for *names, call_id in rows:
        scope = Scope(*names)
        this = {**scope._asdict(), "call_id": call_id}
        locked = yield (
            f"UPDATE idempotency_keys SET updated_at = updated_at WHERE {SAME_KEY} AND call_id = :call_id "
            f"AND state = 'running' AND {IS_DEAD} RETURNING call_id",
            {**this, **dead},
        )
        if not locked:
            continue
        if (yield from began(call_id)):
            yield from _set_unknown(scope, at)
        else:
            yield from release(scope, call_id)


def settle(scope: Scope, at: datetime, outcome_of: Callable[[KeyHolder], str] | None, by: str) -> Transaction[KeyRow | None]:
    """Ends a key's `unknown` by hand: with the outcome that is made for its row, or without one to set it free. Gives the
    row as it was found, None if there is none; where its state is not `unknown`, nothing was changed."""
    rows = yield (
        f"UPDATE idempotency_keys SET updated_at = updated_at WHERE {SAME_KEY} RETURNING {IDEMPOTENCY_COLUMNS}",
        scope._asdict(),
    )
    if not rows:
        return None
    found = _row(rows[0])
    if found.state != "unknown":
        return found
    if outcome_of is None:
        yield f"DELETE FROM idempotency_keys WHERE {SAME_KEY}", scope._asdict()
    else:
        yield (
            "UPDATE idempotency_keys SET state = 'done', outcome = :outcome, settled_by = :by, updated_at = :moment "
            f"WHERE {SAME_KEY}",
            {**scope._asdict(), "outcome": outcome_of(found.holder), "by": by, "moment": at},
        )
    return found


def find(scope: Scope) -> Transaction[KeyRow | None]:
    rows = yield f"SELECT {IDEMPOTENCY_COLUMNS} FROM idempotency_keys WHERE {SAME_KEY}", scope._asdict()
    return _row(rows[0]) if rows else None


def listed(
    *, tenant: str | None = None, state: State | None = None, most: int = MAX_KEYS_AT_ONCE
) -> Transaction[list[KeyRow]]:
    """The latest keys, oldest first."""
    wanted = {name: value for name, value in (("tenant_id", tenant), ("state", state)) if value is not None}
    where = " AND ".join(f"{name} = :{name}" for name in wanted) or "TRUE"
    rows = yield (
        f"SELECT {IDEMPOTENCY_COLUMNS} FROM idempotency_keys WHERE {where} "
        "ORDER BY created_at DESC, call_id DESC LIMIT :most",
        {**wanted, "most": most},
    )
    return [_row(row) for row in reversed(rows)]


def prune(forgotten: datetime) -> Transaction[None]:
    """Forgets outcomes that are old enough. What is unknown stays until somebody settles it."""
    yield (
        "DELETE FROM idempotency_keys WHERE (tenant_id, user_id, key) IN (SELECT tenant_id, user_id, key "
        "FROM idempotency_keys WHERE updated_at < :forgotten AND state = 'done' LIMIT :most) "
        "AND updated_at < :forgotten AND state = 'done'",
        {"forgotten": forgotten, "most": MAX_KEYS_AT_ONCE},
    )
