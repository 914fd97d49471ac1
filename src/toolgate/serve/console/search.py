"""/search: tools, calls, servers, approvals, jobs and pages by a few words or the beginning of an id."""

from typing import Annotated, NamedTuple

import msgspec

from toolgate.errors import ToolgateError
from toolgate.serve.console.page import Go, PageRequest, Pages, View
from toolgate.serve.console.shell import PLACES, SECOND_LEVEL
from toolgate.serve.http.approvals import get_approval
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.invocations import MIN_ID_CHARS, CallsQuery, list_invocations
from toolgate.serve.http.jobs import WaitQuery, get_job
from toolgate.serve.http.reach import tenant_of

pages = Pages("overview")

MOST = 6
"""Hits of a kind."""
MIN_SCORE = 0.05
APPROVAL_PREFIX = "ap_"


class FindQuery(ApiModel, frozen=True):
    """The words that are looked for."""

    q: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Hit(NamedTuple):
    """A thing that was found."""

    kind: str
    name: str
    path: str
    words: str = ""
    status: str | None = None
    is_named: bool = False
    """True if what was looked for is its id, or the beginning of it."""


@pages.get("/search", permission="own")
async def search(request: PageRequest, query: FindQuery) -> View | Go:
    """All things of these words. Of an id that one thing has, the page of that thing."""
    words = query.q.strip()
    found = await _found(request, words) if words and words.isprintable() else []
    named = [hit for hit in found if hit.is_named]
    looks_ahead = b"hx-request" in request.headers and b"hx-boosted" not in request.headers  # the list below the search box
    if len(named) == 1 and not looks_ahead:
        return Go(named[0].path)
    return View(template="search.html", title="Search", values={"q": words, "found": found}, listed=found)


async def _found(request: PageRequest, words: str) -> list[Hit]:
    ids: list[Hit] = []
    if len(words) >= MIN_ID_CHARS and words.isascii() and " " not in words:
        ids = [*await _calls(request, words), *await _approvals(request, words), *await _jobs(request, words)]
    return [*ids, *await _tools(request, words), *await _servers(request, words), *_pages(words)]


async def _calls(request: PageRequest, words: str) -> list[Hit]:
    by_id = await list_invocations(request, CallsQuery(id=words[:64], limit=MOST))
    items = by_id.items or (await list_invocations(request, CallsQuery(request_id=words, limit=MOST))).items
    return [
        Hit("Call", one.tool, f"/calls/{one.id}", one.message or f"by {one.user}, {one.id}", one.status, is_named=True)
        for one in items
    ]


async def _approvals(request: PageRequest, words: str) -> list[Hit]:
    ids = await request.app.approvals.ids(tenant_of(request), words) if words.startswith(APPROVAL_PREFIX) else []
    found = []
    for id, _ in ids[:MOST]:
        try:
            one = await get_approval(request, id)
        except ToolgateError:  # somebody else's
            continue
        found.append(
            Hit("Approval", one.tool, f"/approvals/{id}", f"asked by {one.asked_by.user}", one.state, is_named=True)
        )
    return found


async def _jobs(request: PageRequest, words: str) -> list[Hit]:
    """The job of an id: the whole of it, because there may be many jobs, and no index of beginnings."""
    try:
        one = None if request.all_tenants else await get_job(request, words, WaitQuery())
    except ToolgateError:  # there is none, or it is somebody else's
        return []
    return [] if one is None else [Hit("Job", one.type, f"/jobs/{one.id}", one.id, one.state, is_named=True)]


async def _tools(request: PageRequest, words: str) -> list[Hit]:
    app, part = request.app, words.lower()
    visible = await app.tools.list(request.sender)
    named = [tool for tool in visible if part in tool.name.lower()]
    named.sort(key=lambda tool: (not tool.name.lower().startswith(part), tool.name))
    ranking = await app.tools.search(words, request.sender, limit=MOST)
    ranked = [tool for tool, score in ranking.found if score >= MIN_SCORE]
    best = {tool.name: tool for tool in (*named, *ranked)}
    return [Hit("Tool", tool.name, f"/tools/{tool.name}", tool.description) for tool in [*best.values()][:MOST]]


async def _servers(request: PageRequest, words: str) -> list[Hit]:
    if not request.credential.may("operate"):
        return []
    names = [one.name for one in await request.app.servers.list() if words.lower() in one.name.lower()]
    return [Hit("Server", name, f"/servers/{name}") for name in names[:MOST]]


def _pages(words: str) -> list[Hit]:
    below = [pair for group in SECOND_LEVEL.values() for pair in group]
    known = {path: name for name, path in (*below, *((name, path) for _, name, path in PLACES))}
    return [Hit("Page", name, path) for path, name in known.items() if words.lower() in name.lower()]
