"""Stores MCP servers and the definitions of their tools: tables servers, server_listings, server_tools.

A tool has two definitions: the accepted one, and the one that its server was last found to have. Only where they are the
same is its state `accepted`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from toolgate.mcp.client.model import Target
from toolgate.store import catalog
from toolgate.store.database import Transaction, moment, now
from toolgate.store.sql import is_any, select, select_one, upsert, value

DefinitionKey = tuple[str, str]
"""A method, and the server's own name of the tool; empty where the method is the tool."""
PinState = Literal["accepted", "quarantined", "gone"]
ItemKind = Literal["prompts", "resources", "templates"]
ITEM_KINDS: tuple[ItemKind, ...] = ("prompts", "resources", "templates")
"""Stand in place of a method in definitions that are no tool's."""
BY_TRUST = "(the setting trust_first_seen)"
"""The `accepted_by` of what nobody was asked about."""
MAX_GONE_TOOLS = 1_000
"""Accepted tools of a server that are gone: beyond this, new ones are not trusted when first seen."""
CHANGED_PREFIX = "changed:"
"""Precedes the identity in the listing of a server whose settings have changed: it counts as not listed, so that nothing
starts it before somebody asks. What was accepted of it is kept."""
OPERATOR = "local"
"""The `added_by` of servers that the operator added. An actor's is TENANT/USER, never this."""


class ServerRow(NamedTuple):
    """A server that was added while running; its settings are JSON."""

    name: str
    settings: str
    added_by: str


class ListingRow(NamedTuple):
    """A server's description of itself; `about` is JSON."""

    server: str
    identity: str
    about: str
    jail: str | None
    listed_at: datetime
    restart_asked: int


class DefinitionPin(NamedTuple):
    """A tool of a server: its accepted definition, and the one found last."""

    server: str
    method: str
    tool: str
    state: PinState
    accepted: str | None
    accepted_hash: str | None
    found: str | None
    found_hash: str | None
    first_seen: datetime
    changed_at: datetime
    accepted_by: str | None
    accepted_at: datetime | None

    @property
    def key(self) -> DefinitionKey:
        return self.method, self.tool


class NameClaim(NamedTuple):
    """The name under which a tool was first accepted, and when, whatever its state is now."""

    server: str
    key: DefinitionKey
    since: datetime
    name: str | None
    """None: it was accepted before names were stored."""


class FoundDefinition(NamedTuple):
    """A definition as a server has it now: canonical JSON, and its hash."""

    text: str
    hash: str


class ServerSnapshot(NamedTuple):
    """The definitions of a server as it has them now."""

    identity: str
    about: str
    """JSON."""
    jail: str | None
    found: Mapping[DefinitionKey, FoundDefinition]
    trust: Mapping[DefinitionKey, str]
    """Definitions that are accepted when first seen, and their names."""
    unknown: frozenset[str]
    """Kinds that could not be listed, so that nothing of them is gone."""


class RecordedServers(NamedTuple):
    """All that is on record, in one snapshot."""

    epoch: int
    servers: list[ServerRow]
    listings: dict[str, ListingRow]
    accepted: list[DefinitionPin]
    quarantined: list[tuple[str, str, str, bool]]
    """Server, method, tool, and whether an earlier definition was accepted."""
    claims: list[NameClaim]


class Comparison(NamedTuple):
    """The keys (method, tool) of definitions that a new listing of a server changed."""

    new: tuple[DefinitionKey, ...] = ()
    """First seen, and quarantined."""
    changed: tuple[DefinitionKey, ...] = ()
    """Other than what was accepted, and quarantined."""
    gone: tuple[DefinitionKey, ...] = ()
    taken: tuple[DefinitionKey, ...] = ()
    """In use from now on: first seen and trusted, or again what was accepted."""

    @property
    def any(self) -> bool:
        return any(self)


ONE_TOOL = "WHERE server = :server AND method = :method AND tool = :tool"


def epoch() -> Transaction[int]:
    return value("SELECT value FROM servers_epoch WHERE id = 1")


def changed() -> Transaction[None]:
    """Ends a change that other processes must see."""
    yield "UPDATE servers_epoch SET value = value + 1 WHERE id = 1", {}
    yield from catalog.changed()


def recorded() -> Transaction[RecordedServers]:
    number = yield from epoch()
    servers = yield from select(ServerRow, "servers", "ORDER BY created_at, name")
    listings = {row.server: row for row in (yield from select(ListingRow, "server_listings", ""))}
    accepted = yield from select(DefinitionPin, "server_tools", "WHERE state = 'accepted' ORDER BY server, method, tool")
    rows = yield "SELECT server, method, tool, accepted_hash FROM server_tools WHERE state = 'quarantined'", {}
    quarantined = [(*row[:3], row[3] is not None) for row in rows]
    rows = yield "SELECT server, method, tool, claimed_at, claimed_name FROM server_tools WHERE claimed_at IS NOT NULL", {}
    claims = [NameClaim(row[0], (row[1], row[2]), moment(row[3]), row[4]) for row in rows]
    return RecordedServers(number, servers, listings, accepted, quarantined, claims)


def descriptions() -> Transaction[dict[str, str]]:
    """The servers' descriptions of themselves, as JSON."""
    rows = yield "SELECT server, about FROM server_listings", {}
    return dict(rows)


def is_of_settings(name: str) -> Transaction[bool]:
    """True for a server that was listed and never added: the settings of some process have it, or had it."""
    return is_any(
        "SELECT 1 FROM server_listings WHERE server = :name AND NOT EXISTS (SELECT 1 FROM servers WHERE name = :name)",
        {"name": name},
    )


def pins(server: str | None = None) -> Transaction[list[DefinitionPin]]:
    """Every definition of a server, or of all, in any state."""
    where = "" if server is None else "WHERE server = :server "
    return select(DefinitionPin, "server_tools", f"{where}ORDER BY server, method, tool", {"server": server})


def pin(target: Target) -> Transaction[DefinitionPin | None]:
    """The definition of a tool that calls a method; where the method is the tool, whatever the tool is called."""
    tool = target.name if target.method == "tools/call" else ""
    key = {"server": target.server, "method": target.method, "tool": tool}
    return select_one(DefinitionPin, "server_tools", ONE_TOOL, key)


def counts() -> Transaction[dict[str, dict[tuple[bool, str], int]]]:
    """By server, how many tools are in each state (False, state), and how many prompts and resources (True, state)."""
    counted: dict[str, dict[tuple[bool, str], int]] = {}
    rows = yield "SELECT server, method, state, count(*) FROM server_tools GROUP BY server, method, state", {}
    for server, method, state, number in rows:
        of, key = counted.setdefault(server, {}), (method in ITEM_KINDS, state)
        of[key] = of.get(key, 0) + int(number)
    return counted


def recorded_and_counted() -> Transaction[tuple[RecordedServers, dict[str, dict[tuple[bool, str], int]]]]:
    """All servers as they are on record, and the counts of their definitions, as they were at one moment."""
    return (yield from recorded()), (yield from counts())


def set_server(row: ServerRow) -> Transaction[None]:
    yield (
        "UPDATE server_listings SET identity = :changed || identity WHERE server = :name "
        "AND substr(identity, 1, 8) <> :changed "
        "AND EXISTS (SELECT 1 FROM servers WHERE name = :name AND settings <> :settings)",
        {"changed": CHANGED_PREFIX, "name": row.name, "settings": row.settings},
    )
    at = now()
    fresh = {**row._asdict(), "created_at": at, "updated_at": at}
    yield upsert("servers", fresh, ("name",), ("settings", "added_by", "updated_at"))
    yield from changed()


def remove_server(name: str) -> Transaction[bool]:
    """Removes a server and what was accepted of it; returns whether there was one."""
    rows = yield "DELETE FROM servers WHERE name = :name RETURNING name", {"name": name}
    if rows:
        yield "DELETE FROM server_listings WHERE server = :name", {"name": name}
        yield "DELETE FROM server_tools WHERE server = :name", {"name": name}
        yield from changed()
    return bool(rows)


def ask_restart(server: str) -> Transaction[None]:
    """Asks the process that runs a server to restart it."""
    yield "UPDATE server_listings SET restart_asked = restart_asked + 1 WHERE server = :server", {"server": server}
    yield from changed()


def compare(server: str, seen: ServerSnapshot) -> Transaction[Comparison]:
    """Records what a server has now, and returns how it differs from what was accepted. Two processes that list a server at
    once do this one after the other: the first statement locks."""
    identity, about, jail, found, trust, unknown = seen
    values = {"server": server, "identity": identity, "about": about, "jail": jail, "listed_at": now()}
    rows = yield (
        "UPDATE server_listings SET listed_at = :listed_at WHERE server = :server RETURNING identity, about, jail",
        values,
    )
    before = tuple(rows[0]) if rows else None
    yield upsert("server_listings", values, ("server",))
    if before is not None and before[0].removeprefix(CHANGED_PREFIX) != identity:
        yield (
            "UPDATE server_tools SET accepted = NULL, accepted_hash = NULL, accepted_by = NULL, accepted_at = NULL, "
            "claimed_at = NULL, claimed_name = NULL, state = 'quarantined' WHERE server = :server",
            {"server": server},
        )
    known = {pin.key: pin for pin in (yield from pins(server))}
    if sum(pin.state == "gone" for pin in known.values()) >= MAX_GONE_TOOLS:
        trust = {}
    compared: dict[str, list[DefinitionKey]] = {"new": [], "changed": [], "gone": [], "taken": []}
    for key, definition in found.items():
        what = yield from _compare_one(server, key, definition, known.get(key), trust)
        if what is not None:
            compared[what].append(key)
    for key in sorted(known.keys() - found.keys()):
        if known[key].state != "gone" and key[0] not in unknown:
            compared["gone"].append(key)
            yield from _set_gone(server, known[key])
    result = Comparison(**{what: tuple(keys) for what, keys in compared.items()})
    if result.any or before != (identity, about, jail):
        yield from changed()
    return result


def _compare_one(
    server: str,
    key: DefinitionKey,
    found: FoundDefinition,
    pin: DefinitionPin | None,
    trust: Mapping[DefinitionKey, str],
) -> Transaction[Literal["new", "changed", "taken"] | None]:
    by_trust = key in trust and (pin is None or pin.accepted_hash is None)
    accepted = by_trust or (pin is not None and pin.accepted_hash == found.hash)
    state: PinState = "accepted" if accepted else "quarantined"
    if pin is not None and (pin.state, pin.found_hash) == (state, found.hash):
        return None
    at: dict[str, Any] = {"server": server, "method": key[0], "tool": key[1], "moment": now()}
    row = {
        "server": server, "method": key[0], "tool": key[1], "state": "quarantined" if by_trust else state,
        "found": found.text, "found_hash": found.hash, "first_seen": at["moment"], "changed_at": at["moment"],
    }  # fmt: skip
    yield upsert("server_tools", row, ("server", "method", "tool"), ("state", "found", "found_hash", "changed_at"))
    if by_trust:
        yield from _accept(at, found.hash, BY_TRUST)
        yield from _claim(at, trust[key])
    if accepted:
        return "taken"
    return "new" if pin is None or pin.accepted_hash is None else "changed"


def _set_gone(server: str, pin: DefinitionPin) -> Transaction[None]:
    """Forgets what was never accepted; the rest is kept, to be compared with what comes back under its name."""
    at = {"server": server, "method": pin.method, "tool": pin.tool}
    if pin.accepted_hash is None:
        yield f"DELETE FROM server_tools {ONE_TOOL}", at
    else:
        set_to = "state = 'gone', found = NULL, found_hash = NULL, changed_at = :moment"
        yield f"UPDATE server_tools SET {set_to} {ONE_TOOL}", {**at, "moment": now()}


def accept(wanted: Mapping[tuple[str, str, str, str], str | None], by: str) -> Transaction[list[tuple[str, str, str, str]]]:
    """Accepts definitions, each (server, method, tool, hash) as it was shown, with the name that the tool has from then on,
    or None. Returns those that have not changed since they were shown."""
    taken = []
    for server, method, tool, hashed in sorted(wanted):
        at = {"server": server, "method": method, "tool": tool, "moment": now()}
        if (yield from _accept(at, hashed, by)):
            taken.append((server, method, tool, hashed))
            yield from _claim(at, wanted[server, method, tool, hashed])
    if taken:
        yield from changed()
    return taken


def _accept(at: Mapping[str, Any], hashed: str, by: str) -> Transaction[bool]:
    """Accepts the definition that was found, if it still is the one with this hash and waits for that."""
    return is_any(
        "UPDATE server_tools SET state = 'accepted', accepted = found, accepted_hash = found_hash, accepted_by = :by, "
        f"accepted_at = :moment {ONE_TOOL} AND found_hash = :hash AND state = 'quarantined' RETURNING tool",
        {**at, "hash": hashed, "by": by},
    )


def _claim(at: Mapping[str, Any], name: str | None) -> Transaction[None]:
    """Records the name that a tool is accepted under, unless it has one already."""
    if name is not None:
        yield (
            f"UPDATE server_tools SET claimed_at = :moment, claimed_name = :name {ONE_TOOL} AND claimed_at IS NULL",
            {**at, "name": name},
        )
