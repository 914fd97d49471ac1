"""Budgets, and what was used: budgets, and the view tool_usage of the audit log. `spending` keeps what is spent of them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import orjson

from toolgate.store.catalog import changed
from toolgate.store.database import Transaction, now
from toolgate.store.reservations import MAX_ACCOUNT_NANO, AccountBalance
from toolgate.store.sql import made, select, upsert

Period = Literal["day", "month"]
By = Literal["tool", "user", "persona", "tenant", "day"]
UsageBy = Literal["day", "tool", "user"]

EACH = "*"
"""In a budget: whichever there are, each on its own."""
BUCKET = 15 * 60 * 1_000_000
"""Microseconds in a quarter of an hour: every time zone's midnight is at the beginning of one."""
_GROUPS: dict[By, tuple[str, str]] = {
    "tool": ("NULL", "tool_name"),
    "user": ("tenant_id", "user_id"),
    "persona": ("NULL", "persona_id"),
    "tenant": ("NULL", "tenant_id"),
    "day": ("NULL", f"at / {BUCKET}"),
}


class BudgetRow(NamedTuple):
    """A cap on what may be spent. Of tenant, persona, user and tool, None is whichever, all together; `*` is whichever, each
    on its own; anything else is that one."""

    id: str
    tenant: str | None
    persona: str | None
    user: str | None
    tool: str | None
    period: Period
    cap: int
    """Nano-dollars."""
    timezone: str
    until: datetime | None = None
    updated_by: str = "local"
    tier: str | None = None
    """Only calls of this tier count: of the budgets that are built in, which are in no table."""


class CostLine(NamedTuple):
    """The cost of some calls together."""

    name: str | None
    """The tool, user, persona or tenant; or the first quarter of an hour since 1970 of what is summed."""
    tenant: str | None
    calls: int
    nano: int


class UsageLine(NamedTuple):
    """Calls that ended, counted together."""

    name: str | None
    """The tool or user; or the first quarter of an hour since 1970 of what is counted."""
    tenant: str | None
    calls: int
    successes: int
    failures: int
    """Calls that failed or took too long."""
    denied: int
    nano: int
    tokens: int


# -- the budgets


_COLUMNS = "id, tenant_id, persona_id, user_id, tool_name, period, cap, timezone, until, updated_by"


def list_budgets() -> Transaction[list[BudgetRow]]:
    rows = yield (
        f"SELECT {_COLUMNS} FROM budgets ORDER BY tenant_id, persona_id, user_id, tool_name, period",
        {},
    )
    return [made(BudgetRow, (*row, None)) for row in rows]


def get_budget(id: str) -> Transaction[BudgetRow | None]:
    rows = yield f"SELECT {_COLUMNS} FROM budgets WHERE id = :id", {"id": id}
    return made(BudgetRow, (*rows[0], None)) if rows else None


class SpentBefore(NamedTuple):
    """Spending in a budget's period before the budget was set."""

    starts: str
    """The first day of the period."""
    since: datetime
    """The instant of its beginning."""
    accounts: dict[str, int]
    """Nano-dollars, by account."""
    up_to: int
    """The last row of the log that is counted in them."""


def spent_already(row: BudgetRow, starts: str, since: datetime, after: int = 0) -> Transaction[SpentBefore]:
    """Sums what calls under a budget cost since its period began, by account, from the log. It may take long."""
    end = yield "SELECT coalesce(max(seq), 0) FROM audit_log", {}
    fields = {"tenant_id": row.tenant, "persona_id": row.persona, "user_id": row.user, "tool_name": row.tool}
    named = {name: value for name, value in fields.items() if value not in (None, EACH)}
    each = [name for name, value in fields.items() if value == EACH]
    where = "".join(f" AND {name} = :{name}" for name in named)
    columns = "".join(f", {name}" for name in each)
    rows = yield (
        f"SELECT SUM(nano){columns} FROM call_costs WHERE seq > :after AND seq <= :last AND at >= :since{where} "
        f"{f'GROUP BY {columns[2:]}' if each else ''}",
        {**named, "after": after, "last": int(end[0][0]), "since": int(since.timestamp() * 1_000_000)},
    )
    accounts = {account_name(row.id, whose): int(nano) for nano, *whose in rows if nano}
    return SpentBefore(starts, since, accounts, int(end[0][0]))


def _count_already(row: BudgetRow, already: SpentBefore) -> Transaction[None]:
    """Begins the accounts of a new budget with what was spent before it, and since that was looked up."""
    since = yield from spent_already(row, already.starts, already.since, already.up_to)
    for account in already.accounts.keys() | since.accounts.keys():
        spent = already.accounts.get(account, 0) + since.accounts.get(account, 0)
        held = {"account": account, "starts": already.starts, "spent": min(spent, MAX_ACCOUNT_NANO)}
        yield upsert("spending", held, ("account", "starts"))


def set_budget(row: BudgetRow, already: SpentBefore | None = None) -> Transaction[None]:
    """Sets a budget, or changes the one of the same id. With a new cap, its thresholds are announced anew. A new one begins
    with what was spent already."""
    before = yield "SELECT cap FROM budgets WHERE id = :id", {"id": row.id}
    whose = {"tenant_id": row.tenant, "persona_id": row.persona, "user_id": row.user, "tool_name": row.tool}
    terms = {"cap": row.cap, "timezone": row.timezone, "until": row.until, "updated_by": row.updated_by, "updated_at": now()}
    yield upsert("budgets", {"id": row.id, **whose, "period": row.period, **terms}, ("id",), terms)
    if not before and already is not None:
        yield from _count_already(row, already)
    if before and int(before[0][0]) != row.cap:
        yield "UPDATE spending SET alerted = 0 WHERE account LIKE :accounts", {"accounts": _accounts_of(row.id)}
    yield from changed()


def remove_budget(id: str) -> Transaction[bool]:
    """Removes a budget and forgets what was spent under it; gives whether it was there. What calls have reserved stays until
    they are settled."""
    removed = yield "DELETE FROM budgets WHERE id = :id RETURNING id", {"id": id}
    if removed:
        accounts = {"accounts": _accounts_of(id)}
        yield "UPDATE spending SET spent = 0, alerted = 0 WHERE account LIKE :accounts", accounts
        yield "DELETE FROM spending WHERE account LIKE :accounts AND reserved = 0", accounts
        yield from changed()
    return bool(removed)


def account_name(budget: str, whose: Sequence[str | None]) -> str:
    """The name of a budget's account: JSON of its id and of each value that it counts separately."""
    return orjson.dumps([budget, *whose]).decode()


def whose(account: str) -> tuple[str, list[str | None]]:
    """The budget of an account, and the values that it stands for."""
    budget, *values = orjson.loads(account)
    return budget, values


def _accounts_of(budget: str) -> str:
    """A pattern that the names of all accounts of a budget fit; ids are made of letters, digits and `_`, of which the last
    fits itself."""
    return f'["{budget}"%'


# -- reading


def holdings_of(budgets: Iterable[tuple[str, str]]) -> Transaction[list[AccountBalance]]:
    """The balances of all accounts of budgets: (budget, first day of the period)."""
    found: dict[str, AccountBalance] = {}
    for budget, starts in budgets:
        rows = yield from select(
            AccountBalance,
            "spending",
            "WHERE account LIKE :accounts AND starts >= :starts ORDER BY account, starts",
            {"accounts": _accounts_of(budget), "starts": starts},
        )
        found.update({row.account: row for row in rows})
    return list(found.values())


def usage(by: By, since: datetime, tenant: str | None = None) -> Transaction[list[CostLine]]:
    """Counts the calls that ran since then, and what they cost."""
    whose, name = _GROUPS[by]
    where = "at >= :since" if tenant is None else "at >= :since AND tenant_id = :tenant"
    rows = yield (
        f"SELECT {whose} AS whose, {name} AS name, "
        "SUM(CASE WHEN feature_code = 'tool_invocations' THEN quantity ELSE 0 END), "
        "SUM(CASE WHEN feature_code = 'tool_cost' THEN quantity ELSE 0 END) "
        f"FROM tool_usage WHERE {where} GROUP BY whose, name",
        {"since": int(since.timestamp() * 1_000_000), "tenant": tenant},
    )
    return [CostLine(None if row[1] is None else str(row[1]), row[0], int(row[2]), int(row[3])) for row in rows]


def calls_ended(
    by: UsageBy, since: datetime, tenant: str | None = None, user: str | None = None
) -> Transaction[list[UsageLine]]:
    """Counts the calls that ended since then, and how: of a tenant, and of a user of it, or of all."""
    whose, name = _GROUPS[by]
    chosen = ["at >= :since"]
    chosen += ["tenant_id = :tenant"] if tenant is not None else []
    chosen += ["user_id = :user"] if user is not None else []
    counts = ", ".join(
        f"SUM(CASE WHEN status IN ({states}) THEN 1 ELSE 0 END)"
        for states in ("'success'", "'failure', 'timeout'", "'denied'")
    )
    rows = yield (
        f"SELECT {name} AS name, {whose} AS whose, COUNT(*), {counts}, SUM(nano), SUM(tokens) FROM call_usage "
        f"WHERE {' AND '.join(chosen)} GROUP BY whose, name",
        {"since": int(since.timestamp() * 1_000_000), "tenant": tenant, "user": user},
    )
    return [UsageLine(None if row[0] is None else str(row[0]), row[1], *(int(count) for count in row[2:])) for row in rows]
