"""/v1/costs and /v1/usage: what calls have cost, and how many there were."""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from toolgate.gates.quota.budget_accounts import counted_since
from toolgate.model import NANO
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.reach import Instant, Name, tenant_of, user_of
from toolgate.serve.http.statistics import caught_up
from toolgate.store.budgets import By, UsageBy
from toolgate.store.database import now

resource = Resource("costs")

DEFAULT_DAYS = timedelta(days=30)
Lines = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class CostView(ApiView, frozen=True):
    """The cost of some calls together."""

    name: str | None
    """The tool, user, persona, tenant or day; null: calls without one."""
    tenant: str | None
    """The tenant of a user."""
    calls: int
    cost_usd: float


class CostReport(ApiView, frozen=True):
    """The costs of calls that ran."""

    by: By
    since: datetime
    """The beginning of the first hour that is counted; by user, of the first day in UTC."""
    calls: int
    """That ran."""
    cost_usd: float
    lines: list[CostView]
    """The most expensive first; days in their order."""
    omitted: int
    """Lines that are left out, beyond `limit`."""
    up_to: datetime | None
    """The time of the last record that is counted; null: none is."""
    behind: int
    """Records that are not counted yet. 0: these figures are complete."""


class UsageView(ApiView, frozen=True):
    """Calls that ended, counted together."""

    name: str | None
    """The day, tool or user."""
    tenant: str | None
    """The tenant of a user."""
    calls: int
    successes: int
    failures: int
    """Calls that failed or took too long."""
    denied: int
    cost_usd: float
    tokens: int


class UsageSummary(ApiView, frozen=True):
    """The calls that ended, with whatever end."""

    by: UsageBy
    since: datetime
    """The beginning of the first hour that is counted; by user or of one, of the first day in UTC."""
    lines: list[UsageView]
    """The most calls first; days in their order."""
    omitted: int
    """Lines that are left out, beyond `limit`."""
    up_to: datetime | None
    """The time of the last record that is counted; null: none is."""
    behind: int
    """Records that are not counted yet. 0: these figures are complete."""


class CostsQuery(ApiModel, frozen=True):
    """The calls that are summed."""

    by: By = "tool"
    since: Instant | None = None
    """Without it: the last thirty days."""
    limit: Lines = 500


class UsageQuery(ApiModel, frozen=True):
    """The calls that are counted."""

    by: UsageBy = "day"
    since: Instant | None = None
    """Without it: the last thirty days."""
    user: Name | None = None
    """Only of this user; others than one's own only for those who may see them."""
    limit: Lines = 500


@resource.get("/v1/costs", permission="read")
async def get_costs(request: ApiRequest, query: CostsQuery) -> CostReport:
    """Sum what calls of the tenant have cost: by tool, user, persona, tenant or day."""
    since = query.since or now() - DEFAULT_DAYS
    counted = await request.once(caught_up)
    found = await request.app.budgets.costs(query.by, since=since, tenant=tenant_of(request), max_rows=0)
    lines = [
        CostView(name=one.name, tenant=one.tenant, calls=one.calls, cost_usd=one.nano / NANO) for one in found[: query.limit]
    ]
    return CostReport(
        by=query.by, since=counted_since(since, is_daily=query.by == "user"), calls=sum(one.calls for one in found),
        cost_usd=sum(one.nano for one in found) / NANO, lines=lines, omitted=len(found) - len(lines), up_to=counted.up_to,
        behind=counted.behind,
    )  # fmt: skip


@resource.get("/v1/usage", permission="own")
async def get_usage(request: ApiRequest, query: UsageQuery) -> UsageSummary:
    """Count calls that ended: by day, tool or user. A caller sees its own."""
    since, user = query.since or now() - DEFAULT_DAYS, user_of(request, query.user)
    counted = await request.once(caught_up)
    found = await request.app.budgets.usage(query.by, since=since, tenant=tenant_of(request), user=user, max_rows=0)
    lines = [
        UsageView(
            name=one.name, tenant=one.tenant, calls=one.calls, successes=one.successes, failures=one.failures,
            denied=one.denied, cost_usd=one.nano / NANO, tokens=one.tokens,
        )
        for one in found[: query.limit]
    ]  # fmt: skip
    return UsageSummary(
        by=query.by, since=counted_since(since, is_daily=user is not None or query.by == "user"), lines=lines,
        omitted=len(found) - len(lines), up_to=counted.up_to, behind=counted.behind,
    )  # fmt: skip
