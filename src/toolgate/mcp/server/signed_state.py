"""The seal on what clients carry from one request to the next: theirs alone, for the very request it was given for."""

from typing import TYPE_CHECKING

from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from toolgate.mcp.server.identity import IdentifyCaller, actor_id
from toolgate.store.state_keys import key_for

if TYPE_CHECKING:
    from toolgate.app.app import App

STATE_KEY_PURPOSE = "mcp.request_state"
STATE_AUDIENCE = "toolgate"


async def boundary(app: "App", who: IdentifyCaller) -> RequestStateBoundary:
    """What seals and unseals a state. We bind it to the actor; the SDK binds it to the method, the tool and the arguments.
    The key is in the store, so that any process can go on with what another one began."""
    security = RequestStateSecurity(
        keys=[await app.store.transact(key_for(STATE_KEY_PURPOSE))],
        ttl=app.settings.approvals.expire_seconds,
        bind_principal=lambda ctx: actor_id(who(ctx).actor),
    )
    return RequestStateBoundary(security, default_audience=STATE_AUDIENCE)
