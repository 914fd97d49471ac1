"""/v1/audit: the rows of the audit log, and the proof that nobody changed them."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from starlette.responses import StreamingResponse

from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Reply, Resource
from toolgate.serve.http.invocations import CallRecord, Name, log_page, record_of, records_of
from toolgate.serve.http.pages import Page, PageQuery, position_of
from toolgate.serve.http.reach import Instant
from toolgate.serve.problems import HttpProblem
from toolgate.store.log_pages import LogFilter
from toolgate.store.signed_heads import SignedHead

resource = Resource("audit")

JSON_LINES = "application/x-ndjson"
MAX_SEQ_DIGITS = 15


class AuditQuery(PageQuery, frozen=True):
    """Filters of the rows."""

    tool: Name | None = None
    status: Name | None = None
    kind: Name | None = None
    """start, end, or the name of an administrative action"""
    user: Name | None = None
    """The user who called or acted."""
    since: Instant | None = None
    until: Instant | None = None


class LogExportQuery(ApiModel, frozen=True):
    """The part of the log that is exported."""

    after: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    """The number of the row after which it begins."""


class LogEnd(ApiView, frozen=True):
    """The end of the chain."""

    seq: int
    hash: str


class LogHeads(ApiView, frozen=True):
    """The end of the log, and what is known of it elsewhere."""

    end: LogEnd
    noted: LogEnd | None
    """The last head that was noted in the file beside the database."""
    signed: SignedHead | None
    """The last head that was signed."""


class LogVerification(ApiView, frozen=True):
    """The result of walking through the whole log."""

    ok: bool
    """True: nobody has changed it."""
    rows: int
    head: LogEnd
    faults: list[str]
    warnings: list[str]
    signed: dict[str, Any] | None
    """The latest signed head that the log agrees with: seq, first, key, at."""


@resource.get("/v1/audit", permission="read")
async def list_audit_rows(request: ApiRequest, query: AuditQuery) -> Page[CallRecord]:
    """List the rows of the tenant, newest first: calls and administrative actions.

    A page may hold less than `limit`, even nothing, while `next` is there: then the next page goes on looking.
    """
    wanted = {name: getattr(query, name) for name in AuditQuery.__struct_fields__ if name not in ("limit", "cursor")}
    tenant = None if request.all_tenants else request.actor.tenant
    after = position_of(request, query)
    before = None if after is None else after[0]
    found = await request.app.audit.rows(LogFilter(tenant=tenant, **wanted), before=before, limit=query.limit)
    return log_page(request, query, found, [record_of(*row) for row in found.rows])


@resource.get("/v1/audit/rows/{seq}", permission="read")
async def get_audit_row(request: ApiRequest, seq: str) -> CallRecord:
    """Get a row of the tenant by its number."""
    number = int(seq) if seq.isascii() and seq.isdigit() and len(seq) <= MAX_SEQ_DIGITS else 0
    found = [row for row in await request.app.audit.after(number - 1, limit=1) if row[0] == number]
    if not found or not (request.all_tenants or found[0][4] == request.actor.tenant):
        raise HttpProblem(404, "There is no such row.", suggestion="GET /v1/audit lists them.")
    return record_of(*found[0])


@resource.get("/v1/audit/head", permission="read")
async def get_audit_head(request: ApiRequest) -> LogHeads:
    """Get the end of the log, to be kept elsewhere: whoever has it can tell later whether the log was rewritten."""
    noted, end = await request.app.audit.heads()
    return LogHeads(
        end=LogEnd(seq=end.seq, hash=end.hash),
        noted=None if noted is None else LogEnd(seq=noted.seq, hash=noted.hash),
        signed=await request.app.audit.latest_head(),
    )


@resource.get("/v1/audit/verify", permission="operate")
async def verify_audit_log(request: ApiRequest) -> LogVerification:
    """Walk through the whole log, and tell whether anybody changed it. It takes seconds for a million rows."""
    verdict = await request.app.audit.verify()
    return LogVerification(
        ok=verdict.ok, rows=verdict.rows, head=LogEnd(seq=verdict.head.seq, hash=verdict.head.hash),
        faults=verdict.faults, warnings=verdict.warnings, signed=verdict.signed,
    )  # fmt: skip


@resource.get("/v1/audit/prove/{call_id}", permission="own", problems=(409,))
async def prove_call(request: ApiRequest, call_id: str) -> dict[str, Any]:
    """Get a proof that a call is in the signed log. It can be checked without the log: `toolgate audit prove --script`."""
    await records_of(request, call_id)
    if not request.app.audit.is_signed:
        raise HttpProblem(409, "Heads of this log are not signed, so nothing can be proven.")
    proof = await request.app.audit.prove(call_id)
    if proof is None:
        raise HttpProblem(409, "The call is not in the signed part of the log yet.", suggestion="Ask again in a moment.")
    return proof


@resource.get("/v1/audit/export", permission="operate", media_type=JSON_LINES)
async def export_audit_log(request: ApiRequest, query: LogExportQuery) -> bytes:
    """Get the rows of all tenants in their order, a JSON object to a line, from a row on: for whoever keeps a copy."""
    await request.app.flush()
    lines = StreamingResponse(_lines(request, query.after), media_type=JSON_LINES)
    return Reply(lines, media_type=JSON_LINES)  # type: ignore[return-value]


async def _lines(request: ApiRequest, seq: int) -> AsyncIterator[bytes]:
    encode = msgspec.json.Encoder().encode
    while rows := await request.app.audit.after(seq):
        yield b"".join(encode(record_of(*row)) + b"\n" for row in rows)
        seq = rows[-1][0]
