"""/v1/invocations: the calls that were made, as the audit log has them."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import orjson

from toolgate.errors import Status
from toolgate.model import Actor, Tier
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, cursor_of, position_of
from toolgate.serve.http.reach import Instant
from toolgate.serve.problems import HttpProblem
from toolgate.store.database import Rows
from toolgate.store.log_pages import CallFilter, LogPage

resource = Resource("invocations")

MAX_CHILDREN = 100
"""Calls of a call that its view names."""
MAX_LEVELS, MAX_WITHIN = 5, 200
"""Levels of calls within a call that its tree has, and calls in all."""
MIN_ID_CHARS = 8
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class WaitingFor(ApiView, frozen=True):
    """The thing that a pending call waits for."""

    kind: str
    """approval or job"""
    id: str


class CallSummary(ApiView, frozen=True):
    """A call in a list."""

    id: str
    tool: str
    status: Status
    code: str | None
    """The error code; null: it succeeded."""
    message: str | None
    """The error in words."""
    tenant: str
    persona: str | None
    user: str
    session: str | None
    door: str
    """The door that it came by: http, mcp, cli, python …"""
    ended_at: datetime
    duration_ms: float
    attempts: int
    cached: bool
    cost_usd: float
    tokens_used: int | None
    decision: str
    """The reasons of the gates that let it pass, or of the one that did not."""
    parent: str | None
    """The call that made it."""
    request_id: str | None
    idempotency_key: str | None
    approval: str | None
    pending: WaitingFor | None
    artifact: str | None
    """The id of its whole output, if that was too long to give out: GET /v1/artifacts/{id}."""


class CallRecord(ApiView, frozen=True):
    """A row of the audit log."""

    seq: int
    at: datetime
    kind: str
    """start, end, or the name of an administrative action"""
    call_id: str
    tenant: str
    tool: str
    status: str
    body: Any
    """All that the row holds, secrets masked; its text, if somebody has made it something other than JSON."""
    hash: str
    """Of the row before and this one."""


class CallStage(ApiView, frozen=True, omit_defaults=True):
    """The time that a call spent at one gate."""

    gate: str
    start_ms: float
    """From the beginning of the call."""
    ms: float
    """Without the time of users' hooks."""
    verdict: str
    """pass, deny, ask (a person) or fail"""
    hooks_ms: float = 0.0
    reason: str | None = None
    code: str | None = None
    attempt: int | None = None


class KeptDetails(ApiView, frozen=True):
    """The details of a call that are kept beside its records (setting audit.details)."""

    state: str
    """kept; pruned: retention removed them; removed, changed: somebody else did that."""
    stages: list[CallStage]
    output_bytes: int | None = None
    """The size of the output as JSON, if it was kept."""
    output: Any = None
    output_beginning: str | None = None
    """In place of the output, where that is larger than what is kept."""


class CallDetail(ApiView, frozen=True):
    """A call with all that is on record about it."""

    id: str
    tool: str
    tenant: str
    user: str
    persona: str | None
    is_over: bool
    """False: it began, and no end is on record."""
    call: CallSummary | None
    """The end of the call; null: there is none on record."""
    started_at: datetime | None
    """null: it was stopped before its tool was started."""
    tier: str | None
    version: str | None
    arguments: Any
    """As the log has them, secrets masked."""
    records: list[CallRecord]
    intact: bool
    """True if the hash of each record is that of its content and of the row before it. GET /v1/audit/verify looks at the
    whole log, GET /v1/audit/prove/{call_id} proves the records against a signed head."""
    details: list[KeptDetails]
    children: list[CallSummary]
    """Calls that it made, newest first, at most 100."""
    can_be_undone: bool
    """True if there are backups of files that it changed."""


class CallsWithin(ApiView, frozen=True):
    """The calls that were made within a call; `parent` says by which."""

    items: list[CallSummary]


class CallsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    id: Annotated[str, msgspec.Meta(min_length=MIN_ID_CHARS, max_length=64, pattern="^[!-~]+$")] | None = None
    """A beginning of the id, of 8 characters or more."""
    tool: Name | None = None
    status: Status | None = None
    code: Name | None = None
    user: Name | None = None
    persona: Name | None = None
    door: Name | None = None
    tier: Tier | None = None
    session: Name | None = None
    request_id: Name | None = None
    parent: Name | None = None
    since: Instant | None = None
    until: Instant | None = None


@resource.get("/v1/invocations", permission="own")
async def list_invocations(request: ApiRequest, query: CallsQuery) -> Page[CallSummary]:
    """List the calls that ended, newest first: those of the caller's user, or with the permission read of all users.

    A page may hold less than `limit`, even nothing, while `next` is there: then the next page goes on looking.
    """
    wanted = {name: getattr(query, name) for name in CallsQuery.__struct_fields__ if name not in ("limit", "cursor")}
    if not request.all_users:
        if query.user not in (None, request.actor.user):
            return Page([])
        wanted["user"] = request.actor.user
    tenant = None if request.all_tenants else request.actor.tenant
    after = position_of(request, query)
    before = None if after is None else after[0]
    found = await request.app.audit.calls(CallFilter(tenant=tenant, **wanted), before=before, limit=query.limit)
    return log_page(request, query, found, [summary_of(*row) for row in found.rows])


def log_page(request: ApiRequest, query: PageQuery, found: LogPage, items: list[Any]) -> Page[Any]:
    """Makes a page of rows of the log, or of what was made of them."""
    return Page(items, None if found.next is None else cursor_of(request, query, found.next))


@resource.get("/v1/invocations/{id}", permission="own")
async def get_invocation(request: ApiRequest, id: str) -> CallDetail:
    """Get a call: its records, what each gate said, its cost, the calls that it made. Somebody else's looks missing."""
    rows = await records_of(request, id)
    app, (_, _, _, _, tenant, tool, *_) = request.app, rows[0]
    starts = [row for row in rows if row[2] == "start"]
    ends = [summary_of(*row) for row in rows if row[2] == "end"]
    first = content_of((starts or rows)[0][7])
    user = str(first.get("user", ""))
    details, children, intact, can_be_undone = await asyncio.gather(
        app.audit.details(id, tenant=tenant), app.audit.calls(CallFilter(tenant=tenant, parent=id), limit=MAX_CHILDREN),
        app.audit.are_linked(rows), app.undo.is_possible(id, actor=Actor(tenant, user=user)),
    )  # fmt: skip
    return CallDetail(
        id=id, tool=tool, tenant=tenant, user=user, persona=first.get("persona"), is_over=bool(ends),
        call=ends[-1] if ends else None, started_at=moment_of(starts[0][1]) if starts else None, tier=first.get("tier"),
        version=first.get("version"), arguments=first.get("arguments"), records=[record_of(*row) for row in rows],
        intact=intact,
        details=[msgspec.convert(one.to_dict(), KeptDetails) for one in details],
        children=[summary_of(*row) for row in children.rows],
        can_be_undone=can_be_undone,
    )  # fmt: skip


@resource.get("/v1/invocations/{id}/calls", permission="own")
async def list_calls_within(request: ApiRequest, id: str) -> CallsWithin:
    """List the calls that a call made, those that these made, and so on: level by level, at most 5, and 200 calls in all."""
    rows = await records_of(request, id)
    found = await request.app.audit.calls_within(id, tenant=rows[0][4], levels=MAX_LEVELS, limit=MAX_WITHIN)
    calls = [summary_of(*row) for row in found]
    return CallsWithin(items=[one for one in calls if request.all_users or one.user == request.actor.user])


async def records_of(request: ApiRequest, id: str) -> Rows:
    """Gives the records of a call that the caller may see. Raises the problem of one that is not there."""
    await request.app.flush()
    tenant = None if request.all_tenants else request.actor.tenant
    found = await request.app.audit.of_call(id) if id.isascii() else []
    rows = [row for row in found if row[3] == id and row[2] in ("start", "end") and tenant in (None, row[4])]
    if not rows or not (request.all_users or content_of(rows[0][7]).get("user") == request.actor.user):
        raise HttpProblem(404, "There is no such call.", suggestion="GET /v1/invocations lists them.")
    return rows


def content_of(body: str) -> dict[str, Any]:
    """The body of a row; of one that somebody has made something else, nothing."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}


def moment_of(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000_000, UTC)


def record_of(
    seq: int, at: int, kind: str, call_id: str, tenant: str, tool: str, status: str, body: str, digest: str
) -> CallRecord:
    """A row of the log as it is shown; its body's bytes are the very ones that the hash covers."""
    try:
        orjson.loads(body)
        shown: Any = msgspec.Raw(body.encode())
    except orjson.JSONDecodeError:
        shown = body
    return CallRecord(
        seq=seq, at=moment_of(at), kind=kind, call_id=call_id, tenant=tenant, tool=tool, status=status, body=shown,
        hash=digest,
    )  # fmt: skip


def summary_of(
    _seq: int, at: int, _kind: str, call_id: str, tenant: str, tool: str, status: Any, body: str, _digest: str
) -> CallSummary:
    said = content_of(body)
    pending = said.get("pending")
    return CallSummary(
        id=call_id, tool=tool, status=status, code=said.get("code"), message=said.get("message"), tenant=tenant,
        persona=said.get("persona"), user=said.get("user", ""), session=said.get("session"), door=said.get("door", "python"),
        ended_at=moment_of(at), duration_ms=said.get("duration_ms", 0.0), attempts=said.get("attempts", 0),
        cached=said.get("cached", False), cost_usd=said.get("cost_usd", 0.0), tokens_used=said.get("tokens_used"),
        decision=said.get("decision", ""), parent=said.get("parent"), request_id=said.get("request_id"),
        idempotency_key=said.get("idempotency_key"), approval=said.get("approval"), artifact=said.get("artifact"),
        pending=None if pending is None else WaitingFor(kind=pending["kind"], id=pending["id"]),
    )  # fmt: skip
