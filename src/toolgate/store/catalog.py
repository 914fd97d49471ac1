"""The catalog of tools and the flags on it: tool_catalog, tenant_tool_flags, persona_tool_restrictions, dynamic_tools."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from toolgate.store.database import Transaction, now
from toolgate.store.sql import insert, is_any, select, select_one, upsert, value

BATCH = 200
REGISTRATION_WINDOW = timedelta(hours=1)
GLOBAL_DENY = "global_tool_deny"
PolicyList = Literal["global_tool_deny", "code_execution_restricted_tenants"]
FlaggedFor = Literal["tenant", "persona", "everybody"]


class CatalogRow(NamedTuple):
    """A row of the catalog: a tool."""

    name: str
    enabled: bool
    description: str
    params: str
    source: str
    version: str
    tier: str
    category: str
    definition: str
    fingerprint: str


class DynamicRow(NamedTuple):
    """A tool that was registered at run time."""

    name: str
    registered_by_tenant: str
    registered_by_persona: str | None
    source_type: str
    source_url: str | None
    input_schema: str
    definition: str
    enabled: bool
    registered_by_user: str | None = None
    registered_door: str | None = None


class RegistrationLimits(NamedTuple):
    """The most that a tenant may register."""

    tools: int
    per_hour: int


class RegistrationRefused(Exception):
    """The store does not take a registration."""

    def __init__(self, reason: Literal["taken", "tools", "per_hour"]) -> None:
        super().__init__(reason)
        self.reason = reason


class FlagRow(NamedTuple):
    """A flag of a tool."""

    whose: str
    """The tenant or persona; empty for everybody."""
    tool: str
    enabled: bool
    reason: str | None
    by_operator: bool
    """True: an operator set it, and the tenant's admins do not change it."""


class OperatorsFlag(Exception):
    """The flag was set by an operator."""


class Flags(msgspec.Struct):
    """Everything that says who has which tool, as it is in the store."""

    epoch: int = 0
    operator: dict[str, bool] = msgspec.field(default_factory=dict)
    """Tools that an operator switched on or off for everybody."""
    tenants: dict[str, dict[str, bool]] = msgspec.field(default_factory=dict)
    personas: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """By persona, the tools denied to it and why."""
    can_add_tools: dict[str, bool] = msgspec.field(default_factory=dict)
    global_deny: dict[str, str] = msgspec.field(default_factory=dict)
    """Tools denied to everybody, and why."""
    restricted_tenants: dict[str, str] = msgspec.field(default_factory=dict)
    """Tenants that may not execute code, and why."""
    allow_lists: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """By tenant, the allow list as a document."""


def known_tools() -> Transaction[dict[str, tuple[str, int | None]]]:
    """Fingerprint and token cost of every tool on record."""
    rows = yield "SELECT name, fingerprint, token_cost FROM tool_catalog", {}
    return {name: (fingerprint, tokens) for name, fingerprint, tokens in rows}


def seed(rows: Sequence[CatalogRow]) -> Transaction[None]:
    """Puts tools on record, or brings their record up to date. Whether one is enabled is set only the first time."""
    for start in range(0, len(rows), BATCH):
        yield _upsert(rows[start : start + BATCH])


def _upsert(rows: Sequence[CatalogRow]) -> tuple[str, dict[str, Any]]:
    parameters: dict[str, Any] = {"moment": now()}
    values = []
    for index, row in enumerate(rows):
        parameters.update({f"{name}_{index}": value for name, value in row._asdict().items()})
        values.append("(" + ", ".join(f":{name}_{index}" for name in row._fields) + ", :moment, :moment)")
    columns = [name for name in (*CatalogRow._fields, "updated_at") if name not in ("name", "enabled")]
    return (
        f"INSERT INTO tool_catalog ({', '.join(CatalogRow._fields)}, created_at, updated_at) VALUES {', '.join(values)} "
        f"ON CONFLICT (name) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in columns)}, token_cost = NULL",
        parameters,
    )


def keep_token_costs(counted: Iterable[tuple[str, str, int]]) -> Transaction[None]:
    """Keeps what definitions cost a model to read, by name and fingerprint, for as long as they are the ones on record."""
    for name, fingerprint, tokens in counted:
        yield (
            "UPDATE tool_catalog SET token_cost = :tokens WHERE name = :name AND fingerprint = :fingerprint",
            {"name": name, "fingerprint": fingerprint, "tokens": tokens},
        )


def epoch() -> Transaction[int]:
    return value("SELECT value FROM catalog_epoch WHERE id = 1")


def flags() -> Transaction[Flags]:
    """Reads all flags."""
    read = Flags(epoch=(yield from epoch()))
    rows = yield "SELECT name, enabled FROM tool_catalog WHERE enabled_by IS NOT NULL", {}
    read.operator = {name: bool(enabled) for name, enabled in rows}
    for tenant, tool, enabled in (yield "SELECT tenant_id, tool_name, enabled FROM tenant_tool_flags", {}):
        read.tenants.setdefault(tenant, {})[tool] = bool(enabled)
    rows = yield "SELECT persona_id, tool_name, reason FROM persona_tool_restrictions WHERE NOT allowed", {}
    for persona, tool, reason in rows:
        read.personas.setdefault(persona, {})[tool] = reason or "denied to this persona"
    rows = yield "SELECT persona_id, can_add_tools FROM persona_permissions", {}
    read.can_add_tools = {persona: bool(allowed) for persona, allowed in rows}
    for listed, member, reason in (yield "SELECT list, member, reason FROM policy_lists", {}):
        members = read.global_deny if listed == GLOBAL_DENY else read.restricted_tenants
        members[member] = reason or ""
    rows = yield "SELECT tenant_id, document FROM tenant_allow_lists", {}
    read.allow_lists = {tenant: orjson.loads(document) for tenant, document in rows}
    return read


def changed() -> Transaction[None]:
    """Ends a change that other processes must see."""
    yield "UPDATE catalog_epoch SET value = value + 1 WHERE id = 1", {}


def set_enabled(tool: str, enabled: bool, by: str | None) -> Transaction[None]:
    """Switches a tool for everybody; by None: gives it back to the seed and the settings."""
    yield (
        "UPDATE tool_catalog SET enabled = :enabled, enabled_by = :by, updated_at = :moment WHERE name = :tool",
        {"tool": tool, "enabled": enabled, "by": by, "moment": now()},
    )
    yield from changed()


def set_tenant_flags(rows: Iterable[tuple[str, str, bool | None]], *, by_operator: bool = True) -> Transaction[None]:
    """Switches tools for tenants: (tenant, tool, enabled), or None to go back to what holds for everybody. Raises
    OperatorsFlag if an admin would change what an operator set."""
    for tenant, tool, enabled in rows:
        key = {"tenant": tenant, "tool": tool}
        if not by_operator and (yield from _is_operators(key)):
            raise OperatorsFlag
        if enabled is None:
            yield "DELETE FROM tenant_tool_flags WHERE tenant_id = :tenant AND tool_name = :tool", key
        else:
            row = {
                "tenant_id": tenant, "tool_name": tool, "enabled": enabled, "updated_at": now(), "by_operator": by_operator,
            }  # fmt: skip
            yield upsert("tenant_tool_flags", row, ("tenant_id", "tool_name"))
    yield from changed()


def _is_operators(key: dict[str, str]) -> Transaction[bool]:
    return is_any("SELECT 1 FROM tenant_tool_flags WHERE tenant_id = :tenant AND tool_name = :tool AND by_operator", key)


_FLAGS: dict[FlaggedFor, str] = {
    "tenant": "SELECT tenant_id AS whose, tool_name AS tool, enabled, NULL AS reason, by_operator FROM tenant_tool_flags",
    "persona": "SELECT persona_id AS whose, tool_name AS tool, allowed AS enabled, reason, TRUE AS by_operator "
    "FROM persona_tool_restrictions",
    "everybody": "SELECT '' AS whose, name AS tool, enabled, NULL AS reason, TRUE AS by_operator FROM tool_catalog "
    "WHERE enabled_by IS NOT NULL",
}


def listed_flags(
    scope: FlaggedFor,
    whose: str | None,
    most: int,
    after: tuple[str, str] | None = None,
    tool: str | None = None,
) -> Transaction[list[FlagRow]]:
    """The flags of tenants, of personas or for everybody, by whose they are and by tool: of one tenant or persona, or of
    all (None); from the start, or after one; of one tool, or of all."""
    chosen, values = ["TRUE"], {"most": most, "whose": whose, "tool": tool}
    chosen += ["whose = :whose"] if whose is not None else []
    chosen += ["tool = :tool"] if tool is not None else []
    if after is not None:
        chosen.append("(whose > :after_whose OR (whose = :after_whose AND tool > :after_tool))")
        values["after_whose"], values["after_tool"] = after
    where = f"WHERE {' AND '.join(chosen)} ORDER BY whose, tool LIMIT :most"
    return select(FlagRow, f"({_FLAGS[scope]}) AS flags", where, values)


def set_persona_restriction(persona: str, tool: str, allowed: bool, reason: str | None) -> Transaction[None]:
    row = {"persona_id": persona, "tool_name": tool, "allowed": allowed, "reason": reason, "updated_at": now()}
    yield upsert("persona_tool_restrictions", row, ("persona_id", "tool_name"))
    yield from changed()


def set_can_add_tools(persona: str, allowed: bool) -> Transaction[None]:
    row = {"persona_id": persona, "can_add_tools": allowed, "updated_at": now()}
    yield upsert("persona_permissions", row, ("persona_id",))
    yield from changed()


def set_member(policy_list: PolicyList, member: str, listed: bool, reason: str | None) -> Transaction[None]:
    """Puts something on one of the policy's lists, or takes it off."""
    key = {"list": policy_list, "member": member}
    if listed:
        yield upsert("policy_lists", {**key, "reason": reason, "updated_at": now()}, ("list", "member"))
    else:
        yield "DELETE FROM policy_lists WHERE list = :list AND member = :member", key
    yield from changed()


def set_allow_list(tenant: str, document: dict[str, Any] | None) -> Transaction[None]:
    """Gives a tenant an allow list; None: takes it away."""
    if document is None:
        yield "DELETE FROM tenant_allow_lists WHERE tenant_id = :tenant", {"tenant": tenant}
    else:
        row = {"tenant_id": tenant, "document": orjson.dumps(document).decode(), "updated_at": now()}
        yield upsert("tenant_allow_lists", row, ("tenant_id",))
    yield from changed()


def add_dynamic(row: DynamicRow, limits: RegistrationLimits | None = None, *, replace: bool = False) -> Transaction[None]:
    """Puts a tool that was registered at run time on record. Raises RegistrationRefused if its tenant has the name and it is
    not to be replaced, or has registered too many. The first statement locks: two processes do this one after the other."""
    yield from changed()
    tenant, at = row.registered_by_tenant, now()
    key = {"tenant": tenant, "name": row.name}
    is_there = yield from is_any("SELECT 1 FROM dynamic_tools WHERE registered_by_tenant = :tenant AND name = :name", key)
    if is_there and not replace:
        raise RegistrationRefused("taken")
    if limits is not None:
        yield from _check_limits(tenant, limits, at, is_new=not is_there)
    yield insert("tool_registrations", {"tenant_id": tenant, "created_at": at})
    values = {**row._asdict(), "created_at": at, "updated_at": at}
    kept = ("name", "registered_by_tenant", "created_at")
    yield upsert("dynamic_tools", values, ("registered_by_tenant", "name"), [name for name in values if name not in kept])


def _check_limits(tenant: str, limits: RegistrationLimits, at: datetime, *, is_new: bool) -> Transaction[None]:
    since = {"tenant": tenant, "since": at - REGISTRATION_WINDOW}
    yield "DELETE FROM tool_registrations WHERE tenant_id = :tenant AND created_at < :since", since
    made = yield from value("SELECT count(*) FROM tool_registrations WHERE tenant_id = :tenant", {"tenant": tenant})
    if int(made) >= limits.per_hour:
        raise RegistrationRefused("per_hour")
    held = yield from value("SELECT count(*) FROM dynamic_tools WHERE registered_by_tenant = :tenant", {"tenant": tenant})
    if is_new and int(held) >= limits.tools:
        raise RegistrationRefused("tools")


def remove_dynamic(name: str, tenant: str) -> Transaction[None]:
    yield "DELETE FROM dynamic_tools WHERE name = :name AND registered_by_tenant = :tenant", {"name": name, "tenant": tenant}
    yield from changed()


def dynamic_tool(name: str, tenant: str) -> Transaction[DynamicRow | None]:
    where = "WHERE name = :name AND registered_by_tenant = :tenant"
    return select_one(DynamicRow, "dynamic_tools", where, {"name": name, "tenant": tenant})


def dynamic_tools() -> Transaction[list[DynamicRow]]:
    return select(DynamicRow, "dynamic_tools", "ORDER BY id")
