"""What can go wrong between here and a remote server, in words, and how it travels.

An HTTP failure is one of five things for the caller: `unreachable` (the request was not processed), `lost` (its outcome is
unknown), `session` (the server lost the session: initialize again, the request was not processed), `login` (credentials are
required), or `refused`, which is the server's answer. The SDK's session carries only JSON-RPC errors, so there the kind
travels in the `data` of one (`as_jsonrpc_error`).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from toolgate.errors import Failed, NotReached
from toolgate.mcp.client.untrusted_text import printable
from toolgate.settings import ServerSettings

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError

FailureKind = Literal["unreachable", "lost", "session", "login", "refused"]

FAILURE_KEY = "toolgate"
"""The name in an error's data under which the kind stands."""
MAX_SHOWN_CHARS = 300
"""Characters of a server's own words that are shown."""
CONNECTION_CLOSED = -32000
PARSE_ERROR, INTERNAL_ERROR = -32700, -32603
MAX_ERROR_CHARS = 4_000
"""Characters of an error message of a server that are kept."""
UNKNOWN_SESSION_CODES = (-32001, -32600)
"""What servers have for a session that they don't know."""

_NOT_PROCESSED_STATUSES = frozenset({408, 425, 429, 503})
"""Statuses by which a server says that it did not even look at the request."""
_GATEWAY_STATUSES = frozenset({502, 504})
"""Statuses of something in between, which may have passed the request on."""


class Unreachable(NotReached):
    """A server can't be asked: it does not start, does not answer, or is left alone for a while. Nothing was sent to it."""

    code = "CONNECTION_ERROR"


class Restarted(Unreachable):
    """A server was started anew since whoever asks last looked at what it has. Nothing was sent to it."""


class ConnectionLost(Failed):
    """A server went away after it was asked: whether it did what it was asked for, nobody knows."""

    code = "OUTCOME_UNKNOWN"


class ErrorResponse(Failed):
    """A server answered with a protocol error: its code and words."""

    code = "MCP_ERROR"

    def __init__(self, number: int, message: str, data: Any = None) -> None:
        details = {"number": number} if data is None else {"number": number, "data": data}
        super().__init__("MCP_ERROR", message, details=details)
        self.number, self.words, self.data = number, message, data


class InputRequired(Exception):
    """A server wants to know more before it goes on (protocol 2026-07-28): ask again with the answers."""

    def __init__(self, requests: Mapping[str, Any], state: str | None) -> None:
        super().__init__("input required")
        self.requests, self.state = requests, state


class LoginRequired(Unreachable):
    """A server wants a login that is not there."""

    code = "MISSING_AUTH"


class SessionLost(Unreachable):
    """A server has forgotten the session (it was started anew, say): initialise again."""


def shown(text: str) -> str:
    """Words of a server's, fit to be shown: cut, in one line, printable."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: MAX_SHOWN_CHARS * 4])
    words = " ".join(plain.split())
    return words if len(words) <= MAX_SHOWN_CHARS else words[: MAX_SHOWN_CHARS - 1] + "…"


def failure_kind(status: int, *, session: bool) -> FailureKind:
    """What an HTTP status means. `session`: whether the request belonged to a session."""
    if status in (401, 403):
        return "login"
    if status == 404 and session:
        return "session"
    if status in _NOT_PROCESSED_STATUSES:
        return "unreachable"
    return "lost" if status in _GATEWAY_STATUSES else "refused"


def means_session_lost(status: int, message: Mapping[str, Any], id: object) -> bool:
    """Whether an error that came in place of an answer, in a session, says that there is no such session.

    One that has the id of the request answers it: it is the tool's own, whatever it says, and must not be asked again.
    """
    error = message.get("error")
    code, words = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if message.get("id") == id:
        return status == 404 and code in UNKNOWN_SESSION_CODES
    return status == 404 or (status == 400 and isinstance(words, str) and "session" in words.lower())


def status_message(name: str, status: int) -> str:
    """An HTTP status in a sentence."""
    try:
        phrase = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        phrase = ""
    if status in (401, 403):
        return f"The server {name} does not let us in: HTTP {status}{phrase}."
    return f"The server {name} answered with HTTP {status}{phrase}."


def login_suggestion(name: str, *, oauth: bool) -> str:
    """What to do where a server wants a login."""
    if oauth:
        return f"`toolgate servers login {name}`."
    return (
        "Give its key with `--header` (setting `headers`), or say `--oauth` (setting `oauth`) and then "
        f"`toolgate servers login {name}`."
    )


def as_jsonrpc_error(kind: FailureKind, message: str, *, code: int = INTERNAL_ERROR, id: object = None) -> dict[str, Any]:
    """The failure as a JSON-RPC error."""
    data = None if kind == "refused" else {FAILURE_KEY: kind}
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **({"data": data} if data else {})}}


def as_call_error(
    kind: FailureKind, name: str, message: str, *, oauth: bool = False, code: int = INTERNAL_ERROR
) -> Exception:
    """The failure as what a caller of the engine gets."""
    if kind == "login":
        return LoginRequired(message=message, suggestion=login_suggestion(name, oauth=oauth))
    if kind == "session":
        return SessionLost(message=message)
    if kind == "unreachable":
        return Unreachable(message=message)
    if kind == "lost":
        return ConnectionLost(message=message)
    return ErrorResponse(code, message)


def check_result(name: str, method: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plain result. Little is demanded of it, since many servers are not strict; what it holds is data."""
    kind = raw.get("resultType")
    if kind == "input_required":
        requests, state = raw.get("inputRequests"), raw.get("requestState")
        raise InputRequired(requests if isinstance(requests, dict) else {}, state if isinstance(state, str) else None)
    if method != "tools/call" or kind not in (None, "complete") or isinstance(raw.get("content"), list):
        return raw
    if "content" not in raw and "structuredContent" in raw:
        return {**raw, "content": []}
    raise ErrorResponse(INTERNAL_ERROR, f"The server {name} answered a call without the list of content that it must have.")


def transport_failure(error: "MCPError", settings: ServerSettings) -> FailureKind | None:
    """What our own transport says of a failure on the way to an address; a program can't say such a thing."""
    data = error.data if settings.url is not None else None
    found = data.get(FAILURE_KEY) if isinstance(data, dict) and len(data) == 1 else None
    return found if found in ("unreachable", "lost", "session", "login") else None


def from_mcp_error(error: "MCPError", name: str, settings: ServerSettings) -> Exception:
    """A JSON-RPC error as what `port` has for it."""
    kind = transport_failure(error, settings)
    words = printable(error.message, MAX_ERROR_CHARS)
    if kind is not None:
        return as_call_error(kind, name, words, oauth=settings.oauth is not None)
    return ErrorResponse(error.code, words, error.data)
