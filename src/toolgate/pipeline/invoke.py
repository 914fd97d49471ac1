"""The life of one call, in order. The only module that knows all steps; each is a call into the module of its name.

Users' hooks run at the named stages of this line (`hooks.Stages` lists them). Toolgate's own steps are not hooks: nobody
can reorder or remove them. A feature is a new step with one line here, not a new branch.

    resolve → context → authorize → flags → parse, validate, normalize → tier → idempotency → continuation → consent → quota
    → place → redact → cache → secrets → start record → execute → output → cache → end record → metrics → release → finalize

What ends a call early is raised (`CallError`, `Control`) and becomes its outcome in `__call__`; after that there is one
way out, `_settle`, which gives back what was taken. Only a cancellation of the caller leaves as an exception.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter, time_ns
from typing import Any, NoReturn, TypeVar

import msgspec
import orjson

from toolgate.coordination.notices import Notices
from toolgate.errors import CallError, Denied, Failed, Pending, described, not_found, said
from toolgate.gates.approval.consent import Consent
from toolgate.gates.approval.continuation import Continuations
from toolgate.gates.approval.records import changed_meanwhile
from toolgate.gates.cache import ResultCache
from toolgate.gates.idempotency import Idempotency
from toolgate.gates.inputs import Inputs
from toolgate.gates.ledger.artifacts import Artifacts
from toolgate.gates.ledger.audit import Ledger
from toolgate.gates.outputs import Outputs
from toolgate.gates.policy.guard import Guard
from toolgate.gates.policy.observe import Observer
from toolgate.gates.quota.budget import Budgets
from toolgate.gates.quota.concurrency import Concurrency, Running
from toolgate.gates.quota.money import estimate
from toolgate.gates.quota.rate import Rates
from toolgate.gates.redaction import Redactor
from toolgate.gates.screening.tiers import TierRules
from toolgate.gates.secrets import Secrets
from toolgate.model import NANO, TIERS, Call, Decision, Entry, Outcome, SpendingLimit
from toolgate.pipeline.context import InvokeContext, Providers
from toolgate.pipeline.control import Halt, Respond
from toolgate.pipeline.hooks import HookSet, Stages, caller_is_cancelled
from toolgate.pipeline.offload import LARGE, Offload
from toolgate.pipeline.outcome import Ending
from toolgate.pipeline.usage import UNPRICED
from toolgate.registry.catalog import Catalog
from toolgate.runners.execution import Execution
from toolgate.sandbox.workspaces import Workspaces

UNASKED = {tier: f"tier {tier} runs unasked" for tier in TIERS}
T = TypeVar("T")
SURELY_FEW = 2_000
"""Bytes of arguments that hold few paths: each takes up to a millisecond to judge."""
PATTERN = re.compile(rb"[*?]|[^,:\[{\s]\[")
"""What may be the wildcards of a path among arguments as JSON: to see what they find takes longer than a path does."""

logger = logging.getLogger("toolgate")


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An `Invoke`: awaits a call's whole life and gives its outcome."""

    running: Running
    notices: Notices
    refresh: Callable[[], Awaitable[None]]
    providers: Providers
    hooks: HookSet
    catalog: Catalog
    guard: Guard
    inputs: Inputs
    tiers: TierRules
    places: Workspaces
    consent: Consent
    continuations: Continuations
    rates: Rates
    budgets: Budgets
    concurrency: Concurrency
    idempotency: Idempotency
    redactor: Redactor
    cache: ResultCache
    secrets: Secrets
    execution: Execution
    outputs: Outputs
    artifacts: Artifacts
    ledger: Ledger
    ending: Ending
    offload: Offload
    observer: Observer | None = None

    async def __call__(self, call: Call) -> Outcome:
        ctx = InvokeContext(call, self.providers, self, time_ns(), perf_counter())
        self.running.count += 1
        on = self.hooks.common
        ctx.hooked = on.any
        if call.parent is not None:
            self.secrets.inherit(ctx)
        try:
            if self.notices.changed():
                await self.notices.catch_up(self.refresh)
            entry = ctx.entry = self.catalog.find(call.tool, call.actor.tenant) or await self._missing(ctx, call)
            if entry.hooks:
                on = self.hooks.stages(entry.hooks)
                ctx.hooked = on.any
            try:
                await self._run(ctx, call, entry, on)
            except Respond as answer:
                ctx.output = answer.value
                await self._deliver(ctx, entry, on)
            else:
                if not ctx.cached:
                    await self._deliver(ctx, entry, on)
                    if on.will_write_cache or entry.cache is not None:
                        await self._remember(ctx, entry, on)
            ctx.error = None  # of an attempt that was made up for
        except asyncio.CancelledError:
            ctx.went_away = caller_is_cancelled()
            who = "The caller went away" if ctx.went_away else "The tool or a hook cancelled the call"
            ctx.error = Failed("CANCELLED", f"{who} before it ended.")
        except BaseException as error:
            ctx.error = self.ending.understand(error)
        return await self._settle(ctx, on)

    async def _run(self, ctx: InvokeContext, call: Call, entry: Entry, on: Stages) -> None:  # noqa: C901 - a straight line
        """From the call to its raw output."""
        # who is calling, and with what around it
        if on.will_create_invoke_context:
            await on.will_create_invoke_context(ctx)
        if on.did_create_invoke_context:
            await on.did_create_invoke_context(ctx)
        if on.will_bind_providers:
            await on.will_bind_providers(ctx)
        comes_again = call.approval is not None or call.idempotency_key is not None or call.place is not None
        no_arguments = await self._take_arguments(ctx) if comes_again and call.arguments is None else None

        # may it?
        if on.will_authorize:
            await on.will_authorize(ctx)
        decision = self.guard.known(call.actor, "tool.request", entry.name) or await self.decide(ctx, entry)
        if not decision.allow:
            raise await self._refusal(ctx, decision.reason)
        ctx.decision = (decision.reason,)
        if on.will_check_feature_flags:
            await on.will_check_feature_flags(ctx)
        off = self.catalog.why_off(entry, call.actor.tenant)
        if off is not None:
            await self._refusal(ctx, off)  # not for its answer: whatever is hidden is looked up alike
            raise not_found(call.tool, off)
        if no_arguments is not None:
            raise no_arguments

        # with these arguments?
        if on.will_parse_input:
            await on.will_parse_input(ctx)
        if type(ctx.arguments) is not dict:
            self.inputs.parse(ctx)
        if on.will_validate_input:
            await on.will_validate_input(ctx)
        large = self.inputs.write(ctx, entry)
        if large:
            ctx.arguments = orjson.loads(ctx.canonical)  # the caller's own could change while a thread looks at them
            await self.offload(call.actor.tenant, self.inputs.check, ctx, entry)
        if on.will_normalize_input:
            await on.will_normalize_input(ctx)
        if large:
            await self.offload(call.actor.tenant, self.inputs.normalize, ctx, entry)
        else:
            self.inputs.normalize(ctx, entry)
        if entry.guards is not None or self.guard.reads_arguments:
            await self._check_arguments(ctx, entry)

        # once only?
        if (comes_again or entry.name in self.continuations.tools) and await self._is_known(ctx, entry):
            return

        # does a person agree, and is there money and room?
        if on.will_check_consent:
            await on.will_check_consent(ctx)
        costs = self.budgets.applies(entry)
        if costs:
            ctx.estimate = estimate(entry, ctx.arguments)
        if entry.asks is not None:
            await self._ask(ctx, entry)
        if call.spending_limit is not None:
            self._take_from_purse(ctx, entry, call.spending_limit)
        ctx.decision = (decision.reason, ctx.consent or UNASKED[entry.tier])
        if on.will_acquire_quota:
            await on.will_acquire_quota(ctx)
        if (self.rates.ruled or entry.rate_limit is not None) and not ctx.resumed:
            rated = self.rates.acquire(call, entry)
            if rated is not None:
                await rated
        if costs:
            await self._reserve(ctx, entry)
        ctx.has_quota = True
        if on.will_acquire_semaphore:
            await on.will_acquire_semaphore(ctx)
        if self.concurrency.bounded or entry.concurrency is not None:
            placed = self.concurrency.acquire(call, entry)
            if placed is not None:
                await placed
        ctx.has_place = True
        if on.will_redact_input:
            await on.will_redact_input(ctx)
        if not ctx.recorded:
            ctx.recorded = ctx.canonical
            if entry.takes_text and (ctx.injected or not self.redactor.is_harmless(ctx.arguments)):
                await self._mask_arguments(ctx, entry)

        # is the answer known already?
        if on.will_read_cache:
            await on.will_read_cache(ctx)
        if entry.cache is not None and not ctx.inherits_secrets and await self._recall(ctx, entry, on):
            return
        if on.did_cache_miss:
            await on.did_cache_miss(ctx)

        # run it: from the secrets on nothing raw is logged, from the start record on the log knows of it
        if on.will_inject_secrets:
            await on.will_inject_secrets(ctx)
        arguments = orjson.loads(ctx.canonical) if ctx.hooked else ctx.arguments  # whatever hooks did to theirs
        if entry.takes_text or entry.auth is not None:
            arguments = self.secrets.inject(ctx, entry, arguments)
        on_disk = self.ledger.start(ctx, entry)
        if on_disk is not None:
            await on_disk
        if ctx.has_key:
            await self.idempotency.confirm(call)
        if ctx.reserved:
            await self.budgets.confirm(call)
        if ctx.node is not None:
            await self.continuations.confirm(ctx)
        if on.around_execute:
            ctx.result = await on.around_execute(ctx, self._inner(ctx, entry, arguments, on))
        else:
            await self.execution.run(ctx, entry, arguments, on)
        if ctx.node is not None and ctx.node.is_halted:
            raise Halt(ctx.node.tree.stop())  # whatever the tool made of it

    async def _deliver(self, ctx: InvokeContext, entry: Entry, on: Stages) -> None:
        """Make the output fit to be given out: as promised, without secrets, not too long."""
        if on.will_validate_output:
            await on.will_validate_output(ctx)
        size = self.outputs.validate(ctx, entry)
        if on.will_redact_output:
            await on.will_redact_output(ctx)
        if ctx.injected or not self.redactor.is_harmless(ctx.result):
            await self._mask_result(ctx, entry, size)
        if on.will_transform_output:
            await on.will_transform_output(ctx)
        if size > LARGE:
            await self._shorten(ctx)
            return
        whole = None if ctx.call.whole else self.outputs.too_long(ctx)
        if whole is not None:
            ctx.output, cuts = self.outputs.cut(ctx.result)
            ctx.artifact = await self.artifacts.keep(ctx.call, whole, cuts)

    async def _settle(self, ctx: InvokeContext, on: Stages) -> Outcome:  # noqa: C901 - a straight line
        """The one way out: record, count, give back. Nothing in here changes how the call ended, and a caller that goes away
        is let go only at its end."""
        ctx.finished_at = perf_counter()
        if ctx.node is not None:
            await self._to_the_end(ctx, self._try(ctx, self.continuations.leave(ctx)))
        error = ctx.error
        try:
            if on.on_error and error is not None and not isinstance(error, Pending):
                await on.on_error(ctx)
                ctx.error = error  # how it ended, a hook can't change
            told = None if error is None else await self.ending.told(ctx, error)
            outcome = ctx.outcome = self.ending.outcome(ctx, told)
            if self.observer is not None and ctx.entry is not None:
                await self._observe(ctx, ctx.entry, self.observer)
            if on.will_audit:
                await on.will_audit(ctx)
            if error is not None and error.reason is not None:
                error.reason = self.redactor.text(said(error.reason), ctx.injected)
            on_disk = self.ledger.end(ctx, outcome, self.ending.remarks(ctx) if ctx.has_remarks else None)
            if on_disk is not None:
                outcome = ctx.outcome = await on_disk
            if on.did_audit:
                await on.did_audit(ctx)
            if on.on_metrics:
                await on.on_metrics(ctx)
        finally:
            if ctx.has_place and (entry := ctx.entry) and (self.concurrency.bounded or entry.concurrency is not None):
                released = self.concurrency.release(ctx.call, entry)
                if released is not None:
                    await self._to_the_end(ctx, released)
            if ctx.owes:
                await self._to_the_end(ctx, self._settle_debts(ctx))
            if ctx.injected:
                self.secrets.forget(ctx)
            if ctx.from_purse is not None and ctx.call.spending_limit is not None:
                ctx.call.spending_limit.left += ctx.from_purse - ctx.cost
            self.running.leave()
        if ctx.has_place and on.did_release_semaphore:
            await on.did_release_semaphore(ctx)
        if ctx.has_quota and on.did_release_quota:
            await on.did_release_quota(ctx)
        if on.will_finalize_invoke:
            await on.will_finalize_invoke(ctx)
        if ctx.hooked:
            self.ending.log_hook_errors(ctx)
        if ctx.went_away:
            raise asyncio.CancelledError
        return outcome

    # -- parts of the line that not every call has

    async def _recall(self, ctx: InvokeContext, entry: Entry, on: Stages) -> bool:
        """Whether the cache has the answer, and no hook declines it."""
        key, shared = self.cache.key(entry, ctx.call, ctx.canonical), self.cache.shared
        hit = self.cache.read(key) if shared is None else await shared.read(key)
        if hit is None:
            return False
        ctx.output = hit[0]
        if on.did_cache_hit:
            await on.did_cache_hit(ctx)
        ctx.cached = not ctx.hit_declined
        return ctx.cached

    async def _remember(self, ctx: InvokeContext, entry: Entry, on: Stages) -> None:
        """Keep what is given out, unless it was masked or cut: the next caller may be owed more."""
        if on.will_write_cache:
            await on.will_write_cache(ctx)
        if entry.cache is not None and not (ctx.redacted or ctx.inherits_secrets or ctx.artifact or ctx.call.whole):
            key, shared = self.cache.key(entry, ctx.call, ctx.canonical), self.cache.shared
            if shared is None:
                self.cache.write(key, ctx.result, entry.cache.ttl)
            else:
                await shared.write(key, ctx.result, entry.cache.ttl)

    async def decide(self, ctx: InvokeContext, entry: Entry | None) -> Decision:
        """What the policy says of this call, where that is not known yet."""
        call = ctx.call
        arguments = self.inputs.glance(ctx.arguments, entry) if self.guard.reads_arguments else None
        return await self.guard.decide(
            call.actor, "tool.request", call.tool if entry is None else entry.name,
            tier=None if entry is None else entry.tier, session=call.session, door=call.door, arguments=arguments,
        )  # fmt: skip

    async def _take_arguments(self, ctx: InvokeContext) -> CallError | None:
        """Have the arguments that an approval is about, if the call has one. Gives why there are none, for who may know of
        the tool."""
        if ctx.call.approval is None:
            return None
        try:
            ctx.input = await self.consent.arguments_of(ctx.call)
        except CallError as error:
            return error
        return None

    async def _missing(self, ctx: InvokeContext, call: Call) -> NoReturn:
        """Refuse a tool that does not exist, after all that is done for one that is hidden before it is refused: neither the
        answer nor the time that it takes tells them apart. What is recorded is the ledger's to see to."""
        if isinstance(call.tool, str):  # nothing is called otherwise
            if call.approval is not None and call.arguments is None:
                await self._take_arguments(ctx)
            decision = self.guard.known(call.actor, "tool.request", call.tool) or await self.decide(ctx, None)
            await self._refusal(ctx, decision.reason)
        raise self.catalog.missing(call.tool)

    async def _observe(self, ctx: InvokeContext, entry: Entry, observer: Observer) -> None:
        """Note what candidate policies say of this call."""
        call = ctx.call
        arguments = self.inputs.glance(ctx.arguments, entry) if observer.reads_arguments else None
        ctx.scratch.observed = await observer.answers(
            call.actor, entry.name, tier=entry.tier, session=call.session, door=call.door, arguments=arguments
        )

    async def _refusal(self, ctx: InvokeContext, reason: str) -> CallError:
        """Hidden and missing look the same; only what may be seen can be denied. Where the policy can't be asked, what the
        actor had is not called missing."""
        actor, tool = ctx.call.actor, ctx.call.tool
        view = self.guard.known(actor, "tool.view", tool) or await self.guard.decide(actor, "tool.view", tool)
        if self.guard.reads_arguments:
            reason = self.redactor.without_fields(reason, ctx.arguments)
        if not view.allow and (view.sure or self.guard.hides(actor, tool)):
            return not_found(tool, reason)
        return Denied("PERMISSION_DENIED", f"{tool} is not permitted: {reason}.", reason=reason)

    async def _check_arguments(self, ctx: InvokeContext, entry: Entry) -> None:
        """What policy and tier say of the very arguments that will run, whatever hooks made of those that came in."""
        if self.guard.reads_arguments:
            decision = await self.decide(ctx, entry)
            if not decision.allow:
                raise await self._refusal(ctx, decision.reason)
        if entry.guards is not None:
            await self._check_files(ctx, entry)

    async def _check_files(self, ctx: InvokeContext, entry: Entry) -> None:
        """The files and commands among the arguments, seen from the folder that the call works in."""
        call, canonical = ctx.call, ctx.canonical
        check = partial(self.tiers.check, entry, ctx.arguments, self.places.known(call), call.allow)
        if len(canonical) > SURELY_FEW or PATTERN.search(canonical) is not None:
            await self.offload(call.actor.tenant, check)
        else:
            check()

    async def _is_known(self, ctx: InvokeContext, entry: Entry) -> bool:
        """True if the call was made before: its outcome is given again. One that was only begun goes on."""
        if ctx.call.idempotency_key is not None and await self._repeat(ctx, entry):
            return True
        return await self.continuations.enter(ctx, entry)

    async def _repeat(self, ctx: InvokeContext, entry: Entry) -> bool:
        """Whether the call's key was used before: then what came of it comes again."""
        asked = None if ctx.call.approval is None else await self.consent.key_hash(ctx.call)
        ctx.has_key = ctx.owes = True
        first = await self.idempotency.claim(ctx.call, entry, ctx.canonical, asked)
        if first is None:
            return False
        ctx.has_key = False
        ctx.cached = True
        first.raise_for_status()
        ctx.output, ctx.artifact = first.output, first.artifact
        return True

    async def _ask(self, ctx: InvokeContext, entry: Entry) -> None:
        """Have a person's approval, or end here. What a person edits is checked like what a caller sends."""
        if ctx.call.covered and not entry.destructive:
            ctx.consent = f"agreed to with call {ctx.call.parent}"
            return
        self.secrets.check_present(entry, ctx.canonical, ctx.arguments, ctx.call.actor)
        await self._mask_arguments(ctx, entry)
        ctx.asked = ctx.owes = True
        try:
            edited = await self.consent.obtain(ctx, entry, ctx.estimate or UNPRICED)
        except Pending:
            ctx.asked = False
            raise
        await self._check_again(ctx, entry)
        if edited is None:
            return
        ctx.arguments, ctx.sealed = orjson.loads(edited), False
        self.inputs.validate(ctx, entry)
        self.inputs.normalize(ctx, entry)
        await self._check_arguments(ctx, entry)
        self.secrets.check_present(entry, ctx.canonical, ctx.arguments, ctx.call.actor)
        await self._mask_arguments(ctx, entry)
        if ctx.estimate is not None:
            ctx.estimate = estimate(entry, ctx.arguments)

    async def _check_again(self, ctx: InvokeContext, entry: Entry) -> None:
        """Whether the call may still be made, now that a person has answered: that can take long, and rules change."""
        call = ctx.call
        if self.notices.changed():
            await self.notices.catch_up(self.refresh)
        decision = self.guard.known(call.actor, "tool.request", entry.name) or await self.decide(ctx, entry)
        if not decision.allow:
            raise await self._refusal(ctx, decision.reason)
        off = self.catalog.why_off(entry, call.actor.tenant)
        if off is not None:
            raise not_found(call.tool, off)
        there = self.catalog.find(entry.name, call.actor.tenant) or await self._missing(ctx, call)
        if there.fingerprint != entry.fingerprint:
            raise changed_meanwhile(entry.name)
        if entry.guards is not None:
            await self._check_files(ctx, entry)  # what a path leads to may have changed as well

    def _inner(
        self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any], on: Stages
    ) -> Callable[[], Awaitable[Any]]:
        """What around_execute hooks have as `next`. What was approved once, or has a key, they can't run twice."""

        async def run() -> Any:
            if ctx.attempts and (ctx.asked or ctx.has_key):
                raise Failed("UNEXPECTED_ERROR", "A hook called next() twice for a call that may run once.")
            return await self.execution.run(ctx, entry, arguments, on)

        return run

    def _take_from_purse(self, ctx: InvokeContext, entry: Entry, purse: SpendingLimit) -> None:
        """What the call may cost, out of what is left to the program that makes it; what it did not cost comes back."""
        cost = (ctx.estimate or estimate(entry, ctx.arguments)).nano
        if cost > max(purse.left, 0):
            left = max(purse.left, 0) / NANO
            raise Denied("BUDGET_EXCEEDED", f"{entry.name} may cost ${cost / NANO:g}, and the program has ${left:g} left.")
        purse.left -= cost
        ctx.from_purse = cost

    async def _reserve(self, ctx: InvokeContext, entry: Entry) -> None:
        ctx.reserved = ctx.owes = True
        await self.budgets.reserve(ctx.call, entry, ctx.estimate)

    async def _to_the_end(self, ctx: InvokeContext, settling: Awaitable[T]) -> T:
        """Settle what was taken, or record what happened: a caller that goes away meanwhile waits for it."""
        work = asyncio.ensure_future(settling)
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                ctx.went_away = True
        return work.result()

    async def _settle_debts(self, ctx: InvokeContext) -> None:
        """Pay, say what came of the key, give back what was not used. One that fails keeps none of the others from it."""
        call, entry, outcome = ctx.call, ctx.entry, ctx.outcome
        if (ctx.reserved or ctx.cost) and entry is not None:
            await self._try(ctx, self.budgets.settle(call, entry, ctx.estimate or UNPRICED, ctx.cost))
        if ctx.has_key and outcome is not None:
            await self._try(ctx, self.idempotency.complete(call, outcome, ctx.ran, ctx.unsure))
        if ctx.asked and not ctx.ran and (outcome is None or not outcome.ok):
            await self._try(ctx, self.consent.give_back(call.id))
        elif ctx.asked and isinstance(ctx.error, Pending):
            await self._try(ctx, self.consent.suspend(call.id))
        elif ctx.asked:
            self.consent.keep(call.id)

    async def _try(self, ctx: InvokeContext, settling: Awaitable[None]) -> None:
        try:
            await settling
        except Exception as error:
            logger.error("a call could not be settled: %s", self.redactor.text(described(error), ctx.injected))

    async def _mask_arguments(self, ctx: InvokeContext, entry: Entry) -> None:
        arguments = orjson.loads(ctx.canonical) if ctx.hooked else ctx.arguments  # whatever hooks did to theirs
        mask = partial(self.redactor.arguments, ctx.canonical, arguments, entry.public_input, ctx.injected)
        if len(ctx.canonical) > LARGE:
            ctx.recorded = await self.offload(ctx.call.actor.tenant, mask)
            return
        if not self.redactor.ready:
            await self.redactor.prepare(arguments)
        ctx.recorded = mask()

    async def _mask_result(self, ctx: InvokeContext, entry: Entry, size: int) -> None:
        mask = partial(self.redactor.mask, ctx.result, entry.public_output, ctx.injected)
        if size > LARGE:
            masked = await self.offload(ctx.call.actor.tenant, mask)
        else:
            if not self.redactor.ready:
                await self.redactor.prepare(ctx.result)
            masked = mask()
        if masked is not ctx.result:
            ctx.output = masked
            ctx.redacted = True

    async def _shorten(self, ctx: InvokeContext) -> None:
        """Cut a large output, if it is over a limit."""
        tenant = ctx.call.actor.tenant
        whole = None if ctx.call.whole else await self.offload(tenant, self.outputs.too_long, ctx)
        if whole is not None:
            ctx.output, cuts = await self.offload(tenant, self.outputs.cut, ctx.result)
            ctx.artifact = await self.artifacts.keep(ctx.call, whole, cuts)
