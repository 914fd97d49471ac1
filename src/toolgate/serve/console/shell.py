"""The frame of every page: the six places, what waits, who is signed in, the tenants and personas to choose from."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec

from toolgate.serve.console.page import PageRequest, PageRoute, Place
from toolgate.serve.http.approvals import waiting_approvals
from toolgate.serve.http.endpoint import ApiRequest

PLACES: tuple[tuple[Place, str, str], ...] = (
    ("overview", "Overview", "/"),
    ("approvals", "Approvals", "/approvals"),
    ("calls", "Calls", "/calls"),
    ("tools", "Tools", "/tools"),
    ("money", "Money", "/money"),
    ("system", "System", "/system"),
)
SECOND_LEVEL: dict[Place, tuple[tuple[str, str], ...]] = {
    "approvals": (("Waiting", "/approvals"), ("Answered", "/answered"), ("Grants", "/grants")),
    "tools": (("Tools", "/tools"), ("Servers", "/servers"), ("Organisation", "/teams"), ("Learning", "/learning")),
    "money": (("Spend", "/money"), ("Budgets", "/budgets")),
    "system": (
        ("Health", "/system"), ("Jobs", "/jobs"), ("Schedules", "/schedules"), ("Policy", "/policy"), ("Audit", "/audit"),
        ("Keys", "/keys"), ("Tenants", "/tenants"), ("API", "/docs"),
    ),
}  # fmt: skip
"""The pages below a place."""
MOST_TENANTS = 200


class Shell(msgspec.Struct, frozen=True):
    """The frame around one page."""

    place: Place
    section: str
    """The address of the second-level page that this one belongs to."""
    waiting: int
    """Calls that wait for an answer."""
    tenant: str
    tenants: list[str]
    """Those that may be chosen: of anybody but an operator, only their own."""
    personas: list[str]
    twin: str | None
    done: str | None
    """A sentence about what was just done."""
    store: str
    tools: int
    servers_up: int | None
    servers: int | None


class Surroundings(NamedTuple):
    """The parts of the frame that have to be looked up."""

    waiting: int
    tenants: list[str]
    tools: int


async def surroundings_of(request: ApiRequest) -> Surroundings:
    """Looks up what the frame shows. It depends on nothing that the page inside it does, so both are read together."""
    waiting, tenants, tools = await asyncio.gather(
        request.once(waiting_approvals), _tenants(request), request.app.tools.list(request.sender)
    )
    return Surroundings(waiting.number, tenants, len(tools))


async def shell_of(
    request: PageRequest, route: PageRoute, done: str | None = None, twin: Mapping[str, Any] | None = None
) -> Shell:
    found = await request.once(surroundings_of)
    app = request.app
    servers_up, servers = app.servers.ready() if request.credential.may("operate") else (None, None)
    return Shell(
        place=route.place,
        section=_section(route),
        waiting=found.waiting,
        tenant=_tenant(request),
        tenants=found.tenants,
        personas=await _personas(request),
        twin=_twin(request, route, request.fields if twin is None else twin),
        done=done,
        store="memory"
        if app.settings.in_memory
        else "PostgreSQL"
        if app.settings.database.startswith("postgres")
        else "SQLite",
        tools=found.tools,
        servers_up=servers_up,
        servers=servers,
    )


def _section(route: PageRoute) -> str:
    first = "/" + route.path.split("/")[1]
    return "/servers" if first == "/openapi" else first  # a document is listed among the servers


def _tenant(request: ApiRequest) -> str:
    return "*" if request.all_tenants else request.actor.tenant


async def _tenants(request: ApiRequest) -> list[str]:
    if not request.credential.may("operate"):
        return [_tenant(request)]
    return sorted({request.credential.actor.tenant, *await request.app.audit.tenants(MOST_TENANTS)})


async def _personas(request: PageRequest) -> list[str]:
    """The personas that an operator may act and look as; for everybody else, their own."""
    own = [] if request.credential.actor.persona is None else [request.credential.actor.persona]
    if not request.credential.may("operate"):
        return own
    return sorted({*own, *await request.http.personas.names(), *([request.persona] if request.persona else [])})


def _twin(request: PageRequest, route: PageRoute, query: Mapping[str, Any]) -> str | None:
    if route.twin is None:
        return None
    path = route.twin
    for name in route.path_parameters:
        path = path.replace(f"{{{name}}}", str(request.scope["path_params"][name]))
    fields: dict[str, Any] = {name: value for name, value in query.items() if name != "cursor" and value}
    if route.twin.endswith("}"):
        fields = {}  # one thing has no filters
    path, _, own = path.partition("?")
    fields = {**dict(parse_qsl(own)), **fields}
    if "tenant" in request.carried:
        fields["tenant"] = request.carried["tenant"]
    return f"{path}?{urlencode(fields)}" if fields else path
