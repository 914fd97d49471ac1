"""The words of the engine: what a server is, how it stands, and what it can answer with besides a result."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from toolgate.errors import Failed, NotReached

ServerState = Literal["off", "idle", "starting", "up", "waiting", "resting"]
"""off: not enabled. idle: not needed yet, or stopped for want of work. waiting: for its next start, after a failure.
resting: it failed too often; one more try is made when its rest is over."""
ListKind = Literal["tools", "prompts", "resources", "templates"]
"""What a server has lists of."""


class Target(msgspec.Struct, frozen=True):
    """What stands behind a tool: a method of a server, and the name it is called by there."""

    server: str
    name: str
    method: Literal["tools/call", "resources/read", "prompts/get", "completion/complete"] = "tools/call"


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server said of itself when it was connected."""

    protocol: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any]
    instructions: str | None = None


class ConnectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a server stands, for people and for health checks."""

    name: str
    state: ServerState
    transport: str
    about: ServerInfo | None = None
    jail: str | None = None
    """What holds it, if it is a program and is held."""
    failure: str | None = None
    """Why it is not up, if it should be; or what went wrong last. For operators: a program's last words, which may be about
    anybody's call, are in it."""
    last_lines: tuple[str, ...] = ()
    """The last that a program said which could not be started."""
    starts: int = 0
    restarts: int = 0
    """In a row."""
    next_try: float | None = None
    """Seconds from now."""
    pid: int | None = None
    under_way: int = 0


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
