"""/budgets: what may be spent, by whom and on what, and how much of it is left."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from toolgate.gates.quota.budget_accounts import EACH, EXTERNAL, SCOPE_FIELDS, zone
from toolgate.gates.quota.money import parse_dollars
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.http.budgets import (
    BudgetBalance,
    BudgetsQuery,
    BudgetTerms,
    NewBudget,
    change_budget,
    get_budget,
    list_budgets,
    make_budget,
    remove_budget,
)
from toolgate.serve.http.reach import tenant_of
from toolgate.serve.problems import HttpProblem
from toolgate.store.budgets import BudgetRow
from toolgate.store.database import now

pages = Pages("money")

WARN_SHARE = 0.8


class BudgetPageQuery(BudgetsQuery, frozen=True):
    """Filters of the list, and the budget whose form is open."""

    change: str | None = None
    remove: str | None = None


class Budget(msgspec.Struct, frozen=True):
    """A budget with the balance of each of those whom it counts separately."""

    row: BudgetRow | None
    """As it was set; None: it is built in."""
    covers: str
    may_change: bool
    accounts: list[tuple[str, BudgetBalance]]
    """Whom a balance is of, in words, and the balance."""


@pages.get("/budgets", permission="read", twin="/v1/budgets")
async def budgets(request: PageRequest, query: BudgetPageQuery) -> View:
    """Every budget with a bar of what is spent and reserved."""
    return await _shown(request, query)


async def _shown(request: PageRequest, query: BudgetPageQuery, typed: Typed = NOTHING_TYPED, status: int = 200) -> View:
    wanted = {name: getattr(query, name) for name in BudgetsQuery.__struct_fields__}
    found = await list_budgets(request, BudgetsQuery(**wanted))
    for name in ("change", "remove"):
        request.fields.pop(name, None)  # an open form is no filter: neither the twin nor other links have it
    rows = {row.id: row for row in await request.app.budgets.limits()}
    for id in filter(None, (query.change, query.remove)):
        await get_budget(request, id)  # 404 for one that is gone
    grouped: dict[str, list[BudgetBalance]] = {}
    for one in found.items:
        grouped.setdefault(one.id, []).append(one)
    values = {
        "budgets": [_budget(request, rows.get(id), balances) for id, balances in grouped.items()], "next": found.next,
        "change": query.change, "remove": query.remove, "typed": typed, "warn": WARN_SHARE,
        "timezone": request.app.settings.budgets.timezone, "tenant": tenant_of(request),
    }  # fmt: skip
    return View(template="budgets.html", title="Budgets", values=values, status=status, listed=found.items)


def _budget(request: PageRequest, row: BudgetRow | None, balances: list[BudgetBalance]) -> Budget:
    first, tenant = balances[0], tenant_of(request)
    scope = {name: getattr(first if row is None else row, name) for name in SCOPE_FIELDS}
    if row is None:  # the cap that is built in is for each user of each tenant
        scope |= {"tenant": EACH, "user": EACH}
    may = row is not None and request.credential.may("administer") and tenant in (None, row.tenant)
    separate = [name for name, value in scope.items() if value == EACH and not (name == "tenant" and tenant is not None)]
    accounts = [(" · ".join(_part(one, name) for name in separate), one) for one in balances]
    return Budget(row, covers(scope, first.id == EXTERNAL), may, accounts)


def _part(one: BudgetBalance, name: str) -> str:
    value = getattr(one, name)
    return f"each {name}, none has spent" if value == EACH else value or f"no {name}"


def covers(scope: dict[str, str | None], is_external: bool = False) -> str:
    """The calls that a budget counts, in words, as in: All calls by user ann in tenant acme."""
    tool, user, persona, tenant = (scope[name] for name in ("tool", "user", "persona", "tenant"))
    calls = "All calls" if tool is None else "Calls of each tool" if tool == EACH else f"Calls of {tool}"
    words = [
        calls,
        "that act on other services" if is_external else "",
        _by("by", "user", user),
        _by("as", "persona", persona),
        "in all tenants together" if tenant is None else _by("in", "tenant", tenant),
    ]
    each = [name for name in ("tool", "user", "persona", "tenant") if scope[name] == EACH]
    return " ".join(filter(None, words)) + (", each on its own" if each else "")


def _by(word: str, name: str, value: str | None) -> str:
    return "" if value is None else f"{word} each {name}" if value == EACH else f"{word} {name} {value}"


# -- forms


@pages.post("/budgets", permission="administer")
async def set_budget(request: PageRequest) -> View | Go:
    """Sets a new budget."""
    terms, faults = _terms(request)
    period = request.typed("period")
    if period not in ("day", "month"):
        faults["period"] = "Choose a day or a month."
    scope = {name: request.typed(name).strip() or None for name in ("persona", "user", "tool")}
    for name, value in scope.items():
        if value is not None and not (len(value) <= 256 and value.isprintable()):
            faults[name] = "At most 256 printable characters."
    if request.all_tenants and scope["user"] not in (None, EACH):
        faults["user"] = "A user is a user of a tenant: choose one at the top of the page."
    if not faults:
        each = request.all_tenants and bool(request.typed("each_tenant"))
        try:
            await make_budget(request, NewBudget(**terms, **scope, period=period, each_tenant=each))  # type: ignore[arg-type]
        except HttpProblem as problem:
            if problem.status not in (409, 422):
                raise
            faults[""] = "There is a budget for this already: change that one." if problem.status == 409 else problem.message
    if faults:
        return await _shown(request, BudgetPageQuery(), request.typed_form(faults), 422)
    return Go("/budgets", done="budget-set")


@pages.post("/budgets/{id}", permission="administer")
async def change(request: PageRequest, id: str) -> View | Go:
    """Changes the limit, time zone and end of a budget."""
    terms, faults = _terms(request)
    if not faults:
        try:
            await change_budget(request, id, BudgetTerms(**terms))
            return Go("/budgets", done="budget-set")
        except HttpProblem as problem:
            if problem.status != 422:
                raise
            faults[""] = problem.message
    return await _shown(request, BudgetPageQuery(change=id), request.typed_form(faults), 422)


@pages.post("/budgets/{id}/remove", permission="administer")
async def remove(request: PageRequest, id: str) -> Go:
    """Removes a budget, after the page asked."""
    await remove_budget(request, id)
    return Go("/budgets", done="budget-removed")


def _terms(request: PageRequest) -> tuple[dict[str, Any], dict[str, str]]:
    """The typed fields as the terms of a budget, and what is wrong about it by field."""
    faults: dict[str, str] = {}
    limit = request.typed("limit_usd").strip().removeprefix("$").strip().replace(",", "")
    try:
        parse_dollars(limit)
    except ValueError as error:
        faults["limit_usd"] = _sentence(error) if limit else "Write how many dollars may be spent, such as 10 or 2.50."
    timezone = request.typed("timezone").strip() or None
    try:
        zone(timezone or "UTC")
    except ValueError as error:
        faults["timezone"] = _sentence(error)
    until: datetime | None = None
    if day := request.typed("until").strip():
        try:
            until = datetime.fromisoformat(day).replace(tzinfo=UTC)
        except ValueError:
            faults["until"] = "Write a date such as 2027-01-31."
        else:
            if until <= now():
                faults["until"] = "The end must be in the future."
    return {"limit_usd": limit, "timezone": timezone, "until": until}, faults


def _sentence(error: ValueError) -> str:
    words = str(error)
    return f"{words[:1].upper()}{words[1:]}."
