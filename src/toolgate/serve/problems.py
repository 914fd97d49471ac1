"""Problem documents (RFC 9457): the answers to requests over HTTP that are refused, with a code and what to do about it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson

from toolgate.errors import CallError, ErrorCategory, NotOpen, NotServing, StoreError, ToolgateError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

PROBLEM_MEDIA_TYPE = "application/problem+json"
STATUS_CODES: Mapping[int, str] = {
    400: "INVALID_REQUEST",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "TIMEOUT",
    409: "CONFLICT",
    412: "PRECONDITION_FAILED",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "UNKNOWN_HOST",
    422: "VALIDATION_ERROR",
    429: "RATE_LIMITED",
    489: "NOT_RETRYABLE",
    500: "UNEXPECTED_ERROR",
    503: "CAPACITY_EXCEEDED",
}
"""The code of each status that a request can be refused with."""
CALL_STATUSES: Mapping[str, int] = {
    "TOOL_NOT_FOUND": 404,
    "VALIDATION_ERROR": 422,
    "INVALID_INPUT": 422,
    "PERMISSION_DENIED": 403,
    "SECURITY_VIOLATION": 403,
    "APPROVAL_REQUIRED": 202,
    "USER_CANCELLED": 403,
    "MISSING_AUTH": 424,
    "BUDGET_EXCEEDED": 402,
    "RATE_LIMITED": 429,
    "CAPACITY_EXCEEDED": 503,
    "CIRCUIT_OPEN": 503,
    "SANDBOX_UNAVAILABLE": 503,
    "TIMEOUT": 504,
    "MCP_ERROR": 502,
    "N8N_ERROR": 502,
    "INVOCATION_ERROR": 502,
    "CONNECTION_ERROR": 502,
    "SANDBOX_ERROR": 502,
    "OUTPUT_INVALID": 502,
    "IDEMPOTENCY_CONFLICT": 409,
    "OUTCOME_UNKNOWN": 409,
    "CANCELLED": 409,
    "UNKNOWN_TOOL_TYPE": 500,
    "UNEXPECTED_ERROR": 500,
}
"""The status of a call that ended with a code; of one that succeeded it is 200, of one that was queued 202."""
CATEGORY_STATUSES: Mapping[ErrorCategory, int] = {"invalid": 422, "missing": 404, "conflict": 409, "forbidden": 403}
OWN_TITLES = {489: "Not Retryable"}
"""Titles of statuses that are no standard: 489 is QStash's."""


class HttpProblem(ToolgateError):
    def __init__(
        self,
        status: int,
        message: str,
        *,
        suggestion: str | None = None,
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, suggestion=suggestion)
        self.status = status
        self.headers = headers
        self.code = code or STATUS_CODES[status]

    def response(self, request_id: str | None = None) -> "ProblemAnswer":
        document = {
            "title": OWN_TITLES.get(self.status) or HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.message,
        }
        if self.suggestion is not None:
            document["suggestion"] = self.suggestion
        if request_id is not None:
            document["request_id"] = request_id
        return ProblemAnswer(self.status, orjson.dumps(document), self.headers or {})


class ProblemAnswer:
    """A problem document as an ASGI app. Clients read the types of /v1 too, and have no Starlette."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status, self.body = status, body
        self._headers = {
            "content-type": PROBLEM_MEDIA_TYPE, "content-length": str(len(body)), "cache-control": "no-store", **headers,
        }  # fmt: skip

    async def __call__(self, _: "Scope", __: "Receive", send: "Send") -> None:
        headers = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in self._headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def problem_of(error: ToolgateError) -> HttpProblem | None:
    """Gives the problem document for an error of a facet; None: it is no fault of whoever sent the request."""
    if isinstance(error, CallError):
        status = CATEGORY_STATUSES[error.category] if error.category != "invalid" else CALL_STATUSES[error.code]
        code = None if error.category == "missing" else error.code
        return HttpProblem(status, error.message, suggestion=error.suggestion, code=code)
    if isinstance(error, StoreError):
        return HttpProblem(503, "The database cannot be used right now. Send the request again later.")
    if isinstance(error, NotServing | NotOpen):
        return None
    return HttpProblem(CATEGORY_STATUSES[error.category], error.message, suggestion=error.suggestion)
