"""Negotiates the protocol version and the capabilities with a server before anything else is sent.

Version 2026-07-28 is tried first: a server that speaks it answers `server/discover`. Every other answer, and none, means an
older version with its handshake. Servers need not be strict: only the version has to be right.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types import SERVER_INFO_META_KEY as SERVER_INFO
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION as UNSUPPORTED
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from toolgate.mcp.client.backoff import ProcessExited
from toolgate.mcp.client.errors import Unreachable, from_mcp_error, transport_failure
from toolgate.mcp.client.model import ServerInfo
from toolgate.mcp.client.request_meta import CLIENT_INFO, request_headers, request_meta
from toolgate.mcp.client.untrusted_text import printable

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import Connection

Era = Literal["unknown", "legacy", "modern"]
DISCOVER_SECONDS = 10.0
"""Seconds for the response to `server/discover`; then the handshake is tried."""
HANDSHAKE_CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
"""The capabilities that servers of older versions are told. Not roots: one caller's would decide for all of them."""
MAX_INSTRUCTIONS_CHARS = 32_000


async def agree(connection: "Connection", era: Era) -> ServerInfo:
    """Returns what the server says of itself. Raises Unreachable if it speaks no version that is supported."""
    found = await _discover(connection, LATEST_MODERN_VERSION) if era != "legacy" else None
    if found is not None:
        return found
    wanted = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": HANDSHAKE_CAPABILITIES, "clientInfo": CLIENT_INFO,
    }  # fmt: skip
    try:
        raw = await connection.dispatch.send_raw_request("initialize", wanted, {"cancel_on_abandon": False})
    except MCPError as error:
        mutual = _mutual(error)
        found = await _discover(connection, mutual) if mutual is not None else None
        if found is not None:
            return found
        raise _not_agreed(connection, error) from error
    version = raw.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise Unreachable(message=f"It speaks protocol version {printable(repr(version), 60)}, which is not supported.")
    await connection.dispatch.notify("notifications/initialized", None, {"headers": request_headers(version)})
    return _about(version, raw, raw.get("serverInfo"))


async def _discover(connection: "Connection", version: str, *, again: bool = True) -> ServerInfo | None:
    """None: the server does not speak 2026-07-28, or does not say so."""
    options: CallOptions = {
        "timeout": min(DISCOVER_SECONDS, connection.settings.start_seconds / 2),
        "cancel_on_abandon": False,
        "headers": request_headers(version, "server/discover"),
    }
    params = {"_meta": request_meta(version, {})}
    try:
        raw = await connection.dispatch.send_raw_request("server/discover", params, options)
    except MCPError as error:
        if connection.ended.done():
            raise ProcessExited(message="It exited on server/discover.") from None
        mutual = _mutual(error)
        if mutual is not None and again:
            return await _discover(connection, mutual, again=False)
        failed = transport_failure(error, connection.settings) is not None
        if failed or (error.code == UNSUPPORTED and not _knows_handshake(error)):
            raise _not_agreed(connection, error) from error
        return None
    versions, meta = raw.get("supportedVersions"), raw.get("_meta")
    known = [one for one in MODERN_PROTOCOL_VERSIONS if isinstance(versions, list) and one in versions]
    return _about(known[-1], raw, meta.get(SERVER_INFO) if isinstance(meta, dict) else None) if known else None


def _not_agreed(connection: "Connection", error: MCPError) -> Exception:
    if connection.ended.done():
        return Unreachable(message="It exited during the handshake.")
    if transport_failure(error, connection.settings) is not None:
        return from_mcp_error(error, connection.name, connection.settings)
    if error.code == UNSUPPORTED:
        return Unreachable(message=f"It speaks no supported protocol version: {printable(error.message, 200)}")
    return Unreachable(message=f"It refused the handshake: {printable(error.message, 300)} ({error.code}).")


def _supported(error: MCPError) -> list[Any]:
    data = error.data
    found = data.get("supported") if isinstance(data, dict) else None
    return found if error.code == UNSUPPORTED and isinstance(found, list) else []


def _mutual(error: MCPError) -> str | None:
    """The newest sessionless version that the server says it speaks."""
    known = [one for one in MODERN_PROTOCOL_VERSIONS if one in _supported(error)]
    return known[-1] if known else None


def _knows_handshake(error: MCPError) -> bool:
    supported = _supported(error)
    return not supported or any(one in supported for one in HANDSHAKE_PROTOCOL_VERSIONS)


def _about(version: str, raw: Mapping[str, Any], info: Any) -> ServerInfo:
    capabilities, instructions = raw.get("capabilities"), raw.get("instructions")
    return ServerInfo(
        version,
        capabilities if isinstance(capabilities, dict) else {},
        info if isinstance(info, dict) else {},
        printable(instructions, MAX_INSTRUCTIONS_CHARS) if isinstance(instructions, str) else None,
    )
