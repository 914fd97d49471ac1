"""Requests to a Toolgate server and what becomes of their answers, for the async client and the plain one alike; no I/O."""

import os
import time
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from toolgate.errors import ErrorCategory, SettingsError, ToolgateError, described

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8700"
TIMEOUT_SECONDS = 60.0
MAX_WORDS_CHARS = 300
MAX_ANSWER_BYTES = 256_000_000
"""Of one answer: more than a server keeps of an output, and less than would fill the memory of who asks it."""
MAX_ITEMS = 1_000_000
"""Of one list, in all its pages."""
ANYTHING: type[Any] = Any
"""The type of an answer that may be any JSON."""
NOT_A_SEGMENT = frozenset({"", ".", ".."})
"""Parts of a path that lead somewhere else."""
START_IT = "Start `toolgate serve`, or set TOOLGATE_URL."
UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""Raised for what is not the JSON that was expected."""
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
    """Gives the address of the server: as given, of the environment, or on this machine. Raises `SettingsError`."""
    given = url or os.environ.get("TOOLGATE_URL") or DEFAULT_URL
    found = given.rstrip("/")
    try:
        parts = urlsplit(found)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and found.isascii() and found.isprintable()
        is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment
    except ValueError:
        is_right = is_plain = False
    if not is_right or not is_plain:  # not quoted: it may hold a password
        raise SettingsError(
            "The address of the server must be http:// or https:// and a host, without a user or a query.",
            suggestion="Put http:// or https:// before it." if "://" not in given else f"An example: {DEFAULT_URL}.",
        )
    return found


def headers_of(key: str | None) -> dict[str, str]:
    """Gives the headers of every request. The key comes from the environment where none is given. Answers are not to be
    compressed: few bytes could become many. Raises `ServerUnreachable`."""
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    key = (key or os.environ.get("TOOLGATE_KEY") or "").strip()
    if not key:
        return headers
    if not key.isascii() or not key.isprintable():  # said here without it: others would quote it
        raise ServerUnreachable("The key holds characters that no key has.", suggestion="Copy it again.")
    return {**headers, "authorization": f"Bearer {key}"}


def path_of(template: str, *parts: str) -> str:
    """Gives a path with its parts filled in, each as one segment whatever it holds. Raises `RequestRefused` for what no
    path can have as a segment: nothing has such a name."""
    for part in parts:
        if part in NOT_A_SEGMENT:
            raise RequestRefused(404, ProblemDocument(f"There is nothing that is named {part!r}.", code="NOT_FOUND"))
    return template.format(*(quote(part, safe="") for part in parts))


class AnswerParts:
    """The bytes of an answer as they come: neither too many nor for too long."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._size = 0
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        """Takes the next bytes. Raises `ServerUnreachable`."""
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_ANSWER_BYTES:
            raise ServerUnreachable(f"The server's answer is larger than {MAX_ANSWER_BYTES:,} bytes.")
        if self._until is not None and time.monotonic() > self._until:
            raise ServerUnreachable("The server's answer did not arrive in time.")

    def whole(self) -> bytes:
        """Gives all of them."""
        return b"".join(self._parts)


class Cursors:
    """The cursors of a list's pages, of which each leads further."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def check(self, cursor: str | None, items: int, in_all: int) -> None:
        """Raises `ServerUnreachable` for a cursor after so many items that would not lead to the end of a list."""
        if cursor is not None and (not items or cursor in self._seen or in_all > MAX_ITEMS):
            raise ServerUnreachable("The server's list does not end.")
        self._seen.add(cursor or "")


Query = Mapping[str, str | list[str]]
"""The query of a request; a list is a parameter that is given several times."""


def query_of(**fields: Any) -> dict[str, str | list[str]]:
    """Gives the query of a request, without what is None."""
    plain = {name: msgspec.to_builtins(value) for name, value in fields.items() if value is not None}
    return {name: list(map(_text, value)) if isinstance(value, list) else _text(value) for name, value in plain.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def body_of(**fields: Any) -> dict[str, Any]:
    """Gives the body of a request, without what is None."""
    return {name: value for name, value in fields.items() if value is not None}


def read(status: int, content: bytes, kind: type[T], *, always: bool = False) -> T:
    """Gives an answer as a value. `always`: it has that form whatever the status, unless it is a problem document.

    Raises `RequestRefused` and `ServerUnreachable`.
    """
    try:
        if status == 204 or (status < 300 and not content):
            return msgspec.convert(None, kind)
        if status < 300 or (always and b'"metrics"' in content):
            return msgspec.json.decode(content, type=kind)
    except UNREADABLE as error:
        raise ServerUnreachable(f"The server's answer cannot be read: {described(error)}.") from None
    try:
        problem = msgspec.json.decode(content, type=ProblemDocument)
    except UNREADABLE:
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
