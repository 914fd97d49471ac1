"""The body of a request over HTTP, read within bounds of size and time."""

import asyncio
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from toolgate.serve.problems import HttpProblem

BODY_SECONDS = 30.0
CLOSE = {"connection": "close"}


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int, setting: str) -> bytes:
    """The whole body. Raises an HttpProblem if it is larger than the setting says, or too slow: as soon as that is known,
    without the rest of it."""
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise HttpProblem(415, "The body is compressed.", suggestion="Send it without Content-Encoding.", headers=CLOSE)
    length = headers.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length[:20]) > max_bytes):
        raise _too_large(max_bytes, setting)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read_parts(receive, max_bytes, setting)
    except TimeoutError:
        raise HttpProblem(408, f"The request did not arrive within {BODY_SECONDS:g} s.", headers=CLOSE) from None


async def _read_parts(receive: Receive, max_bytes: int, setting: str) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes, setting)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(max_bytes: int, setting: str) -> HttpProblem:
    advice = f"The setting {setting} says how large a request may be."
    return HttpProblem(413, f"The request is larger than {max_bytes:,} bytes.", suggestion=advice, headers=CLOSE)
