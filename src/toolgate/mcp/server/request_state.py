"""The state that clients of protocol 2026-07-28 carry from one request to the next (`requestState`), sealed.

A state is bound to the actor, the method, the tool and the arguments that it was given for. The key is in the store, so that
any process can continue what another one began. The fast path has no SDK around it, but its client comes back by the SDK's
path, so it seals with the same boundary.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from toolgate.mcp.server.identity import Credential, IdentifyCaller, actor_id
from toolgate.mcp.server.results import JsonObject

if TYPE_CHECKING:
    from mcp.server.request_state import RequestStateBoundary
    from mcp.server.session import ServerSession

    from toolgate.app.app import App
    from toolgate.mcp.server.caller import Request

STATE_KEY_PURPOSE = "mcp.request_state"
STATE_AUDIENCE = "toolgate"


class InputRequiredResult(NamedTuple):
    """The input that the client must provide before the call can go on, and the state that it must return."""

    requests: dict[str, Any]
    state: str | None

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"resultType": "input_required"}
        if self.requests:
            told["inputRequests"] = self.requests
        return told if self.state is None else {**told, "requestState": self.state}


class RetryState(NamedTuple):
    """The state that a client returned: the approval that it was asked for, and the tool's own state."""

    approval: str | None = None
    answers: Mapping[str, Any] | None = None
    """Answers to the tool's questions that came before our own question."""
    state: str | None = None
    held: str | None = None
    """The call that waits in this process for answers: its server has a handshake session, and wants them while it runs."""

    def to_text(self) -> str:
        return orjson.dumps(self._asdict()).decode()

    @classmethod
    def of(cls, text: Any) -> "RetryState":
        """From a state that the boundary has unsealed, so it is as we made it."""
        return cls() if not isinstance(text, str) else cls(**orjson.loads(text))


async def state_boundary(app: "App", who: IdentifyCaller) -> "RequestStateBoundary":
    """Gives what seals and unseals states. The actor is bound here; the SDK binds the method, the tool and the arguments."""
    from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

    security = RequestStateSecurity(
        keys=[await app.keys.sealing_key(STATE_KEY_PURPOSE)],
        ttl=app.settings.approvals.expire_seconds,
        bind_principal=lambda ctx: actor_id(who(ctx).actor),
    )
    return RequestStateBoundary(security, default_audience=STATE_AUDIENCE)


async def seal_retry(
    app: "App", state: str | None, params: Mapping[str, Any], version: str, credential: Credential
) -> JsonObject:
    """Makes the fast path's answer to a tool that asks nothing and only wants to be called again with its state."""
    from mcp.server.context import ServerRequestContext

    result = InputRequiredResult({}, None if state is None else RetryState(state=state).to_text()).to_dict()

    async def answer(_: "Request") -> JsonObject:
        return result

    request: Request = ServerRequestContext(
        session=cast("ServerSession", None),  # the seal is about the method, its parameters and whose they are
        lifespan_context=None,
        protocol_version=version,
        method="tools/call",
        params=params,
    )
    boundary = await state_boundary(app, lambda _: credential)
    return cast(JsonObject, await boundary(request, answer))
