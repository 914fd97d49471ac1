"""/v1/tools: the tools that the caller may see, and calls of them. `catalog` has the rest of what there is to them."""

import math
from typing import Annotated, Any, Literal

import msgspec

from toolgate.errors import CallError
from toolgate.mcp.server.fast_path import CALL_KEY, cancel_with_connection
from toolgate.model import Entry, Outcome, Source, Tier, Tool
from toolgate.pipeline.explain import Explanation
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Reply, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.problems import CALL_STATUSES, HttpProblem

resource = Resource("tools")

MAX_KEY_CHARS = 256
MAX_RETRY_SECONDS = 86_400
Arguments = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""An object that is not read here, but by the pipeline."""
Session = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


def no_arguments() -> msgspec.Raw:
    return msgspec.Raw(b"{}")


class ToolSummary(ApiView, frozen=True):
    """A tool in a list."""

    name: str
    description: str
    category: str
    tier: Tier
    source: Source
    version: str
    tags: list[str]
    enabled: bool = True
    """False: flags disable it for this tenant."""


class ToolsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    source: Source | None = None
    tier: Tier | None = None
    category: str | None = None
    q: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    """Words that are all in its name, description or tags."""
    state: Literal["enabled", "disabled", "any"] = "enabled"
    """Those that flags disable for the tenant are for admins."""


class InvokeBody(ApiModel, frozen=True):
    """A call."""

    arguments: Arguments = msgspec.field(default_factory=no_arguments)
    """An object that fits the tool's input schema."""
    session: Session | None = None
    """The session that the call belongs to: its files and providers."""
    approval: Session | None = None
    """The id of the approval that was given for this call."""
    timeout: Seconds | None = None
    """Seconds for the whole call, if less than the tool's own."""
    mode: Literal["sync", "async"] = "sync"
    """async: queue it as a job, and answer with the job's id."""
    delay: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 0.0
    """With mode async: seconds from now before which it is not made."""
    priority: Annotated[int, msgspec.Meta(ge=-10, le=10)] = 0
    """With mode async: the higher, the sooner among the jobs of the tenant."""


class Question(ApiModel, frozen=True):
    """A call that is not made."""

    arguments: Arguments = msgspec.field(default_factory=no_arguments)
    session: Session | None = None


def summary_of(tool: Tool, *, enabled: bool = True) -> ToolSummary:
    return ToolSummary(
        name=tool.name, description=tool.description, category=tool.category, tier=tool.tier, source=tool.source,
        version=tool.version, tags=list(tool.tags), enabled=enabled,
    )  # fmt: skip


@resource.get("/v1/tools", permission="own")
async def list_tools(request: ApiRequest, query: ToolsQuery) -> Page[ToolSummary]:
    """List the tools that the caller may see, by name; for admins also those that are disabled for the tenant."""
    found = await tools_of(request, query)
    return page_of(request, query, found[: query.limit + 1], lambda one: (one.name,))


async def tools_of(request: ApiRequest, query: ToolsQuery) -> list[ToolSummary]:
    """Gives all tools that fit a query, from its cursor on."""
    found = [summary_of(tool) for tool in await request.app.tools.list(request.actor, query.source)]
    if query.state != "enabled":
        request.require("administer")
        found = sorted([*(found if query.state == "any" else ()), *_disabled(request, query)], key=lambda one: one.name)
    after, words = position_of(request, query), (query.q or "").lower().split()
    return [
        one
        for one in found
        if (after is None or one.name > after[0])
        and query.tier in (None, one.tier)
        and query.category in (None, one.category)
        and all(word in f"{one.name} {one.description} {' '.join(one.tags)}".lower() for word in words)
    ]


def _disabled(request: ApiRequest, query: ToolsQuery) -> list[ToolSummary]:
    app, tenant = request.app, request.actor.tenant
    return [
        summary_of(entry.tool, enabled=False)
        for entry in app.tools.entries()
        if entry.tool.tenant in (None, tenant)
        and query.source in (None, entry.tool.source)
        and app.tools.is_off(entry, tenant)
    ]


async def visible(request: ApiRequest, name: str) -> Entry:
    """Gives a tool that the caller may see; admins also see those that flags disable."""
    app, actor = request.app, request.actor
    entry = await app.tools.visible(name, actor)
    if entry is None and request.credential.may("administer"):
        try:
            return app.tools.get(name, actor)
        except CallError:
            pass
    if entry is None:
        raise HttpProblem(404, "There is no such tool.", suggestion="GET /v1/tools lists them.", code="TOOL_NOT_FOUND")
    return entry


CALL_ALSO = {
    status: ", ".join(code for code, of in CALL_STATUSES.items() if of == status)
    for status in sorted({*CALL_STATUSES.values()} - {200})
}


@resource.post("/v1/tools/{name}/invoke", permission="call", takes_key=True, also=CALL_ALSO)
async def invoke_tool(request: ApiRequest, name: str, body: InvokeBody) -> Outcome:
    """Call a tool. The answer is always the outcome, and the status follows its code.

    With the header Idempotency-Key the call has one effect, however often it is sent. A call that waits for a person, or was
    queued, is answered with 202 and what it waits for.
    """
    key = _idempotency_key(request)
    terms: dict[str, Any] = {
        "actor": request.actor, "session": body.session, "idempotency_key": key, "approval": body.approval,
        "timeout": body.timeout, "request_id": request.request_id,
    }  # fmt: skip
    arguments = bytes(body.arguments)
    cancel_with_connection(request.scope)  # a client that goes away takes its call with it
    if body.mode == "async":
        outcome = await request.app.enqueue(name, arguments, delay=body.delay, priority=body.priority, door="http", **terms)
    else:
        outcome = await request.app.invoke(name, arguments, door="http", **terms)
    del request.scope[CALL_KEY]
    return Reply(outcome, status_of(outcome), retry_after(outcome))  # type: ignore[return-value]


def status_of(outcome: Outcome) -> int:
    """Gives the HTTP status of an outcome."""
    if outcome.status == "success":
        return 200
    if outcome.status == "pending":
        return 202
    return CALL_STATUSES[outcome.error.code] if outcome.error is not None else 500


def retry_after(outcome: Outcome) -> dict[str, str] | None:
    """Gives the header that says when a call may be made again; None: nobody knows."""
    details = outcome.error.details if outcome.error is not None else None
    seconds = (details or {}).get("retry_after")
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):  # a tool's own error can say anything
        return None
    return {"retry-after": str(min(max(1, round(seconds)), MAX_RETRY_SECONDS))}


def _idempotency_key(request: ApiRequest) -> str | None:
    given = request.headers.get(b"idempotency-key")
    if given is None:
        return None
    try:
        key = given.decode("ascii")
    except UnicodeDecodeError:
        key = ""
    if not 0 < len(key) <= MAX_KEY_CHARS or not key.isprintable():
        raise HttpProblem(400, f"Idempotency-Key must be 1 to {MAX_KEY_CHARS} printable ASCII characters.")
    return key


@resource.post("/v1/tools/{name}/explain", permission="own")
async def explain_call(request: ApiRequest, name: str, body: Question) -> Explanation:
    """Tell what every gate would say to a call, without making it. A tool that is hidden from the caller looks missing."""
    await visible(request, name)
    if not bytes(body.arguments).lstrip().startswith(b"{"):
        raise HttpProblem(422, "The body is wrong: `arguments` must be an object.")
    return await request.app.explain(name, bytes(body.arguments), actor=request.actor, session=body.session, door="http")
