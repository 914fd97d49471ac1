"""The values of the MCP client: what a tool calls, what a server says of itself, and how its connection stands."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

ServerState = Literal["off", "idle", "starting", "up", "waiting", "resting"]
"""off: not enabled. idle: not needed yet, or stopped because it was not used. waiting: for its next start, after a failure.
resting: it failed too often; one more start is tried after `rest_seconds`."""
ListKind = Literal["tools", "prompts", "resources", "templates"]
OnServerChange = Callable[[str, str, str | None], None]
"""Is given the server; "tools", "prompts", "resources", "resource", "up", "down" or "step"; and the URI or the step."""


class Target(msgspec.Struct, frozen=True):
    """The method of a server that a tool calls, and the server's own name of the tool."""

    server: str
    name: str
    method: Literal["tools/call", "resources/read", "prompts/get", "completion/complete"] = "tools/call"


class ServerInfo(msgspec.Struct, frozen=True):
    """The server's description of itself from the handshake."""

    protocol: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any]
    instructions: str | None = None


class ConnectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one server and its connection, for people and for health checks."""

    name: str
    state: ServerState
    transport: str
    about: ServerInfo | None = None
    jail: str | None = None
    """The jail of a local program; None: it has none."""
    failure: str | None = None
    """The last failure. For operators only: it quotes the program's stderr, which may be about anybody's call."""
    last_lines: tuple[str, ...] = ()
    """The end of the stderr of a program that could not be started."""
    starts: int = 0
    restarts: int = 0
    """Consecutive failures."""
    next_try: float | None = None
    """Seconds from now."""
    pid: int | None = None
    under_way: int = 0
