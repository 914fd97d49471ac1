"""/v1/secrets: secrets that tools are given. Names go out, values never do."""

from datetime import datetime
from typing import Annotated

import msgspec

from toolgate.errors import StoreError
from toolgate.gates.secrets.names import LOGINS, SERVERS, Owner, key_of
from toolgate.gates.secrets.sources import ListedSecret
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Name, tenant_of
from toolgate.serve.problems import HttpProblem

resource = Resource("secrets")

PLACE = "file"
MAX_SECRET_CHARS = 65_536


class SecretView(ApiView, frozen=True):
    """All that may be shown of a secret."""

    name: str
    tenant: str | None
    """The tenant that it is for; null: everybody, or Toolgate itself."""
    user: str | None
    """The user of the tenant that it is for; null: all."""
    servers: bool
    """True: it is for the settings of MCP servers, or for a login at one."""
    source: str
    set_at: datetime | None


class SecretOwner(ApiModel, frozen=True):
    """The user of the tenant whose secret is meant; without one, the tenant's."""

    user: Name | None = None


class SecretValue(ApiModel, frozen=True):
    """The value of a secret."""

    value: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SECRET_CHARS)]


def _view(one: ListedSecret) -> SecretView:
    tenant, user, space = one.owner
    return SecretView(
        name=one.name, tenant=tenant, user=user, servers=space in (SERVERS, LOGINS), source=one.source, set_at=one.set_at
    )


def _listed(request: ApiRequest) -> list[SecretView]:
    """The secrets that the sender may know of, by owner and name: those of one tenant, or for an operator who names all, of
    all and of nobody in particular."""
    tenant = tenant_of(request)
    found = [one for source in request.app.secrets.list() for one in source.secrets]
    views = [_view(one) for one in found if tenant is None or (one.owner.tenant == tenant and one.owner.space is None)]
    return sorted(views, key=_position)


def _position(one: SecretView) -> tuple[str, str, bool, str, str]:
    return one.tenant or "", one.user or "", one.servers, one.name, one.source


def _owner(request: ApiRequest, name: str, user: str | None) -> Owner:
    owner = Owner(tenant_of(request), user)
    try:
        key_of(name, owner)
    except ValueError as error:
        raise HttpProblem(422, f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    return owner


def _found(request: ApiRequest, name: str, owner: Owner) -> SecretView:
    for one in _listed(request):
        if (one.name, one.tenant, one.user) == (name.upper(), owner.tenant, owner.user) and not one.servers:
            return one
    raise HttpProblem(404, "There is no such secret.", suggestion="GET /v1/secrets lists them.")


@resource.get("/v1/secrets", permission="administer")
async def list_secrets(request: ApiRequest, query: PageQuery) -> Page[SecretView]:
    """List the secrets of the tenant: names, owners and sources, never values. With `tenant=*` those for everybody too."""
    after = position_of(request, query)
    found = [one for one in _listed(request) if after is None or _position(one) > tuple(after)]
    return page_of(request, query, found, _position)


@resource.get("/v1/secrets/{name}", permission="administer")
async def get_secret(request: ApiRequest, name: str, query: SecretOwner) -> SecretView:
    """Get what may be known of a secret of the tenant, or of a user of it."""
    return _found(request, name, _owner(request, name, query.user))


@resource.put("/v1/secrets/{name}", permission="administer")
async def set_secret(request: ApiRequest, name: str, query: SecretOwner, body: SecretValue) -> SecretView:
    """Set a secret of the tenant, or of a user of it; of operators, with `tenant=*`, for everybody. It never goes out."""
    owner = _owner(request, name, query.user)
    try:
        request.app.secrets.check_place(PLACE)
    except StoreError as error:
        raise HttpProblem(503, error.message, suggestion=error.suggestion) from None
    await request.app.secrets.set(name, body.value, owner, PLACE, actor=request.sender)
    return _found(request, name, owner)


@resource.delete("/v1/secrets/{name}", permission="administer")
async def remove_secret(request: ApiRequest, name: str, query: SecretOwner) -> None:
    """Remove a secret of the tenant, or of a user of it, wherever it is kept."""
    owner = _owner(request, name, query.user)
    if not await request.app.secrets.remove(name, owner, actor=request.sender):
        raise HttpProblem(404, "There is no such secret.", suggestion="GET /v1/secrets lists them.")
