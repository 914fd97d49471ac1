"""What is answered over HTTP where something is wrong: problem documents (RFC 9457) with a code, and what to do about it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

import orjson

from toolgate.errors import ToolgateError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = b"application/json"
PROBLEM = b"application/problem+json"

CODES: Mapping[int, str] = {
    400: "INVALID_REQUEST",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "TIMEOUT",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "UNKNOWN_HOST",
    429: "RATE_LIMITED",
    500: "UNEXPECTED_ERROR",
    503: "CAPACITY_EXCEEDED",
}
"""The code of each status that a request can be refused with."""


class KeyRefused(ToolgateError):
    """The key can't be made or revoked."""


class NotServing(ToolgateError):
    """The server can't be started."""


class HttpProblem(ToolgateError):
    """A request that is not served."""

    def __init__(self, status: int, message: str, *, suggestion: str | None = None, headers: Iterable[Header] = ()) -> None:
        super().__init__(message, suggestion=suggestion)
        self.status = status
        self.headers = tuple(headers)

    def body(self) -> bytes:
        told = {
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": CODES[self.status],
            "detail": self.message,
        }
        if self.suggestion is not None:
            told["suggestion"] = self.suggestion
        return orjson.dumps(told)


async def answer(send: Send, body: bytes, status: int = 200, media: bytes = JSON, headers: Iterable[Header] = ()) -> None:
    """Send a whole answer."""
    listed = [(b"content-type", media), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, problem: HttpProblem) -> None:
    await answer(send, problem.body(), problem.status, PROBLEM, problem.headers)
