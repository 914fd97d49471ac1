"""/servers: the MCP servers, what of theirs waits to be accepted, and a form that adds one. For operators."""

import re
import shlex
from typing import Any

import msgspec

from toolgate.errors import ToolgateError
from toolgate.mcp.presets import PRESETS
from toolgate.serve.console.definition_review import (
    NOTHING_SAID,
    DefinitionReview,
    DefinitionsAfter,
    Said,
    problem_from,
    waiting_values,
    words_of,
)
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.console.words import mark_of
from toolgate.serve.health_metrics import SERVER_STATES
from toolgate.serve.http.openapi_documents import list_openapi_documents
from toolgate.serve.http.servers import (
    NewServer,
    ServersQuery,
    accept_definitions,
    add_server,
    get_server,
    list_servers,
    refresh_server,
    remove_server,
    restart_server,
)

pages = Pages("tools")

KINDS = (
    ("url", "an address (HTTP)"), ("command", "a command"), ("npm", "a package of npm"), ("pypi", "a package of PyPI"),
    ("preset", "a preset"),
)  # fmt: skip
LISTS = ("domains", "read", "write")
NAMES_OF_FIELDS = ("name", "env", "headers", *LISTS)
VARIABLE = re.compile(r"([^=:\s]+)\s*[=:]\s?(.*)\Z")


ALL_SERVERS = ServersQuery()


@pages.get("/servers", permission="operate", twin="/v1/servers")
async def servers(request: PageRequest, query: ServersQuery) -> View:
    """All servers, and the form that adds one."""
    return await _listed(request, query=query)


async def _listed(
    request: PageRequest, typed: Typed = NOTHING_TYPED, status: int = 200, query: ServersQuery = ALL_SERVERS
) -> View:
    found = (await list_servers(request, query)).items
    states = [(one, mark_of(one).word) for one in SERVER_STATES]
    documents = (await list_openapi_documents(request)).items
    values = {
        "found": found, "kinds": KINDS, "typed": typed, "presets": sorted(PRESETS), "states": states,
        "documents": documents,
    }  # fmt: skip
    return View(template="servers.html", title="Servers", values=values, listed=found, status=status)


@pages.get("/servers/{name}", permission="operate", twin="/v1/servers/{name}")
async def server(request: PageRequest, name: str, query: DefinitionsAfter) -> View:
    """A server with its tools, and what waits, each with its difference."""
    return await _shown(request, name, query.after)


async def _shown(request: PageRequest, name: str, after: str | None = None, said: Said = NOTHING_SAID) -> View:
    detail = await get_server(request, name)
    values = {"server": detail.server, "detail": detail, **waiting_values(detail.quarantined, after, said)}
    return View(template="server.html", title=name, values=values, status=said.status, listed=detail.tools)


REVIEW = DefinitionReview(
    place="/servers", shown=_shown, accept=accept_definitions, remove=remove_server,
    acts={"refresh": (refresh_server, "refreshed"), "restart": (restart_server, "restarted")},
)  # fmt: skip


@pages.post("/servers/{name}", permission="operate")
async def change_server(request: PageRequest, name: str) -> View | Go:
    """Accepts what was shown, asks the server again, restarts or removes it."""
    return await REVIEW.change(request, name)


# -- a new one


@pages.post("/servers", permission="operate")
async def new_server(request: PageRequest) -> View | Go:
    """Adds a server by the rules of POST /v1/servers."""
    wanted, faults = _wanted(request)
    if not faults:
        try:
            await add_server(request, msgspec.convert(wanted, NewServer))
        except msgspec.ValidationError as error:
            faults = _fault_of(str(error))
        except ToolgateError as error:
            problem = problem_from(error)
            faults = {_field_of(problem.message): words_of(problem)}
            return await _listed(request, request.typed_form(faults), problem.status)
    if faults:
        return await _listed(request, request.typed_form(faults), 422)
    return Go(f"/servers/{wanted['name']}", done="server-added")


def _wanted(request: PageRequest) -> tuple[dict[str, Any], dict[str, str]]:
    """The body of POST /v1/servers as the form says it, and what cannot be read."""
    faults: dict[str, str] = {}
    kind, what = request.typed("kind"), request.typed("what").strip()
    wanted: dict[str, Any] = {"name": request.typed("name").strip(), "start": bool(request.typed("start"))}
    if kind not in dict(KINDS):
        faults["kind"] = "Choose one."
    elif not what:
        faults["what"] = "Say which."
    else:
        try:
            wanted[kind] = shlex.split(what) if kind == "command" else what
        except ValueError:
            faults["what"] = "A quote is not closed."
    for field in ("env", "headers"):
        pairs = [VARIABLE.match(line.strip()) for line in _lines(request, field)]
        if not all(pairs):
            faults[field] = "One in a line: NAME=value."
        wanted[field] = {pair[1]: pair[2] for pair in pairs if pair}
    settings = {field: _lines(request, field) for field in LISTS}
    wanted["settings"] = {field: lines for field, lines in settings.items() if lines}
    return wanted, faults


def _lines(request: PageRequest, field: str) -> list[str]:
    return [line.strip() for line in request.typed(field).splitlines() if line.strip()]


def _fault_of(words: str) -> dict[str, str]:
    if "$.name" in words:
        return {"name": "A letter, then letters, digits, _ and -, at most 64 in all."}
    return {_field_of(words): words}


def _field_of(words: str) -> str:
    """The field that a message is about: of settings it says servers.NAME.FIELD."""
    if "server named" in words or "name of a server" in words:
        return "name"
    found = re.search(r"\bservers\.[\w-]+\.(\w+)|\$\.(\w+)", words)
    named = (found[1] or found[2]) if found else ""
    return named if named in NAMES_OF_FIELDS else ""
