"""Reading the audit log: audit_log, written by the backends' own way in."""

from collections.abc import Iterable
from typing import Any, cast

from toolgate.store.chain import LinkedRow, LogVerdict, Verifier
from toolgate.store.database import LOG_COLUMNS, Rows, Store, Transaction
from toolgate.store.sql import column, value

_COLUMNS = ", ".join(LOG_COLUMNS)
PAGE_ROWS = 5_000
LOWEST_SEQ = -(2**63)
"""Before every number that a row can have."""


def after(seq: int, limit: int = PAGE_ROWS, tenant: str | None = None) -> Transaction[Rows]:
    """Rows in order: of one tenant, or of all. The log begins at 1: what has a lower number was not written by us, and only
    `verify` looks at it."""
    if tenant is None:
        return (yield from _walk(max(seq, 0), limit))
    return (
        yield (
            f"SELECT {_COLUMNS} FROM audit_log WHERE tenant = :tenant AND seq > :seq ORDER BY seq LIMIT :most",
            {"tenant": tenant, "seq": max(seq, 0), "most": limit},
        )
    )


def _walk(seq: int, limit: int) -> Transaction[Rows]:
    return (yield f"SELECT {_COLUMNS} FROM audit_log WHERE seq > :seq ORDER BY seq LIMIT :most", {"seq": seq, "most": limit})


def latest(
    limit: int, *, tenant: str | None = None, tool: str | None = None, status: str | None = None
) -> Transaction[Rows]:
    """The last rows, oldest first."""
    chosen: dict[str, Any] = {"tenant": tenant, "tool": tool, "status": status}
    wanted = {name: value for name, value in chosen.items() if value is not None}
    where = " AND ".join(("seq > 0", *(f"{name} = :{name}" for name in wanted)))
    rows = yield (
        f"SELECT {_COLUMNS} FROM audit_log WHERE {where} ORDER BY seq DESC LIMIT :most",
        {**wanted, "most": limit},
    )
    return rows[::-1]


def of_call(call_id: str) -> Transaction[Rows]:
    """All rows of one call; a beginning of its id will do if it is the only one that begins so."""
    rows = yield f"SELECT {_COLUMNS} FROM audit_log WHERE call_id = :id AND seq > 0 ORDER BY seq", {"id": call_id}
    if rows or len(call_id) < 6:
        return rows
    rows = yield (
        f"SELECT {_COLUMNS} FROM audit_log WHERE call_id >= :id AND call_id < :past AND seq > 0 ORDER BY seq LIMIT 100",
        {"id": call_id, "past": call_id + "\x7f"},
    )
    return rows if len({row[3] for row in rows}) == 1 else []


def tenants(limit: int) -> Transaction[list[str]]:
    """The tenants that have rows, by name. Each is one step along the index, however many rows it has."""
    return column(
        "WITH RECURSIVE found(tenant, place) AS (SELECT MIN(tenant), 1 FROM audit_log UNION ALL "
        "SELECT (SELECT MIN(tenant) FROM audit_log WHERE tenant > found.tenant), place + 1 FROM found "
        "WHERE tenant IS NOT NULL AND place < :most) SELECT tenant FROM found WHERE tenant IS NOT NULL AND tenant <> ''",
        {"most": limit},
    )


def hash_at(seq: int) -> Transaction[str | None]:
    return value("SELECT hash FROM audit_log WHERE seq = :seq", {"seq": seq})


def hashes_at(numbers: Iterable[int]) -> Transaction[dict[int, str]]:
    """The hashes of those of these rows that there are."""
    found = {}
    for seq in numbers:
        digest = yield from hash_at(seq)
        if digest is not None:
            found[seq] = digest
    return found


def of_request(request_id: str, tenant: str | None = None) -> Transaction[list[str]]:
    """The ids of calls whose records hold this request id, oldest first."""
    owned = "" if tenant is None else " AND tenant_id = :tenant"
    return column(
        f"SELECT call_id FROM call_requests WHERE request_id = :request AND seq > 0{owned} ORDER BY seq",
        {"request": request_id, "tenant": tenant},
    )


async def verify(store: Store, verifier: Verifier) -> LogVerdict:
    """Walks the whole log, from whatever number its first row has."""
    seq = LOWEST_SEQ
    count = await store.read(value("SELECT count(*) FROM audit_log"))
    while rows := await store.read(_walk(seq, PAGE_ROWS)):
        for row in rows:
            verifier.take(cast("LinkedRow", row))
        seq = rows[-1][0]
    if verifier.rows < count:
        verifier.add_fault(f"the log has {count} rows, of which {count - verifier.rows} have numbers that others have too")
    return verifier.verdict()
