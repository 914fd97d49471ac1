"""The life of one call, in order, in named phases. The only module that knows all gates; each step is a call into its room.

    identify   who calls what, and with what around it
    permit     may it? policy, feature flags
    validate   with these arguments? schema, canonical form, policy and screening of what will run; made before?
    agree      does a person agree, and may its program spend so much?
    reserve    rate, money, a place among the running calls
    recall     the copy that records hold; is the answer known already?
    run        secrets, start record, the tool itself
    deliver    output as promised, without secrets, not too long
    settle     end record; whatever the call holds is left; finalize

Users' hooks run at the named stages of this line (`hooks.Stages` lists them, `gate_order` the gates). Gates are not hooks:
nobody can reorder or remove them. A feature is a new gate with one line in its phase, not a new branch. What a gate takes
for a call it holds (`held_resources`) before it awaits anything; what can change while a call waits it looks at on entry.

What ends a call early is raised (`CallError`, `Control`) and becomes its outcome in `__call__`; after that there is one
way out, `_settle`, which leaves what is held. Only a cancellation of the caller leaves as an exception.
"""

import asyncio
import logging
from functools import partial
from time import perf_counter
from typing import Any

import orjson

from toolgate.errors import CallError, Failed, Pending, not_found
from toolgate.model import Call, Entry, ErrorInfo, Outcome
from toolgate.pipeline import held_resources as held
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.early_exit import Halt, Respond
from toolgate.pipeline.gates import Gates
from toolgate.pipeline.hooks import Stages, caller_is_cancelled
from toolgate.pipeline.stage_marks import mark

logger = logging.getLogger("toolgate")


class Pipeline(Gates, frozen=True, kw_only=True, eq=False):
    """An `Invoke`: awaits a call's whole life and gives its outcome."""

    async def __call__(self, call: Call) -> Outcome:
        ctx = InvokeContext(call, self.providers, self, self.ledger.time_ns(), perf_counter(), call.arguments, call.place)
        self.running.count += 1
        on = self.hooks.common
        ctx.hooked = on.any
        try:
            if call.parent is not None:
                self.secrets.inherit(ctx)
            if self.notices.changed():
                await self.notices.catch_up(self.refresh)
            entry = ctx.entry = self.catalog.find(call.tool, call.actor.tenant, call.governed) or await self.refuse_missing(
                ctx, call
            )
            if entry.hooks or call.hooks:
                on, entry = self.hooks.of_call(entry, call)
                ctx.entry, ctx.hooked = entry, on.any
            try:
                is_known = await self._way_in(ctx, call, entry, on)
            except Respond as answer:
                ctx.output = answer.value
                await self._deliver(ctx, entry, on)
            else:
                if not is_known:
                    is_whole = await self._deliver(ctx, entry, on)
                    if on.will_write_cache or entry.cache is not None:
                        await self._keep(ctx, entry, on, is_whole)
            ctx.error = None  # of an attempt that was made up for
        except asyncio.CancelledError:
            ctx.went_away = caller_is_cancelled()
            who = "The caller went away" if ctx.went_away else "The tool or a hook cancelled the call"
            ctx.error = Failed("CANCELLED", f"{who} before it ended.")
        except BaseException as error:
            ctx.error = self.ending.understand(error)
        return await self._settle(ctx, on)

    async def _way_in(self, ctx: InvokeContext, call: Call, entry: Entry, on: Stages) -> bool:
        """From the call to its raw output. True: what comes of it is known already, and nothing was run. A phase in which no
        hook and no gate has anything to do for the call is left out: to enter it costs more than to look."""
        hooked = not on.empty
        comes_again = call.approval is not None or call.has_own_key or call.place is not None
        unavailable = await self._identify(ctx, call, on) if hooked or comes_again else None
        reason = await self._permit(ctx, call, entry, on)
        if unavailable is not None:
            raise unavailable  # only who may know of the tool is told
        entry = await self._validate(ctx, entry, on)
        if (comes_again or entry.name in self.continuations.tools) and await self._is_known(ctx, call, entry):
            return True
        costs = entry.priced or entry.name in self.budgets.reporting
        if hooked or costs or entry.asks is not None or call.spending_limit is not None:
            ctx.decision = (reason, await self._agree(ctx, call, entry, on, costs))
        else:
            ctx.decision = (reason, entry.unasked)
        if (entry.background or call.background is not None) and call.job is None and call.parent is None:
            await self._enqueue(ctx, entry, on, costs)
            return True
        if hooked or costs or entry.rate_limit or entry.concurrency or self.rates.ruled or self.concurrency.bounded:
            await self._reserve(ctx, entry, on, costs)
        if hooked or entry.takes_text or entry.cache is not None:
            if await self._recall(ctx, entry, on):
                return True
        elif not ctx.recorded:  # a copy that was shown to a person stays as it was masked for them
            ctx.recorded = ctx.canonical
        await self._run(ctx, entry, on)
        return False

    async def _identify(self, ctx: InvokeContext, call: Call, on: Stages) -> CallError | None:
        """Binds what the call finds around it, and the arguments that an approval is about; gives why there are none."""
        if on.will_create_invoke_context:
            await on.will_create_invoke_context(ctx)
        if on.did_create_invoke_context:
            await on.did_create_invoke_context(ctx)
        if on.will_bind_providers:
            await on.will_bind_providers(ctx)
        return await self.take_arguments(ctx, call)

    async def _permit(self, ctx: InvokeContext, call: Call, entry: Entry, on: Stages) -> str:
        """Gives the reason why the policy lets the call through."""
        if on.will_authorize:
            await on.will_authorize(ctx)
        known = self.policy.guard.known(call.actor, "tool.request", entry.name)
        is_known = known is not None and known.allow and not call.on_behalf_of
        reason = known.reason if known is not None and is_known else await self.policy.enter(ctx, entry)
        ctx.decision = (reason,)
        if on.will_check_feature_flags:
            await on.will_check_feature_flags(ctx)
        off = self.catalog.why_off(entry, call.actor.tenant, is_internal=call.internal)
        if off is not None:
            await self.policy.refusal(ctx, off)  # not for its answer: whatever is hidden is looked up alike
            raise not_found(call.tool, off)
        return reason

    async def _validate(self, ctx: InvokeContext, entry: Entry, on: Stages) -> Entry:
        """Makes sure of the arguments: from here on they can't change, and what is checked is what runs. Gives what governs
        the call from here on."""
        if on.will_parse_input:
            await on.will_parse_input(ctx)
        if type(ctx.arguments) is not dict:
            self.inputs.parse(ctx)
        if on.will_validate_input:
            await on.will_validate_input(ctx)
        is_large = self.inputs.enter(ctx, entry)
        if is_large:
            await self.inputs.check_large(ctx, entry)
        if on.will_normalize_input:
            await on.will_normalize_input(ctx)
        if is_large:
            await self.inputs.seal_large(ctx, entry)
        else:
            self.inputs.seal(ctx, entry)
        if entry.operations is not None:
            entry = await self.take_operation(ctx, entry)
        if entry.guards is not None or self.policy.guard.reads_arguments:
            mark(ctx, "screening")
            await self.check_arguments(ctx, entry)
        if ctx.call.background is not None:
            self.queue.check(ctx.call)
        return entry

    async def _is_known(self, ctx: InvokeContext, call: Call, entry: Entry) -> bool:
        """True if the call was made before: its outcome is given again. One that was only begun goes on."""
        if call.has_own_key:
            mark(ctx, "idempotency")
            args_hash = await self.consent.key_hash(call)
            if await self.idempotency.enter(ctx, entry, args_hash):
                return True
        return await self.continuations.enter(ctx, entry)

    async def _agree(self, ctx: InvokeContext, call: Call, entry: Entry, on: Stages, costs: bool) -> str:
        """Has a person's approval where one is needed, or ends the call here. Gives who agreed, and how."""
        if on.will_check_consent:
            await on.will_check_consent(ctx)
        if costs:
            await self.estimate_money(ctx, entry)
        if call.spending_limit is not None:
            self.spending.check(ctx, entry, call.spending_limit)
        if entry.asks is not None:
            words = await self.ask(ctx, call, entry, costs=costs)
        else:
            words = entry.unasked
        if call.spending_limit is not None:
            self.spending.enter(ctx, entry, call.spending_limit)
        return words

    async def _enqueue(self, ctx: InvokeContext, entry: Entry, on: Stages, costs: bool) -> None:
        """Queues a call that is to be made in the background, with the money that it may cost, and ends it here. Returns
        where it was queued before and is over: with what came of it."""
        if on.will_acquire_quota:
            await on.will_acquire_quota(ctx)
        await self.count_rate(ctx, entry)
        if costs and not ctx.estimate.free_left:
            await self.budgets.enter(ctx, entry)
        await self._mask(ctx, entry)
        before = await self.queue.enter(ctx, entry)
        ctx.cached = True
        before.raise_for_status()
        ctx.output, ctx.artifact = before.output, before.artifact

    async def _reserve(self, ctx: InvokeContext, entry: Entry, on: Stages, costs: bool) -> None:
        if on.will_acquire_quota and not ctx.call.has_quota:
            await on.will_acquire_quota(ctx)
        if not ctx.resumed and not ctx.call.is_counted:
            await self.count_rate(ctx, entry)
        if costs:
            await self.reserve_money(ctx, entry)
        if on.did_release_quota:
            ctx._released = (on.did_release_quota,)
        if on.will_acquire_semaphore:
            await on.will_acquire_semaphore(ctx)
        if self.concurrency.bounded or entry.concurrency is not None:
            taking = self.concurrency.enter(ctx, entry)
            if taking is not None:
                await taking
        if on.did_release_semaphore:
            ctx._released = (on.did_release_semaphore, *ctx._released)

    async def _recall(self, ctx: InvokeContext, entry: Entry, on: Stages) -> bool:
        """True if the answer is in the cache."""
        if on.will_redact_input:
            await on.will_redact_input(ctx)
        masking = None if ctx.recorded else self.redaction.enter(ctx, entry)
        if masking is not None:
            await masking
        if on.will_read_cache:
            await on.will_read_cache(ctx)
        if entry.cache is not None and not ctx.inherits_secrets and await self.cache.enter(ctx, entry, on):
            return True
        if on.did_cache_miss:
            await on.did_cache_miss(ctx)
        return False

    async def _run(self, ctx: InvokeContext, entry: Entry, on: Stages) -> None:
        """Runs the tool: from the secrets on nothing raw is logged, from the start record on the log knows of it."""
        if on.will_inject_secrets:
            await on.will_inject_secrets(ctx)
        arguments = orjson.loads(ctx.canonical) if on.any else ctx.arguments  # whatever hooks did to theirs
        if entry.takes_text or entry.auth is not None:
            arguments = self.secrets.enter(ctx, entry, arguments)
        waits = ctx._held is not None and held.is_settled_by_start(ctx._held)
        on_disk = self.ledger.start(ctx, entry, waits)
        if on_disk is not None:
            await on_disk
        if waits:
            await held.confirm(ctx)
        if ctx.node is not None:
            await self.continuations.confirm(ctx)
        if on.around_execute:
            ctx.result = await on.around_execute(ctx, partial(self._run_once, ctx, entry, arguments, on))
        else:
            await self.execution.run(ctx, entry, arguments, on)
        if ctx.node is not None and ctx.node.is_halted:
            raise Halt(ctx.node.tree.stop())  # whatever the tool made of it

    async def _run_once(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any], on: Stages) -> Any:
        """The `next` of around_execute hooks. What was approved once, or has a key, they can't run twice."""
        if ctx.attempts and held.runs_once(ctx):
            raise Failed("UNEXPECTED_ERROR", "A hook called next() twice for a call that may run once.")
        return await self.execution.run(ctx, entry, arguments, on)

    async def _deliver(self, ctx: InvokeContext, entry: Entry, on: Stages) -> bool:
        """Makes the output fit to be given out. True: nothing of it had to be masked or cut."""
        if on.will_validate_output:
            await on.will_validate_output(ctx)
        size = self.outputs.enter(ctx, entry)
        if on.empty and not size and not ctx.injected:  # a number or a truth, in which nothing can hide
            return True
        if on.will_redact_output:
            await on.will_redact_output(ctx)
        raw = ctx.result
        masking = self.redaction.mask_output(ctx, entry, size)
        if masking is not None:
            await masking
        is_whole = ctx.result is raw
        if is_whole and size < self.outputs.surely_small and on.empty:
            return True
        if on.will_transform_output:
            await on.will_transform_output(ctx)
        cutting = self.outputs.limit(ctx, size)
        if cutting is not None:
            await cutting
        return is_whole and ctx.artifact is None

    async def _keep(self, ctx: InvokeContext, entry: Entry, on: Stages, is_whole: bool) -> None:
        """Keeps for others what is given out, unless it was masked or cut: the next caller may be owed more."""
        if on.will_write_cache:
            await on.will_write_cache(ctx)
        if is_whole and entry.cache is not None and not ctx.inherits_secrets and not ctx.call.whole:
            await self.cache.keep(ctx, entry)

    async def _settle(self, ctx: InvokeContext, on: Stages) -> Outcome:
        """The one way out: record, count, give back. Nothing in here changes how the call ended, and a caller that goes away
        is let go only at its end."""
        ctx.finished_at = perf_counter()
        if ctx.node is not None:
            await held.to_the_end(ctx, self._conclude(ctx))
        outcome, error = None, ctx.error
        try:
            told = None if error is None else await self._tell(ctx, error, on)
            outcome = ctx.outcome = self.ending.outcome(ctx, told)
            if self.policy.observer is not None and ctx.entry is not None:
                await self.policy.observe(ctx, ctx.entry, self.policy.observer)
            if on.will_audit:
                await on.will_audit(ctx)
            if error is not None:
                self.ending.mask_reason(ctx, error)
            on_disk = self.ledger.end(ctx, outcome, None if ctx._scratch is None else self.ending.remarks(ctx))
            if on_disk is not None:
                outcome = ctx.outcome = await on_disk
            if not on.empty:
                await self._did_audit(ctx, on)
        finally:
            leaving = None if ctx._held is None else held.leave(ctx, ctx._held, outcome, self.ending.words)
            if leaving is not None:
                await held.to_the_end(ctx, leaving)
            self.running.leave()
        if not on.empty:
            await self._finalize(ctx, on)
        if ctx.went_away:
            raise asyncio.CancelledError
        return outcome

    async def _conclude(self, ctx: InvokeContext) -> None:
        """Settles what becomes of a call that made others, which may be that it waits: before its outcome is made."""
        try:
            await self.continuations.conclude(ctx)
        except Exception as error:
            logger.error("a call could not be settled: %s", self.ending.words(ctx, error))

    async def _tell(self, ctx: InvokeContext, error: CallError, on: Stages) -> ErrorInfo:
        if on.on_error and not isinstance(error, Pending):
            await on.on_error(ctx)
            ctx.error = error  # how it ended, a hook can't change
        return await self.ending.told(ctx, error)

    async def _did_audit(self, ctx: InvokeContext, on: Stages) -> None:
        if on.did_audit:
            await on.did_audit(ctx)
        if on.on_metrics:
            await on.on_metrics(ctx)

    async def _finalize(self, ctx: InvokeContext, on: Stages) -> None:
        for stage in ctx._released:
            await stage(ctx)
        if on.will_finalize_invoke:
            await on.will_finalize_invoke(ctx)
        self.ending.log_hook_errors(ctx)
