"""The status of an MCP server, as people and programs are shown it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from toolgate.mcp.client.model import ConnectionStatus
from toolgate.mcp.review import PendingDefinition
from toolgate.mcp.server_settings import described
from toolgate.model import Actor
from toolgate.openapi.records import METHOD
from toolgate.settings import ServerSettings

SHOWN_SETTINGS = {"enabled", "preset", "isolation", "cwd", "read", "write", "blocked", "bring_in", "domains", "only",
    "trust_first_seen", "trust_annotations"}  # fmt: skip
LIMIT_FIELDS = ("timeout", "start_seconds", "idle_seconds", "memory_mb", "disk_mb", "output_bytes")


class DefinitionCounts(NamedTuple):
    """Counts of definitions by state."""

    accepted: int
    waiting: int
    gone: int


DOWN_STATES = ("waiting", "resting")


def is_down(settings: ServerSettings, standing: ConnectionStatus | None, problem: str | None) -> bool:
    """Tells whether a server should answer and does not."""
    if standing is None:
        return settings.enabled and problem is not None
    return settings.enabled and standing.state in DOWN_STATES


class ServerStatus(NamedTuple):
    """A server: what it is, how it stands, and how many tools it has."""

    name: str
    settings: ServerSettings
    """With its preset applied."""
    origin: Literal["settings", "store"]
    standing: ConnectionStatus | None
    tools: DefinitionCounts
    items: DefinitionCounts
    """Prompts, resources and resource templates."""
    listed_at: datetime | None
    """The time when it was last asked what it has; None: never, or it was another program then."""
    about: dict[str, Any]
    """Its own description: protocol, capabilities, info."""
    problem: str | None = None
    issuer: str | None = None
    """The authorization server that its login is pinned to."""
    jail: str | None = None
    """The isolation that it has, or had when it was last listed."""
    version: str | None = None
    """Of its package, as it was installed."""

    @property
    def is_down(self) -> bool:
        """True if it should answer and does not. One that is started when it is needed does."""
        return is_down(self.settings, self.standing, self.problem)

    @property
    def accepted(self) -> int:
        """Tools."""
        return self.tools.accepted

    @property
    def waiting(self) -> int:
        """Whatever somebody has to look at."""
        return self.tools.waiting + self.items.waiting

    def to_dict(self) -> dict[str, Any]:
        """For programs and people: of variables and headers only the names, because values may be secrets."""
        standing, settings = self.standing, self.settings
        return {
            "name": self.name,
            "origin": self.origin,
            "state": "off" if not settings.enabled else "idle" if standing is None else standing.state,
            "transport": settings.transport or ("http" if settings.url else "stdio"),
            "what": described(settings, self.version),
            "version": self.version,
            **settings.model_dump(mode="json", include=SHOWN_SETTINGS),
            "jail": self.jail,
            "env": sorted(settings.env),
            "headers": sorted(settings.headers),
            "issuer": self.issuer,
            "limits": {name: getattr(settings, name) for name in LIMIT_FIELDS},
            "tools": self.tools._asdict(),
            "prompts_and_resources": self.items._asdict(),
            "listed_at": None if self.listed_at is None else self.listed_at.isoformat(),
            "protocol": self.about.get("protocol"),
            "server": self.about.get("info") or None,
            "capabilities": sorted(self.about.get("capabilities") or ()),
            "failure": self.problem,
            "pid": None if standing is None else standing.pid,
            "starts": 0 if standing is None else standing.starts,
        }


def definition_counts(counts: Mapping[tuple[bool, str], int], *, items: bool) -> DefinitionCounts:
    return DefinitionCounts(*(counts.get((items, state), 0) for state in ("accepted", "quarantined", "gone")))


def accept_record(one: PendingDefinition, by: Actor) -> tuple[str, Actor, str, dict[str, Any]]:
    """The audit record of a definition that somebody accepted."""
    details = {
        "server": one.server,
        "tool": one.tool or one.method,
        "hash": one.hash,
        "was": "new" if one.is_new else "changed",
        "warnings": one.warnings(),
    }
    return "openapi.tool_accepted" if one.method == METHOD else "mcp.tool_accepted", by, one.name, details
