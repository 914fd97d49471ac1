"""What an answer of a server's is taken for: a result, a refusal, a wish to know more, or a failure on the way."""

from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError

from toolgate.mcp.client.http_errors import MARK, Kind, error_of
from toolgate.mcp.client.port import InputRequired, Refused
from toolgate.mcp.client.untrusted_text import printable
from toolgate.settings import ServerSettings

WORDS = 4_000
"""Characters of a server's own words that are kept."""
INTERNAL_ERROR = -32603


def checked(name: str, method: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plain result. Little is demanded of it, since many servers are not strict; what it holds is data."""
    kind = raw.get("resultType")
    if kind == "input_required":
        requests, state = raw.get("inputRequests"), raw.get("requestState")
        raise InputRequired(requests if isinstance(requests, dict) else {}, state if isinstance(state, str) else None)
    if method != "tools/call" or kind not in (None, "complete") or isinstance(raw.get("content"), list):
        return raw
    if "content" not in raw and "structuredContent" in raw:
        return {**raw, "content": []}
    raise Refused(INTERNAL_ERROR, f"The server {name} answered a call without the list of content that it must have.")


def marked(error: MCPError, settings: ServerSettings) -> Kind | None:
    """What our own transport says of a failure on the way to an address; a program can't say such a thing."""
    data = error.data if settings.url is not None else None
    found = data.get(MARK) if isinstance(data, dict) and len(data) == 1 else None
    return found if found in ("unreachable", "lost", "session", "login") else None


def translated(error: MCPError, name: str, settings: ServerSettings) -> Exception:
    """A JSON-RPC error as what `port` has for it."""
    kind = marked(error, settings)
    words = printable(error.message, WORDS)
    if kind is not None:
        return error_of(kind, name, words, oauth=settings.oauth is not None)
    return Refused(error.code, words, error.data)
