"""The hash chain of the audit log, and its head kept outside the database.

Each row's hash covers the row and the hash before it, so that a changed or removed row shows. A cut tail leaves a
chain that is whole but short; it shows because the head (sequence and hash) is also noted in a file. Pure but for that
file: the backends call it, `verify` is given rows.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from toolgate.errors import StoreError
from toolgate.store.database import LogRow
from toolgate.store.merkle import MerkleTree, leaf

try:
    import fcntl
except ImportError:  # Windows: one process at a time writes there
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("toolgate.store")

GENESIS = "0" * 64
HEAD_LINE_BYTES = 20 + 1 + 64 + 1 + 20 + 1
"""A line of the head file: sequence, hash, microseconds since 1970; of fixed width, so that the last can be replaced."""
_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{64}) (\d{20})\Z")
KEEP_SECONDS = 60

LinkedRow = tuple[int, int, str, str, str, str, str, str, str]
"""A row as it is stored: sequence, the fields of a LogRow (body as text), hash."""


class Head(NamedTuple):
    """The end of the chain."""

    seq: int
    hash: str


START = Head(0, GENESIS)


class NotedHeads(NamedTuple):
    """The content of the head file: heads, oldest first, and how many of its lines can't be read."""

    heads: list[Head]
    damaged: int = 0


def link(previous: Head, row: LogRow) -> LinkedRow:
    """Puts a row at the end of the chain."""
    at, kind, call_id, tenant, tool, status, body = row
    seq = previous.seq + 1
    header = orjson.dumps((seq, at, kind, call_id, tenant, tool, status))
    digest = sha256(previous.hash.encode() + header + body).hexdigest()
    return seq, at, kind, call_id, tenant, tool, status, body.decode(), digest


class LogVerdict(NamedTuple):
    """The result of verification."""

    rows: int
    head: Head
    faults: list[str]
    warnings: list[str]
    signed: dict[str, Any] | None = None
    """The latest signed head that the log agrees with: `seq`, `first`, `key`, `at`."""

    @property
    def ok(self) -> bool:
        return not self.faults


class HeadClaim(NamedTuple):
    """A signed head's claim about the log: the root of the tree over rows `first` + 1 to `seq`."""

    first: int
    seq: int
    hash: str
    root: str
    words: str
    """The signer and the time, for people."""


class Verifier:
    """Walks the chain row by row, then compares it with the noted heads and with the signed ones."""

    def __init__(self, noted: NotedHeads | None, claims: Iterable[HeadClaim] = (), most_faults: int = 20) -> None:
        self._noted = noted
        self._missing = {head.seq: head.hash for head in noted.heads} if noted else {}
        self._claims: dict[int, list[HeadClaim]] = {}
        for claim in claims:
            self._claims.setdefault(claim.seq, []).append(claim)
        self._trees = {claim.first: MerkleTree() for claims in self._claims.values() for claim in claims}
        self._most = most_faults
        self.rows = 0
        self.head = START
        self.faults: list[str] = []

    def take(self, row: LinkedRow) -> None:
        seq, at, kind, call_id, tenant, tool, status, body, digest = row
        self.rows += 1
        if seq <= 0:
            self.add_fault(f"row {seq} ({kind} of call {call_id}) does not belong to the log, which begins at 1")
            return
        if seq <= self.head.seq:
            self.add_fault(f"row {seq} ({kind} of call {call_id}) is there twice")
            return
        if seq != self.head.seq + 1:
            gone = f"{self.head.seq + 1}" if seq == self.head.seq + 2 else f"{self.head.seq + 1} to {seq - 1}"
            self.add_fault(f"row {gone} is missing")
            self.head = Head(seq, digest)
        else:
            expected = link(self.head, (at, kind, call_id, tenant, tool, status, body.encode()))[-1]
            if expected != digest:
                self.add_fault(f"row {seq} ({kind} of call {call_id}) is not what was written")
            self.head = Head(seq, digest)
        noted = self._missing.pop(seq, None)
        if noted is not None and noted != digest:
            self.add_fault(f"row {seq} has another hash than the one noted outside the database")
        if self._trees:
            self._compare(seq, digest)

    def _compare(self, seq: int, digest: str) -> None:
        added = leaf(digest)
        for first, tree in self._trees.items():
            if seq > first:
                tree.append(added)
        for claim in self._claims.pop(seq, ()):
            if digest != claim.hash or self._trees[claim.first].root() != claim.root:
                self.add_fault(f"rows up to {seq} are not those that {claim.words}: the log was rewritten")

    def verdict(self) -> LogVerdict:
        warnings = []
        if self._noted is None and self.rows:
            warnings.append("no head is noted outside the database, so a cut tail cannot be seen")
        elif self._noted is not None and self._noted.damaged:
            self.add_fault(f"{self._noted.damaged} lines of the head file cannot be read")
        cut = [seq for seq in self._missing if seq > self.head.seq]
        if cut:
            self.add_fault(f"the tail is cut: the log ends at {self.head.seq}, but row {max(cut)} had been written")
        for seq in sorted(seq for seq in self._claims if seq > self.head.seq)[-1:]:
            words = self._claims[seq][0].words
            self.add_fault(f"the tail is cut: the log ends at {self.head.seq}, but it had {seq} rows, of which {words}")
        return LogVerdict(self.rows, self.head, self.faults, warnings)

    def add_fault(self, words: str) -> None:
        if len(self.faults) < self._most:
            self.faults.append(words)


class HeadFile:
    """Notes the head of the log. One line is kept for each minute of writing; the last one moves with the head."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: str | None = None
        """The reason why the head could not be noted, the last time."""

    def read(self) -> NotedHeads | None:
        """All that is noted; None if there is no file, or an empty one. Raises StoreError if it can't be read."""
        parsed = [_parse(line) for line in self._bytes().splitlines() if line]
        heads = [line[0] for line in parsed if line is not None]
        return NotedHeads(heads, len(parsed) - len(heads)) if parsed else None

    def last(self) -> Head | None:
        """The latest noted head, if there is one. Raises StoreError if the file can't be read."""
        line = _parse(self._bytes(HEAD_LINE_BYTES)[:-1])
        return line[0] if line else None

    def _bytes(self, last: int | None = None) -> bytes:
        """The file, or its end."""
        try:
            with self.path.open("rb") as file:
                if last is not None:
                    file.seek(-min(last, file.seek(0, os.SEEK_END)), os.SEEK_END)
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(
                f"The head of the audit log cannot be read from {self.path}: {error.strerror or error}.",
                suggestion="Check the setting audit_head_file and the rights on that file.",
            ) from error

    def set_aside(self) -> None:
        """Begins a new file; the old one stays beside it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(self.path.with_name(f"{self.path.name}.old"))

    def try_to_note(self, head: Head, hash_at: Callable[[int], str | None]) -> None:
        """Notes a head; what is in the log stays in the log if that fails, so it is only said."""
        try:
            self.note(head, hash_at)
            self.trouble = None
        except OSError as error:
            if self.trouble is None:
                logger.error("the head of the audit log cannot be noted in %s: %s", self.path, error)
            self.trouble = str(error)

    def note(self, head: Head, hash_at: Callable[[int], str | None]) -> None:
        """Notes a head that was just written; `hash_at` tells what the log holds at a sequence number. An earlier line is
        replaced only if it can be read and the log still holds it: otherwise it stays, as evidence."""
        line = f"{head.seq:020d} {head.hash} {time.time_ns() // 1000:020d}\n".encode()
        with locked(self.path) as file:
            handle = file.fileno()
            if hasattr(os, "fchmod") and os.fstat(handle).st_mode & 0o077:  # of an earlier version, or restored
                with contextlib.suppress(PermissionError):
                    os.fchmod(handle, 0o600)
            offset = size = os.fstat(handle).st_size
            last = self._line(handle, size)
            if last is None and size:
                line = b"\n" + line
            elif last is not None:
                if last[0].seq >= head.seq:
                    return  # another process has noted a later head, or the log was cut
                if self._minute_runs(handle, size) and hash_at(last[0].seq) == last[0].hash:
                    offset = size - HEAD_LINE_BYTES
            os.lseek(handle, offset, os.SEEK_SET)
            if os.write(handle, line) != len(line):
                os.ftruncate(handle, size)
                raise OSError("the line was written only in part; is the disk full?")

    @staticmethod
    def _line(handle: int, end: int) -> tuple[Head, float] | None:
        """The line that ends at an offset, if there is one that can be read."""
        if end < HEAD_LINE_BYTES:
            return None
        os.lseek(handle, end - HEAD_LINE_BYTES, os.SEEK_SET)
        return _parse(os.read(handle, HEAD_LINE_BYTES - 1))

    def _minute_runs(self, handle: int, size: int) -> bool:
        """Tells whether the last line may still move: the one before it stands for the minute that went before."""
        before = self._line(handle, size - HEAD_LINE_BYTES)
        return before is not None and before[1] > time.time() - KEEP_SECONDS


def _parse(line: bytes) -> tuple[Head, float] | None:
    found = _LINE.match(line)
    return (Head(int(found[1]), found[2].decode()), int(found[3]) / 1e6) if found else None


def locked(path: Path, *, wait: bool = True) -> FileIO:
    """Opens a file that is locked until it is closed, made if it is not there. Without `wait`, raises BlockingIOError where
    somebody else holds it."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        file.close()
        raise
    return file
