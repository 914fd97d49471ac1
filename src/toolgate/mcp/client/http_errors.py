"""What can go wrong between here and a remote server, in words, and how it travels.

An HTTP failure is one of five things for whoever called: `unreachable` (nothing was done there), `lost` (nobody knows),
`session` (the server forgot us: begin anew, nothing was done), `login` (it wants to know who we are), or a refusal, which is
the server's answer. The SDK's session carries only JSON-RPC errors, so there they travel as `data` of one (`error_body`).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from toolgate.mcp.client.port import Lost, Refused, Unreachable

Kind = Literal["unreachable", "lost", "session", "login", "refused"]

MARK = "toolgate"
"""The name in an error's data under which the kind stands."""
LONGEST = 300
"""Characters of a server's own words that are shown."""
CLOSED = -32000
PARSE, INTERNAL = -32700, -32603
NO_SESSION = (-32001, -32600)
"""What servers have for a session that they don't know."""

_NOT_DONE = frozenset({408, 425, 429, 503})
"""Statuses by which a server says that it did not even look at the request."""
_UNKNOWN = frozenset({502, 504})
"""Statuses of something in between, which may have passed the request on."""


class NeedsLogin(Unreachable):
    """A server wants a login that is not there."""

    code = "MISSING_AUTH"


class SessionLost(Unreachable):
    """A server has forgotten the session (it was started anew, say): initialise again."""


def shown(text: str) -> str:
    """Words of a server's, fit to be shown: cut, in one line, printable."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: LONGEST * 4])
    words = " ".join(plain.split())
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def kind_of(status: int, *, session: bool) -> Kind:
    """What an HTTP status means. `session`: whether the request belonged to a session."""
    if status in (401, 403):
        return "login"
    if status == 404 and session:
        return "session"
    if status in _NOT_DONE:
        return "unreachable"
    return "lost" if status in _UNKNOWN else "refused"


def forgets_session(status: int, message: Mapping[str, Any], id: object) -> bool:
    """Whether an error that came in place of an answer, in a session, says that there is no such session.

    One that has the id of the request answers it: it is the tool's own, whatever it says, and must not be asked again.
    """
    error = message.get("error")
    code, words = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if message.get("id") == id:
        return status == 404 and code in NO_SESSION
    return status == 404 or (status == 400 and isinstance(words, str) and "session" in words.lower())


def status_words(name: str, status: int) -> str:
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


def error_body(kind: Kind, message: str, *, code: int = INTERNAL, id: object = None) -> dict[str, Any]:
    """The failure as a JSON-RPC error."""
    data = None if kind == "refused" else {MARK: kind}
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **({"data": data} if data else {})}}


def error_of(kind: Kind, name: str, message: str, *, oauth: bool = False, code: int = INTERNAL) -> Exception:
    """The failure as what a caller of the engine gets."""
    if kind == "login":
        return NeedsLogin(message=message, suggestion=login_suggestion(name, oauth=oauth))
    if kind == "session":
        return SessionLost(message=message)
    if kind == "unreachable":
        return Unreachable(message=message)
    if kind == "lost":
        return Lost(message=message)
    return Refused(code, message)
