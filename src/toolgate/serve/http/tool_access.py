"""/v1/tools/{name}/access and /pin: for whom a tool is there, and the definition that was accepted of a server's tool."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import orjson

from toolgate.model import Actor, Entry, can_name_actor
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource
from toolgate.serve.http.tools import visible
from toolgate.serve.problems import HttpProblem

resource = Resource("tool access")

MOST_TENANTS, MOST_PERSONAS = 20, 12
"""Of a matrix: every cell is a decision of the policy."""
KNOWN_TENANTS = 200


class AccessCell(ApiView, frozen=True):
    """The answer to: may this tenant's users with this persona call the tool?"""

    tenant: str
    persona: str | None
    allow: bool
    reason: str


class AccessMatrix(ApiView, frozen=True):
    """For whom a tool is there: a cell for each tenant and persona, tenant by tenant."""

    tool: str
    tenants: list[str]
    personas: list[str | None]
    """null: somebody without a persona."""
    cells: list[AccessCell]
    omitted_tenants: int
    omitted_personas: int
    """Those that are known and left out, because the matrix is bounded."""


class PinnedDefinition(ApiView, frozen=True):
    """The definition of a server's tool as it was accepted."""

    name: str
    server: str
    tool: str
    """The server's own name of it."""
    hash: str | None
    definition: dict[str, Any]
    accepted_by: str | None
    accepted_at: datetime | None


@resource.get("/v1/tools/{name}/access", permission="own")
async def get_access(request: ApiRequest, name: str) -> AccessMatrix:
    """Tell for whom a tool is there and why.

    For the caller; for operators with every known persona of the tenant, and with `tenant=*` of every known tenant.
    Arguments, limits and budgets are not looked at: `explain` does that."""
    if not request.all_tenants:
        return await access_of(request, await visible(request, name), [request.actor.tenant])
    found = next((entry for entry in request.app.tools.entries() if entry.name == name), None)
    if found is None:
        raise HttpProblem(404, "There is no such tool.", suggestion="GET /v1/tools lists them.", code="TOOL_NOT_FOUND")
    return await access_of(request, found, await known_tenants(request, found))


async def known_tenants(request: ApiRequest, entry: Entry) -> list[str]:
    """The tenants that an operator may look at, their own first: those on record, and those with a flag of the tool."""
    if entry.tool.tenant is not None:
        return [entry.tool.tenant]
    flagged = await request.app.tools.flags("tenant", tool=entry.name, limit=KNOWN_TENANTS)
    others = {*await request.app.audit.tenants(KNOWN_TENANTS), *(row.whose for row in flagged)}
    own = request.sender.tenant
    return [own, *sorted(one for one in others if can_name_actor(one) and one != own)]


async def access_of(request: ApiRequest, entry: Entry, tenants: list[str]) -> AccessMatrix:
    """Makes the matrix of some tenants; of whoever is no operator, with their own persona alone."""
    by, may_see_all = request.sender, request.credential.may("operate")
    personas: list[str | None] = [by.persona]
    if may_see_all:
        known = {*await request.http.personas.names(), *([by.persona] if by.persona else [])}
        personas = [None, *sorted(filter(can_name_actor, known))]
    shown, columns = tenants[:MOST_TENANTS], personas[:MOST_PERSONAS]
    actors = [by if (tenant, persona) == (by.tenant, by.persona) else Actor(tenant, persona, by.user)
              for tenant in shown for persona in columns]  # fmt: skip
    return AccessMatrix(
        tool=entry.name, tenants=shown, personas=columns, cells=await _cells(request, entry, actors),
        omitted_tenants=len(tenants) - len(shown), omitted_personas=len(personas) - len(columns),
    )  # fmt: skip


async def _cells(request: ApiRequest, entry: Entry, actors: Iterable[Actor]) -> list[AccessCell]:
    app, found = request.app, []
    for actor in actors:
        off = await app.tools.why_off(entry, actor, door="http")
        reason = off or ""
        if off is None:
            decision = await app.policy.decide(actor, "tool.request", entry.name, tier=entry.tier, door="http")
            off, reason = None if decision.allow else decision.reason, decision.reason
        found.append(AccessCell(tenant=actor.tenant, persona=actor.persona, allow=off is None, reason=reason))
    return found


@resource.get("/v1/tools/{name}/pin", permission="operate")
async def get_pin(request: ApiRequest, name: str) -> PinnedDefinition:
    """Get the definition of a tool of an MCP server as it was accepted: it is what models read, whatever the server says."""
    entry = await visible(request, name)
    pin = await request.app.servers.pinned(entry)
    if pin is None or pin.accepted is None:
        raise HttpProblem(404, "It is no tool of an MCP server.", suggestion="GET /v1/tools/{name} has its definition.")
    return PinnedDefinition(
        name=name, server=pin.server, tool=pin.tool, hash=pin.accepted_hash, definition=orjson.loads(pin.accepted),
        accepted_by=pin.accepted_by, accepted_at=pin.accepted_at,
    )  # fmt: skip
