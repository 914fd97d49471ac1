"""Problem documents (RFC 9457): the answers to requests over HTTP that are refused, with a code and what to do about it."""

from collections.abc import Mapping
from http import HTTPStatus

import orjson
from starlette.responses import Response

from toolgate.errors import ToolgateError

STATUS_CODES: Mapping[int, str] = {
    400: "INVALID_REQUEST",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "TIMEOUT",
    409: "CONFLICT",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "UNKNOWN_HOST",
    429: "RATE_LIMITED",
    489: "NOT_RETRYABLE",
    500: "UNEXPECTED_ERROR",
    503: "CAPACITY_EXCEEDED",
}
"""The code of each status that a request can be refused with."""
OWN_TITLES = {489: "Not Retryable"}
"""Titles of statuses that are no standard: 489 is QStash's."""


class HttpProblem(ToolgateError):
    def __init__(
        self, status: int, message: str, *, suggestion: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, suggestion=suggestion)
        self.status = status
        self.headers = headers

    def response(self) -> Response:
        document = {
            "title": OWN_TITLES.get(self.status) or HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": STATUS_CODES[self.status],
            "detail": self.message,
        }
        if self.suggestion is not None:
            document["suggestion"] = self.suggestion
        return Response(orjson.dumps(document), self.status, self.headers, "application/problem+json")
