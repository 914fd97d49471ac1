"""/calls: the calls that were made, newest first and live, by tool, outcome, person, door and time."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec

from toolgate.errors import Status
from toolgate.model import Tier
from toolgate.serve.console.call_figures import choices_of, facets_of, figures_of
from toolgate.serve.console.page import PageRequest, Pages, Typed, View
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.invocations import CallsQuery, CallSummary, Name, list_invocations
from toolgate.serve.http.pages import DEFAULT_PAGE, MAX_CURSOR_CHARS, MAX_PAGE, Page

pages = Pages("calls")

RANGES = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
    "all": ("Any time", None),
}
DEFAULT_RANGE = "7d"
FILTERS = ("tool", "status", "tier", "door", "code", "user", "session", "request_id", "id", "parent")
"""Those of /v1 that the page takes under the same name. The persona is the one that is chosen for the whole page."""
MORE = ("code", "user", "session", "request_id", "id", "parent", "since", "until")
"""Filters that are folded away until one of them is used."""
Moment = Annotated[str, msgspec.Meta(max_length=40)]


class CallListQuery(ApiModel, frozen=True):
    """Filters of the page: those of /v1/invocations, and times as people give them."""

    tool: Name | None = None
    status: Status | None = None
    tier: Tier | None = None
    door: Name | None = None
    code: Name | None = None
    user: Name | None = None
    session: Name | None = None
    request_id: Name | None = None
    id: Name | None = None
    parent: Name | None = None
    range: Literal["1h", "24h", "7d", "30d", "all"] | None = None
    since: Moment | None = None
    """An instant, or a time in UTC as a browser's field has it. It and `until` count more than `range`."""
    until: Moment | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE
    cursor: Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARS)] | None = None

    @property
    def has_period(self) -> bool:
        return self.since is not None or self.until is not None


@pages.get("/calls", permission="own", twin="/v1/invocations")
async def calls(request: PageRequest, query: CallListQuery) -> View:
    """The calls that fit the filters."""
    faults: dict[str, str] = {}
    wanted = _wanted(request, query, faults)
    found, facets, figures = await asyncio.gather(
        _found(request, wanted), facets_of(request, wanted), figures_of(request, None if query.cursor else wanted)
    )
    values = {
        "found": found.items, "query": query, "wanted": wanted, "next": _next(request, wanted, found.next),
        "looked_further": found.next is not None and len(found.items) < query.limit, "ranges": RANGES,
        "range": None if query.has_period else query.range or DEFAULT_RANGE,
        "choices": choices_of(request, wanted, facets, found.items), "figures": figures,
        "typed": Typed(request.fields, faults), "has_more": any(getattr(query, name) for name in MORE),
        "is_live": query.cursor is None and query.until is None,
        "is_filtered": bool(request.persona) or any(getattr(query, name) for name in (*FILTERS, "since", "until", "range")),
    }  # fmt: skip
    twin = None if wanted is None else {**msgspec.to_builtins(wanted), "limit": None}
    return View(
        template="calls.html",
        title="Calls",
        values=values,
        listed=found.items,
        twin=twin or {},
        status=422 if faults else 200,
    )


async def _found(request: PageRequest, wanted: CallsQuery | None) -> Page[CallSummary]:
    return Page([]) if wanted is None else await list_invocations(request, wanted)


def _wanted(request: PageRequest, query: CallListQuery, faults: dict[str, str]) -> CallsQuery | None:
    """The query of /v1; None: something about it is wrong, and `faults` says what."""
    since, until = (_moment(name, getattr(query, name), faults) for name in ("since", "until"))
    if since is not None and until is not None and until <= since:
        faults["until"] = "This is not after the beginning."
    ago = RANGES[query.range or DEFAULT_RANGE][1]
    if not query.has_period and ago is not None:
        since = datetime.now(UTC) - ago
    named = {name: getattr(query, name) for name in FILTERS}
    given = {
        **named,
        "persona": request.persona,
        "since": since,
        "until": until,
        "limit": query.limit,
        "cursor": query.cursor,
    }
    try:
        wanted = msgspec.convert({name: value for name, value in given.items() if value is not None}, CallsQuery)
    except msgspec.ValidationError:
        faults["id"] = "An id, or the first 8 characters of one or more."
        return None
    return None if faults else wanted


def _moment(name: str, text: str | None, faults: dict[str, str]) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        faults[name] = "A time such as 2026-11-01 08:00, in UTC."
        return None


def _next(request: PageRequest, wanted: CallsQuery | None, cursor: str | None) -> str | None:
    """The address of the next page. Its time begins where that of this page does: a cursor is good for one list only."""
    if wanted is None or cursor is None:
        return None
    since = None if wanted.since is None else wanted.since.isoformat()
    return request.here(range="all" if since is None else None, since=since, cursor=cursor)
