"""The gates of the line, as `app` hands them to it, and what spans several of them: a tool that is missing or hidden,
arguments that will run, a call that a person has answered."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

import msgspec
import orjson

from toolgate.errors import CallError, Denied, not_found
from toolgate.model import Call, Entry
from toolgate.pipeline.context import InvokeContext, Providers
from toolgate.pipeline.hooks import HookSet
from toolgate.pipeline.outcome import Ending

if TYPE_CHECKING:
    from toolgate.coordination.notices import Notices
    from toolgate.gates.approval.consent import Consent
    from toolgate.gates.approval.continuation import Continuations
    from toolgate.gates.cache import ResultCache
    from toolgate.gates.idempotency import Idempotency
    from toolgate.gates.inputs import Inputs
    from toolgate.gates.ledger.audit import Ledger
    from toolgate.gates.outputs import Outputs
    from toolgate.gates.policy.gate import PolicyGate
    from toolgate.gates.quota.budget import Budgets, SpendingLimits
    from toolgate.gates.quota.concurrency import Concurrency, Running
    from toolgate.gates.quota.free_tier import FreeTiers
    from toolgate.gates.quota.rate import Rates
    from toolgate.gates.redaction import Redaction
    from toolgate.gates.secrets.gate import Secrets
    from toolgate.gates.tier_rules.gate import TierRules
    from toolgate.jobs.tool_calls import CallQueue
    from toolgate.registry.catalog import Catalog
    from toolgate.runners.execution import Execution


class Gates(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One field for each gate, and what the line needs besides."""

    running: "Running"
    notices: "Notices"
    refresh: Callable[[], Awaitable[None]]
    providers: Providers
    hooks: HookSet
    catalog: "Catalog"
    policy: "PolicyGate"
    inputs: "Inputs"
    screening: "TierRules"
    idempotency: "Idempotency"
    continuations: "Continuations"
    consent: "Consent"
    spending: "SpendingLimits"
    queue: "CallQueue"
    rates: "Rates"
    budgets: "Budgets"
    free_tiers: "FreeTiers"
    concurrency: "Concurrency"
    redaction: "Redaction"
    cache: "ResultCache"
    secrets: "Secrets"
    execution: "Execution"
    outputs: "Outputs"
    ledger: "Ledger"
    ending: Ending

    async def take_arguments(self, ctx: InvokeContext, call: Call) -> CallError | None:
        """Has the arguments that an approval is about, if the call has one and none of its own. Gives why there are none."""
        if call.approval is not None and call.arguments is None:
            try:
                ctx.input = await self.consent.arguments_of(call)
            except CallError as error:
                return error
        return None

    async def refuse_missing(self, ctx: InvokeContext, call: Call) -> NoReturn:
        """Refuses a tool that does not exist, after all that is done for one that is hidden: neither the answer nor the time
        that it takes tells them apart. What is recorded is the ledger's to see to."""
        if isinstance(call.tool, str):  # nothing is called otherwise
            await self.take_arguments(ctx, call)
            await self.policy.refusal(ctx, (await self.policy.decide(ctx, None)).reason)
        raise self.catalog.missing(call.tool)

    async def take_operation(self, ctx: InvokeContext, entry: Entry) -> Entry:
        """Has the call governed by the operation that its arguments name. The policy was asked about the tool's own tier."""
        of_operation = ctx.entry = entry.of_call(ctx.arguments)
        if of_operation.tier != entry.tier:
            await self.policy.enter(ctx, of_operation)
        return of_operation

    async def check_arguments(self, ctx: InvokeContext, entry: Entry) -> None:
        """Asks policy and tier about the very arguments that will run, whatever hooks made of those that came in."""
        if self.policy.guard.reads_arguments:
            await self.policy.enter_again(ctx, entry)
        await self._screen(ctx, entry)

    async def _screen(self, ctx: InvokeContext, entry: Entry) -> None:
        screening = None if entry.guards is None else self.screening.enter(ctx, entry)
        if screening is not None:
            await screening

    async def ask(self, ctx: InvokeContext, call: Call, entry: Entry, *, costs: bool) -> str:
        """Has a person's approval, or raises what ends the call here. Gives who agreed, and how."""
        if call.covered and not entry.destructive:
            return f"agreed to with call {call.parent}"
        self.secrets.check_present(entry, ctx.canonical, ctx.arguments, call.actor, ctx.hosts)
        await self._mask(ctx, entry)
        agreement = await self.consent.enter(ctx, entry)
        await self._check_again(ctx, call, entry)
        if agreement.edited is not None:
            shown = ctx.hosts
            await self._take_edited(ctx, entry, agreement.edited)
            _must_be_shown(ctx, shown)
            if costs:
                await self.estimate_money(ctx, entry)
        return agreement.words

    async def count_rate(self, ctx: InvokeContext, entry: Entry) -> None:
        """Counts the call against the rates that hold for it."""
        if self.rates.ruled or entry.rate_limit is not None:
            counting = self.rates.enter(ctx.call, entry)
            if counting is not None:
                await counting

    async def estimate_money(self, ctx: InvokeContext, entry: Entry) -> None:
        """Notes what the call may cost, and whether it would be a free one."""
        await self.budgets.estimate(ctx, entry)
        if entry.free_calls is not None:
            await self.free_tiers.look(ctx, entry)

    async def reserve_money(self, ctx: InvokeContext, entry: Entry) -> None:
        """Takes a free call of the service's free tier, or else what the call may cost from the budgets."""
        if entry.free_calls is not None:
            await self.free_tiers.enter(ctx, entry)
        if not ctx.estimate.free_left:
            await self.budgets.enter(ctx, entry)

    async def _check_again(self, ctx: InvokeContext, call: Call, entry: Entry) -> None:
        """Refuses what may no longer be done now that a person has answered: that can take long, and rules change."""
        if self.notices.changed():
            await self.notices.catch_up(self.refresh)
        await self.policy.enter(ctx, entry)
        off = self.catalog.why_off(entry, call.actor.tenant, is_internal=call.internal)
        if off is not None:
            raise not_found(call.tool, off)
        now = self.catalog.resolve(entry.name, call.actor.tenant)
        self.consent.must_be_unchanged(entry, now.of_call(ctx.arguments))
        await self._screen(ctx, entry)  # what a path leads to may have changed as well

    async def _take_edited(self, ctx: InvokeContext, entry: Entry, edited: bytes) -> None:
        """Checks what a person edited like what a caller sends."""
        ctx.arguments, ctx.sealed = orjson.loads(edited), False
        self.inputs.accept(ctx, entry)
        tool = self.catalog.resolve(entry.name, ctx.call.actor.tenant)
        self.consent.must_be_unchanged(entry, tool.of_call(ctx.arguments))  # another operation is another question
        await self.check_arguments(ctx, entry)
        self.secrets.check_present(entry, ctx.canonical, ctx.arguments, ctx.call.actor, ctx.hosts)
        await self._mask(ctx, entry)

    async def _mask(self, ctx: InvokeContext, entry: Entry) -> None:
        masking = self.redaction.mask_arguments(ctx, entry)
        if masking is not None:
            await masking


def _must_be_shown(ctx: InvokeContext, shown: tuple[str, ...]) -> None:
    """Refuses an edit that would have the call reach hosts which whoever edited it was not told of."""
    if more := [host for host in ctx.hosts if host not in shown]:
        raise Denied(
            "PERMISSION_DENIED",
            f"The edited command could reach {', '.join(more)}, which was not shown when it was approved.",
            suggestion="Call it as it was edited, so that its hosts are asked about.",
        )
