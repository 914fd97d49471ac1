"""Signed heads of the audit log: what a key says that the log was at a moment, and where that is remembered.

A head is remembered in three places: beside the key, outside `home` (the latest: `Witness`); in the log's own database, so
that the log knows that it had heads; and in the sinks that the settings name. Whoever rewrites the database can't sign what
they wrote, and whoever removes what is beside the key leaves a log that says what is missing.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import msgspec
import orjson

from toolgate.errors import StoreError
from toolgate.store.chain import locked
from toolgate.store.database import Rows, Transaction
from toolgate.store.head_keys import make_private, unusable, write_private
from toolgate.store.merkle import MerkleTree
from toolgate.store.sql import column, upsert, value

CONTEXT = b"toolgate audit head 1\n"
HOUR_MICROSECONDS = 3_600_000_000
LOCK_POLL_SECONDS = 0.02


class SignedHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signed statement: the log's end, and the root of the tree over the hashes of rows `first` + 1 to `seq`."""

    log: str
    first: int
    seq: int
    hash: str
    root: str
    at: int
    """Microseconds since 1970."""
    key: str
    signature: str = ""

    def statement(self) -> bytes:
        """The very bytes that are signed."""
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "signature"}
        return CONTEXT + orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)

    def to_json(self) -> bytes:
        return orjson.dumps(msgspec.structs.asdict(self))

    @property
    def signature_bytes(self) -> bytes:
        try:
            return bytes.fromhex(self.signature)
        except ValueError:
            return b""


def parse(text: bytes | str) -> SignedHead | None:
    """A head as JSON; None if it is none."""
    try:
        return msgspec.json.decode(text, type=SignedHead)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def log_name(database: str) -> str:
    """The name of a log in its heads: a hash of where its database is, without user and password."""
    scheme, _, place = database.partition("://")
    place = os.path.realpath(place.removeprefix("/")) if scheme == "sqlite" else place.rpartition("@")[2].partition("?")[0]
    return sha256(f"{scheme[:6]}:{place}".encode()).hexdigest()[:24]


class Witness:
    """The latest signed head and the tree that it stands for, in a file beside the key."""

    def __init__(self, folder: Path, log: str) -> None:
        self.path = folder / "heads" / f"{log}.json"

    def read(self) -> tuple[SignedHead, MerkleTree] | None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self.path, error) from None
        try:
            found = orjson.loads(content)
            head = msgspec.convert(found["head"], SignedHead)
            tree = MerkleTree(head.seq - head.first, [bytes.fromhex(peak) for peak in found["peaks"]])
        except (ValueError, TypeError, KeyError, msgspec.ValidationError):
            raise self._damaged() from None
        if tree.root() != head.root:
            raise self._damaged()
        return head, tree

    def write(self, head: SignedHead, tree: MerkleTree) -> None:
        content = {"head": orjson.Fragment(head.to_json()), "peaks": [peak.hex() for peak in tree.peaks]}
        write_private(self.path, orjson.dumps(content))

    def set_aside(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(self.path.with_suffix(".old"))

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Alone among all Apps that sign this log here. Asked for again and again instead of waited for in a thread, which
        would get the lock for nobody if the caller went away."""
        try:
            make_private(self.path.parent)
            while True:
                try:
                    handle = locked(self.path.with_suffix(".lock"), wait=False)
                    break
                except BlockingIOError:
                    await asyncio.sleep(LOCK_POLL_SECONDS)
        except OSError as error:
            raise unusable(self.path, error) from None
        with handle:
            yield

    def _damaged(self) -> StoreError:
        return StoreError(
            f"The signed head of the audit log in {self.path} is damaged.",
            suggestion="Put back a copy of it. `toolgate audit sign --anew` accepts the log as it is now.",
        )


# -- in the database


def first_row() -> Transaction[int]:
    """Rows up to this one were written before heads were signed."""
    return (yield from value("SELECT first FROM audit_signing WHERE id = 1")) or 0


def kept_heads() -> Transaction[list[SignedHead | None]]:
    """The heads that the database has, oldest first; None for each that can't be read."""
    return [parse(head) for head in (yield from column("SELECT head FROM audit_heads ORDER BY seq, key_id"))]


def latest_head() -> Transaction[SignedHead | None]:
    """The latest of them; None: there is none, or it can't be read."""
    found = yield from value("SELECT head FROM audit_heads ORDER BY seq DESC, key_id DESC LIMIT 1")
    return None if found is None else parse(found)


def keep(head: SignedHead) -> Transaction[None]:
    row = {"key_id": head.key, "hour": head.at // HOUR_MICROSECONDS, "seq": head.seq, "head": head.to_json().decode()}
    sql, _ = upsert("audit_heads", row, ("key_id", "hour"))
    yield f"{sql} WHERE audit_heads.seq <= excluded.seq", row


def begin_anew(first: int) -> Transaction[None]:
    """Forgets all heads: what is there up to this row is accepted as it is."""
    yield "DELETE FROM audit_heads", {}
    yield "UPDATE audit_signing SET first = :first WHERE id = 1", {"first": first}


def hashes(after: int, up_to: int, most: int) -> Transaction[Rows]:
    sql = "SELECT seq, hash FROM audit_log WHERE seq > :after AND seq <= :last ORDER BY seq LIMIT :most"
    return (yield sql, {"after": after, "last": up_to, "most": most})
