"""/audit: the rows of the log, the state of its chain, and the check that nobody has changed it."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import msgspec

from toolgate.serve.console.page import PageRequest, Pages, View
from toolgate.serve.http.audit import (
    AuditQuery,
    LogVerification,
    get_audit_head,
    get_audit_row,
    list_audit_rows,
    verify_audit_log,
)
from toolgate.serve.http.invocations import CallRecord, content_of, moment_of

pages = Pages("system")

VERIFY_SECONDS = 30.0
"""The time that a page waits for the walk through the log."""
CALL_KINDS = {"start": "a call began", "end": "a call ended"}
MAX_SAID_CHARS = 160


class ShownRow(msgspec.Struct, frozen=True):
    """A row in the words of the page."""

    row: CallRecord
    is_call: bool
    words: str
    """The event in words."""
    who: str
    said: str
    """The error or the decision of a call, the details of an act."""


@pages.get("/audit", permission="read", twin="/v1/audit")
async def audit(request: PageRequest, query: AuditQuery) -> View:
    """The newest first."""
    return await _list(request, query)


@pages.post("/audit", permission="operate")
async def verify(request: PageRequest) -> View:
    """Walks through the whole log, as long as a page may take."""
    try:
        async with asyncio.timeout(VERIFY_SECONDS):
            return await _list(request, AuditQuery(), await verify_audit_log(request))
    except TimeoutError:
        return await _list(request, AuditQuery(), is_too_long=True)


@pages.get("/audit/{seq}", permission="read", twin="/v1/audit/rows/{seq}")
async def row(request: PageRequest, seq: str) -> View:
    """One row whole, with its place in the chain, and the proof of its call."""
    found, heads = await get_audit_row(request, seq), await get_audit_head(request)
    values = {
        "shown": _shown(found), "heads": heads, "is_signed": heads.signed is not None and heads.signed.seq >= found.seq,
        "signs": request.app.audit.is_signed, "proof": _proof_url(found, request),
    }  # fmt: skip
    return View(template="audit_row.html", title=f"Row {found.seq:,} of the audit log", values=values)


async def _list(
    request: PageRequest, query: AuditQuery, verdict: LogVerification | None = None, *, is_too_long: bool = False
) -> View:
    found, heads = await list_audit_rows(request, query), await get_audit_head(request)
    values = {
        "found": [_shown(one) for one in found.items], "next": found.next, "query": query,
        "heads": heads,
        "signed_at": None if heads.signed is None else moment_of(heads.signed.at),
        "verdict": verdict, "is_too_long": is_too_long, "seconds": int(VERIFY_SECONDS), "signs": request.app.audit.is_signed,
    }  # fmt: skip
    return View(template="audit.html", title="Audit log", values=values, listed=found.items)


def _shown(row: CallRecord) -> ShownRow:
    raw = row.body
    body: dict[str, Any] = content_of(bytes(raw).decode()) if isinstance(raw, msgspec.Raw) else {}
    is_call = row.kind in CALL_KINDS
    if row.kind == "start":
        said = ""
    elif is_call:
        said = str(body.get("message") or body.get("decision") or "")
    else:
        details = {
            name: value for name, value in body.items() if name not in ("user", "persona") and value not in (None, "")
        }
        said = ", ".join(f"{name}: {_brief(value)}" for name, value in details.items())
    words = CALL_KINDS.get(row.kind) or row.kind.replace(".", ": ", 1).replace("_", " ")
    return ShownRow(row=row, is_call=is_call, words=words, who=str(body.get("user", "")), said=said[:MAX_SAID_CHARS])


def _proof_url(row: CallRecord, request: PageRequest) -> str:
    named = f"?{urlencode({'tenant': row.tenant})}" if "tenant" in request.carried else ""
    return f"/v1/audit/prove/{row.call_id}{named}"


def _brief(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
