"""The credential of a request, and the actor that it acts for."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec
import orjson

from toolgate.mcp.server.results import INVALID_REQUEST, ProtocolError
from toolgate.model import Actor
from toolgate.model.roles import DEFAULT_ROLES, Permission, permissions_of

if TYPE_CHECKING:
    from toolgate.mcp.server.caller import Request
    from toolgate.model import Entry


CALLS = permissions_of(DEFAULT_ROLES)


class Credential(msgspec.Struct, frozen=True, gc=False):
    """The proof that a request brought: its actor, and what its holder may do."""

    id: str
    actor: Actor
    may_approve: bool = False
    """True if whoever sits at the client may approve its calls there."""
    permissions: frozenset[Permission] = CALLS
    may_speak: bool = False
    """True if the client may pass on what its user typed, as the user's own words."""

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def has(self, scope: str) -> bool:
        return scope in self.actor.scopes


IdentifyCaller = Callable[["Request"], Credential]
"""Gives the credential of a request. Raises ProtocolError if it has none."""
RecallCredential = Callable[[str], Awaitable[Credential | None]]
"""Gives the credential of this id as it is now; None if it is not this door's. Raises `KeyRefused` if it is not valid."""
CREDENTIAL_KEY = "toolgate.credential"
"""The key in the ASGI scope under which the HTTP server puts the credential."""
REQUEST_ID_KEY = "toolgate.request_id"
"""In a request's ASGI scope: its id, which the client gave or which is new. A request of /mcp may have none."""

CURRENT_TOOL: ContextVar["Entry | None"] = ContextVar("toolgate_mcp_tool", default=None)
"""The tool that the HTTP request being served calls, if its actor may see it. The SDK asks for a tool's schema where nothing
can be awaited, so the policy is asked before."""


def credential_in_scope(ctx: "Request") -> Credential:
    scope = getattr(ctx.request, "scope", None)
    credential = scope.get(CREDENTIAL_KEY) if scope is not None else None
    if not isinstance(credential, Credential):
        raise ProtocolError(INVALID_REQUEST, "The request carries no credential")
    return credential


def actor_id(actor: Actor) -> str:
    """A text that no two actors share."""
    return orjson.dumps([actor.tenant, actor.persona, actor.user, actor.scopes]).decode()
