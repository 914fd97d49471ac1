"""The metadata of requests of protocol 2026-07-28, without the SDK, which takes long to load."""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from toolgate.version import VERSION

MODERN_VERSION = "2026-07-28"
META_PREFIX = "io.modelcontextprotocol/"
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


def header_value(value: str) -> str:
    """A value as a header can carry it: plain, or as base64."""
    if _PLAIN_HEADER.fullmatch(value) and value == value.strip() and not _CODED_HEADER.fullmatch(value):
        return value
    return f"=?base64?{b64encode(value.encode()).decode()}?="
