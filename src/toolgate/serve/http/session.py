"""/v1/session: who the sender of a request is. /v1/sign-ins: the browsers that are signed in, and their end."""

from datetime import datetime
from typing import Literal

from toolgate.app.issuers import ID_PREFIX as TOKEN_PREFIX
from toolgate.app.sign_ins import ID_PREFIX
from toolgate.model.roles import Permission, Role, permissions_of
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Reply, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import tenant_of
from toolgate.serve.problems import HttpProblem
from toolgate.serve.session_cookie import set_cookie
from toolgate.store.database import now
from toolgate.store.web_sessions import SessionState, WebSession

resource = Resource("session")


class SessionView(ApiView, frozen=True):
    """The sender of a request."""

    kind: Literal["key", "token", "session"]
    """The credential that it came with: an API key, a token of an issuer, or the cookie of a browser that is signed in."""
    tenant: str
    persona: str | None
    user: str
    scopes: list[str]
    permissions: list[Permission]
    roles: list[Role] | None
    """Of a session; null for keys and tokens."""
    expires_at: datetime | None
    """When a session ends, unless it is used before; null for keys and tokens."""


class SignInView(ApiView, frozen=True):
    """A browser that is signed in, or was."""

    id: str
    state: SessionState
    tenant: str
    persona: str | None
    user: str
    roles: list[Role]
    is_own: bool
    """True: the request came with its cookie."""
    created_by: str
    """The user who made the link."""
    created_at: datetime
    last_used_at: datetime
    """To five minutes."""
    ends_at: datetime
    """Unless it is used before."""
    revoked_by: str | None


@resource.get("/v1/sign-ins", permission="administer")
async def list_sign_ins(request: ApiRequest, query: PageQuery) -> Page[SignInView]:
    """List the browsers of the tenant that are signed in, or were, oldest first."""
    after = position_of(request, query)
    found = [_sign_in(request, one) for one in await request.app.sign_ins.list(tenant_of(request))]
    later = [one for one in found if after is None or _position(one) > tuple(after)]
    return page_of(request, query, later, _position)


@resource.delete("/v1/sign-ins/{id}", permission="administer")
async def end_sign_in(request: ApiRequest, id: str) -> SignInView:
    """Sign a browser of the tenant out, at once and in every process. One that may do more than oneself is not."""
    by = request.actor
    found = {one.id: one for one in await request.app.sign_ins.list(by.tenant)}.get(id)
    if found is None:
        raise HttpProblem(404, "There is no such browser.", suggestion="GET /v1/sign-ins lists them.")
    if not permissions_of(found.roles) <= request.credential.permissions:
        raise HttpProblem(403, "The browser is signed in with a role that permits more than yours.")
    return _sign_in(request, await request.app.sign_ins.revoke(id, by=by))


def _sign_in(request: ApiRequest, one: WebSession) -> SignInView:
    idle, actor = request.app.sign_ins.idle, one.actor
    return SignInView(
        id=one.id, state=one.state(now(), idle), tenant=actor.tenant, persona=actor.persona, user=actor.user,
        roles=list(one.roles), is_own=request.credential.id == ID_PREFIX + one.id, created_by=one.created_by,
        created_at=one.created_at, last_used_at=one.last_used_at, ends_at=one.ends_at(idle), revoked_by=one.revoked_by,
    )  # fmt: skip


def _position(one: SignInView) -> tuple[str, str]:
    return one.created_at.isoformat(), one.id


@resource.get("/v1/session", permission="own")
async def get_session(request: ApiRequest) -> SessionView:
    """Tell who the sender is, and what they may do."""
    credential, actor = request.credential, request.credential.actor
    session = await request.http.authenticator.session_of(request.scope, request.headers)
    return SessionView(
        kind="session" if session is not None else "token" if credential.id.startswith(TOKEN_PREFIX) else "key",
        tenant=actor.tenant,
        persona=actor.persona,
        user=actor.user,
        scopes=list(actor.scopes),
        permissions=sorted(credential.permissions),
        roles=None if session is None else list(session.roles),
        expires_at=None if session is None else session.ends_at(request.app.sign_ins.idle),
    )


@resource.delete("/v1/session", permission="own", status=204, problems=(404,))
async def end_session(request: ApiRequest) -> None:
    """Sign the browser out. Its cookie counts no longer, in any process."""
    authenticator = request.http.authenticator
    if not await authenticator.end_session(request.scope, request.headers):
        raise HttpProblem(404, "The request did not come with the cookie of a session.", suggestion="Keys are revoked.")
    removed = set_cookie(authenticator.origin(request.scope, request.headers), "", 0)
    return Reply(None, 204, {"set-cookie": removed})  # type: ignore[return-value]
