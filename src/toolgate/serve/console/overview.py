"""/: the answers to "is all well?" on one page."""

import asyncio
from datetime import datetime
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from toolgate.app.attention import AttentionKind
from toolgate.serve.console.page import PageRequest, Pages, View
from toolgate.serve.console.renderer import count, ms, usd
from toolgate.serve.console.series import latency_plot, named_plot, outcome_plot
from toolgate.serve.console.spans import Span, spans_of
from toolgate.serve.console.words import Mark
from toolgate.serve.http.approvals import waiting_approvals
from toolgate.serve.http.budgets import BudgetBalance, BudgetsQuery, list_budgets
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.invocations import CallsQuery, list_invocations
from toolgate.serve.http.pages import MAX_PAGE
from toolgate.serve.http.statistics import (
    AttentionView,
    StatisticsQuery,
    StatisticsTotals,
    StatisticsView,
    get_attention,
    get_statistics,
)
from toolgate.store.approvals import WaitingQuestions
from toolgate.store.database import now

pages = Pages("overview")

SHOWN_CALLS, SHOWN_ITEMS = 8, 8
KINDS: dict[AttentionKind, Mark] = {
    "approval": Mark("waiting", "wait", "◔"),
    "server_down": Mark("server", "bad", "✗"),
    "quarantine": Mark("quarantined", "wait", "◔"),
    "breaker": Mark("breaker", "bad", "✗"),
    "budget": Mark("budget", "warn", "▲"),
    "job": Mark("job", "bad", "✗"),
    "denials": Mark("denied", "warn", "⊘"),
}


class OverviewQuery(ApiModel, frozen=True):
    """The time that is looked at."""

    range: Span | None = None
    """Without it: 24 hours; of those who see only their own calls, which are counted by day, 7 days."""


class Figure(msgspec.Struct, frozen=True):
    """A number with its change against the period before."""

    name: str
    value: str
    change: str
    href: str
    tone: str = ""


class AttentionLine(msgspec.Struct, frozen=True):
    """Something that needs a person."""

    mark: Mark
    words: str
    href: str
    tenant: str | None


@pages.get("/", permission="own")
async def overview(request: PageRequest, query: OverviewQuery) -> View:
    """Six figures, three plots, what needs a person, and the latest calls."""
    spans = spans_of(request)
    span = query.range if query.range in spans else next(iter(spans))
    words, length, step = spans[span]
    until = now()
    since = until - length
    asked = StatisticsQuery(since=since, until=until, step=step, by="tool")
    found, latest, needed, budget, waiting = await asyncio.gather(
        get_statistics(request, asked), list_invocations(request, CallsQuery(limit=SHOWN_CALLS)), get_attention(request),
        _budget(request), request.once(waiting_approvals),
    )  # fmt: skip
    attention = needed.items
    values = {
        "calls": latest.items, "span": span, "spans": {name: one[0] for name, one in spans.items()}, "period": words,
        "figures": _figures(request, found, since, budget, waiting),
        "items": [_item(request, one) for one in attention[:SHOWN_ITEMS]],
        "more": max(0, len(attention) - SHOWN_ITEMS), "outcomes": outcome_plot(found), "latency": latency_plot(found),
        "spend": named_plot(found, "cost_usd"), "behind": found.behind, "json": _twin(request, asked),
    }  # fmt: skip
    return View(template="overview.html", title="Overview", values=values)


def _twin(request: PageRequest, asked: StatisticsQuery) -> str:
    fields = {"since": asked.since, "until": asked.until, "step": asked.step, "by": asked.by}
    texts = {name: one.isoformat() if isinstance(one, datetime) else str(one) for name, one in fields.items()}
    if "tenant" in request.carried:
        texts["tenant"] = request.carried["tenant"]
    return f"/v1/statistics?{urlencode(texts)}"


# -- figures


def _figures(
    request: PageRequest, found: StatisticsView, since: datetime, budget: BudgetBalance | None, waiting: WaitingQuestions
) -> list[Figure]:
    at, before = found.totals, found.before
    calls = request.url("/calls", since=since.isoformat())
    failed = request.url("/calls", since=since.isoformat(), status="failure")
    return [
        Figure("Calls", count(at.calls), _relative(at.calls, before.calls), calls),
        Figure("Success", _percent(at), _points(at, before), failed, "bad" if _fell(at, before) else ""),
        Figure("p95", ms(at.p95_ms), _milliseconds(at, before), calls),
        _spend(request, at, before, budget),
        _waiting(request, waiting),
    ]


def _relative(value: float, before: float) -> str:
    if not before:
        return "none before" if value else "as before"
    change = (value - before) / before
    return "as before" if abs(change) < 0.005 else f"{_sign(change)}{abs(change):,.0%}".replace("%", " %")


def _sign(value: float) -> str:
    return "+" if value > 0 else "\N{MINUS SIGN}"


def _share(totals: StatisticsTotals) -> float | None:
    ended = totals.calls - totals.pending
    return totals.successes / ended * 100 if ended > 0 else None


def _percent(totals: StatisticsTotals) -> str:
    share = _share(totals)
    return "—" if share is None else "100 %" if share == 100 else f"{min(share, 99.9):.1f} %"


def _points(at: StatisticsTotals, before: StatisticsTotals) -> str:
    share, earlier = _share(at), _share(before)
    if share is None or earlier is None:
        return "none before" if share is not None else "no call ended"
    change = share - earlier
    return "as before" if abs(change) < 0.05 else f"{_sign(change)}{abs(change):.1f} points"


def _fell(at: StatisticsTotals, before: StatisticsTotals) -> bool:
    share, earlier = _share(at), _share(before)
    return share is not None and earlier is not None and share < earlier - 1


def _milliseconds(at: StatisticsTotals, before: StatisticsTotals) -> str:
    if at.p95_ms is None or before.p95_ms is None:
        return "none before" if at.p95_ms is not None else "no tool ran"
    change = at.p95_ms - before.p95_ms
    return "as before" if abs(change) < 0.01 * before.p95_ms else f"{_sign(change)}{ms(abs(change))}"


def _spend(request: PageRequest, at: StatisticsTotals, before: StatisticsTotals, budget: BudgetBalance | None) -> Figure:
    """The spend; with a budget for all that the tenant spends, what of it is used now."""
    cost, change = usd(at.cost_usd) if at.cost_usd else "$ 0", _relative(at.cost_usd, before.cost_usd)
    if budget is None or not budget.limit_usd:
        return Figure("Spend", cost, change, request.url("/money"))
    used = (budget.spent_usd + budget.reserved_usd) / budget.limit_usd
    words = f"{used * 100:.0f} % of budget"
    return Figure("Spend", cost, words, request.url("/budgets"), "bad" if used >= 1 else "warn" if used >= 0.8 else "")


async def _budget(request: PageRequest) -> BudgetBalance | None:
    """The budget for all that the tenant spends, or with all tenants for all of them: of several, that of the day."""
    if not request.all_users:
        return None
    whole = [
        one
        for one in (await list_budgets(request, BudgetsQuery(limit=MAX_PAGE))).items
        if (one.persona, one.user, one.tool, one.tier) == (None, None, None, None)
        and one.tenant == (None if request.all_tenants else request.actor.tenant)
    ]
    return min(whole, key=lambda one: one.period) if whole else None


def _waiting(request: PageRequest, waiting: WaitingQuestions) -> Figure:
    if waiting.oldest is None:
        return Figure("Waiting", "0", "nobody waits", request.url("/approvals"))
    minutes = int((now() - waiting.oldest).total_seconds() // 60)
    oldest = "oldest just now" if not minutes else f"oldest {minutes} min" if minutes < 120 else f"oldest {minutes // 60} h"
    return Figure("Waiting", count(waiting.number), oldest, request.url("/approvals"), "wait")


# -- what needs a person


def _item(request: PageRequest, one: AttentionView) -> AttentionLine:
    parts = urlsplit(one.href)
    fields: dict[str, object] = dict(parse_qsl(parts.query))
    if request.all_tenants and one.tenant is not None:
        fields["tenant"] = one.tenant
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return AttentionLine(KINDS[one.kind], one.words, request.url(parts.path, **fields) + fragment, one.tenant)
