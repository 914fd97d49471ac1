"""The records of a call in the audit log: one record when it starts, one when it ends, denials and errors too.

Records are made here and written by the store. Their JSON is made in the writer's thread, so a call pays only for handing
over what it already has. From tier write on, a call waits until its record is on disk: no effect before the start, no
outcome before the end.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from time import time_ns
from typing import Any, ClassVar

import msgspec
import orjson

from toolgate.errors import StoreError
from toolgate.gates.ledger.details import detail
from toolgate.model import NANO, Actor, Call, Entry, ErrorInfo, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.store.database import LogRow, Store

NULL = orjson.Fragment(b"null")
logger = logging.getLogger("toolgate.audit")
LONG_MS = 1.0
"""Milliseconds that a call took from which on it looks again whether the log is late."""


class Start(msgspec.Struct, gc=False):
    """A call is about to run."""

    at: int
    """The time at which it began, in nanoseconds since 1970: when it came in, unless a person was asked."""
    call: Call
    entry: Entry
    canonical: bytes
    recorded: bytes
    decision: tuple[str, ...]
    args_hash: str | None = None

    def row(self) -> LogRow:
        call, entry = self.call, self.entry
        body: dict[str, Any] = {
            "persona": call.actor.persona,
            "user": call.actor.user,
            "session": call.session,
            "version": entry.tool.version,
            "tier": entry.tier,
            "fingerprint": entry.fingerprint,
            "args_hash": self.hash(),
            "arguments": orjson.Fragment(self.recorded),
            "decision": "; ".join(self.decision),
        }
        _came_from(call, body)
        return self.at // 1000, "start", call.id, call.actor.tenant, entry.name, "started", _json(body)

    def hash(self) -> str:
        if self.args_hash is None:
            self.args_hash = sha256(self.canonical).hexdigest()
        return self.args_hash


class End(msgspec.Struct, gc=False):
    """A call has ended."""

    insists: ClassVar[bool] = True
    """It is written when it can be, though nobody waits for it any more."""

    at: int
    call: Call
    outcome: Outcome
    decision: tuple[str, ...]
    start: Start | None = None
    marks: list[Any] | None = None
    """The stages that it passed, with their times, if that is kept."""
    entry: Entry | None = None
    canonical: bytes = b""
    recorded: bytes = b""
    reason: str | None = None
    remarks: dict[str, Any] | None = None
    """More that it holds: what the tool logged, what hooks did wrong."""
    detail: bytes | None = None
    """The stages and the output, kept beside the row outside the chain; there once `row` was called."""

    def row(self) -> LogRow:
        call, outcome, start = self.call, self.outcome, self.start
        metrics = outcome.metrics
        body: dict[str, Any] = {
            "persona": call.actor.persona,
            "user": call.actor.user,
            "session": call.session,
            "args_hash": start.hash() if start else self.hash(),
            "duration_ms": metrics.duration_ms,
            "attempts": metrics.attempts,
            "cached": metrics.cached,
            "cost_usd": metrics.cost_usd,
            "decision": self.reason or "; ".join(self.decision),
        }
        _came_from(call, body)
        if start is None:
            body |= self._not_started()
        else:
            body["tier"] = start.entry.tier
        if outcome.error is not None:
            body |= _told(outcome.error)
        if outcome.pending is not None:
            body["pending"] = {"kind": outcome.pending.kind, "id": outcome.pending.id}
        if metrics.cost_usd:
            body["cost"] = round(metrics.cost_usd * NANO)  # what is summed: whole nano-dollars
        if metrics.tokens_used is not None:
            body["tokens_used"] = metrics.tokens_used
        if outcome.artifact is not None:
            body["artifact"] = outcome.artifact.id
        if self.remarks:
            body |= self.remarks
        if self.marks is not None and self._keep_detail(self.marks):
            body["details_sha256"] = sha256(self.detail or b"").hexdigest()
        at = self.at // 1000 + int(metrics.duration_ms * 1000)
        return at, "end", call.id, call.actor.tenant, outcome.tool, outcome.status, _json(body)

    def _keep_detail(self, marks: list[Any]) -> bool:
        """Work out what the marks mean. Hooks hold the context that had them: what they did to the list must not cost the
        record."""
        try:
            self.detail = detail(marks, self.outcome, self.decision, self.reason)
        except Exception:
            logger.exception("the details of call %s could not be kept", self.call.id)
        return self.detail is not None

    def _not_started(self) -> dict[str, Any]:
        """The fields that a call without a start record has in its end record."""
        found: dict[str, Any] = {"arguments": orjson.Fragment(self.recorded) if self.recorded else NULL}
        if self.decision:
            found["let_through"] = True  # by the policy; what stopped it came later
        if self.entry is not None:
            found |= {"version": self.entry.tool.version, "tier": self.entry.tier}
        return found

    def hash(self) -> str | None:
        return sha256(self.canonical).hexdigest() if self.canonical else _hash_of(self.call.arguments)


class Act(msgspec.Struct, gc=False):
    """Something other than a call: a tool switched, registered, removed …"""

    at: int
    id: str
    action: str
    actor: Actor
    tool: str
    details: dict[str, Any]

    def row(self) -> LogRow:
        body = _json({**self.details, "persona": self.actor.persona, "user": self.actor.user})
        return self.at // 1000, self.action, self.id, self.actor.tenant, self.tool, "done", body


def _told(error: ErrorInfo) -> dict[str, Any]:
    """The fields that a record holds of an error; of its details, only a code of the tool's own."""
    own = (error.details or {}).get("tool_code")
    return {"code": error.code, "message": error.message} | ({} if own is None else {"tool_code": own})


def _came_from(call: Call, body: dict[str, Any]) -> None:
    said = {
        "parent": call.parent,
        "door": None if call.door == "python" else call.door,
        "scopes": call.actor.scopes or None,
        "idempotency_key": call.idempotency_key,
        "approval": call.approval,
        "request_id": call.request_id,
        "timeout": call.timeout,
    }
    body |= {name: value for name, value in said.items() if value is not None}


def _json(body: dict[str, Any]) -> bytes:
    """The body as JSON that every database takes: what a record holds must not keep the others from being written."""
    try:
        text = orjson.dumps(body)
    except (TypeError, RecursionError):
        text = b"\\u0000"
    return text if b"\\u0000" not in text else orjson.dumps(_scrubbed(body))


def _scrubbed(value: Any) -> Any:
    """Plain values: halves of surrogate pairs and NUL written out, what has no JSON form as its own description."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    if isinstance(value, dict):
        return {str(_scrubbed(str(key))): _scrubbed(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(part) for part in value]
    if isinstance(value, orjson.Fragment):
        return _scrubbed(orjson.loads(orjson.dumps(value)))
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return _scrubbed(repr(value)[:200])


def _hash_of(arguments: Any) -> str | None:
    """The hash of arguments that were never validated; None if they are no JSON."""
    try:
        return sha256(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)).hexdigest()
    except (TypeError, RecursionError):
        return None


class Ledger:
    """The gate of records: no effect before the start, no outcome before the end."""

    def __init__(self, store: Store, time_ns: Callable[[], int] = time_ns) -> None:
        self._store = store
        self.time_ns = time_ns
        """The clock of the records: nanoseconds since 1970."""
        self.on_end: list[Callable[[InvokeContext, Outcome], None]] = []
        """Told of each call that ends. Not hooks: those cost a quick call half of its time again."""

    def start(self, ctx: InvokeContext, entry: Entry, waits: bool) -> Awaitable[None] | None:
        """Records that the call starts; gives what to await before its effect, if it has to wait: for its tier, or since it
        holds what is settled, after a crash, by whether it began (`waits`). Raises, or lets the awaited raise, StoreError:
        then the tool must not run."""
        at = ctx.at if entry.asks is None else self.time_ns()  # a person may have been asked for a long time
        record = ctx.start = Start(at, ctx.call, entry, ctx.canonical, ctx.recorded, ctx.decision)
        store = self._store
        if entry.tier != "read_only" or waits:
            return store.append_durably(record)
        if store.late():
            return self._start_later(record)
        store.append(record)
        return None

    def end(self, ctx: InvokeContext, outcome: Outcome, remarks: dict[str, Any] | None = None) -> Awaitable[Outcome] | None:
        """Record the outcome; gives what to await before it may be returned, if it has to wait. That gives the outcome,
        or OUTCOME_UNKNOWN if a record that must be there could not be written."""
        for told in self.on_end:
            told(ctx, outcome)
        start: Start | None = ctx.start
        if start is not None and ctx.error is None and remarks is None and not ctx.hooked:
            record = End(ctx.at, ctx.call, outcome, ctx.decision, start, ctx.marks)
            if start.entry.tier == "read_only" and outcome.metrics.duration_ms <= LONG_MS:
                try:
                    self._store.append(record)  # it has just looked, at its start, whether the writer is late
                except StoreError as error:
                    return _given(_unrecorded(outcome, error, ran=ctx.ran))
                return None
        else:
            record = End(
                ctx.at, ctx.call, outcome, ctx.decision, start, ctx.marks, ctx.entry, ctx.canonical, ctx.recorded,
                ctx.error.reason if ctx.error is not None else None, remarks,
            )  # fmt: skip
        hidden = ctx.error is not None and ctx.error.code == "TOOL_NOT_FOUND"  # whatever there is behind the name: alike
        if not hidden and (ctx.entry is None or ctx.entry.tier == "read_only"):
            if (start is None or outcome.metrics.duration_ms > LONG_MS) and self._store.late():
                return self._end_later(ctx, outcome, record)
            return self._append(ctx, outcome, record)
        return self._end_durably(ctx, outcome, record)

    def _append(self, ctx: InvokeContext, outcome: Outcome, record: End) -> Awaitable[Outcome] | None:
        try:
            self._store.append(record)
        except StoreError as error:
            return _given(_unrecorded(outcome, error, ran=ctx.ran))
        return None

    async def _start_later(self, record: Start) -> None:
        """Hand the record over once the writer has caught up: the caller is slowed, so that no record waits too long."""
        await self._store.room()
        self._store.append(record)

    async def _end_later(self, ctx: InvokeContext, outcome: Outcome, record: End) -> Outcome:
        try:
            await self._store.room()
        except asyncio.CancelledError:
            ctx.went_away = True
        unwritten = self._append(ctx, outcome, record)
        return outcome if unwritten is None else await unwritten

    async def _end_durably(self, ctx: InvokeContext, outcome: Outcome, record: End) -> Outcome:
        try:
            writing = self._store.append_durably(record)
            try:
                await writing
            except asyncio.CancelledError:  # it is with the writer, which needs nobody to wait and will not lose it
                ctx.went_away = True
                if writing.done() and not writing.cancelled():
                    writing.result()  # unless it had failed already
        except StoreError as error:
            record.outcome = outcome = _unrecorded(outcome, error, ran=ctx.ran)
            with contextlib.suppress(StoreError):
                self._store.append(record)  # for when the store can be written again
        return outcome

    async def act(self, action: str, actor: Actor, tool: str, details: dict[str, Any], *, at: int, id: str) -> None:
        await self._store.append_durably(Act(at, id, action, actor, tool, details))


async def _given(outcome: Outcome) -> Outcome:
    return outcome


def _unrecorded(outcome: Outcome, error: StoreError, *, ran: bool) -> Outcome:
    what = (
        "The tool ran, but its end could not be recorded"
        if ran
        else "The audit log cannot be written, so the call was not run"
    )
    info = ErrorInfo(
        "OUTCOME_UNKNOWN" if ran else "UNEXPECTED_ERROR",
        f"{what}: {error.message}",
        suggestion="Find out whether it had its effect before calling again." if ran else error.suggestion,
    )
    return msgspec.structs.replace(outcome, status="failure", output=None, error=info)
