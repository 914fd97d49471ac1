"""`toolgate budgets`: how much may be spent, by whom and on what, and how much of it is left."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer

from toolgate.app.app import App
from toolgate.cli.catalog import note_missing
from toolgate.cli.context import CommandGroup, OnlyTenant, Usage, opened, option, sentence, text_option
from toolgate.cli.output import answered, say
from toolgate.cli.table import listing
from toolgate.cli.times import iso, shown
from toolgate.gates.quota.budget_accounts import EACH, BudgetStatus, described, new_budget, scope_of, zone
from toolgate.gates.quota.money import parse_dollars
from toolgate.model import NANO
from toolgate.pipeline.usage import dollars
from toolgate.store.budgets import BudgetRow, Period
from toolgate.store.database import now

NONE = "none"
ALMOST = 0.8
LAST_YEAR = 9000
"""Beyond it a day can be outside of what a clock can show in another zone."""

group = CommandGroup(help="How much may be spent, by whom and on what.", no_args_is_help=True)


@group.command("list")
async def list_budgets(ctx: typer.Context, tenant: OnlyTenant = None) -> int:
    """Show every budget and what is left of it. Shown are its limit, what is spent and reserved, and when it resets."""
    async with opened(ctx) as app:
        found = await app.budgets.list(tenant)
    return listing(
        {"budgets": [one.to_dict() for one in found]},
        ["whose", "tool", "period", ">limit", ">spent", ">reserved", ">left", "resets"],
        [[(cell, _style(one)) for cell in _cells(one)] for one in found],
        none="No budgets: nothing limits what calls may cost. `toolgate budgets set --daily USD` sets one.",
    )


def _cells(one: BudgetStatus) -> list[str]:
    scope, budget = one.scope, one.budget
    who = ", ".join(_named(field, scope[field]) for field in ("tenant", "persona", "user") if scope[field] is not None)
    tool = scope["tool"] or ("all" if budget.tier is None else f"tier {budget.tier}")
    resets = one.resets_at.astimezone(zone(budget.timezone))
    return [
        who or "everybody",
        "each tool" if tool == EACH else tool,
        budget.period,
        *(dollars(amount) for amount in (budget.cap, one.spent, one.reserved, one.left)),
        f"{resets:%Y-%m-%d %H:%M} {budget.timezone}{_end(budget)}",
    ]


def _named(field: str, value: str | None) -> str:
    return f"each {field}" if value == EACH else f"{field} {value}"


def _style(one: BudgetStatus) -> str:
    taken = one.spent + one.reserved
    if taken >= one.budget.cap:
        return "red"
    return "yellow" if taken >= one.budget.cap * ALMOST else ""


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """The scope of a budget, and what is said of it besides its limit."""

    tenant: Annotated[str | None, text_option("--tenant T", "Of this tenant; * is each tenant on its own.")] = None
    persona: Annotated[str | None, text_option("--persona P", "Of this persona; * is each.")] = None
    user: Annotated[
        str | None,
        text_option("--user U", "Of this user of the tenant (without one, default); * alone is each user of every tenant."),
    ] = None
    tool: Annotated[str | None, text_option("--tool NAME", "On this tool; * is each.")] = None
    timezone: Annotated[
        str | None, option("--timezone TZ", "Where days begin; without it as before, or as the settings say.")
    ] = None
    until: Annotated[
        str | None, option("--until DATE", "The last day on which it holds: 2026-12-31; `none`: it has no end.")
    ] = None

    def budget(self, period: Period, cap: int | None, known: dict[str, BudgetRow], timezone: str) -> BudgetRow:
        """The budget that the options describe, as it was in what they do not name."""
        make = partial(new_budget, tenant=self.tenant, persona=self.persona, user=self.user, tool=self.tool)
        try:
            before = known.get(make(period, 0).id)
            place = self.timezone if self.timezone is not None else before.timezone if before is not None else timezone
            end = _end_of(self.until, place) if self.until is not None else _same_day(before, place)
            if cap is not None and self.until is None and end is not None and end <= now():
                raise ValueError(f"this budget ended at {shown(end)}; say --until DATE, or --until none")
            return make(period, cap or 0, timezone=place, until=end if cap is not None else None)
        except ValueError as error:
            raise Usage(sentence(error)) from None


@group.command("set")
async def set_budgets(
    ctx: typer.Context,
    options: BudgetOptions,
    daily: Annotated[str | None, option("--daily D", "Dollars a day; `none` removes the budget.")] = None,
    monthly: Annotated[str | None, option("--monthly M", "Dollars a month; `none` removes the budget.")] = None,
) -> int:
    """Set a budget, change it, or remove it. Without a scope it is for everything that is spent. What is not named of a
    budget that is there stays as it is."""
    if daily is None and monthly is None:
        raise Usage("Say how much: --daily D, --monthly M, or both.", suggestion="`--daily none` removes a budget.")
    given: tuple[tuple[Period, str, str | None], ...] = (("day", "--daily", daily), ("month", "--monthly", monthly))
    caps = [(period, _cap(flag, text)) for period, flag, text in given if text is not None]
    async with opened(ctx) as app:
        before, usual = {budget.id: budget for budget in await app.budgets.limits()}, app.settings.budgets.timezone
        wanted = [
            options.budget(period, cap, before, usual) for period, cap in caps
        ]  # all make sense, or nothing is changed
        is_set, tool = any(cap is not None for _, cap in caps), options.tool
        if is_set and tool not in (None, EACH):
            note_missing(app, [tool], "the budget")
        done = [await _apply(app, budget, cap is None) for budget, (_, cap) in zip(wanted, caps, strict=True)]
    if answered({"budgets": [one.to_dict() for one in done]}):
        return 0
    for one in done:
        one.tell()
    return 0


class BudgetChange(NamedTuple):
    """A budget that was set or removed; `changed` is false if there was none to remove."""

    budget: BudgetRow
    removed: bool
    changed: bool

    def to_dict(self) -> dict[str, Any]:
        budget = self.budget
        return {
            "id": budget.id,
            **scope_of(budget),
            "period": budget.period,
            "limit_usd": None if self.removed else budget.cap / NANO,
            "timezone": budget.timezone,
            "until": None if budget.until is None else iso(budget.until),
            "changed": self.changed,
        }

    def tell(self) -> None:
        words = described(self.budget, scope_of(self.budget))
        if not self.removed:
            days = f"{self.budget.period}s of {self.budget.timezone}{_end(self.budget)}"
            say(("✓ Set ", "green"), f"{words}: {dollars(self.budget.cap)}, {days}")
        elif self.changed:
            say(("✓ Removed ", "green"), words)
        else:
            say(f"There is no such budget: {words}")


def _cap(option: str, text: str) -> int | None:
    """Nano-dollars; None if the budget is to be removed."""
    try:
        return None if text.strip().lower() == NONE else parse_dollars(text)
    except ValueError as error:
        raise Usage(f"{option}: {error}.") from None


def _end_of(text: str, timezone: str) -> datetime | None:
    """The moment at which a day is over; None for no end."""
    if text.strip().lower() == NONE:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a date; write it as 2026-12-31") from None
    if day.year > LAST_YEAR:
        raise ValueError(f"{text[:40]} is too far away; `--until none` is for a budget without an end")
    return _after(day, timezone)


def _after(day: date, timezone: str) -> datetime:
    return datetime.combine(day + timedelta(days=1), datetime.min.time(), zone(timezone))


def _same_day(known: BudgetRow | None, timezone: str) -> datetime | None:
    """The end of a budget, on the same day where its days begin now."""
    day = None if known is None else _last_day(known)
    return None if day is None else _after(day, timezone)


def _last_day(budget: BudgetRow) -> date | None:
    """The last day on which a budget holds, where its days begin."""
    if budget.until is None:
        return None
    return (budget.until.astimezone(UTC) - timedelta(microseconds=1)).astimezone(zone(budget.timezone)).date()


def _end(budget: BudgetRow) -> str:
    return "" if budget.until is None else f", last day {_last_day(budget)}"


async def _apply(app: App, budget: BudgetRow, removed: bool) -> BudgetChange:
    if removed:
        return BudgetChange(budget, True, await app.budgets.remove(budget.id))
    await app.budgets.set(budget)
    return BudgetChange(budget, False, True)
