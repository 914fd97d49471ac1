"""The accounts of budgets: those that a call is counted in, for whom and in which period, and how they stand."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import orjson

from toolgate.gates.quota.money import MAX_NANO_DOLLARS
from toolgate.model import LOCAL, NANO, Actor, Entry
from toolgate.pipeline.usage import dollars
from toolgate.store.budgets import EACH as EACH
from toolgate.store.budgets import (
    BudgetRow,
    By,
    CostLine,
    Period,
    UsageBy,
    UsageLine,
    account_name,
    whose,
)
from toolgate.store.call_counts import CallCount, CountFilter, counts, whole_hours
from toolgate.store.call_statistics import DAY, HOUR, count_rows
from toolgate.store.database import Store, now
from toolgate.store.reservations import Account

SCOPE_FIELDS = ("tenant", "persona", "user", "tool")
ADJECTIVE: dict[Period, str] = {"day": "daily", "month": "monthly"}
EXTERNAL = "external_api_daily"


def new_budget(
    period: Period,
    cap: int,
    *,
    tenant: str | None = None,
    persona: str | None = None,
    user: str | None = None,
    tool: str | None = None,
    timezone: str = "UTC",
    until: datetime | None = None,
    by: str = LOCAL.user,
) -> BudgetRow:
    """A budget of `cap` nano-dollars a period. A user is a user of a tenant: without one, of the tenant `default`. Raises
    ValueError. The same scope and period give the same id, so that setting a budget again changes it."""
    if user is not None and tenant is None:
        tenant = EACH if user == EACH else LOCAL.tenant
    for field, value in zip(SCOPE_FIELDS, (tenant, persona, user, tool), strict=True):
        if value is not None and not (0 < len(value) <= 256 and value.isprintable()):
            raise ValueError(f"the {field} must be 1 to 256 printable characters")
    if period not in get_args(Period):
        raise ValueError(f"a budget is for a day or a month, not for a {period!r:.40}")
    if not 0 <= cap <= MAX_NANO_DOLLARS:
        raise ValueError(f"a budget is between $0 and {dollars(MAX_NANO_DOLLARS)}")
    zone(timezone)
    if until is not None and until <= now():
        raise ValueError("a budget cannot end in the past")
    key = sha256(orjson.dumps([tenant, persona, user, tool, period])).hexdigest()[:16]
    return BudgetRow(key, tenant, persona, user, tool, period, cap, timezone, until, by)


def built_in(cap: int, timezone: str) -> BudgetRow:
    """The cap that holds without anybody having set one: each user's, a day, on tools of tier external_api."""
    return BudgetRow(EXTERNAL, EACH, None, EACH, None, "day", cap, timezone, tier="external_api")


# -- periods


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r:.80}; write it as UTC or Europe/Berlin") from None


def period_of(budget: BudgetRow, at: datetime) -> str:
    """The first day of the budget's period at a moment, where the budget is."""
    today = at.astimezone(zone(budget.timezone)).date()
    return (today.replace(day=1) if budget.period == "month" else today).isoformat()


def period_begin(budget: BudgetRow, starts: str) -> datetime:
    """The moment at which the period begins that starts on that day."""
    first = date.fromisoformat(starts)
    return datetime(first.year, first.month, first.day, tzinfo=zone(budget.timezone)).astimezone(UTC)


def period_after(budget: BudgetRow, starts: str) -> datetime:
    """The moment at which the period ends that starts on that day. A midnight that a change to summer time leaves out is
    the moment of the change."""
    first = date.fromisoformat(starts)
    following = first + timedelta(days=1 if budget.period == "day" else 31)
    if budget.period == "month":
        following = following.replace(day=1)
    return datetime(following.year, following.month, following.day, tzinfo=zone(budget.timezone)).astimezone(UTC)


# -- who falls under what


class CountedBudget(NamedTuple):
    """A budget that a call falls under, and the account in which it counts it."""

    budget: BudgetRow
    account: Account


class BudgetBook:
    """The budgets in force, found by tenant: of thousands of tenants' budgets a call sees only its own."""

    def __init__(self, budgets: Iterable[BudgetRow]) -> None:
        self.budgets = {budget.id: budget for budget in budgets}
        self._of_tenant: dict[str, list[BudgetRow]] = {}
        self._of_all: list[BudgetRow] = []
        for budget in self.budgets.values():
            if budget.tenant in (None, EACH):
                self._of_all.append(budget)
            else:
                self._of_tenant.setdefault(str(budget.tenant), []).append(budget)

    def counted(self, actor: Actor, entry: Entry, at: datetime) -> list[CountedBudget]:
        """The budgets that a call falls under now."""
        values = (actor.tenant, actor.persona, actor.user, entry.name)
        return [
            CountedBudget(budget, Account(_account(budget, values), period_of(budget, at), budget.cap))
            for budget in (*self._of_all, *self._of_tenant.get(actor.tenant, ()))
            if _covers(budget, values, entry.tier) and is_in_force(budget, at)
        ]


def is_in_force(budget: BudgetRow, at: datetime) -> bool:
    return budget.until is None or at < budget.until


def _covers(budget: BudgetRow, values: tuple[str | None, ...], tier: str) -> bool:
    if budget.tier is not None and budget.tier != tier:
        return False
    wanted = (budget.tenant, budget.persona, budget.user, budget.tool)
    return all(want is None or want in (EACH, value) for want, value in zip(wanted, values, strict=True))


def _account(budget: BudgetRow, values: tuple[str | None, ...]) -> str:
    wanted = (budget.tenant, budget.persona, budget.user, budget.tool)
    return account_name(budget.id, [value for want, value in zip(wanted, values, strict=True) if want == EACH])


def scope_of(budget: BudgetRow, account: str | None = None) -> dict[str, str | None]:
    """For whom a budget counts, or one account of it."""
    scope = {field: getattr(budget, field) for field in SCOPE_FIELDS}
    if account is not None:
        separate = (field for field, value in scope.items() if value == EACH)
        scope |= dict(zip(list(separate), whose(account)[1], strict=True))
    return scope


def described(budget: BudgetRow, scope: dict[str, str | None]) -> str:
    """In words, as in: the daily budget of tenant acme, user ann."""
    named = [(field, value) for field, value in scope.items() if value is not None]
    parts = [f"every {field}" if value == EACH else f"{field} {value}" for field, value in named]
    tier = [f"tier {budget.tier}"] if budget.tier is not None else []
    return f"the {ADJECTIVE[budget.period]} budget of {', '.join([*parts, *tier]) or 'everybody'}"


# -- for people who look, taking nothing


class Look(NamedTuple):
    """The answer of one budget to a call."""

    budget: str
    passes: bool
    reason: str


class BudgetStatus(msgspec.Struct, frozen=True):
    """The balance of a budget, for one of those whom it counts separately."""

    budget: BudgetRow
    scope: dict[str, str | None]
    spent: int
    reserved: int
    resets_at: datetime

    @property
    def left(self) -> int:
        return max(self.budget.cap - self.spent - self.reserved, 0)

    def to_dict(self) -> dict[str, Any]:
        budget = self.budget
        return {
            "id": budget.id,
            **self.scope,
            "tier": budget.tier,
            "period": budget.period,
            "limit_usd": budget.cap / NANO,
            "spent_usd": self.spent / NANO,
            "reserved_usd": self.reserved / NANO,
            "left_usd": self.left / NANO,
            "timezone": budget.timezone,
            "resets_at": self.resets_at.isoformat(),
            "until": None if budget.until is None else budget.until.isoformat(),
        }


def counted_since(since: datetime, *, is_daily: bool = False) -> datetime:
    """The beginning of the hour, or of the day in UTC, from which on calls are counted that are asked for since a moment."""
    span = DAY if is_daily else HOUR
    return datetime.fromtimestamp(int(since.timestamp()) // span * span, UTC)


async def usage(
    store: Store, zone: tzinfo, by: UsageBy, since: datetime, tenant: str | None, user: str | None, most: int | None
) -> list[UsageLine]:
    """The calls that ended since the hour of then: the most calls first, or day by day as the zone counts days. An
    hour belongs to the day in which it begins. Of a user, days are those of UTC."""
    found = await _counts(store, zone, by, since, CountFilter(tenant=tenant, user=user), most, statuses=True)
    lines: dict[tuple[str | None, str | None], UsageLine] = {}
    for owner, name, one in found:
        before = lines.get((owner, name), UsageLine(name, owner, 0, 0, 0, 0, 0, 0))
        lines[owner, name] = _with(before, one)
    order = (lambda line: line.name) if by == "day" else (lambda line: (-line.calls, line.tenant or "", line.name or ""))
    return sorted(lines.values(), key=order)


def _with(line: UsageLine, more: CallCount) -> UsageLine:
    kinds = (more.status == "success", more.status in ("failure", "timeout"), more.status == "denied")
    added = (more.calls, *(more.calls if is_kind else 0 for is_kind in kinds), more.nano, more.tokens)
    return UsageLine(line.name, line.tenant, *(one + extra for one, extra in zip(line[2:], added, strict=True)))


async def costs(store: Store, zone: tzinfo, by: By, since: datetime, tenant: str | None, most: int | None) -> list[CostLine]:
    """The calls that ran since the hour of then, and their cost: the most expensive first, or day by day as the zone counts
    days. Those of users are counted from the beginning of a day in UTC on."""
    lines: dict[tuple[str | None, str | None], CostLine] = {}
    for owner, name, one in await _counts(store, zone, by, since, CountFilter(tenant=tenant), most, statuses=False):
        if one.ran or one.nano:
            before = lines.get((owner, name), CostLine(name, owner, 0, 0))
            lines[owner, name] = CostLine(name, owner, before.calls + one.ran, before.nano + one.nano)
    if by == "day":
        return sorted(lines.values(), key=lambda line: line.name or "")
    return sorted(lines.values(), key=lambda line: (-line.nano, -line.calls, line.tenant or "", line.name or ""))


async def _counts(
    store: Store, zone: tzinfo, by: By, since: datetime, wanted: CountFilter, most: int | None, *, statuses: bool
) -> list[tuple[str | None, str | None, CallCount]]:
    """Counts of calls, each with the tenant of its user and the name of its line. Of rows of the log that are not counted
    yet, at most so many are counted first, or all."""
    if most != 0:
        await store.flush()
        await count_rows(store, most)
    is_daily = wanted.user is not None or by == "user"  # of a user, calls are counted by day
    begin, end = int(counted_since(since, is_daily=is_daily).timestamp()), whole_hours(since, now())[1]
    if is_daily:
        end = -(-end // DAY) * DAY
    if by == "day":
        days = UTC if is_daily else zone
        step = DAY if begin % DAY == 0 and str(days) == "UTC" else HOUR
        found = await store.read(counts(wanted, begin, end, by=None, step=step, statuses=statuses))
        return [(None, _day_at(begin + one.point * step, days), one) for one in found]
    found = await store.read(counts(wanted, begin, end, by=None if by == "tenant" else by, statuses=statuses))
    if by == "tenant":
        return [(None, one.tenant, one) for one in found]
    return [(one.tenant if by == "user" else None, one.name or None, one) for one in found]


def _day_at(seconds: int, zone: tzinfo) -> str:
    return datetime.fromtimestamp(seconds, zone).date().isoformat()
