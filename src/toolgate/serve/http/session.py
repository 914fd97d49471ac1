"""/v1/session: who the sender of a request is, and the end of a browser's sign-in."""

from datetime import datetime
from typing import Literal

from toolgate.app.issuers import ID_PREFIX as TOKEN_PREFIX
from toolgate.model.roles import Permission, Role
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Reply, Resource
from toolgate.serve.problems import HttpProblem
from toolgate.serve.session_cookie import set_cookie

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
