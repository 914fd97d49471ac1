"""What an answer of a server's is taken for: a result, a refusal, a wish to know more, or a failure on the way."""

from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError

from toolgate.mcp.client.errors import FAILURE_KEY, FailureKind, as_call_error
from toolgate.mcp.client.model import ErrorResponse, InputRequired
from toolgate.mcp.client.untrusted_text import printable
from toolgate.settings import ServerSettings

MAX_ERROR_CHARS = 4_000
"""Characters of a server's own words that are kept."""
INTERNAL_ERROR = -32603


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


def transport_failure(error: MCPError, settings: ServerSettings) -> FailureKind | None:
    """What our own transport says of a failure on the way to an address; a program can't say such a thing."""
    data = error.data if settings.url is not None else None
    found = data.get(FAILURE_KEY) if isinstance(data, dict) and len(data) == 1 else None
    return found if found in ("unreachable", "lost", "session", "login") else None


def from_mcp_error(error: MCPError, name: str, settings: ServerSettings) -> Exception:
    """A JSON-RPC error as what `port` has for it."""
    kind = transport_failure(error, settings)
    words = printable(error.message, MAX_ERROR_CHARS)
    if kind is not None:
        return as_call_error(kind, name, words, oauth=settings.oauth is not None)
    return ErrorResponse(error.code, words, error.data)
