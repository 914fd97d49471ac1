"""Reads the record for `app.policy.suggest`: the counts of calls for who used what, and the newest calls for arguments.

The counts answer however long the log is. Arguments stand in the log alone, so no more than `MAX_READ_CALLS` of it are read,
page by page.
"""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import orjson

from toolgate.app.facets import check_named
from toolgate.errors import InvalidInput
from toolgate.gates.policy.documents import Documents
from toolgate.gates.policy.suggestion import (
    ArgumentRecord,
    Persona,
    PersonaUse,
    PolicySuggestion,
    Scalar,
    StoppedTool,
    ToolUse,
    UnusedTool,
    suggested_list,
    with_argument_rules,
)
from toolgate.model import Actor, can_name_actor
from toolgate.store import call_counts, call_statistics
from toolgate.store.call_counts import ToolUseCount
from toolgate.store.call_statistics import DAY
from toolgate.store.database import Rows, Transaction, now

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

MAX_DAYS = 366
MAX_READ_CALLS = 20_000
READ_PAGE = 2_000
MAX_UNUSED = 1_000
"""Unused tools of a persona that are listed."""
Only = Persona | Literal[False]


async def suggest(parts: "Parts", tenant: str | None, persona: str | None, days: int) -> PolicySuggestion:
    """The suggestion from the calls of the last days. An empty persona: that of callers without one."""
    if not 1 <= days <= MAX_DAYS:
        raise InvalidInput(f"The number of days must be from 1 to {MAX_DAYS}.")
    check_named(tenant=tenant, persona=persona or None)
    await parts.store.flush()
    await call_statistics.count_rows(parts.store)
    until = now()
    begin = int((until - timedelta(days=days)).timestamp()) // DAY * DAY
    only: Only = False if persona is None else persona or None
    tenants = [tenant] if tenant is not None else await _tenants(parts)
    arguments = await _arguments(parts, tenants, begin)
    personas: list[PersonaUse] = []
    lists: Documents = {}
    for name in tenants:
        counted = await parts.store.read(call_counts.tool_use(name, begin))
        found = [one async for one in _uses(parts, name, only, counted, arguments)]
        used = {one.persona: [use.tool for use in one.used] for one in found}
        in_force = parts.policy.data.allow_lists.get(name)
        lists[name] = suggested_list(used, enforced=parts.policy.data.enforced, only=only, in_force=in_force).document()
        personas += found
    return PolicySuggestion(
        datetime.fromtimestamp(begin, UTC), until, personas, {"tenant_tool_allow": lists}, _rego(parts, personas),
        sum(use.calls for one in personas for use in one.used), arguments.calls,
    )  # fmt: skip


async def _tenants(parts: "Parts") -> list[str]:
    return sorted(filter(can_name_actor, {*await parts.store.read(call_counts.tenants()), *parts.policy.data.allow_lists}))


async def _uses(
    parts: "Parts", tenant: str, only: Only, counted: list[ToolUseCount], arguments: ArgumentRecord
) -> AsyncIterator[PersonaUse]:
    """The use of each persona that made calls or that the data names, and of callers without one."""
    by_persona: dict[Persona, list[ToolUseCount]] = {None: [], **{name: [] for name in _named(parts, tenant)}}
    for one in counted:
        if not one.persona or can_name_actor(one.persona):  # the log keeps names that were possible once
            by_persona.setdefault(one.persona or None, []).append(one)
    if only is not False:
        by_persona = {only: by_persona.get(only, [])}
    for persona in sorted(by_persona, key=lambda name: (name is None, name or "")):
        rows = by_persona[persona]
        used = [ToolUse(one.tool, one.used, _day(one.last)) for one in rows if one.used and one.last is not None]
        used.sort(key=lambda use: (-use.calls, use.tool))
        listed = parts.policy.data.listed(tenant, persona)
        removed = [] if listed is None else [use for use in used if use.tool not in listed]
        used = [use for use in used if use not in removed]
        names, last = {use.tool for use in used}, {one.tool: one.last for one in rows}
        unused = sorted(set(await _permitted(parts, tenant, persona)) - names)
        yield PersonaUse(
            tenant, persona, used,
            [UnusedTool(tool, None if (at := last.get(tool)) is None else _day(at)) for tool in unused[:MAX_UNUSED]],
            len(unused),
            sorted((StoppedTool(one.tool, one.stopped) for one in rows if one.stopped and not one.used),
                   key=lambda one: (-one.calls, one.tool)),
            removed,
            arguments.rules(tenant, persona, sorted(names)),
        )  # fmt: skip


def _named(parts: "Parts", tenant: str) -> Iterable[str]:
    data = parts.policy.data
    listed = data.allow_lists.get(tenant)
    names = {*data.personas, *data.can_add_tools, *(() if listed is None else listed.personas)}
    return filter(can_name_actor, names)  # a file of data may name whom it likes


async def _permitted(parts: "Parts", tenant: str, persona: Persona) -> list[str]:
    """The tools that a caller may see, with second names: a policy is asked about the name that is called."""
    actor = Actor(tenant, persona)
    enabled = [tool.name for tool in parts.catalog.permitted(actor)]
    return enabled if parts.guard.native else await parts.guard.permitted(actor, enabled)


def _day(seconds: int) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


def _rego(parts: "Parts", personas: list[PersonaUse]) -> str | None:
    """Rules on arguments go below the shipped policy: another has no place for them."""
    from toolgate.gates.policy.embedded_rego import default_policy

    return with_argument_rules(default_policy(), personas) if parts.guard.native else None


# -- arguments


async def _arguments(parts: "Parts", tenants: list[str], begin: int) -> ArgumentRecord:
    redactor = parts.redactor

    def is_secret(name: str, value: Scalar) -> bool:
        return bool(redactor.mask({name: value}) != {name: value})

    record = ArgumentRecord(is_secret)
    for tenant in tenants:
        before, left = None, MAX_READ_CALLS // len(tenants)
        while left > 0 and (rows := await parts.store.read(_page(tenant, begin, before, min(left, READ_PAGE)))):
            for _, tool, text in rows:
                try:
                    record.add(tenant, tool, orjson.loads(text))
                except orjson.JSONDecodeError:  # somebody changed it: `verify` tells
                    continue
            before, left = rows[-1][0], left - len(rows)
    return record


def _page(tenant: str, begin: int, before: int | None, most: int) -> Transaction[Rows]:
    """Calls that started, the newest first."""
    place = "" if before is None else " AND seq < :before"
    return (
        yield (
            "SELECT seq, tool, body FROM audit_log WHERE tenant = :tenant AND kind = 'start' AND at >= :begin"
            f"{place} ORDER BY seq DESC LIMIT :most",
            {"tenant": tenant, "begin": begin * 1_000_000, "before": before, "most": most},
        )
    )
