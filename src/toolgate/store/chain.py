"""The hash chain of the audit log, and its head kept outside the database.

Each row's hash covers the row and the hash before it, so that a changed or removed row shows. A cut tail leaves a
chain that is whole but short; it shows because the head (sequence and hash) is also noted in a file. Pure but for that
file: the backends call it, `verify` is given rows.
"""

import os
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import orjson

from toolgate.store.database import Row

try:
    import fcntl
except ImportError:  # Windows: one process at a time writes there
    fcntl = None  # type: ignore[assignment]

GENESIS = "0" * 64
LINE = 20 + 1 + 64 + 1 + 20 + 1
"""A line of the head file: sequence, hash, microseconds since 1970; of fixed width, so that the last can be replaced."""
KEEP_SECONDS = 60

LinkedRow = tuple[int, int, str, str, str, str, str, str, str]
"""A row as it is stored: sequence, the fields of a Row (body as text), hash."""


class Head(NamedTuple):
    """The end of the chain."""

    seq: int
    hash: str


START = Head(0, GENESIS)


def link(previous: Head, row: Row) -> LinkedRow:
    """Put a row at the end of the chain."""
    at, kind, call_id, tenant, tool, status, body = row
    seq = previous.seq + 1
    header = orjson.dumps((seq, at, kind, call_id, tenant, tool, status))
    digest = sha256(previous.hash.encode() + header + body).hexdigest()
    return seq, at, kind, call_id, tenant, tool, status, body.decode(), digest


class Verdict(NamedTuple):
    """What verification found."""

    rows: int
    head: Head
    faults: list[str]
    warnings: list[str]

    @property
    def ok(self) -> bool:
        return not self.faults


class Verifier:
    """Walks the chain row by row, then compares it with the noted heads."""

    def __init__(self, noted: Iterable[Head] | None, most_faults: int = 20) -> None:
        self._noted = None if noted is None else {head.seq: head.hash for head in noted}
        self._missing = dict(self._noted or {})
        self._most = most_faults
        self.rows = 0
        self.head = START
        self.faults: list[str] = []

    def take(self, row: LinkedRow) -> None:
        seq, at, kind, call_id, tenant, tool, status, body, digest = row
        self.rows += 1
        if seq != self.head.seq + 1:
            gone = f"{self.head.seq + 1}" if seq == self.head.seq + 2 else f"{self.head.seq + 1} to {seq - 1}"
            self._fault(f"row {gone} is missing")
            self.head = Head(seq, digest)
        else:
            expected = link(self.head, (at, kind, call_id, tenant, tool, status, body.encode()))[-1]
            if expected != digest:
                self._fault(f"row {seq} ({kind} of call {call_id}) is not what was written")
            self.head = Head(seq, digest)
        noted = self._missing.pop(seq, None)
        if noted is not None and noted != digest:
            self._fault(f"row {seq} has another hash than the one noted outside the database")

    def verdict(self) -> Verdict:
        warnings = []
        if self._noted is None:
            warnings.append("no head is noted outside the database, so a cut tail can't be seen")
        cut = [seq for seq in self._missing if seq > self.head.seq]
        if cut:
            self._fault(f"the tail is cut: the log ends at {self.head.seq}, but row {max(cut)} had been written")
        return Verdict(self.rows, self.head, self.faults, warnings)

    def _fault(self, words: str) -> None:
        if len(self.faults) < self._most:
            self.faults.append(words)


class HeadFile:
    """Notes the head of the log. One line is kept for each minute of writing; the last one moves with the head."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Head] | None:
        """All noted heads; None if there are none."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        heads = [self._parse(line)[0] for line in lines if len(line) == LINE - 1]
        return heads or None

    def last(self) -> Head | None:
        """The latest noted head."""
        try:
            with self._open() as handle:
                size = os.fstat(handle).st_size // LINE * LINE
                return self._parse(os.pread(handle, LINE - 1, size - LINE))[0] if size else None
        except FileNotFoundError:
            return None

    def note(self, head: Head, hash_at: Callable[[int], str | None]) -> None:
        """Note a head that was just written; `hash_at` tells what the log holds at a sequence number. An earlier line is
        replaced only if the log still holds it: otherwise it stays, as evidence."""
        with self._open() as handle:
            size = os.fstat(handle).st_size // LINE * LINE
            offset = size
            if size:
                last, _ = self._parse(os.pread(handle, LINE - 1, size - LINE))
                if last.seq >= head.seq:
                    return  # another process has noted a later head, or the log was cut
                if self._minute_runs(handle, size) and hash_at(last.seq) == last.hash:
                    offset = size - LINE
            os.pwrite(handle, f"{head.seq:020d} {head.hash} {time.time_ns() // 1000:020d}\n".encode(), offset)

    def _minute_runs(self, handle: int, size: int) -> bool:
        """Whether the last line may still move: the one before it stands for the minute that went before."""
        if size < 2 * LINE:
            return False
        _, stood_at = self._parse(os.pread(handle, LINE - 1, size - 2 * LINE))
        return stood_at > time.time() - KEEP_SECONDS

    def _open(self) -> "_Handle":
        return _Handle(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    @staticmethod
    def _parse(line: bytes) -> tuple[Head, float]:
        seq, digest, at = line.split(b" ")
        return Head(int(seq), digest.decode()), int(at) / 1e6


class _Handle:
    """A locked file descriptor; closed, and so unlocked, at the end of a block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)
