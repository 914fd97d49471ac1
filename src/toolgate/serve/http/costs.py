"""/v1/costs and /v1/usage: what calls have cost, and how many there were."""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from toolgate.model import NANO
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.reach import Name, tenant_of, user_of
from toolgate.store.budgets import By, UsageBy
from toolgate.store.database import now

resource = Resource("costs")

DEFAULT_DAYS = timedelta(days=30)
Lines = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Since = Annotated[datetime, msgspec.Meta(tz=True)]


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
    calls: int
    cost_usd: float
    lines: list[CostView]
    """The most expensive first; days in their order."""
    omitted: int
    """Lines that are left out, beyond `limit`."""


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
    lines: list[UsageView]
    """The most calls first; days in their order."""
    omitted: int
    """Lines that are left out, beyond `limit`."""


class CostsQuery(ApiModel, frozen=True):
    """The calls that are summed."""

    by: By = "tool"
    since: Since | None = None
    """Without it: the last thirty days."""
    limit: Lines = 500


class UsageQuery(ApiModel, frozen=True):
    """The calls that are counted."""

    by: UsageBy = "day"
    since: Since | None = None
    """Without it: the last thirty days."""
    user: Name | None = None
    """Only of this user; others than one's own only for those who may see them."""
    limit: Lines = 500


@resource.get("/v1/costs", permission="read")
async def get_costs(request: ApiRequest, query: CostsQuery) -> CostReport:
    """Sum what calls of the tenant have cost: by tool, user, persona, tenant or day."""
    since = query.since or now() - DEFAULT_DAYS
    found = await request.app.budgets.costs(query.by, since=since, tenant=tenant_of(request))
    lines = [
        CostView(name=one.name, tenant=one.tenant, calls=one.calls, cost_usd=one.nano / NANO) for one in found[: query.limit]
    ]
    return CostReport(
        by=query.by, since=since, calls=sum(one.calls for one in found), cost_usd=sum(one.nano for one in found) / NANO,
        lines=lines, omitted=len(found) - len(lines),
    )  # fmt: skip


@resource.get("/v1/usage", permission="own")
async def get_usage(request: ApiRequest, query: UsageQuery) -> UsageSummary:
    """Count calls that ended: by day, tool or user. A caller sees its own."""
    since = query.since or now() - DEFAULT_DAYS
    found = await request.app.budgets.usage(
        query.by, since=since, tenant=tenant_of(request), user=user_of(request, query.user)
    )
    lines = [
        UsageView(
            name=one.name, tenant=one.tenant, calls=one.calls, successes=one.successes, failures=one.failures,
            denied=one.denied, cost_usd=one.nano / NANO, tokens=one.tokens,
        )
        for one in found[: query.limit]
    ]  # fmt: skip
    return UsageSummary(by=query.by, since=since, lines=lines, omitted=len(found) - len(lines))
