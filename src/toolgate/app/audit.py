"""`app.audit`: the records of calls and acts, and the proof that nobody changed them."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from toolgate.app.facets import Facet
from toolgate.app.log_tail import LogTail
from toolgate.errors import StoreError
from toolgate.gates.ledger.details import CallDetails
from toolgate.model import LOCAL, Actor, Outcome, check_request_id
from toolgate.pipeline.context import InvokeContext
from toolgate.store import audit_log, log_pages, signed_heads
from toolgate.store.chain import START, Head, LogVerdict, Verifier, link
from toolgate.store.database import Rows
from toolgate.store.head_keys import HeadKeys
from toolgate.store.log_pages import CallFilter, LogFilter, LogPage
from toolgate.store.signed_heads import SignedHead
from toolgate.threads import to_thread


class AuditFacet(Facet):
    """The audit log."""

    @property
    def is_signed(self) -> bool:
        """True if heads of the log are signed (setting audit.key)."""
        return self._parts.heads is not None

    async def verify(self, heads: Iterable[SignedHead | None] = ()) -> LogVerdict:
        """Walks the whole audit log and compares it with the head noted outside the database, with the signed heads (those
        that are kept, and those that are given) and with the details that are kept of calls. The verdict's `ok` is true if
        nothing was changed."""
        await self._parts.store.flush()
        if self._parts.heads is not None and self._parts.head_file is not None:
            verdict = await self._parts.heads.verify(self._parts.head_file, heads)
        else:
            noted = self._parts.head_file.read() if self._parts.head_file is not None else None
            verdict = await audit_log.verify(self._parts.store, Verifier(noted))
        verdict.faults.extend(await self._parts.details.faults())
        return verdict

    async def artifact(self, id: str, *, actor: Actor | None = None) -> bytes | None:
        """Gives the whole output of a call that was cut, as JSON, to the user whose call it was; None to everybody else."""
        return await self._parts.artifacts.fetch(id, actor or LOCAL)

    async def artifact_of_anybody(self, id: str, tenant: str) -> bytes | None:
        """Gives the whole output of any user's call within a tenant: for whoever runs this installation."""
        return await self._parts.artifacts.fetch_any(id, tenant)

    async def of_call(self, call_id: str) -> Rows:
        """Gives the records of a call, as rows of the log, oldest first; a beginning of its id will do if it is the only one
        that begins so."""
        return await self._parts.store.read(audit_log.of_call(call_id))

    async def latest(
        self, count: int, *, tenant: str | None = None, tool: str | None = None, status: str | None = None
    ) -> Rows:
        """Gives the last rows of the log, oldest first."""
        return (
            await self._parts.store.read(audit_log.latest(count, tenant=tenant, tool=tool, status=status)) if count else []
        )

    async def after(self, seq: int, *, tenant: str | None = None, limit: int = audit_log.PAGE_ROWS) -> Rows:
        """Gives the rows of the log after a number: one page, in order; of a tenant, or of all."""
        return await self._parts.store.read(audit_log.after(seq, limit, tenant))

    @cached_property
    def tail(self) -> LogTail:
        """The end of the log, followed live: `async with app.audit.tail.watching() as watcher`."""

        async def end() -> int:
            return (await self.end()).seq

        return LogTail(self.after, end)

    async def rows(self, wanted: LogFilter, *, before: int | None = None, limit: int = 50) -> LogPage:
        """Gives rows of the log, newest first, beginning before a number. A page may hold less than `limit` though there are
        more: its `next` says where to go on."""
        await self._parts.store.flush()
        return await self._parts.store.read(log_pages.rows(wanted, before, limit))

    async def calls(self, wanted: CallFilter, *, before: int | None = None, limit: int = 50) -> LogPage:
        """Gives the end records of calls, newest first, beginning before a number; pages as for `rows`."""
        await self._parts.store.flush()
        return await self._parts.store.read(log_pages.calls(wanted, before, limit))

    async def calls_within(self, call_id: str, *, tenant: str, levels: int = 5, limit: int = 200) -> Rows:
        """Gives the end records of the calls that a call made, of those that these made, and so on, level by level."""
        await self._parts.store.flush()
        return await self._parts.store.read(log_pages.calls_within(call_id, tenant, levels, limit))

    async def are_linked(self, rows: Rows) -> bool:
        """Tells whether the hash of each of these rows is that of its content and of the row before it. Only `verify` tells
        whether the whole log is as it was written."""
        hashes = await self._parts.store.read(audit_log.hashes_at([row[0] - 1 for row in rows]))
        for row in rows:
            before = hashes.get(row[0] - 1) if row[0] > 1 else START.hash
            content = (*row[1:7], row[7].encode())
            if before is None or link(Head(row[0] - 1, before), content)[-1] != row[8]:
                return False
        return True

    async def tenants(self, limit: int) -> list[str]:
        """Gives the tenants that the log has rows of, by name, at most `limit`: for whoever runs this installation."""
        return await self._parts.store.read(audit_log.tenants(limit))

    def on_call(self, listener: Callable[[InvokeContext, Outcome], None]) -> None:
        """Has a function called with each call that ends, and its outcome. It must be quick and raise nothing: a call waits
        for it. A `Hook` may do more, and costs more."""
        self._parts.ledger.on_end.append(listener)

    async def of_request(self, request_id: str, *, tenant: str | None = None) -> tuple[str, ...]:
        """Gives the ids of the calls that were made with a request id of the caller's own, oldest first; of a tenant, or of
        all."""
        check_request_id(request_id)
        await self._parts.store.flush()
        found = dict.fromkeys(await self._parts.store.read(audit_log.of_request(request_id, tenant)))
        return tuple(found)

    async def latest_head(self) -> SignedHead | None:
        """Gives the latest signed head; None: none was signed, or heads are not signed."""
        return None if self._parts.heads is None else await self._parts.store.read(signed_heads.latest_head())

    async def prove(self, call_id: str) -> dict[str, Any] | None:
        """Gives a proof that the records of a call are in the audit log; None if there is no such call."""
        return None if self._parts.heads is None else await self._parts.heads.prove(call_id)

    async def details(self, call_id: str, *, tenant: str | None = None) -> tuple[CallDetails, ...]:
        """Gives what is kept of a call besides its records: what each gate said, how long each took, and the output (setting
        audit.details). Nothing if there is no such call, of that tenant if one is given, or nothing was to be kept."""
        await self._parts.store.flush()
        rows = await self._parts.store.read(audit_log.of_call(call_id))
        ends = [row for row in rows if row[2] == "end" and tenant in (None, row[4])]
        found = [await self._parts.details.of_record(row[0], row[7]) for row in ends]
        return tuple(kept for kept in found if kept is not None)

    async def prune_details(self) -> int:
        """Removes details that are older than audit.details.days, or beyond audit.details.total_bytes; gives of how many
        calls. It happens by itself every ten seconds."""
        return await self._parts.details.prune()

    # -- signatures

    def sign_with(self, keys: HeadKeys) -> None:
        """Has the heads of the audit log signed by keys that are kept elsewhere, in a KMS say. To be called before
        `async with`."""
        if self._parts.heads is not None:
            self._parts.heads.keys = keys

    async def key(self, *, rotate: bool = False) -> dict[str, Any]:
        """Gives the key that signs the heads of the audit log. `rotate`: signs once more with it, then makes a new one.

        Raises `StoreError` if heads are not signed (`audit.key: none`).
        """
        heads = self._parts.heads
        if heads is None:
            raise StoreError("Heads of this log are not signed.", suggestion="Set audit.key to file.")
        if rotate:
            await self.sign()
            before = await to_thread(heads.keys.key_id)
            fresh = await to_thread(heads.keys.rotate)
            await self._parts.events.record("audit.key_rotated", LOCAL, "", {"before": before, "key": fresh})
        key = await to_thread(heads.keys.key_id)
        return {"key": key, "public_key": heads.keys.public_key(key), "place": heads.keys.place}

    async def sign(self, *, anew: bool = False, actor: Actor | None = None) -> SignedHead | None:
        """Signs the head of the audit log now; gives the latest signed head. `anew`: accepts the log as it is, whatever was
        signed before."""
        if self._parts.heads is None:
            return None
        await self._parts.store.flush()
        if anew:
            first = await self._parts.heads.begin_anew()
            if self._parts.head_file is not None:
                self._parts.head_file.set_aside()
            await self._parts.events.record("audit.accepted", actor or LOCAL, "", {"rows": first})
        return await self._parts.heads.sign()

    async def heads(self) -> tuple[Head | None, Head]:
        """Gives the last head noted outside the database, and where the log ends, without walking it."""
        return self._parts.head_file.last() if self._parts.head_file is not None else None, await self.end()

    async def end(self) -> Head:
        """Gives where the log ends."""
        rows = await self._parts.store.read(audit_log.latest(1))
        return Head(rows[-1][0], rows[-1][-1]) if rows else START
