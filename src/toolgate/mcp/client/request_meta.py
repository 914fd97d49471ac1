"""The metadata and headers of requests, without the SDK, which takes long to load."""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from toolgate.model import Caller
from toolgate.version import VERSION

MODERN_VERSION = "2026-07-28"
META_PREFIX = "io.modelcontextprotocol/"
FAST_METHODS = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
"""Requests that the fast path sends."""
NAME_PARAMETERS = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}  # fmt: skip
"""By method, the parameter that is also sent as the header Mcp-Name."""
CLIENT_INFO = {"name": "toolgate", "version": VERSION}
_PLAIN_HEADER = re.compile(r"[\x20-\x7e]*")
_CODED_HEADER = re.compile(r"=\?base64\?.*\?=")


def request_meta(protocol: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The `_meta` of a request of protocol 2026-07-28."""
    return {
        META_PREFIX + "protocolVersion": protocol,
        META_PREFIX + "clientInfo": CLIENT_INFO,
        META_PREFIX + "clientCapabilities": capabilities,
    }


def with_meta(params: Mapping[str, Any], protocol: str, caller: Caller | None, token: int | None) -> Mapping[str, Any]:
    """The parameters of a request for a caller. `token`: that of its progress, in place of what the parameters say."""
    meta = dict(params["_meta"]) if isinstance(params.get("_meta"), Mapping) else {}
    meta.pop("progressToken", None)
    if token is not None:
        meta["progressToken"] = token
    if protocol >= MODERN_VERSION:
        meta |= request_meta(protocol, caller.capabilities if caller is not None else {})
        if caller is not None and caller.log_level is not None:
            meta[META_PREFIX + "logLevel"] = caller.log_level
    return {**params, "_meta": meta} if meta or "_meta" in params else params


def request_headers(protocol: str, method: str | None = None, params: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The headers that repeat what a message says: the version and, in 2026-07-28, the method and the name."""
    headers = {"mcp-protocol-version": protocol}
    if method is not None and protocol >= MODERN_VERSION:
        headers["mcp-method"] = method
        name = (params or {}).get(NAME_PARAMETERS.get(method, ""))
        if isinstance(name, str):
            headers["mcp-name"] = header_value(name)
    return headers


def header_value(value: str) -> str:
    """A value as a header can carry it: plain, or as base64."""
    if _PLAIN_HEADER.fullmatch(value) and value == value.strip() and not _CODED_HEADER.fullmatch(value):
        return value
    return f"=?base64?{b64encode(value.encode()).decode()}?="
