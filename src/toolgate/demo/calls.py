"""The week of calls: how many of each kind, at which moments, and by whom; the same for the same seed."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from toolgate.app.app import App
from toolgate.demo.clock import DemoClock
from toolgate.demo.people import ANALYST, LEAD, OPS
from toolgate.gates.approval.request import Answer
from toolgate.model import Actor, Outcome

ARTICLES = ("A-100", "A-200", "A-300")
CUSTOMERS = ("Ada", "Grace", "Linus", "Barbara", "Dennis")
REPEATED = {"find_order": 2, "stock_level": 1}
"""Tools that agents ask the same of again within a minute, and how often at most: the first is answered from the cache."""
OFFICE_HOURS = range(7, 19)
NIGHT, WEEKEND = 0.12, 0.3
"""How many calls there are then, for one in an hour of the week in the office."""


class PlannedCall(NamedTuple):
    """A call of the week."""

    actor: Actor
    tool: str
    arguments: dict[str, Any]


def plan(random: Random) -> list[PlannedCall]:
    """Gives the calls of the week, in the order in which they are made."""
    orders, articles = range(1000, 1060), ARTICLES
    kinds: list[tuple[int, Actor, str, Any]] = [
        (48, ANALYST, "find_order", lambda: {"number": random.choice(orders)}),
        (26, OPS, "find_order", lambda: {"number": random.choice(orders)}),
        (6, OPS, "find_order", lambda: {"number": random.randrange(2000, 9000)}),  # there is none: it fails
        (18, ANALYST, "stock_level", lambda: {"article": random.choice(articles)}),
        (14, OPS, "stock_level", lambda: {"article": random.choice(articles)}),
        (3, OPS, "stock_level", lambda: {"artikel": "A-100"}),  # is not what the schema says
        (30, ANALYST, "credit_check", lambda: {"customer": random.choice(CUSTOMERS)}),
        (4, OPS, "credit_check", lambda: {"customer": random.choice(CUSTOMERS)}),  # denied
        (12, OPS, "update_stock", lambda: {"article": random.choice(articles), "pieces": random.randrange(10, 6000)}),
        (5, ANALYST, "update_stock", lambda: {"article": random.choice(articles), "pieces": 0}),  # denied
        (2, ANALYST, "refund", lambda: {"order": random.choice(orders), "amount": 900.0}),  # denied: too much
        (12, ANALYST, "forecast_demand", lambda: {"article": random.choice(articles), "weeks": random.randrange(2, 12)}),
        (3, ANALYST, "forecast_demand", lambda: {"article": random.choice(articles), "weeks": 52}),  # takes too long
        (5, ANALYST, "weekly_report", lambda: {"orders": random.sample(orders, 4)}),
        (
            14,
            ANALYST,
            "mcp_supplier_quote",
            lambda: {"article": random.choice(articles), "pieces": random.randrange(1, 500)},
        ),
        (3, ANALYST, "mcp_supplier_quote", lambda: {"article": "A-999", "pieces": 1}),  # the server has no such article
        (8, OPS, "mcp_supplier_search_catalogue", lambda: {"words": random.choice(("bolt", "bearing", "belt"))}),
        (8, OPS, "mcp_supplier_track_delivery", lambda: {"number": random.randrange(70_000, 80_000)}),
        (10, ANALYST, "calculator", lambda: {"expression": f"{random.randrange(10, 400)} * 1.19"}),
        (6, ANALYST, "read_file", lambda: {"path": "prices.csv"}),
        (2, ANALYST, "code_execute", lambda: {"language": "python", "code": "print(6 * 7)"}),  # denied: acme runs no code
        (5, OPS, "refund", lambda: {"order": random.choice(orders), "amount": float(random.randrange(15, 180))}),
    ]
    planned = [PlannedCall(actor, tool, make()) for count, actor, tool, make in kinds for _ in range(count)]
    random.shuffle(planned)
    return planned


def moments(random: Random, count: int, begin: datetime, end: datetime) -> list[datetime]:
    """Gives so many moments between two, most of them in office hours."""
    found: list[datetime] = []
    while len(found) < count:
        at = begin + (end - begin) * random.random()
        share = (1.0 if at.hour in OFFICE_HOURS else NIGHT) * (WEEKEND if at.weekday() > 4 else 1.0)
        if random.random() < share:
            found.append(at)
    return sorted(found)


class Week:
    """Makes the calls of the week as it goes by."""

    def __init__(self, app: App, clock: DemoClock, random: Random, workspace: str, begin: datetime, end: datetime) -> None:
        self._app, self._clock, self._random, self._workspace = app, clock, random, workspace
        planned = plan(random)
        self._left = iter(list(zip(moments(random, len(planned), begin, end), planned, strict=True)))
        self._next = next(self._left, None)

    async def pass_until(self, moment: datetime) -> None:
        """Makes the calls up to a moment, and goes on to it."""
        for at, planned in self._due(moment):
            self._clock.move_to(at)
            await self.make(planned)
        self._clock.move_to(moment)

    def _due(self, moment: datetime) -> Iterator[tuple[datetime, PlannedCall]]:
        while self._next is not None and self._next[0] <= moment:
            due, self._next = self._next, next(self._left, None)
            yield due

    async def make(self, planned: PlannedCall) -> None:
        """Makes a call, has a person agree to it where one must, and perhaps makes it again soon after."""
        outcome = await self.call(planned)
        if outcome.pending is not None:
            await self._app.approvals.answer(outcome.pending.id, Answer("approve", "checked against the order"), actor=LEAD)
            await self._app.approvals.resume(outcome.pending.id, actor=LEAD)
        for _ in range(self._random.randint(0, REPEATED.get(planned.tool, 0))):
            self._clock.move_to(self._clock.now() + timedelta(seconds=self._random.randint(5, 50)))
            await self.call(planned)

    async def call(self, planned: PlannedCall) -> Outcome:
        """Makes one call, in the workspace of the demo."""
        session = f"{planned.actor.user}-{self._clock.now():%m%d}"
        return await self._app.invoke(
            planned.tool, planned.arguments, actor=planned.actor, session=session, workspace=self._workspace
        )

    async def hurry(self, planned: PlannedCall, times: int) -> None:
        """Makes a call many times within seconds, which a rate limit stops."""
        for _ in range(times):
            await self.call(planned)
