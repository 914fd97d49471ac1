"""Sessions of the handshake era, of which no credential has more than its share."""

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class HandshakeSessions(StreamableHTTPSessionManager):
    """The SDK's, which counts only all sessions together."""

    most_of_one: int

    def of(self, credential: str) -> int:
        """How many one has."""
        return sum(owner["client_id"] == credential for owner in self._session_owners.values())

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Here it is decided who comes in, one at a time: of requests that come all at once none has a session yet."""
        if requestor is None or self.of(str(requestor["client_id"])) >= self.most_of_one:
            return None
        return super()._admit_session(requestor)
