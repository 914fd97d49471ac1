"""Signs the head of the audit log from time to time and when the App closes, and proves what is in the log.

A head is signed only if the log still holds what was signed before: a log that was rewritten or cut is not signed again
until a person accepts it (`toolgate audit sign --anew`). The log is written the same way whether its heads are signed or
not; the tree over its rows is made here, a page at a time.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from toolgate.errors import StoreError
from toolgate.store import audit_log
from toolgate.store import signed_heads as kept
from toolgate.store.chain import HeadClaim, HeadFile, LogVerdict, Verifier
from toolgate.store.database import Rows, Store
from toolgate.store.head_keys import HeadKeys, id_of, is_signed
from toolgate.store.merkle import MerkleTree, leaf, path
from toolgate.store.signed_heads import SignedHead, Witness
from toolgate.tasks import repeat, start_task, stop_tasks
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.store.head_sinks import HeadSink

HEADS_PAGE = 5_000
SIGN_CLOSE_SECONDS = 5
"""How long closing waits for a head to be signed."""
PROOF = "toolgate audit proof 1"

logger = logging.getLogger("toolgate.audit")


class Heads:
    """The signed heads of one log."""

    def __init__(
        self,
        store: Store,
        witness: Witness,
        keys: HeadKeys,
        *,
        log_name: str,
        sinks: "Sequence[HeadSink]" = (),
        trusted: Iterable[str] = (),
        seconds: float = 60,
    ) -> None:
        self._store = store
        self.witness = witness
        self.keys = keys
        self.log_name = log_name
        self._sinks = sinks
        self._trusted = {id_of(key): key for key in trusted}
        self._seconds = seconds
        self._alone = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._signed = 0
        """The last row that this App knows to be signed."""
        self.trouble: str | None = None
        """The reason why the head could not be signed, the last time."""

    # -- life

    def start(self) -> None:
        self._task = start_task(
            repeat(self._seconds, self._sign_what_was_written, logger, "the head of the audit log could not be signed")
        )

    async def close(self) -> None:
        """Sign what this App wrote. A database that is in trouble is not waited for."""
        await stop_tasks(self._task)
        try:
            async with asyncio.timeout(SIGN_CLOSE_SECONDS):
                await self._sign_what_was_written()
        except TimeoutError:
            self._say(f"it took longer than {SIGN_CLOSE_SECONDS} s")

    async def _sign_what_was_written(self) -> None:
        if self._store.trouble is not None:
            return
        try:
            await self._store.flush()
            if self._store.written > self._signed:
                await self.sign()
                self.trouble = None
        except StoreError as error:
            self._say(str(error))
        except Exception as error:
            logger.exception("the head of the audit log could not be signed")
            self.trouble = type(error).__name__

    def _say(self, words: str) -> None:
        if self.trouble is None:
            logger.error("the head of the audit log is not signed: %s", words)
        self.trouble = words

    # -- signing

    async def sign(self) -> SignedHead | None:
        """Sign the log's end, if it goes on from what was signed before; gives the latest signed head, None of an empty log.
        Raises StoreError."""
        async with self._alone, self.witness.locked():
            return await self._sign()

    async def _sign(self) -> SignedHead | None:
        before, first, tree = await self._before()
        rows = await self._store.read(audit_log.latest(1))
        end, digest = (int(rows[-1][0]), str(rows[-1][-1])) if rows else (0, "")
        if end <= first + tree.size:
            self._signed = end
            return before
        if not await self._grow(tree, first, end):
            raise _not_the_same(self.witness, "rows are missing from it")
        key = await to_thread(self.keys.key_id)
        head = SignedHead(self.log_name, first, end, digest, tree.root(), time.time_ns() // 1000, key)
        signature = await to_thread(self.keys.sign, head.statement())
        head = msgspec.structs.replace(head, signature=signature.hex())
        if self._check(head) is not True:
            raise StoreError(f"Key {key} was replaced while it signed; the next head will be signed by the new one.")
        await to_thread(self.witness.write, head, tree)
        await self._store.transact(kept.keep(head))
        self._signed = end
        for sink in self._sinks:
            await to_thread(_deliver, sink, head)
        return head

    async def _before(self) -> tuple[SignedHead | None, int, MerkleTree]:
        """The head signed last, the row up to which nothing is, and the tree over the rest. Raises StoreError if the
        log does not hold it any more."""
        found = await to_thread(self.witness.read)
        if found is not None:
            head, tree = found
            if self._check(head) is not True:
                raise _not_the_same(self.witness, f"its last head was signed by key {head.key}, which is not known here")
            if await self._store.read(audit_log.hash_at(head.seq)) != head.hash:
                raise _not_the_same(self.witness, f"row {head.seq} is not the one that was signed")
            return head, head.first, tree
        others = await self._store.read(kept.kept_heads())
        for other in others:
            if other is None or self.keys.public_key(other.key) is not None or self._check(other) is not True:
                raise _not_the_same(self.witness, "it has signed heads already, and none is kept there")
        return None, await self._store.read(kept.first_row()), MerkleTree()

    async def _grow(self, tree: MerkleTree, first: int, end: int) -> bool:
        """Add the rows up to the end; false: some are missing."""
        while first + tree.size < end:
            at = first + tree.size
            rows = await self._store.read(kept.hashes(at, end, HEADS_PAGE))
            if not rows or [row[0] for row in rows] != list(range(at + 1, at + 1 + len(rows))):
                return False
            await to_thread(_add, tree, rows)
        return True

    async def check(self) -> None:
        """Raise StoreError if the log could not be signed on."""
        await self._before()

    async def begin_anew(self) -> int:
        """Accept the log as it is now: it is signed from here on. Gives the last row that is outside what is signed."""
        await self._store.flush()
        rows = await self._store.read(audit_log.latest(1))
        first = int(rows[-1][0]) if rows else 0
        await to_thread(self.witness.set_aside)
        await self._store.transact(kept.begin_anew(first))
        return first

    # -- checking

    def _check(self, head: SignedHead) -> bool | None:
        """True if its key signed it; None: by a key that is not known here."""
        public = self._trusted.get(head.key)
        if public is not None:
            return is_signed(public, head.statement(), head.signature_bytes)
        return self.keys.verify(head.key, head.statement(), head.signature_bytes)

    async def verify(self, head_file: HeadFile, given: Iterable[SignedHead | None] = ()) -> LogVerdict:
        """Walk the whole log, and compare it with every head that can be found. `given`: heads from elsewhere."""
        faults: list[str] = []
        witnessed = await self._witnessed(faults)
        others = await self._store.read(kept.kept_heads())
        sunk = [head for sink in self._sinks for head in await to_thread(sink.heads, self.log_name)]
        told = list(given)
        here = [head for head in told if head is None or head.log == self.log_name]
        if told and not here:
            faults.append("the signed heads that were given are of other logs")
        known = self._sound([*([witnessed] if witnessed else []), *others, *sunk, *here], faults)
        noted = head_file.read()
        verifier = Verifier(noted, [_claim(head) for head in known])
        for fault in faults:
            verifier.add_fault(fault)
        if witnessed is None and not faults and any(self.keys.public_key(head.key) for head in known):
            verifier.add_fault(f"the log has signed heads, but the latest one is not in {self.witness.path}: it was removed")
        if witnessed is not None and noted is None:
            verifier.add_fault(f"the head file {head_file.path} is missing, and this log had one")
        verdict = await audit_log.verify(self._store, verifier)
        latest = max(known, key=lambda head: head.seq, default=None)
        warnings = verdict.warnings
        if latest is None and verdict.rows and (self.trouble is not None or not self._store.written):
            warnings.append(f"no head is signed{f': {self.trouble}' if self.trouble else ' yet'}")
        elif latest is not None and latest.first:
            warnings.append(f"rows 1 to {latest.first} were written before heads were signed: only the chain holds them")
        said = None if latest is None else {name: getattr(latest, name) for name in ("seq", "first", "key", "at")}
        return verdict._replace(warnings=warnings, signed=said)

    async def _witnessed(self, faults: list[str]) -> SignedHead | None:
        try:
            found = await to_thread(self.witness.read)
        except StoreError as error:
            faults.append(error.message)
            return None
        return None if found is None else found[0]

    def _sound(self, heads: Iterable[SignedHead | None], faults: list[str]) -> list[SignedHead]:
        """The heads that a known key signed; of the others, what is wrong with them."""
        sound: list[SignedHead] = []
        for head in dict.fromkeys(heads):
            if head is None:
                faults.append("a signed head cannot be read")
                continue
            try:
                checked = self._check(head)
            except StoreError as error:
                faults.append(error.message)
                return sound
            if checked and head.log != self.log_name:
                faults.append(f"the head at row {head.seq} is that of another log: the database was moved or exchanged")
            elif checked:
                sound.append(head)
            elif checked is None:
                faults.append(
                    f"the head at row {head.seq} is signed by key {head.key}, which is not known here ({self.keys.place})"
                )
            else:
                faults.append(f"the signature of the head at row {head.seq} is not that of key {head.key}")
        return sound

    # -- proving

    async def prove(self, call_id: str) -> dict[str, Any] | None:
        """A proof, without the log, that the records of a call are in it; None: there is no such call. Raises StoreError."""
        await self._store.flush()
        head = await self.sign()
        rows = await self._store.read(audit_log.of_call(call_id))
        if head is None or not rows:
            return None
        if rows[0][0] <= head.first:
            raise StoreError(
                f"Row {rows[0][0]} was written before heads were signed (row {head.first}), so there is no proof of it."
            )
        leaves: list[bytes] = []
        while len(leaves) < head.seq - head.first:
            page = await self._store.read(kept.hashes(head.first + len(leaves), head.seq, HEADS_PAGE))
            if not page:
                raise _not_the_same(self.witness, "rows are missing from it")
            leaves.extend(leaf(row[1]) for row in page)
        records = [await self._proven(row, leaves, head) for row in rows if row[0] <= head.seq]
        return {
            "format": PROOF,
            "head": msgspec.structs.asdict(head),
            "public_key": self._trusted.get(head.key) or self.keys.public_key(head.key),
            "records": records,
        }

    async def _proven(self, row: Sequence[Any], leaves: list[bytes], head: SignedHead) -> dict[str, Any]:
        seq = row[0]
        before = await self._store.read(audit_log.hash_at(seq - 1)) if seq > 1 else "0" * 64
        names = ("seq", "at", "kind", "call_id", "tenant", "tool", "status", "body")
        steps = await to_thread(path, leaves, seq - head.first - 1)
        return {**dict(zip(names, row, strict=False)), "previous_hash": before, "path": steps}


def _add(tree: MerkleTree, rows: Rows) -> None:
    for _, digest in rows:
        tree.append(leaf(digest))


def _claim(head: SignedHead) -> HeadClaim:
    at = datetime.fromtimestamp(head.at / 1_000_000, UTC)
    return HeadClaim(head.first, head.seq, head.hash, head.root, f"key {head.key} signed at {at:%Y-%m-%d %H:%M:%S} UTC")


def _deliver(sink: "HeadSink", head: SignedHead) -> None:
    try:
        sink.put(head)
    except (OSError, ValueError) as error:
        logger.error("a signed head of the audit log could not be sent to %s: %s", type(sink).__name__, error)


def _not_the_same(witness: Witness, why: str) -> StoreError:
    return StoreError(
        f"The audit log is not the one whose head is kept in {witness.path}: {why}.",
        suggestion="`toolgate audit verify` shows what is wrong. If the log was replaced or restored on purpose, "
        "`toolgate audit sign --anew` accepts it as it is now.",
    )
