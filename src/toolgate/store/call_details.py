"""Details of calls that are kept beside their records: call_details. Written with the end record, removed by retention, the
oldest first.

Each row holds the running total of bytes, so that what has to go is known from the first and the last row. Because nothing
is removed but from the oldest on, a row that is missing while an older one is there was removed by somebody else.
"""

from collections.abc import Sequence

from toolgate.store.database import Rows, Transaction
from toolgate.store.sql import column, is_any, value

Detail = tuple[int, int, bytes]
"""The number of the end record, when it ended in microseconds since 1970, and what is kept of it."""
COLUMNS = ("seq", "at", "total", "content")
NAMES_DETAILS = '%"details_sha256":%'
MAX_ROWS = 200
"""Rows that one transaction removes: records wait for it."""


def last_total() -> Transaction[int]:
    """The running total so far."""
    return (yield from value("SELECT total FROM call_details ORDER BY seq DESC LIMIT 1")) or 0


def with_totals(details: Sequence[Detail], total: int) -> list[tuple[int, int, int, bytes]]:
    """The rows to be inserted, in the order of COLUMNS."""
    rows = []
    for seq, at, content in details:
        total += len(content)
        rows.append((seq, at, total, content))
    return rows


def fetch(seq: int) -> Transaction[tuple[bytes | None, bool]]:
    """The details of the call whose end record has this number; if there are none, whether older ones still are, so that it
    was not retention that removed it."""
    found = yield from contents(seq, seq)
    if found:
        return found[seq], False
    return None, (yield from is_any("SELECT 1 FROM call_details WHERE seq < :seq LIMIT 1", {"seq": seq}))


def contents(first: int, last: int) -> Transaction[dict[int, bytes]]:
    """The details of the calls whose end records have these numbers."""
    rows = yield "SELECT seq, content FROM call_details WHERE seq BETWEEN :first AND :last", {"first": first, "last": last}
    # SQLite gives whatever somebody has put there, of any type.
    return {
        seq: found if isinstance(found, bytes) else str(found).encode("utf-8", "backslashreplace") for seq, found in rows
    }


def records(after: int) -> Transaction[Rows]:
    """Some of the end records after a number that may name details: number, when it ended, call, body."""
    sql = (
        "SELECT seq, at, call_id, body FROM audit_log WHERE seq > :after AND kind = 'end' AND body LIKE :part "
        "ORDER BY seq LIMIT :most"
    )
    return (yield sql, {"after": after, "part": NAMES_DETAILS, "most": MAX_ROWS})


def unnamed(limit: int) -> Transaction[list[int]]:
    """The numbers of some details without an end record that may name them: nothing of ours wrote these."""
    return column(
        "SELECT seq FROM call_details WHERE NOT EXISTS (SELECT 1 FROM audit_log WHERE audit_log.seq = call_details.seq "
        "AND kind = 'end' AND body LIKE :part) ORDER BY seq LIMIT :most",
        {"part": NAMES_DETAILS, "most": limit},
    )


def extent() -> Transaction[tuple[int | None, int]]:
    """The number of the oldest that is kept, and the bytes of all."""
    rows = yield "SELECT min(seq), sum(length(content)) FROM call_details", {}
    return rows[0][0], int(rows[0][1] or 0)


def expired(before: int, most_bytes: int) -> Transaction[list[int]]:
    """The numbers of some that ended before an instant, or are beyond so many bytes: the oldest."""
    total = yield from last_total()
    rows = yield "SELECT seq, at, total FROM call_details ORDER BY seq LIMIT :most", {"most": MAX_ROWS}
    found = []
    for seq, at, upto in rows:
        if at >= before and upto > total - most_bytes:
            break
        found.append(int(seq))
    return found


def prune(before: int, most_bytes: int) -> Transaction[int]:
    """Removes them; gives how many."""
    found = yield from expired(before, most_bytes)
    if found:
        yield "DELETE FROM call_details WHERE seq <= :bound", {"bound": found[-1]}
    return len(found)
