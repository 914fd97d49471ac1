"""Budgets: reserve what a call may cost before it runs, settle what it did cost after it.

Silence denies: if the store can't say whether there is money, `reserve` raises and the call does not run. To count what a
call has cost must not fail a call that ran: what can't be counted yet is kept and tried again, and stays reserved meanwhile.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from toolgate.errors import Denied
from toolgate.gates.quota.budget_accounts import (
    ADJECTIVE,
    BudgetBook,
    BudgetStatus,
    CountedBudget,
    Look,
    built_in,
    costs,
    described,
    is_in_force,
    period_after,
    period_begin,
    period_of,
    scope_of,
    usage,
    zone,
)
from toolgate.gates.quota.money import MAX_NANO_DOLLARS, actual, estimate, reservable
from toolgate.model import NANO, Actor, Call, Entry, Outcome, SpendingLimit, nano
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.held_resources import HoldingGate, hold, holds, let_go
from toolgate.pipeline.hooks import Estimates
from toolgate.pipeline.usage import Estimate, dollars
from toolgate.store import budgets as table
from toolgate.store import reservations
from toolgate.store.budgets import EACH, BudgetRow, By, CostLine, SpentBefore, UsageBy, UsageLine, whose
from toolgate.store.database import Store, now
from toolgate.store.live_processes import ProcessHeartbeat, alive_since
from toolgate.store.reservations import AccountBalance, BudgetExceeded, CrossedThreshold
from toolgate.tasks import BackgroundTasks, repeat, start_task, stop_tasks

FORGET_EVERY = timedelta(hours=1)
SETTLE_CLOSE_SECONDS = 5
"""How long closing waits for a store that does not answer."""

logger = logging.getLogger("toolgate.quota")


class _Taken(NamedTuple):
    """The reservation of a call."""

    estimate: Estimate
    counted: tuple[CountedBudget, ...]
    lapses: int
    """Of this App's presence, before it was reserved."""


class _Debt(NamedTuple):
    actual: int
    counted: tuple[CountedBudget, ...]


class Budgets(HoldingGate):
    """The gate. `announce` is told of thresholds that are crossed."""

    is_settled_by_start = True

    def __init__(
        self,
        store: Store,
        presence: ProcessHeartbeat,
        *,
        external_api_daily: Decimal | None = Decimal(10),
        timezone: str = "UTC",
        announce: Callable[[str, dict[str, Any]], None],
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._store = store
        self._presence = presence
        self._announce = announce
        self._clock = clock
        self._zone = zone(timezone)
        self._built_in = [] if external_api_daily is None else [built_in(nano(external_api_daily), timezone)]
        self._book = BudgetBook(self._built_in)
        self._begun: dict[str, _Taken] = {}
        """Calls for which something is, or may be, reserved in this process."""
        self.reporting: set[str] = set()
        """Tools that name no price and yet reported a cost."""
        self._unsettled: dict[str, _Debt] = {}
        self._tasks = BackgroundTasks()
        self._reaping: asyncio.Task[None] | None = None
        self._forgotten_at = clock()

    # -- what is in force

    def use(self, rows: Iterable[BudgetRow]) -> None:
        """Take over the budgets that the store has now."""
        self._book = BudgetBook([*self._built_in, *rows])

    async def spent_already(self, budget: BudgetRow) -> SpentBefore:
        """The sum spent so far in the period of a budget that is about to be set."""
        starts = period_of(budget, self._clock())
        await self._store.flush()
        return await self._store.read(table.spent_already(budget, starts, period_begin(budget, starts)))

    def applies(self, entry: Entry) -> bool:
        """True if calls of a tool can cost anything."""
        return entry.priced or entry.name in self.reporting

    # -- the life of a call

    async def estimate(self, ctx: InvokeContext, entry: Entry) -> None:
        """Notes what the call may cost with the arguments that it has. A built-in tool may know better than its price and
        its arguments tell (`hooks.Estimates`)."""
        own = None
        if entry.hooks and entry.tool.source == "builtin":
            for hook in entry.hooks:
                if isinstance(hook, Estimates):
                    own = await hook.estimate(ctx)
        ctx.estimate = own or estimate(entry, ctx.arguments)

    async def enter(self, ctx: InvokeContext, entry: Entry) -> None:
        hold(ctx, self, entry)
        await self.reserve(ctx.call, entry, ctx.estimate)

    async def hand_over(self, ctx: InvokeContext) -> None:
        """Has what the call has reserved wait for the job that will make it."""
        if holds(ctx, self):
            await self._store.transact(reservations.hand_over(ctx.call.id, self._presence.id))
            self._begun.pop(ctx.call.id, None)
            let_go(ctx, self)

    def charge(self, ctx: InvokeContext, entry: Entry) -> float:
        """The cost of the call in dollars. A tool without a price that reports a cost never entered: it is settled too."""
        ctx.cost = actual(entry, ctx.estimate, ctx.report, charged=ctx.charged, failed=ctx.error is not None)
        if ctx.cost and not holds(ctx, self):
            hold(ctx, self, entry)
        return ctx.cost / NANO

    def leave(self, ctx: InvokeContext, token: Entry, _outcome: Outcome | None) -> Awaitable[None]:
        return self.settle(ctx.call, token, ctx.estimate, ctx.cost)

    async def reserve(self, call: Call, entry: Entry, estimate: Estimate) -> None:
        """Take the estimate from every budget that the call falls under, or raise BUDGET_EXCEEDED and take nothing."""
        counted = self._counted(call, entry)
        if not counted:
            return
        await self._presence.show()
        if self._reaping is None:
            trouble = "what processes that died had reserved cannot be settled yet"
            self._reaping = start_task(repeat(self._presence.seconds, self.reap, logger, trouble))
        taken = self._begun[call.id] = _Taken(estimate, tuple(counted), self._presence.lapses)
        try:
            await self._take(call, taken)
        except Denied:
            self._begun.pop(call.id, None)
            raise
        except BaseException:
            # Cancelled, or the store lost: it may be reserved all the same, and the call will not run.
            self._begun.pop(call.id, None)
            self._unsettled[call.id] = _Debt(0, taken.counted)
            self._tasks.start(self._retry())
            raise

    def _counted(self, call: Call, entry: Entry) -> list[CountedBudget]:
        """The budgets that a call falls under: also those of the actors for whom it is made, each once."""
        at = self._clock()
        if not call.on_behalf_of:
            return self._book.counted(call.actor, entry, at)
        return list(dict.fromkeys(one for actor in call.actors for one in self._book.counted(actor, entry, at)))

    async def confirm(self, call: Call) -> None:
        """Make sure that what a call reserved is still its own, or reserve it anew. Asked once the start record is on disk:
        whoever took this process for dead before that, because it stood still, has given the money back; whoever does so
        later finds that the call began, and counts it. Raises what `reserve` does; `settle` is owed all the same."""
        taken = self._begun.get(call.id)
        if taken is None or (self._presence.is_fresh and self._presence.lapses == taken.lapses):
            return
        await self._take(call, taken)

    async def _take(self, call: Call, taken: _Taken) -> None:
        """Reserve; what the call has reserved already stays. Before it is refused, the dead are settled."""
        taking = (call.id, self._presence.id, reservable(taken.estimate), [each.account for each in taken.counted])
        try:
            try:
                await self._store.transact(reservations.reserve(*taking))
            except BudgetExceeded:
                if not await self.reap():
                    raise
                await self._store.transact(reservations.reserve(*taking))
        except BudgetExceeded as exceeded:
            raise _refusal(_of(exceeded.held, taken.counted), exceeded.held, taken.estimate) from None

    async def settle(self, call: Call, entry: Entry, estimate: Estimate | None, actual: int) -> None:
        """Count what a call cost, and give back the rest of what it had reserved. Also for a call that reserved nothing and
        whose tool reported a cost. Never raises but for a cancellation of the caller, which does not keep it from being
        done."""
        if actual and not entry.priced:
            self.reporting.add(entry.name)
        reserved = call.id in self._begun
        counted = tuple(self._counted(call, entry)) if reserved or actual else ()
        if not reserved and not counted:
            return
        self._begun.pop(call.id, None)
        debt = _Debt(max(0, min(actual, MAX_NANO_DOLLARS)), counted)
        await self._tasks.finish(self._pay(call.id, debt, estimate))
        if self._unsettled:
            await self._retry()

    async def reap(self) -> int:
        """Settle for processes that died, and what could not be settled before; gives how many reservations were freed."""
        waiting = len(self._unsettled)
        await self._retry()
        since = alive_since(self._presence.seconds)
        calls = await self._store.read(reservations.dead(since))
        reaped = sum(await asyncio.gather(*(self._store.transact(reservations.reap(call, since)) for call in calls)))
        if reaped:
            logger.warning("%d reservations of processes that died were settled", reaped)
        if self._clock() - self._forgotten_at > FORGET_EVERY:
            self._forgotten_at = self._clock()
            await self._store.transact(reservations.forget())
        return reaped + waiting - len(self._unsettled)

    async def close(self) -> None:
        """Settle what can be settled; what can't is left to those who reap."""
        # If it takes too long it is not cancelled, for which PostgreSQL would have to answer: the store's end ends it.
        await asyncio.wait([start_task(self._finish())], timeout=SETTLE_CLOSE_SECONDS)

    async def _finish(self) -> None:
        reaping, self._reaping = self._reaping, None
        await stop_tasks(reaping)
        await self._tasks.wait()
        await self._retry()

    async def _pay(self, call: str, debt: _Debt, estimate: Estimate | None = None) -> None:
        accounts = [each.account for each in debt.counted]
        try:
            crossed = await self._store.transact(reservations.settle(call, self._presence.id, debt.actual, accounts))
        except Exception as error:  # noqa: BLE001 - whatever the driver raises
            if self._unsettled.pop(call, None) is None:
                kept = dollars(debt.actual) if estimate is None else f"{dollars(debt.actual)} of {dollars(estimate.nano)}"
                logger.warning("what call %s cost (%s) cannot be counted yet and stays reserved: %s", call, kept, error)
            self._unsettled[call] = debt  # behind the others, so that it keeps none of them waiting for ever
            return
        self._unsettled.pop(call, None)
        for one in crossed:
            self._alert(one, debt.counted)

    async def _retry(self) -> None:
        for call, debt in list(self._unsettled.items()):
            if self._unsettled.get(call) is debt:
                await self._pay(call, debt)
                if call in self._unsettled:
                    return  # the store is still in trouble

    def _alert(self, crossed: CrossedThreshold, counted: Iterable[CountedBudget]) -> None:
        budget, _ = _of(crossed, counted)
        scope = scope_of(budget, crossed.account)
        resets = period_after(budget, crossed.starts)
        words = (
            f"{described(budget, scope)} has reached {crossed.percent} %: {dollars(crossed.spent)} of {dollars(budget.cap)}"
        )
        logger.warning("%s", words)
        event = {
            "budget": budget.id,
            "scope": scope,
            "period": budget.period,
            "percent": crossed.percent,
            "spent_usd": crossed.spent / NANO,
            "limit_usd": budget.cap / NANO,
            "resets_at": resets.isoformat(),
            "message": words,
        }
        try:
            self._announce("budget.alert", event)
        except Exception:  # the call has ended well, whatever listeners do
            logger.exception("a listener failed on a budget's alert")

    # -- looking

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        looks = await self.look(ctx.call, entry, ctx.estimate) if self.applies(entry) else []
        for look in looks:
            yield GateVerdict("budget", "pass" if look.passes else "deny", f"{look.budget}: {look.reason}")
        if not looks:
            free = f"no budget counts its {dollars(ctx.estimate.nano)}" if entry.priced else "the tool names no price"
            yield GateVerdict("budget", "pass", free)

    async def look(self, call: Call, entry: Entry, estimate: Estimate) -> list[Look]:
        """The answer of each budget to a call, taking nothing."""
        looks = []
        for one in await self.counting(call.actor, entry):
            budget, left = one.budget, one.budget.cap - one.spent - one.reserved
            reason = f"{dollars(max(left, 0))} of {dollars(budget.cap)} left, the call may cost {dollars(estimate.nano)}"
            looks.append(Look(described(budget, one.scope), reservable(estimate) <= left, reason))
        return looks

    async def counting(self, actor: Actor, entry: Entry) -> list[BudgetStatus]:
        """The balance of each budget that counts an actor's calls of a tool."""
        counted = self._book.counted(actor, entry, self._clock())
        balances = await self._store.read(reservations.balances([each.account for each in counted]))
        return [
            BudgetStatus(
                budget, scope_of(budget, account.name), held.spent, held.reserved, period_after(budget, account.starts)
            )
            for (budget, account), held in zip(counted, balances, strict=True)
        ]

    async def status(self, tenant: str | None = None) -> list[BudgetStatus]:
        """The balance of every budget in force, for each of those whom it counts separately; of one tenant, or of all. What
        the dead had reserved is settled first."""
        await self.reap()
        at = self._clock()
        periods = {budget: period_of(budget, at) for budget in self._book.budgets.values() if is_in_force(budget, at)}
        balances: dict[str, list[AccountBalance]] = {}
        for held in await self._store.read(table.holdings_of([(budget.id, starts) for budget, starts in periods.items()])):
            balances.setdefault(whose(held.account)[0], []).append(held)
        found = [
            BudgetStatus(
                budget, scope_of(budget, held.account or None), held.spent, held.reserved, period_after(budget, held.starts)
            )
            for budget, starts in periods.items()
            for held in balances.get(budget.id, [AccountBalance("", starts, 0, 0)])
        ]
        return [one for one in found if tenant is None or one.scope["tenant"] in (None, EACH, tenant)]

    async def costs(self, by: By, since: datetime, tenant: str | None = None, most: int | None = None) -> list[CostLine]:
        """The costs of calls since then: the most expensive first, or day by day, in the time zone of the settings. Rows of
        the log are counted as for `usage`."""
        return await costs(self._store, self._zone, by, since, tenant, most)

    async def usage(
        self, by: UsageBy, since: datetime, tenant: str | None, user: str | None, most: int | None = None
    ) -> list[UsageLine]:
        """The calls that ended since then, and how: the most calls first, or day by day, in the settings' time zone. Of rows
        of the log that are not counted yet, at most so many are counted first, or all."""
        return await usage(self._store, self._zone, by, since, tenant, user, most)


class SpendingLimits(HoldingGate):
    """The gate of calls that a program or an agent makes: what they may cost together, whatever budgets say."""

    def check(self, ctx: InvokeContext, entry: Entry, limit: SpendingLimit) -> None:
        """Refuses a call that may cost more than is left: nobody is asked about it."""
        cost, left = ctx.estimate.nano, max(limit.room, 0)
        if cost > left:
            whose = "run" if limit.is_run else "program"
            words = f"{entry.name} may cost ${cost / NANO:g}, and the {whose} has ${left / NANO:g} left."
            raise Denied("BUDGET_EXCEEDED", words, details={"limit": whose})

    def enter(self, ctx: InvokeContext, entry: Entry, limit: SpendingLimit) -> None:
        """Takes what the call may cost out of what is left to its program, or to the run of its agent."""
        self.check(ctx, entry, limit)  # others may have taken it while a person was asked
        limit.take(ctx.estimate.nano)
        hold(ctx, self, (limit, ctx.estimate.nano))

    def leave(self, ctx: InvokeContext, token: tuple[SpendingLimit, int], _outcome: Outcome | None) -> None:
        """Gives back what the call did not cost."""
        limit, cost = token
        limit.take(ctx.cost - cost)


def _of(found: AccountBalance | CrossedThreshold, counted: Iterable[CountedBudget]) -> CountedBudget:
    return next(each for each in counted if each.account.name == found.account)


def _refusal(counted: CountedBudget, held: AccountBalance, estimate: Estimate) -> Denied:
    budget = counted.budget
    scope, resets = scope_of(budget, held.account), period_after(budget, held.starts)
    words = described(budget, scope)
    local = resets.astimezone(zone(budget.timezone))
    return Denied(
        "BUDGET_EXCEEDED",
        f"{words[0].upper()}{words[1:]} does not allow it: the call may cost {dollars(estimate.nano)}; of "
        f"{dollars(budget.cap)} are {dollars(held.spent)} spent and {dollars(held.reserved)} reserved. "
        f"It resets at {local:%Y-%m-%d %H:%M} {budget.timezone}.",
        suggestion=f"Wait until then, or have the {ADJECTIVE[budget.period]} budget raised: `toolgate budgets set`.",
        details={
            "limit_usd": budget.cap / NANO,
            "spent_usd": held.spent / NANO,
            "reserved_usd": held.reserved / NANO,
            "estimate_usd": estimate.nano / NANO,
            "resets_at": resets.isoformat(),
            "scope": {**scope, "period": budget.period, "budget": budget.id},
        },
    )
