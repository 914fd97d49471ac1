"""Requests to a Toolgate server and what becomes of their answers, for the async client and the plain one alike; no I/O."""

import os
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from toolgate.errors import ErrorCategory, ToolgateError

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8700"
TIMEOUT_SECONDS = 60.0
MAX_WORDS_CHARS = 300
_CATEGORIES: dict[int, ErrorCategory] = {403: "forbidden", 404: "missing", 409: "conflict", 412: "conflict"}


class RequestRefused(ToolgateError):
    """The server refused a request. `status`, `code` and `request_id` are those of its problem document."""

    def __init__(self, status: int, problem: "ProblemDocument") -> None:
        super().__init__(problem.detail, suggestion=problem.suggestion, category=_CATEGORIES.get(status))
        self.status = status
        self.code = problem.code
        self.request_id = problem.request_id


class ServerUnreachable(ToolgateError):
    """The server cannot be reached, or its answer was cut off."""


class ProblemDocument(msgspec.Struct, frozen=True):
    """An error as the server tells it (RFC 9457)."""

    detail: str
    code: str = "UNEXPECTED_ERROR"
    suggestion: str | None = None
    request_id: str | None = None


def address_of(url: str | None) -> str:
    """Gives the address of the server: as given, of the environment, or on this machine."""
    return (url or os.environ.get("TOOLGATE_URL") or DEFAULT_URL).rstrip("/")


def headers_of(key: str | None) -> dict[str, str]:
    """Gives the headers of every request. The key comes from the environment where none is given."""
    key = key or os.environ.get("TOOLGATE_KEY")
    return (
        {"accept": "application/json"} if key is None else {"accept": "application/json", "authorization": f"Bearer {key}"}
    )


def path_of(template: str, *parts: str) -> str:
    """Gives a path with its parts filled in, each as one segment whatever it holds."""
    return template.format(*(quote(part, safe="") for part in parts))


def query_of(**fields: Any) -> dict[str, str]:
    """Gives the query of a request, without what is None."""
    plain = {name: msgspec.to_builtins(value) for name, value in fields.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in plain.items()}


def body_of(**fields: Any) -> dict[str, Any]:
    """Gives the body of a request, without what is None."""
    return {name: value for name, value in fields.items() if value is not None}


def read(status: int, content: bytes, kind: type[T], *, always: bool = False) -> T:
    """Gives an answer as a value. `always`: it has that form whatever the status, unless it is a problem document.

    Raises `RequestRefused`.
    """
    if status == 204 or (status < 300 and not content):
        return msgspec.convert(None, kind)
    try:
        if status < 300 or (always and b'"metrics"' in content):
            return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ServerUnreachable(f"The server's answer cannot be read: {error}.") from None
    try:
        problem = msgspec.json.decode(content, type=ProblemDocument)
    except msgspec.MsgspecError:
        words = content[:MAX_WORDS_CHARS].decode("utf-8", "replace")
        problem = ProblemDocument(f"The server answered with {status}: {words}")
    raise RequestRefused(status, problem)


def arguments_of(arguments: Mapping[str, Any] | str | bytes | None) -> msgspec.Raw:
    """Gives the arguments of a call as JSON; text and bytes are JSON already."""
    if isinstance(arguments, str | bytes):
        return msgspec.Raw(arguments)
    return msgspec.Raw(msgspec.json.encode({} if arguments is None else dict(arguments)))


def body_bytes(body: Mapping[str, Any] | None) -> bytes | None:
    """Gives a body as it is sent."""
    return None if body is None else msgspec.json.encode(body)
