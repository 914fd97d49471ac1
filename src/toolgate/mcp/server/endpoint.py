"""MCP over streamable HTTP: the ASGI application behind /mcp.

Requests of protocol 2026-07-28 stand alone: any process can answer any of them. Older clients have a session in one process,
which belongs to the credential that began it. Authentication and the checks of Host and Origin come before
(`serve.authentication`), and leave the credential in the scope; a request without one is refused.
"""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from toolgate.mcp.client import sdk
from toolgate.mcp.server.identity import CREDENTIAL_KEY, CURRENT_ACTOR, Credential, actor_id, credential_in_scope

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from starlette.types import Receive, Scope, Send

    from toolgate.app.app import App
    from toolgate.mcp.server.gateway import Gateway, HandshakeSessions


SESSIONLESS_VERSIONS = (b"2026-07-28",)
MAX_SESSIONS, MAX_CREDENTIAL_SESSIONS = 5_000, 200
"""Handshake sessions: in all, and of one credential."""
SESSION_IDLE_SECONDS = 900.0


class McpEndpoint:
    """`async with McpEndpoint(app) as endpoint`, then it is an ASGI application."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._life = AsyncExitStack()
        self._manager: HandshakeSessions | None = None
        self._gateway: Gateway | None = None

    async def __aenter__(self) -> Self:
        await sdk.loaded()  # here, so that no two threads load it at a time
        from toolgate.mcp.server.gateway import Gateway, HandshakeSessions

        gateway = self._gateway = Gateway(self._app, credential_in_scope)
        self._manager = HandshakeSessions(
            await self._life.enter_async_context(gateway),
            max_request_body_size=self._app.settings.serve.body_bytes,
            max_sessions=MAX_SESSIONS,
            session_idle_timeout=SESSION_IDLE_SECONDS,
        )
        self._manager.most_of_one = MAX_CREDENTIAL_SESSIONS
        await self._life.enter_async_context(self._manager.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._life.aclose()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        credential = scope.get(CREDENTIAL_KEY)
        if self._manager is None or not isinstance(credential, Credential):
            await _refuse(send)
            return
        if self._begins_one_too_many(scope, credential):
            await _refuse(send, 429, b"Too many open sessions")
            return
        scope["user"] = _user(credential)
        # blanks around a value are not part of it (RFC 9110), and the SDK compares values with what is in the body
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        CURRENT_ACTOR.set(credential.actor)
        await self._manager.handle_request(scope, receive, send)

    def _begins_one_too_many(self, scope: "Scope", credential: Credential) -> bool:
        """True if a request would begin a session beyond its credential's limit. Concurrent ones are refused by
        `HandshakeSessions`."""
        headers = dict(scope["headers"])
        if (
            b"mcp-session-id" in headers
            or headers.get(b"mcp-protocol-version", b"") in SESSIONLESS_VERSIONS
            or self._manager is None
        ):
            return False
        return self._manager.of(credential.id) >= MAX_CREDENTIAL_SESSIONS


def _user(credential: Credential) -> "AuthenticatedUser":
    """The owner of a handshake session, as the SDK wants it: another credential does not find it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=credential.id, scopes=[], subject=actor_id(credential.actor)))


async def _refuse(send: "Send", status: int = 401, words: bytes = b"Unauthorized") -> None:
    headers = [(b"content-type", b"text/plain"), *([(b"www-authenticate", b"Bearer")] if status == 401 else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words})
