"""CORS: what a browser must be told for web pages whose scripts may call (`mcp.origins`, and those of this machine)."""

from collections.abc import Mapping, Sequence

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Send

EXPOSED = "mcp-session-id, mcp-protocol-version, www-authenticate"
MAX_REQUESTED_BYTES = 4_096


def preflight(origin: bytes, headers: Mapping[bytes, bytes], methods: Sequence[str]) -> Response:
    """The answer to what a browser asks before it sends a script's request."""
    told = {
        "access-control-allow-origin": origin.decode("latin-1"),
        "access-control-allow-methods": ", ".join(methods),
        "access-control-max-age": "600",
        "vary": "origin",
    }
    requested = headers.get(b"access-control-request-headers", b"")
    if 0 < len(requested) <= MAX_REQUESTED_BYTES:
        told["access-control-allow-headers"] = requested.decode("latin-1")
    return Response(status_code=204, headers=told)


def readable_by(origin: bytes, send: Send) -> Send:
    """A `send` whose answers the scripts of a page may read."""

    async def send_to_page(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin.decode("latin-1")
            headers["access-control-expose-headers"] = EXPOSED
            headers.add_vary_header("origin")
        await send(message)

    return send_to_page
