"""/v1/grants: tools that may run unasked for a while, because a person agreed ahead of time."""

from datetime import datetime
from typing import Any

from toolgate.gates.approval.request import Grant
from toolgate.serve.http.approvals import DOOR, GrantBounds, terms_of
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Name, Reason, named_actor, tenant_of, user_of
from toolgate.serve.problems import HttpProblem

resource = Resource("grants")

EVERY_USER = "*"
"""Stands for the users of a grant that is for a persona or a tenant. Whether it covers its giver's own calls is asked with
each of these."""


class GrantView(ApiView, frozen=True):
    """A tool that may run unasked for some time. Where persona, user or session is null, it is for all of them."""

    id: str
    tool: str
    tenant: str
    persona: str | None
    user: str | None
    session: str | None
    cap_usd: float | None
    spent_usd: float
    uses: int
    max_uses: int | None
    """The calls that it covers in all; null: any number."""
    arguments: dict[str, Any] | None
    """The arguments that it is for, as records hold them; null: whatever the arguments."""
    granted_by: str
    reason: str | None
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None


class GrantsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    tool: Name | None = None
    user: Name | None = None
    """For this user; others than one's own only for those who may see them."""
    all: bool = False
    """True: those too that ended or were revoked."""


class NewGrant(GrantBounds, frozen=True, kw_only=True):
    """A grant to be made: a tool runs unasked for whom the scope says."""

    tool: Name
    user: Name | None = None
    """The user whom it is for, or whose session; not with scope tenant or persona."""
    persona: Name | None = None
    """The persona that the user calls with, or that it is for."""
    session: Name | None = None
    """With scope session: the session."""
    operation: Name | None = None
    """Of a tool with several operations, the one that is agreed to."""
    arguments: dict[str, Any] | None = None
    """Only calls with these arguments; null: whatever the arguments."""
    reason: Reason | None = None


def _view(grant: Grant) -> GrantView:
    return GrantView(**{name: getattr(grant, name) for name in GrantView.__struct_fields__})


@resource.get("/v1/grants", permission="own")
async def list_grants(request: ApiRequest, query: GrantsQuery) -> Page[GrantView]:
    """List the grants that hold, oldest first. A caller sees those for its own user."""
    after = position_of(request, query)
    found = await request.app.grants.list(
        active=not query.all, actor=request.sender, tool=query.tool, user=user_of(request, query.user),
        limit=query.limit + 1, after=None if after is None else after[0], all_tenants=request.all_tenants,
    )  # fmt: skip
    return page_of(request, query, [_view(one) for one in found], lambda one: (one.id,))


@resource.get("/v1/grants/{id}", permission="own")
async def get_grant(request: ApiRequest, id: str) -> GrantView:
    """Get a grant. That for somebody else looks missing to a caller."""
    return _view(await request.app.grants.get(id, tenant_of(request), user_of(request)))


@resource.post("/v1/grants", permission="answer", status=201)
async def make_grant(request: ApiRequest, body: NewGrant) -> GrantView:
    """Agree ahead of time to calls of a tool; never to destructive ones, nor to one's own."""
    by = request.actor
    terms = terms_of(request, body)
    if (body.user is None) != (body.scope in ("tenant", "persona")):
        raise HttpProblem(422, "A grant for a user or a session names the user, and no other does.")
    whom = named_actor(by.tenant, body.persona, body.user or EVERY_USER)
    grant = await request.app.grants.create(
        body.tool, terms, actor=whom, session=body.session, reason=body.reason, by=by, operation=body.operation,
        arguments=body.arguments, through=DOOR,
    )  # fmt: skip
    return _view(grant)


@resource.delete("/v1/grants/{id}", permission="answer", problems=(409,))
async def revoke_grant(request: ApiRequest, id: str) -> GrantView:
    """Revoke a grant, at once and in every process."""
    return _view(await request.app.grants.revoke(id, actor=request.actor))
