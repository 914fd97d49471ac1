"""The errors of the MCP client, and their translation from and to HTTP and JSON-RPC.

An HTTP failure is one of five things for the caller: `unreachable` (the request was not processed), `lost` (its outcome is
unknown), `session` (the server lost the session: initialize again, the request was not processed), `login` (credentials are
required), or `refused`, which is the server's answer. The SDK's session carries only JSON-RPC errors, so there the kind
travels in the `data` of one (`as_jsonrpc_error`).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from toolgate.errors import CallError, Failed, NotReached
from toolgate.mcp.client.untrusted_text import printable
from toolgate.settings import ServerSettings

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError

FailureKind = Literal["unreachable", "lost", "session", "login", "refused"]

FAILURE_KEY = "toolgate"
"""The key of the kind in an error's data."""
MAX_SHOWN_CHARS = 300
CONNECTION_CLOSED = -32000
PARSE_ERROR, INTERNAL_ERROR, METHOD_NOT_FOUND = -32700, -32603, -32601
MAX_ERROR_CHARS = 4_000
UNKNOWN_SESSION_CODES = (-32001, -32600)
"""The codes that servers use for an unknown session."""

_NOT_PROCESSED_STATUSES = frozenset({408, 425, 429, 503})
"""Statuses that say that the request was not processed."""
_GATEWAY_STATUSES = frozenset({502, 504})
"""Statuses of a proxy in between, which may have forwarded the request."""


class Unreachable(NotReached):
    """A server does not start or answer, or waits for its next start. Nothing was sent to it."""

    code = "CONNECTION_ERROR"


class Restarted(Unreachable):
    """A server was restarted since its definitions were compared. Nothing was sent to it."""


class ConnectionLost(Failed):
    """The connection ended after the request was sent: its outcome is unknown."""

    code = "OUTCOME_UNKNOWN"


class ErrorResponse(Failed):
    """A server answered with a JSON-RPC error."""

    code = "MCP_ERROR"

    def __init__(self, number: int, message: str, data: Any = None) -> None:
        details = {"number": number} if data is None else {"number": number, "data": data}
        super().__init__("MCP_ERROR", message, details=details)
        self.number, self.words, self.data = number, message, data


class InputRequired(Exception):
    """A server needs input before it continues (protocol 2026-07-28): the request is repeated with the answers."""

    def __init__(self, requests: Mapping[str, Any], state: str | None) -> None:
        super().__init__("input required")
        self.requests, self.state = requests, state


class FastPathUnavailable(Exception):
    """The fast path cannot send a request; nothing was sent. The SDK's session can."""


class LoginRequired(Unreachable):
    """A server requires credentials that are not there."""

    code = "MISSING_AUTH"


class SessionLost(Unreachable):
    """A server does not know the session any more, after a restart for example: initialize again."""


_CALL_ERRORS: dict[FailureKind, type[CallError]] = {
    "session": SessionLost, "unreachable": Unreachable, "lost": ConnectionLost,
}  # fmt: skip


def shown(text: str) -> str:
    """Makes text of a server fit to be shown: one line, printable, cut."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: MAX_SHOWN_CHARS * 4])
    words = " ".join(plain.split())
    return words if len(words) <= MAX_SHOWN_CHARS else words[: MAX_SHOWN_CHARS - 1] + "…"


def http_refusal(
    status: int, message: Mapping[str, Any], id: object, *, in_session: bool
) -> tuple[FailureKind, Mapping[str, Any] | None]:
    """Classifies an HTTP error: its kind, and the JSON-RPC error in its body if that is the server's own answer."""
    error = message.get("error")
    if status in (401, 403):
        return "login", None
    if isinstance(error, dict):
        return ("session", None) if in_session and _means_session_lost(status, message, id) else ("refused", error)
    if status == 404 and in_session:
        return "session", None
    if status in _NOT_PROCESSED_STATUSES:
        return "unreachable", None
    return "lost" if status in _GATEWAY_STATUSES else "refused", None


def _means_session_lost(status: int, message: Mapping[str, Any], id: object) -> bool:
    """True if an error response in a session says that the session is unknown.

    One that carries the id of the request answers it: it is the tool's own, whatever it says, and must not be retried.
    """
    code, words = message["error"].get("code"), message["error"].get("message")
    if message.get("id") == id:
        return status == 404 and code in UNKNOWN_SESSION_CODES
    return status == 404 or (status == 400 and isinstance(words, str) and "session" in words.lower())


def status_message(name: str, status: int) -> str:
    try:
        phrase = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        phrase = ""
    if status in (401, 403):
        return f"Server {name} refused the credentials: HTTP {status}{phrase}."
    return f"Server {name} answered with HTTP {status}{phrase}."


def login_suggestion(name: str, *, oauth: bool) -> str:
    if oauth:
        return f"Run `toolgate servers login {name}`."
    return (
        "Set its key with `--header` (setting `headers`), or use `--oauth` (setting `oauth`) and run "
        f"`toolgate servers login {name}`."
    )


def as_jsonrpc_error(kind: FailureKind, message: str, *, code: int = INTERNAL_ERROR, id: object = None) -> dict[str, Any]:
    data = None if kind == "refused" else {FAILURE_KEY: kind}
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **({"data": data} if data else {})}}


def as_call_error(
    kind: FailureKind, name: str, message: str, *, oauth: bool = False, code: int = INTERNAL_ERROR
) -> CallError:
    """Gives the error that callers of the client get."""
    if kind == "login":
        return LoginRequired(message=message, suggestion=login_suggestion(name, oauth=oauth))
    if kind == "refused":
        return ErrorResponse(code, message)
    return _CALL_ERRORS[kind](message=message)


def check_result(name: str, method: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the result, or raises what it stands for. Few fields are required: many servers are not strict."""
    kind = raw.get("resultType")
    if kind == "input_required":
        requests, state = raw.get("inputRequests"), raw.get("requestState")
        raise InputRequired(requests if isinstance(requests, dict) else {}, state if isinstance(state, str) else None)
    if method != "tools/call" or kind not in (None, "complete") or isinstance(raw.get("content"), list):
        return raw
    if "content" not in raw and "structuredContent" in raw:
        return {**raw, "content": []}
    raise ErrorResponse(INTERNAL_ERROR, f"Server {name} answered tools/call without the required `content`.")


def transport_failure(error: "MCPError", settings: ServerSettings) -> FailureKind | None:
    """The kind that our own HTTP transport put into an error; a local program can't forge one."""
    data = error.data if settings.url is not None else None
    found = data.get(FAILURE_KEY) if isinstance(data, dict) and len(data) == 1 else None
    return found if found in ("unreachable", "lost", "session", "login") else None


def from_mcp_error(error: "MCPError", name: str, settings: ServerSettings) -> Exception:
    """Translates a JSON-RPC error into an error of this module."""
    kind = transport_failure(error, settings)
    words = printable(error.message, MAX_ERROR_CHARS)
    if kind is not None:
        return as_call_error(kind, name, words, oauth=settings.oauth is not None)
    return ErrorResponse(error.code, words, error.data)
