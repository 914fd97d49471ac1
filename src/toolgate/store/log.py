"""Reading the audit log: audit_log, written by the backends' own way in."""

from typing import Any

from toolgate.store.chain import LinkedRow, Verdict, Verifier
from toolgate.store.database import Rows, Store, Transaction

COLUMNS = "seq, at, kind, call_id, tenant, tool, status, body, hash"
PAGE = 5_000


def after(seq: int, limit: int = PAGE) -> Transaction[Rows]:
    return (yield f"SELECT {COLUMNS} FROM audit_log WHERE seq > :seq ORDER BY seq LIMIT :most", {"seq": seq, "most": limit})


def latest(
    limit: int, *, tenant: str | None = None, tool: str | None = None, status: str | None = None
) -> Transaction[Rows]:
    """The last rows, oldest first."""
    chosen: dict[str, Any] = {"tenant": tenant, "tool": tool, "status": status}
    wanted = {name: value for name, value in chosen.items() if value is not None}
    where = " AND ".join(f"{name} = :{name}" for name in wanted) or "TRUE"
    rows = yield (
        f"SELECT {COLUMNS} FROM audit_log WHERE {where} ORDER BY seq DESC LIMIT :most",
        {**wanted, "most": limit},
    )
    return rows[::-1]


def of_call(call_id: str) -> Transaction[Rows]:
    """All rows of one call; a beginning of its id will do if it is the only one that begins so."""
    rows = yield f"SELECT {COLUMNS} FROM audit_log WHERE call_id = :id ORDER BY seq", {"id": call_id}
    if rows or len(call_id) < 6:
        return rows
    rows = yield (
        f"SELECT {COLUMNS} FROM audit_log WHERE call_id >= :id AND call_id < :past ORDER BY seq LIMIT 100",
        {"id": call_id, "past": call_id + "\x7f"},
    )
    return rows if len({row[3] for row in rows}) == 1 else []


async def verify(store: Store, verifier: Verifier) -> Verdict:
    """Walk the whole log."""
    while True:
        rows: list[LinkedRow] = await store.read(after(verifier.head.seq))
        if not rows:
            return verifier.verdict()
        for row in rows:
            verifier.take(row)
