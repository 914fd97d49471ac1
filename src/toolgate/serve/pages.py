"""For web pages whose scripts may call (`mcp.origins`, and those of this machine): what a browser must be told (CORS)."""

from collections.abc import Mapping
from typing import Any

from toolgate.serve.problems import Send

EXPOSED = b"mcp-session-id, mcp-protocol-version, www-authenticate"
LONGEST = 4_096


async def preflight(send: Send, origin: bytes, headers: Mapping[bytes, bytes], methods: tuple[str, ...]) -> None:
    """What a browser asks before it sends a script's request."""
    wanted = headers.get(b"access-control-request-headers", b"")
    told = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-max-age", b"600"),
        (b"vary", b"origin"),
    ]
    if 0 < len(wanted) <= LONGEST:
        told.append((b"access-control-allow-headers", wanted))
    await send({"type": "http.response.start", "status": 204, "headers": told})
    await send({"type": "http.response.body", "body": b""})


def readable_by(origin: bytes, send: Send) -> Send:
    """A `send` whose answers the scripts of a page may read."""

    async def send_to_page(message: Any) -> None:
        if message["type"] == "http.response.start":
            allowed = [
                (b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED), (b"vary", b"origin"),
            ]  # fmt: skip
            message = {**message, "headers": [*message.get("headers", ()), *allowed]}
        await send(message)

    return send_to_page
