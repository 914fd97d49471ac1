"""Budgets, and what was used: budgets, and the counts of calls. `spending` keeps what is spent of budgets."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import orjson

from toolgate.store.call_counts import CountFilter, counts
from toolgate.store.catalog import changed
from toolgate.store.database import Transaction, now
from toolgate.store.reservations import MAX_ACCOUNT_NANO, AccountBalance
from toolgate.store.sql import made, select, upsert

Period = Literal["day", "month"]
By = Literal["tool", "user", "persona", "tenant", "day"]
UsageBy = Literal["day", "tool", "user"]

EACH = "*"
"""In a budget: whichever there are, each on its own."""


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
    """The tool, user, persona, tenant or day."""
    tenant: str | None
    calls: int
    nano: int


class UsageLine(NamedTuple):
    """Calls that ended, counted together."""

    name: str | None
    """The tool, user or day."""
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


BUDGETS_A_QUERY = 200
"""Conditions on budgets that one query takes: SQLite nests at most a thousand."""


def holdings_of(budgets: Sequence[tuple[str, str]]) -> Transaction[list[AccountBalance]]:
    """The balances of all accounts of budgets: (budget, first day of the period)."""
    found: dict[str, AccountBalance] = {}
    for begin in range(0, len(budgets), BUDGETS_A_QUERY):
        some = budgets[begin : begin + BUDGETS_A_QUERY]
        chosen = " OR ".join(f"(account LIKE :account{at} AND starts >= :starts{at})" for at in range(len(some)))
        given = {f"account{at}": _accounts_of(budget) for at, (budget, _) in enumerate(some)}
        given |= {f"starts{at}": starts for at, (_, starts) in enumerate(some)}
        rows = yield from select(AccountBalance, "spending", f"WHERE {chosen} ORDER BY account, starts", given)
        found.update({row.account: row for row in rows})
    return list(found.values())


def usage_of_tenants(tenants: Iterable[str], since: int, until: int) -> Transaction[list[CostLine]]:
    """Counts the calls that ran from one day to another (seconds since 1970), by tenant and persona: a line has its name."""
    lines: list[CostLine] = []
    for tenant in tenants:
        found = yield from counts(CountFilter(tenant=tenant), since, until, by="persona", statuses=False)
        lines += [CostLine(one.name or None, tenant, one.ran, one.nano) for one in found if one.ran or one.nano]
    return lines
