"""What a client is told whose tool asks nothing, and only wants to be called again with what it wants to be reminded of.

The quick way has no SDK around it, but the client will come back by the SDK's way: so the state is sealed here by the same
boundary, with the same key, for the same actor, tool and arguments.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from toolgate.mcp.server.identity import Credential
from toolgate.mcp.server.results import JsonObject

if TYPE_CHECKING:
    from mcp.server.request_state import RequestStateBoundary
    from mcp.server.session import ServerSession

    from toolgate.app.app import App
    from toolgate.mcp.server.caller import Request


class RetryStateSealer:
    """Seals what clients carry along."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._boundary: RequestStateBoundary | None = None

    async def __call__(
        self, state: str | None, params: Mapping[str, Any], version: str, credential: Credential
    ) -> JsonObject:
        """The result of a tools/call with these parameters."""
        from mcp.server.context import ServerRequestContext

        from toolgate.mcp.server.signed_state import boundary
        from toolgate.mcp.server.tool_calls import InputRequiredResult, RetryState

        if self._boundary is None:
            self._boundary = await boundary(self._app, _whose)
        told = InputRequiredResult({}, None if state is None else RetryState(state=state).to_text()).to_dict()

        async def tell(_: "Request") -> JsonObject:
            return told

        request = ServerRequestContext(
            session=cast("ServerSession", None),  # the seal is about the method, its parameters and whose they are
            lifespan_context=credential,
            protocol_version=version,
            method="tools/call",
            params=params,
        )
        return cast(JsonObject, await self._boundary(request, tell))


def _whose(request: "Request") -> Credential:
    return cast(Credential, request.lifespan_context)
