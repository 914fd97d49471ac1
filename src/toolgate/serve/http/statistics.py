"""/v1/statistics, /v1/invocations/facets and /v1/attention: how calls went, and what needs a person."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from toolgate.app.attention import AttentionItem, AttentionKind
from toolgate.app.statistics import REQUEST_ROWS, CallSeries, CallTotals, Counted
from toolgate.errors import InvalidInput, Status
from toolgate.gates.quota.budget_accounts import BudgetStatus
from toolgate.model import NANO
from toolgate.model.roles import Permission
from toolgate.serve.http.budgets import budget_statuses
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.reach import Instant, Name, tenant_of, user_of
from toolgate.serve.problems import HttpProblem
from toolgate.store.call_counts import CountBy, CountFilter
from toolgate.store.database import now

resource = Resource("statistics")

DEFAULT_PERIOD = timedelta(hours=24)
PERMISSIONS: tuple[Permission, ...] = ("own", "call", "read", "answer", "administer", "operate")
Step = Annotated[int, msgspec.Meta(ge=3_600, le=31 * 86_400)]


class StatisticsTotals(ApiView, frozen=True):
    """Calls that ended, together."""

    calls: int
    successes: int
    failures: int
    timeouts: int
    denied: int
    pending: int
    cost_usd: float
    tokens: int
    p50_ms: float | None
    """Half of the calls whose tool ran took no longer; within 23 %. null: none ran."""
    p95_ms: float | None
    p99_ms: float | None


class StatisticsSeries(ApiView, frozen=True):
    """Calls of one name, a figure for each point."""

    name: str | None
    """The status, tool, code, persona, door or user; null: all others together."""
    calls: list[int]
    cost_usd: list[float]


class StatisticsView(ApiView, frozen=True):
    """Calls that ended in a time, in figures and over time."""

    since: datetime
    """The beginning of the first step."""
    until: datetime
    """The end of the last one."""
    step: int
    """Seconds from one point to the next."""
    by: CountBy
    totals: StatisticsTotals
    before: StatisticsTotals
    """The same of as much time before."""
    points: list[datetime]
    p50_ms: list[float | None]
    p95_ms: list[float | None]
    p99_ms: list[float | None]
    series: list[StatisticsSeries]
    """The largest first."""
    outcomes: list[StatisticsSeries]
    """The same calls by status."""
    up_to: datetime | None
    """The time of the last record that is counted; null: none is."""
    behind: int
    """Records that are not counted yet. 0: these figures are complete."""


class FacetValue(ApiView, frozen=True):
    """A name that calls have."""

    name: str
    calls: int


class CallFacets(ApiView, frozen=True):
    """The names that calls of a time have, the most frequent first, at most 100 of each."""

    tools: list[FacetValue]
    statuses: list[FacetValue]
    codes: list[FacetValue]
    """Error codes."""
    personas: list[FacetValue]
    """Only for those who may see all users' calls, as are doors and users."""
    doors: list[FacetValue]
    users: list[FacetValue]
    up_to: datetime | None
    behind: int


class AttentionView(ApiView, frozen=True):
    """A thing that needs a person."""

    kind: AttentionKind
    words: str
    about: str
    """The id or name of the thing."""
    tenant: str | None
    """The tenant whose it is; null: the installation's."""
    href: str
    """The path of the console page that shows it."""


class AttentionList(ApiView, frozen=True):
    """The things that need a person."""

    items: list[AttentionView]


class PeriodQuery(ApiModel, frozen=True):
    """The time that is looked at."""

    since: Instant | None = None
    """Without it: 24 hours before `until`."""
    until: Instant | None = None
    """Without it: now."""

    def period(self) -> tuple[datetime, datetime]:
        """Gives the beginning and the end."""
        until = self.until or now()
        return self.since or until - DEFAULT_PERIOD, until


class StatisticsQuery(PeriodQuery, frozen=True):
    """The calls that are counted. Of persona, door and user, one may be named; with a persona
    or a door, no tool."""

    step: Step | None = None
    """Seconds: 3,600 or a multiple. Without it, one that suits the time."""
    by: CountBy = "status"
    tool: Name | None = None
    status: Status | None = None
    code: Name | None = None
    persona: Name | None = None
    door: Name | None = None
    user: Name | None = None


@resource.get("/v1/statistics", permission="own")
async def get_statistics(request: ApiRequest, query: StatisticsQuery) -> StatisticsView:
    """Count calls that ended, over time: those of the caller's user, or with the permission read of all users."""
    wanted = CountFilter(
        tenant=tenant_of(request), tool=query.tool, status=query.status, code=query.code, persona=query.persona,
        door=query.door, user=user_of(request, query.user),
    )  # fmt: skip
    counted = await request.once(caught_up)
    try:
        found = await request.app.statistics.over_time(wanted, *query.period(), step=query.step, by=query.by)
    except InvalidInput as error:
        raise HttpProblem(422, error.message, suggestion=error.suggestion) from None
    p50, p95, p99 = zip(*found.percentiles, strict=True)
    step = timedelta(seconds=found.step)
    return StatisticsView(
        since=found.since, until=found.until, step=found.step, by=query.by, totals=_totals(found.totals),
        before=_totals(found.before), points=[found.since + step * number for number in range(len(found.percentiles))],
        p50_ms=list(p50), p95_ms=list(p95), p99_ms=list(p99),
        series=[_series(one) for one in found.series], outcomes=[_series(one) for one in found.outcomes],
        up_to=counted.up_to, behind=counted.behind,
    )  # fmt: skip


def _series(one: CallSeries) -> StatisticsSeries:
    return StatisticsSeries(name=one.name, calls=one.calls, cost_usd=[nano / NANO for nano in one.nano])


def _totals(found: CallTotals) -> StatisticsTotals:
    by_status, (p50, p95, p99) = found.by_status, found.percentiles
    return StatisticsTotals(
        calls=found.calls, successes=by_status.get("success", 0), failures=by_status.get("failure", 0),
        timeouts=by_status.get("timeout", 0), denied=by_status.get("denied", 0), pending=by_status.get("pending", 0),
        cost_usd=found.nano / NANO, tokens=found.tokens, p50_ms=p50, p95_ms=p95, p99_ms=p99,
    )  # fmt: skip


@resource.get("/v1/invocations/facets", permission="own")
async def get_call_facets(request: ApiRequest, query: PeriodQuery) -> CallFacets:
    """List the tools, statuses and codes that calls have.

    For those who may see all users' calls, their personas, doors and users too."""
    return await call_facets(request, query, FACETS)


async def call_facets(request: ApiRequest, query: PeriodQuery, wanted: Sequence[CountBy]) -> CallFacets:
    """Gives the names that calls have, of those facets that are wanted: the others are empty. Personas, doors and users are
    only for those who may see all users' calls."""
    bys = [by for by in wanted if request.all_users or by not in OTHERS_FACETS]
    counted = await request.once(caught_up)
    asked = CountFilter(tenant=tenant_of(request), user=user_of(request))
    found = await request.app.statistics.values(asked, *query.period(), bys)
    named = {by: [FacetValue(name=name, calls=calls) for name, calls in found.get(by, ()) if name] for by in FACETS}
    return CallFacets(
        tools=named["tool"], statuses=named["status"], codes=named["code"], personas=named["persona"], doors=named["door"],
        users=named["user"], up_to=counted.up_to, behind=counted.behind,
    )  # fmt: skip


OTHERS_FACETS: tuple[CountBy, ...] = ("persona", "door", "user")
FACETS: tuple[CountBy, ...] = ("tool", "status", "code", *OTHERS_FACETS)


async def caught_up(request: ApiRequest) -> Counted:
    """Counts the calls that are not counted yet, as far as a request waits for that; gives how far that came."""
    return await request.app.statistics.catch_up(max_rows=REQUEST_ROWS)


@resource.get("/v1/attention", permission="own")
async def get_attention(request: ApiRequest) -> AttentionList:
    """List what needs a person: waiting approvals, failed jobs, and by role budgets, denials, open circuits and servers."""
    permissions = [one for one in PERMISSIONS if request.credential.may(one)]
    actor = request.sender if request.all_tenants else request.actor
    budgets, _ = await asyncio.gather(_budgets(request), request.once(caught_up))
    found = await request.app.attention.list(actor, permissions, all_tenants=request.all_tenants, budgets=budgets)
    return AttentionList(items=[_item(one) for one in found])


async def _budgets(request: ApiRequest) -> Sequence[BudgetStatus]:
    return await request.once(budget_statuses) if request.all_users else ()


def _item(one: AttentionItem) -> AttentionView:
    return AttentionView(**one._asdict())
