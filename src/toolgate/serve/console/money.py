"""/money: what calls have cost, by tool, user, persona, tenant and day."""

import asyncio
from datetime import UTC, datetime, timedelta

from toolgate.serve.console.page import PageRequest, Pages, View
from toolgate.serve.console.series import Plot, named_plot
from toolgate.serve.http.costs import CostsQuery, CostView, UsageQuery, get_costs, get_usage
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.reach import Instant
from toolgate.serve.http.statistics import StatisticsQuery, get_statistics
from toolgate.store.budgets import By
from toolgate.store.database import now

pages = Pages("money")

RANGES = ((1, "Today"), (7, "7 days"), (30, "30 days"), (90, "90 days"))
OWN_GROUPS: tuple[tuple[By, str], ...] = (("tool", "Tool"), ("day", "Day"))
GROUPS: tuple[tuple[By, str], ...] = (*OWN_GROUPS, ("user", "User"), ("persona", "Persona"))
SHOWN_LINES, MOST_LINES = 200, 10_000
DAY, MAX_DAYS = 86_400, 365
DEFAULT_DAYS = 30


class MoneyQuery(ApiModel, frozen=True):
    """The calls whose cost is shown."""

    by: By = "tool"
    since: Instant | None = None
    """Without it: the last thirty days."""


@pages.get("/money", permission="own", twin="/v1/costs")
async def money(request: PageRequest, query: MoneyQuery) -> View:
    """Spend in a range of days: each day by tool, and in sum by what was chosen. Who sees only their own, sees that."""
    today = now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = query.since or _first_day(today, DEFAULT_DAYS)
    groups = _groups(request)
    by: By = query.by if query.by in dict(groups) else "tool"
    (lines, omitted), plot = await asyncio.gather(_lines(request, by, since), _per_day(request, since, until=now()))
    spent = sum(line.cost_usd for line in lines)
    values = {
        "lines": lines, "omitted": omitted, "spent": spent, "calls": sum(line.calls for line in lines),
        "by": by, "since": since,
        "ranges": [(words, _first_day(today, days)) for days, words in RANGES], "groups": groups, "today": today,
        "plot": plot,
    }  # fmt: skip
    return View(template="money.html", title="Spend", values=values, listed=lines)


def _first_day(today: datetime, days: int) -> datetime:
    return today - timedelta(days=days - 1)


def _groups(request: PageRequest) -> tuple[tuple[By, str], ...]:
    if not request.all_users:
        return OWN_GROUPS
    return (*GROUPS, ("tenant", "Tenant")) if request.all_tenants else GROUPS


async def _lines(request: PageRequest, by: By, since: datetime) -> tuple[list[CostView], int]:
    """The lines of the table, and how many are left out: as the twin has them; for those who see only their own, which the
    twin does not answer, their calls that ended."""
    if request.all_users:
        costs = await get_costs(request, CostsQuery(by=by, since=since, limit=SHOWN_LINES))
        return costs.lines, costs.omitted
    usage = await get_usage(request, UsageQuery(by="day" if by == "day" else "tool", since=since, limit=MOST_LINES))
    lines = [CostView(name=one.name, tenant=one.tenant, calls=one.calls, cost_usd=one.cost_usd) for one in usage.lines]
    if by != "day":
        lines.sort(key=lambda line: -line.cost_usd)
    return lines[:SHOWN_LINES], usage.omitted + max(0, len(lines) - SHOWN_LINES)


def _step(since: datetime) -> int:
    """Whole days, so few that a plot can show them."""
    return max(1, -(-(now() - since).days // MAX_DAYS)) * DAY


async def _per_day(request: PageRequest, since: datetime, until: datetime) -> Plot:
    by_day = not request.all_users or until - since > timedelta(days=1)  # calls of a user are counted by day
    step = _step(since) if by_day else None
    found = await get_statistics(request, StatisticsQuery(by="tool", since=since, until=until, step=step))
    return named_plot(found, "cost_usd")
