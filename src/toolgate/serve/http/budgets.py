"""/v1/budgets: how much may be spent, by whom and on what."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec

from toolgate.gates.quota.budget_accounts import EACH, BudgetStatus, new_budget
from toolgate.gates.quota.money import parse_dollars
from toolgate.model import NANO, Tier
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Dollars, Instant, Name, tenant_of
from toolgate.serve.problems import HttpProblem
from toolgate.store.budgets import BudgetRow, Period

resource = Resource("budgets")

Zone = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class BudgetView(ApiView, frozen=True):
    """A cap on spending in a period. Of tenant, persona, user and tool, null is all together, `*` each on its own."""

    id: str
    tenant: str | None
    persona: str | None
    user: str | None
    tool: str | None
    period: Period
    limit_usd: float
    timezone: str
    """The time zone in which days begin."""
    until: datetime | None
    """The instant at which it ends; null: never."""
    updated_by: str


class BudgetBalance(ApiView, frozen=True):
    """The balance of a budget, for one of those whom it counts separately."""

    id: str
    tenant: str | None
    persona: str | None
    user: str | None
    tool: str | None
    tier: Tier | None
    """Only calls of this tier count."""
    period: Period
    limit_usd: float
    spent_usd: float
    reserved_usd: float
    left_usd: float
    timezone: str
    resets_at: datetime
    until: datetime | None


class BudgetTerms(ApiModel, frozen=True):
    """The terms of a budget."""

    limit_usd: Dollars
    timezone: Zone | None = None
    """Where days begin, such as Europe/Berlin; without it as before, or as the settings say."""
    until: Instant | None = None
    """The instant at which it ends; without it, never."""


class NewBudget(BudgetTerms, frozen=True, kw_only=True):
    """A budget to be set in the tenant. Without persona, user and tool it is for all that the tenant spends."""

    period: Period
    persona: Name | None = None
    """This persona; `*`: each on its own."""
    user: Name | None = None
    """This user; `*`: each on its own."""
    tool: Name | None = None
    """This tool; `*`: each on its own."""
    each_tenant: bool = False
    """With `tenant=*`: each tenant on its own, and not all together."""


def _view(row: BudgetRow) -> BudgetView:
    same = ("id", "tenant", "persona", "user", "tool", "period", "timezone", "until", "updated_by")
    return BudgetView(**{name: getattr(row, name) for name in same}, limit_usd=row.cap / NANO)


def balance_of(one: BudgetStatus) -> BudgetBalance:
    row, scope = one.budget, one.scope
    return BudgetBalance(
        id=row.id, tenant=scope["tenant"], persona=scope["persona"], user=scope["user"], tool=scope["tool"],
        tier=row.tier, period=row.period, limit_usd=row.cap / NANO, spent_usd=one.spent / NANO,  # type: ignore[arg-type]
        reserved_usd=one.reserved / NANO, left_usd=one.left / NANO, timezone=row.timezone, resets_at=one.resets_at,
        until=row.until,
    )  # fmt: skip


def _position(one: BudgetBalance) -> tuple[str, str, str, str, str]:
    return one.id, one.tenant or "", one.persona or "", one.user or "", one.tool or ""


class BudgetsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    period: Period | None = None
    persona: Name | None = None
    user: Name | None = None
    tool: Name | None = None


BUDGET_FILTERS = ("period", "persona", "user", "tool")


@resource.get("/v1/budgets", permission="read")
async def list_budgets(request: ApiRequest, query: BudgetsQuery) -> Page[BudgetBalance]:
    """List what of each budget is spent, reserved and left: those of the tenant, and its part of those for each tenant.

    A budget for all tenants together is shown to operators, with `tenant=*`.
    """
    tenant, after = tenant_of(request), position_of(request, query)
    found = [balance_of(one) for one in await request.once(budget_statuses)]
    wanted = {name: value for name in BUDGET_FILTERS if (value := getattr(query, name)) is not None}
    shown = [
        one
        for one in found
        if (tenant is None or one.tenant == tenant) and all(getattr(one, name) == value for name, value in wanted.items())
    ]
    page = sorted((one for one in shown if after is None or _position(one) > tuple(after)), key=_position)
    return page_of(request, query, page, _position)


async def budget_statuses(request: ApiRequest) -> list[BudgetStatus]:
    """Gives the balances of the budgets that a request is about, for those who may read them."""
    return await request.app.budgets.list(tenant_of(request))


async def _found(request: ApiRequest, id: str) -> BudgetRow:
    """The budget of the tenant; for an operator who names all tenants, of any and of none."""
    row, tenant = await request.app.budgets.get(id), tenant_of(request)
    if row is None or tenant not in (None, row.tenant):
        raise HttpProblem(404, "There is no such budget.", suggestion="GET /v1/budgets lists them.")
    return row


def _made(terms: BudgetTerms, by: str, timezone: str, **scope: Any) -> BudgetRow:
    make = partial(new_budget, **scope, timezone=terms.timezone or timezone, until=terms.until, by=by)
    try:
        return make(cap=parse_dollars(terms.limit_usd))
    except (ValueError, OverflowError) as error:
        raise HttpProblem(422, f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


@resource.get("/v1/budgets/{id}", permission="read")
async def get_budget(request: ApiRequest, id: str) -> BudgetView:
    """Get a budget of the tenant as it was set."""
    return _view(await _found(request, id))


@resource.post("/v1/budgets", permission="administer", status=201, problems=(409,))
async def make_budget(request: ApiRequest, body: NewBudget) -> BudgetView:
    """Set a budget in the tenant; of operators, with `tenant=*`, for all. It counts what was spent in its period already."""
    tenant = tenant_of(request) or (EACH if body.each_tenant else None)
    if body.each_tenant and not request.all_tenants:
        raise HttpProblem(422, "each_tenant is for operators who name all tenants: `tenant=*`.")
    if tenant in (None, EACH) and body.user not in (None, EACH):
        raise HttpProblem(422, "A user is a user of a tenant: name it in `tenant`.")
    row = _made(
        body, request.sender.user, request.app.settings.budgets.timezone, period=body.period, tenant=tenant,
        persona=body.persona, user=body.user, tool=body.tool,
    )  # fmt: skip
    if await request.app.budgets.get(row.id) is not None:
        raise HttpProblem(
            409, f"There is a budget for this already: {row.id}.", suggestion="PUT /v1/budgets/{id} changes it."
        )
    await request.app.budgets.set(row, actor=request.sender)
    return _view(row)


@resource.put("/v1/budgets/{id}", permission="administer")
async def change_budget(request: ApiRequest, id: str, body: BudgetTerms) -> BudgetView:
    """Change the limit, time zone and end of a budget of the tenant."""
    before = await _found(request, id)
    scope = {name: getattr(before, name) for name in ("period", "tenant", "persona", "user", "tool")}
    row = _made(body, request.sender.user, before.timezone, **scope)
    await request.app.budgets.set(row, actor=request.sender)
    return _view(row)


@resource.delete("/v1/budgets/{id}", permission="administer")
async def remove_budget(request: ApiRequest, id: str) -> None:
    """Remove a budget of the tenant, and forget what was spent under it."""
    await request.app.budgets.remove((await _found(request, id)).id, actor=request.sender)
