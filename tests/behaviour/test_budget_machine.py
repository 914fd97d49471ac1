"""Whatever the order of reserving, settling, dying and reaping: no account is overdrawn, nothing is lost."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from tests.examples import at_most
from tests.till import CENT, Till, opened_till, tool
from toolgate.errors import Denied
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import Actor, Call, Entry
from toolgate.store.live_processes import alive_since
from toolgate.store.reservations import reap

T = TypeVar("T")
CAP = 100 * CENT
ACTORS = [Actor("acme", None, "ann"), Actor("acme", None, "bob"), Actor("globex", "analyst", "ann")]
PRICES = ["0.01", "0.17", "0.40", "1"]

pytestmark = pytest.mark.requirement("COST-2")


class Money(RuleBasedStateMachine):
    """A model that knows what every account must hold, beside the real one."""

    held = Bundle("held")
    reaped = Bundle("reaped")

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.till: Till = self.run(self.stack.enter_async_context(opened_till()))
        self.run(self.till.set(new_budget("day", CAP), new_budget("month", 3 * CAP, tenant="*")))
        self.reserved: dict[str, tuple[Actor, int, str]] = {}
        self.spent: list[tuple[Actor, int, str]] = []
        self.begun: set[str] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()

    def today(self) -> str:
        return self.till.now.date().isoformat()

    def taken(self, actor: Actor) -> tuple[int, int]:
        """What the model says is taken of the day's account, and of the tenant's month."""
        sums = [*self.reserved.values(), *self.spent]
        day = sum(amount for _, amount, day in sums if day == self.today())
        return day, sum(amount for who, amount, _ in sums if who.tenant == actor.tenant)

    @rule(target=held, actor=st.sampled_from(ACTORS), price=st.sampled_from(PRICES))
    def reserve(self, actor: Actor, price: str) -> Any:
        buy = tool(price)
        day, month = self.taken(actor)
        fits = day + buy.fixed_nano <= CAP and month + buy.fixed_nano <= 3 * CAP
        try:
            call = self.run(self.till.reserve(buy, actor))
        except Denied:
            assert not fits
            return multiple()
        assert fits
        self.reserved[call.id] = (actor, buy.fixed_nano, self.today())
        return call, buy

    @rule(one=held)
    def reserve_again(self, one: tuple[Call, Entry]) -> None:
        self.run(self.till.reserve(one[1], call=one[0]))

    @rule(one=consumes(held), share=st.sampled_from([0, 0.5, 1, 1]), times=st.integers(1, 2))
    def settle(self, one: tuple[Call, Entry], share: float, times: int) -> None:
        call, buy = one
        actual = int(buy.fixed_nano * share)
        for _ in range(times):
            self.run(self.till.settle(call, buy, actual))
        actor, _, day = self.reserved.pop(call.id)
        self.spent.append((actor, actual, day))

    @rule(one=consumes(held), began=st.booleans(), target=reaped)
    def die(self, one: tuple[Call, Entry], began: bool) -> tuple[Call, Entry, int]:
        """Its process is taken for dead, and others settle for it."""
        call, buy = one
        if began and call.id not in self.begun:
            self.run(_begin(self.till, call.id))
            self.begun.add(call.id)
        began = call.id in self.begun  # what is on record stays so
        assert self.run(self.till.store.transact(reap(call.id, alive_since(-86_400))))
        actor, amount, day = self.reserved.pop(call.id)
        self.spent.append((actor, amount if began else 0, day))
        return call, buy, len(self.spent) - 1

    @rule(one=consumes(reaped), share=st.sampled_from([0, 0.5]))
    def rise(self, one: tuple[Call, Entry, int], share: float) -> None:
        """It was alive after all, and its call ends."""
        call, buy, place = one
        actor, _, day = self.spent[place]
        actual = int(self.spent[place][1] * share)
        self.run(self.till.settle(call, buy, actual))
        self.spent[place] = (actor, actual, day)

    @rule(one=consumes(reaped), target=held)
    def wake(self, one: tuple[Call, Entry, int]) -> Any:
        """It was alive after all, and makes sure of its money before its call begins."""
        call, buy, place = one
        before = self.spent[place]
        self.spent[place] = (before[0], 0, before[2])
        day, month = self.taken(before[0])
        fits = day + buy.fixed_nano <= CAP and month + buy.fixed_nano <= 3 * CAP
        try:
            self.run(self.till.reserve(buy, before[0], call))
        except Denied:
            assert not fits
            self.spent[place] = before
            return multiple()
        assert fits
        self.reserved[call.id] = (before[0], buy.fixed_nano, self.today())
        return call, buy

    @rule(days=st.integers(0, 2))
    def sleep(self, days: int) -> None:
        if (self.till.now + timedelta(days=days)).month == self.till.now.month:
            self.till.now += timedelta(days=days)

    @invariant()
    def the_sums_are_right(self) -> None:
        rows = self.run(self.till.rows("SELECT account, starts, spent, reserved FROM spending"))
        for account, starts, spent, reserved in rows:
            monthly = account.count(",") == 1
            tenant = account.split('"')[3] if monthly else None

            def counts(actor: Actor, day: str, starts: str = starts, tenant: str | None = tenant) -> bool:
                return actor.tenant == tenant if tenant is not None else day == starts

            assert spent == sum(amount for actor, amount, day in self.spent if counts(actor, day))
            assert reserved == sum(amount for actor, amount, day in self.reserved.values() if counts(actor, day))
            assert 0 <= spent + reserved <= (3 * CAP if monthly else CAP)


async def _begin(till: Till, call: str) -> None:
    class Start:
        def row(self) -> tuple[int, str, str, str, str, str, bytes]:
            return 1, "start", call, "acme", "buy", "started", b"{}"

    await till.store.append_durably(Start())


Money.TestCase.settings = settings(at_most(25), stateful_step_count=30)
TestMoney = Money.TestCase
