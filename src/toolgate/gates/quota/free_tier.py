"""Free tiers: the calls of a service that cost nothing in each period, counted for the account that would pay.

The account is that of the credential which the call uses: everybody's, a tenant's or a user's own. A count is never lower
than what the service has seen, as far as that came through here: a call that may have reached it counts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime

from msgspec.structs import replace

from toolgate.errors import Denied
from toolgate.gates.quota.budget_accounts import zone
from toolgate.gates.quota.money import estimate
from toolgate.model import Actor, Entry, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.held_resources import HoldingGate, hold
from toolgate.store import free_calls
from toolgate.store.database import Store, now
from toolgate.store.free_calls import FreeAccount


class FreeTiers(HoldingGate):
    """The gate of tools whose cost names a `free_tier_limit`."""

    def __init__(
        self,
        store: Store,
        *,
        account: Callable[[Entry, Actor], str],
        timezone: str = "UTC",
        clock: Callable[[], datetime] = now,
    ) -> None:
        """`account`: names whoever pays for an actor's calls of a tool. `timezone`: where days and months begin."""
        self._store = store
        self._account = account
        self._zone = zone(timezone)
        self._clock = clock

    async def look(self, ctx: InvokeContext, entry: Entry) -> None:
        """Takes the price off the estimate of a call that would be free, and notes how many free calls are left: none for a
        call that may be repeated more often than that, since each attempt is a call to the service."""
        used = await self._store.read(free_calls.used(self._of(ctx, entry)))
        left = max((entry.free_calls or 0) - used, 0)
        left = left if left >= ctx.estimate.attempts else 0
        told = replace(ctx.estimate, free_left=left)
        ctx.estimate = replace(told, nano=0, confidence="exact") if left else told

    async def enter(self, ctx: InvokeContext, entry: Entry) -> None:
        """Counts the attempts that the call may make. Raises if a person agreed to it as a free one, or its program has not
        been charged for it, and it is not free any more."""
        account, attempts = self._of(ctx, entry), ctx.estimate.attempts
        hold(ctx, self, (account, attempts))
        used = await self._store.transact(free_calls.count(account, attempts))
        if used <= (entry.free_calls or 0) or not ctx.estimate.free_left:
            return
        if entry.asks is not None or ctx.call.spending_limit is not None:
            raise Denied(
                "BUDGET_EXCEEDED",
                f"The last free call of {entry.name} was used by another call in the meantime.",
                suggestion="Call again: it then has its price.",
            )
        ctx.estimate = replace(estimate(entry, ctx.arguments), free_left=0)

    def leave(self, ctx: InvokeContext, token: tuple[FreeAccount, int], _outcome: Outcome | None) -> Awaitable[None] | None:
        """Gives back the attempts that never reached the service."""
        account, attempts = token
        more = ctx.charged - attempts
        return self._settle(account, more) if more else None

    async def _settle(self, account: FreeAccount, more: int) -> None:
        await self._store.transact(free_calls.count(account, more))

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        if entry.free_calls is not None:
            await self.look(ctx, entry)
            left, period = ctx.estimate.free_left, entry.tool.cost.free_tier_period
            yield GateVerdict("free tier", "pass", f"{left} of {entry.free_calls} free calls of this {period} left")

    def _of(self, ctx: InvokeContext, entry: Entry) -> FreeAccount:
        today = self._clock().astimezone(self._zone).date()
        starts = today.replace(day=1) if entry.tool.cost.free_tier_period == "month" else today
        return FreeAccount(entry.name, self._account(entry, ctx.call.actor), starts.isoformat())
