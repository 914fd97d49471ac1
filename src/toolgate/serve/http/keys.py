"""/v1/keys: API keys of the tenant."""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from toolgate.app.keys import own_user
from toolgate.model import LOCAL
from toolgate.model.roles import DEFAULT_ROLES, Role, permissions_of
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Name, named_actor, tenant_of
from toolgate.serve.problems import HttpProblem
from toolgate.store.database import now
from toolgate.store.keys import ApiKey, KeyState

resource = Resource("keys")

Scope = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class KeyView(ApiView, frozen=True):
    """An API key. Its text is not among what is known of it."""

    id: str
    name: str
    state: KeyState
    tenant: str
    persona: str | None
    user: str
    scopes: list[str]
    roles: list[Role]
    may_approve: bool
    """True if whoever sits at an MCP client with it may approve its calls there."""
    may_speak: bool
    """True if its holder may pass on what the user typed, as the user's own words."""
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None
    """To the hour."""


class MadeKey(ApiView, frozen=True):
    """A new API key with its text, which is shown this once."""

    key: KeyView
    text: str


class NewKey(ApiModel, frozen=True):
    """An API key to be made."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=250)]
    """The name, of which a tenant has one."""
    user: Name | None = None
    """The user that its holder acts as; without it, one of the key's own."""
    persona: Name | None = None
    scopes: Annotated[list[Scope], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)
    roles: Annotated[list[Role], msgspec.Meta(min_length=1, max_length=5)] = msgspec.field(
        default_factory=lambda: list(DEFAULT_ROLES)
    )
    expires_in: Annotated[float, msgspec.Meta(gt=0, le=3_155_760_000)] | None = None
    """Seconds for which it is valid; without it, until it is revoked."""
    may_approve: bool = False
    """Of operators: whoever sits at an MCP client with it may approve its calls there."""
    may_speak: bool = False
    """Of operators: its holder may pass on what the user typed, as the user's own words."""
    same_user: bool = False
    """Act as the key's own user also if an earlier key of this name did."""


class KeysQuery(PageQuery, frozen=True):
    """Filters of the list."""

    state: KeyState | None = None
    q: Name | None = None
    """A text in their name."""


def _view(key: ApiKey) -> KeyView:
    actor = key.actor
    return KeyView(
        id=key.id, name=key.name, state=key.state(now()), tenant=actor.tenant, persona=actor.persona, user=actor.user,
        scopes=list(actor.scopes), roles=list(key.roles), may_approve=key.may_approve, may_speak=key.may_speak,
        created_by=key.created_by, created_at=key.created_at, expires_at=key.expires_at, revoked_at=key.revoked_at,
        revoked_by=key.revoked_by, last_used_at=key.last_used_at,
    )  # fmt: skip


@resource.get("/v1/keys", permission="administer")
async def list_keys(request: ApiRequest, query: KeysQuery) -> Page[KeyView]:
    """List the API keys of the tenant, oldest first."""
    after = position_of(request, query)
    found = await request.app.keys.list(
        tenant_of(request), limit=query.limit + 1, after=None if after is None else after[0], state=query.state,
        named=query.q,
    )  # fmt: skip
    return page_of(request, query, [_view(key) for key in found], lambda one: (one.id,))


@resource.get("/v1/keys/{id}", permission="administer")
async def get_key(request: ApiRequest, id: str) -> KeyView:
    """Get an API key of the tenant."""
    return _view(await request.app.keys.get(id, tenant_of(request)))


@resource.post("/v1/keys", permission="administer", status=201, problems=(409,))
async def make_key(request: ApiRequest, body: NewKey) -> MadeKey:
    """Make an API key in the tenant. Its text is answered this once.

    It may do nothing over HTTP that its maker may not, and has no scope that its maker's credential does not have, unless an
    operator makes it.
    """
    by = request.actor
    if not permissions_of(body.roles) <= request.credential.permissions:
        raise HttpProblem(403, "A key cannot have a role that permits more than yours.")
    actor = named_actor(by.tenant, body.persona, body.user or own_user(body.name), tuple(body.scopes))
    if not request.credential.may("operate"):
        _check_no_more(request, body)
    lasting = None if body.expires_in is None else timedelta(seconds=body.expires_in)
    key, text = await request.app.keys.create(
        body.name, actor, lasting=lasting, roles=body.roles, may_approve=body.may_approve, may_speak=body.may_speak,
        same_user=body.same_user, by=by,
    )  # fmt: skip
    return MadeKey(key=_view(key), text=text)


def _check_no_more(request: ApiRequest, body: NewKey) -> None:
    """Raise if the key could do what only an operator may hand out."""
    if body.may_approve:
        raise HttpProblem(403, "Only an operator makes keys whose holder may approve calls of their own.")
    if body.may_speak:
        raise HttpProblem(403, "Only an operator makes keys whose holder may speak for the user.")
    if body.user == LOCAL.user:
        raise HttpProblem(403, "Only an operator makes keys for the person at this machine.")
    missing = {*body.scopes}.difference(request.credential.actor.scopes)
    if missing:
        raise HttpProblem(403, "A key cannot have a scope that your credential does not have.")


@resource.delete("/v1/keys/{id}", permission="administer", problems=(409,))
async def revoke_key(request: ApiRequest, id: str) -> KeyView:
    """Revoke an API key: no process takes it from now on. One that permits more than one's own is not revoked."""
    by = request.actor
    key = await request.app.keys.get(id, by.tenant)
    if not permissions_of(key.roles) <= request.credential.permissions:
        raise HttpProblem(403, "The key has a role that permits more than yours.")
    return _view(await request.app.keys.revoke(id, by=by))
