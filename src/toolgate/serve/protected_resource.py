"""/mcp as a resource that OAuth protects: metadata by which a client finds out where to get a token (RFC 9728), and the
challenges that lead it there.

A client that was only given the address of /mcp is refused, finds the metadata by the refusal, gets a token for exactly this
resource (RFC 8707) from one of the issuers named there, and comes back. Tokens go no further than this server.
"""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from toolgate.serve.problems import HttpProblem

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.serve.app import HttpApp

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"
REALM = 'Bearer realm="toolgate"'


class ProtectedResource:
    def __init__(self, app: "App") -> None:
        self._issuers = app.issuers

    def challenge(self, scope: Scope, origin: str, error: str | None = None) -> str:
        """The header WWW-Authenticate of a refusal."""
        parts = [REALM] if error is None else [REALM, f'error="{error}"']
        if self._issuers.names and scope["path"] == MCP_PATH:
            parts.append(f'resource_metadata="{origin}{METADATA_PATH}{MCP_PATH}"')
            if self._issuers.scopes and error in (None, "insufficient_scope"):
                parts.append(f'scope="{" ".join(self._issuers.scopes)}"')
        return ", ".join(parts)

    def metadata(self, origin: str) -> dict[str, object] | None:
        """The metadata of /mcp; None where no issuer's tokens are taken."""
        if not self._issuers.names:
            return None
        told: dict[str, object] = {
            "resource": f"{origin}{MCP_PATH}",
            "resource_name": "Toolgate",
            "authorization_servers": list(self._issuers.names),
            "bearer_methods_supported": ["header"],
        }
        if self._issuers.scopes:
            told["scopes_supported"] = list(self._issuers.scopes)
        return told


async def metadata(request: Request) -> Response:
    """For anybody, since whoever needs it has no token yet, and for scripts of any page that may call /mcp."""
    http: HttpApp = request.app
    headers = dict(request.scope["headers"])
    http.authenticator.check_place(headers)
    told = http.authenticator.resource.metadata(http.authenticator.origin(request.scope, headers))
    if told is None:
        raise HttpProblem(404, "There is nothing at this address.")
    return JSONResponse(told, headers={"access-control-allow-origin": "*", "cache-control": "no-store"})


routes = [Route(METADATA_PATH, metadata), Route(METADATA_PATH + MCP_PATH, metadata)]
