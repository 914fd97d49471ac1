"""What can go wrong between here and a remote server, in words, and how it travels.

An HTTP failure is one of five things for the caller: `unreachable` (the request was not processed), `lost` (its outcome is
unknown), `session` (the server lost the session: initialize again, the request was not processed), `login` (credentials are
required), or `refused`, which is the server's answer. The SDK's session carries only JSON-RPC errors, so there the kind
travels in the `data` of one (`as_jsonrpc_error`).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from toolgate.mcp.client.model import ConnectionLost, ErrorResponse, Unreachable

FailureKind = Literal["unreachable", "lost", "session", "login", "refused"]

FAILURE_KEY = "toolgate"
"""The name in an error's data under which the kind stands."""
MAX_SHOWN_CHARS = 300
"""Characters of a server's own words that are shown."""
CONNECTION_CLOSED = -32000
PARSE_ERROR, INTERNAL_ERROR = -32700, -32603
UNKNOWN_SESSION_CODES = (-32001, -32600)
"""What servers have for a session that they don't know."""

_NOT_PROCESSED_STATUSES = frozenset({408, 425, 429, 503})
"""Statuses by which a server says that it did not even look at the request."""
_GATEWAY_STATUSES = frozenset({502, 504})
"""Statuses of something in between, which may have passed the request on."""


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
