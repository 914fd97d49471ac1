"""Consent: a call that must be asked about runs only if a person said yes to it, or to calls like it ahead of time.

A yes is bound to what was asked: the tool as it was, these arguments, this actor, this policy. It ends after a while and
works once. It is kept in the store, so that a call may wait for it across restarts and be answered from anywhere. Where
nobody answers, the call ends as pending. There is no way around: silence denies.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import orjson

from toolgate.errors import Denied, Failed, Pending, StoreError
from toolgate.gates.approval import records
from toolgate.gates.approval.channel import ask, name_of
from toolgate.gates.approval.claims import ConsentsTaken, ConsentTaken, taken_by
from toolgate.gates.approval.continuation import Continuations
from toolgate.gates.approval.disclosure import disclosed, unkept
from toolgate.gates.approval.edits import restore
from toolgate.gates.approval.grants import Grants
from toolgate.gates.approval.questions import Mask, Questions, Validate
from toolgate.gates.approval.request import Answer, ApprovalError, ApprovalRequest, Approver, Grant, visible, words
from toolgate.model import LOCAL, Actor, Call, Entry, Outcome, UserMessage
from toolgate.pipeline.call_tree import CallStep
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.held_resources import HoldingGate, hold
from toolgate.pipeline.usage import Estimate
from toolgate.settings import ApprovalSettings
from toolgate.store import approvals
from toolgate.store.approvals import ApprovalRow, AskedTooOften
from toolgate.store.grants import MAX_CLOCK_SKEW, GrantRow
from toolgate.tasks import BackgroundTasks

KEEP_QUESTIONS = timedelta(days=90)
"""How long a question is kept once it can't be answered or used any more."""
PRUNE_EVERY = timedelta(hours=1)

NAME_MORE = "Have somebody else call it, or name more approvers in the setting approvals.rules."

logger = logging.getLogger("toolgate.approval")


class Consent(HoldingGate):
    """The gate. What is done about approvals from outside a call is in `questions` and `grants`."""

    runs_once = is_settled_by_start = is_agreed = True

    def __init__(
        self,
        room: records.ApprovalRoom,
        continuations: Continuations,
        settings: ApprovalSettings,
        *,
        validate: Validate,
        mask: Mask,
    ) -> None:
        self._store, self._who, self._note, self._workspace, self._policy_hash, self._clock, _ = room
        self.grants = Grants(room)
        self.questions = Questions(room, self.grants, validate, mask)
        self._settings = settings
        self._continuations = continuations
        self._lasts = timedelta(seconds=settings.expire_seconds)
        self._approvers: list[Approver] = []
        self._takings = ConsentsTaken(room.store)
        self._prune_at = room.clock()
        self.on_waiting: Callable[[ApprovalRequest], Awaitable[None]] | None = None
        """Told of each new question that a call has left to be answered later; no call waits for it."""
        self._telling = BackgroundTasks()

    def add(self, approver: Approver) -> None:
        """Attach a channel. They are asked in the order in which they came."""
        self._approvers.append(approver)

    # -- in a call

    async def enter(self, ctx: InvokeContext, entry: Entry) -> records.Agreement:
        """Lets a call go on that a person agreed to. Raises Pending where nobody has answered yet, Denied where somebody
        said no or the approval is not for this call."""
        hold(ctx, self)
        step = ctx.step
        if step is not None and step.agreed:
            return await self._agreed_before(ctx, entry, step)
        approval = ctx.call.approval if step is None else step.approval
        if approval is not None:
            return await self._redeem(ctx, entry, approval)
        if (nobody := self._who.unanswerable(entry.name, ctx.call.actor)) is not None:
            raise Denied("PERMISSION_DENIED", f"{entry.name} is not asked about: {nobody}.", suggestion=NAME_MORE)
        shown = disclosed(ctx.canonical, ctx.injected)
        for join in (True, False) if step is None else (False,):
            draft = records.drafted(ctx, entry, self._workspace(ctx.call), self._policy_hash(), self._clock(), self._lasts)
            covering, row, is_new = await self._cover_or_question(draft, shown, may_cover=not entry.destructive, join=join)
            if covering:
                return records.Agreement(" and ".join(records.covered_by(grant) for grant in covering))
            answered = row if row.used_by else await self._question(ctx, row, shown, is_new=is_new)
            if answered.used_by == ctx.call.id:
                return await self._agreed(ctx, answered)
        raise records.void(
            answered, f"was asked for by this call, but used by call {answered.used_by}", "Call again, which asks again."
        )

    async def arguments_of(self, call: Call) -> dict[str, Any] | None:
        """The arguments of a call that comes with an approval and none of its own; None if it has no approval."""
        if call.approval is None:
            return None
        if (arguments_of_outer := await self._continuations.arguments_of(call)) is not None:
            return arguments_of_outer
        row = await self._find(call.approval, call.actor)
        self._must_be_for(row, call)
        if records.is_whole(row):
            arguments: dict[str, Any] = orjson.loads(row.edited or row.arguments)
            return arguments
        raise Failed(
            "VALIDATION_ERROR",
            f"Approval {row.id} does not hold the arguments: secrets in them were masked.",
            suggestion="Call again with the approval and the same arguments.",
        )

    async def key_hash(self, call: Call) -> str | None:
        """The hash that the idempotency key of a call stands for that leaves its arguments to an approval: those that were
        asked about. Whoever asked repeats those, whatever a person made of them. None: the call has arguments of its own."""
        if call.approval is None or call.arguments is not None:
            return None
        if (outer := await self._continuations.outer_of(call.approval, call.actor.tenant)) is not None:
            return outer.given_hash
        row = await self._find(call.approval, call.actor)
        self._must_be_for(row, call)
        return row.args_hash

    async def covering(
        self, call: Call, entry: Entry, estimate: Estimate, canonical: bytes, fingerprint: str | None = None
    ) -> Grant | None:
        """The grant that would let a call with these arguments run unasked; nothing is charged to it. `fingerprint`: what it
        must be bound to, if the call may reach hosts."""
        found = await self.grants.covering(
            call, entry, estimate.nano, fingerprint or entry.fingerprint, records.hash_of(canonical)
        )
        return next((grant for grant in found if grant.has_room(estimate.nano)), None)

    def leave(self, ctx: InvokeContext, _token: Any, outcome: Outcome | None) -> Awaitable[None] | None:
        """If the call did not run, its approval, or its share of a grant, is free again. If it has run and will go on, its
        approval stays used, for that is remembered, and a grant is asked again then."""
        if not ctx.ran and (outcome is None or not outcome.ok):
            return self._takings.give_back(ctx.call.id)
        if isinstance(ctx.error, Pending):
            return self._takings.give_back(ctx.call.id, grants_only=True)
        return self._takings.settle(ctx.call.id, ctx.cost)

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        call, expected, bound = ctx.call, ctx.estimate, records.shown_fingerprint(ctx, entry)
        if entry.asks is None:
            yield GateVerdict("consent", "pass", f"tier {entry.tier} runs unasked")
        elif (nobody := self._who.unanswerable(entry.name, call.actor)) is not None:
            yield GateVerdict("consent", "deny", nobody)
        elif (grant := await self.covering(call, entry, expected, ctx.canonical, bound)) is not None:
            yield GateVerdict("consent", "pass", f"covered by grant {grant.id} of {grant.granted_by}")
        else:
            full = await self.grants.covering(call, entry, expected.nano, bound, records.hash_of(ctx.canonical))
            room = f"; {records.exhausted(full[0], expected)}" if full else ""
            yield GateVerdict("consent", "ask", f"a person must approve it: {records.shown_reason(ctx, entry)}{room}")

    def must_be_unchanged(self, entry: Entry, now: Entry) -> None:
        """Raises if the tool is not any more what the person agreed to."""
        if now.fingerprint != entry.fingerprint:
            changed = f"{entry.name} has changed while a person was asked about it; nothing was run."
            raise Denied("PERMISSION_DENIED", changed, suggestion=records.ASK_AGAIN)

    async def close(self) -> None:
        """Let people be told, and what is being given back be written, before the store is closed."""
        await self._telling.wait()
        await self._takings.close()

    # -- a call that brings an approval

    async def _redeem(self, ctx: InvokeContext, entry: Entry, id: str) -> records.Agreement:
        call = ctx.call
        row = await self._find(id, call.actor)
        self._must_be_for(row, call)
        if row.outer_call != records.outer_of(ctx)[0]:
            raise records.void(row, "was not asked for by this call")
        self._must_fit(row, ctx, entry)
        if row.state == "waiting":
            raise records.pending(row, self._clock())
        if not await self._use(row, call.id):
            row = await self._find(id, call.actor)
            self._must_fit(row, ctx, entry)
            raise records.void(row, "cannot be used now", "Try again.")
        return await self._agreed(ctx, row)

    async def _find(self, id: str, actor: Actor) -> ApprovalRow:
        row = await records.find_row(self._store, id, actor.tenant)
        if row is None:
            raise Denied("PERMISSION_DENIED", f"There is no approval {visible(str(id))[:64]}.", suggestion=records.ASK_AGAIN)
        return row

    def _must_be_for(self, row: ApprovalRow, call: Call) -> None:
        if (row.persona_id, row.user_id) != (call.actor.persona, call.actor.user):
            raise records.void(row, "was given to another actor")
        if row.tool_name != call.tool:
            raise records.void(row, f"is for {row.tool_name}, not for {visible(call.tool)[:64]}")
        if row.session_id != call.session:
            raise records.void(
                row, "was given to a call of another session" if row.session_id else "was given to no session's call"
            )
        self._must_work_there(row, call)

    def _must_work_there(self, row: ApprovalRow, call: Call) -> None:
        """Raise if the call would not work in the folder that the person was shown. Which one it is, is the operator's to
        know, not the caller's."""
        if row.workspace != self._workspace(call):
            raise records.void(row, "is for work in another folder than the one that this call would work in")

    def _must_fit(self, row: ApprovalRow, ctx: InvokeContext, entry: Entry) -> None:
        """Raise unless an approval is for this very call and can still be used, or waits to be."""
        given, at = records.hash_of(ctx.canonical), self._clock()
        if given != row.args_hash and not (given == row.edited_hash and records.is_whole(row)):
            raise records.void(
                row, "is for other arguments", f"Call with the arguments that were approved, or: {records.ASK_AGAIN}"
            )
        if row.state == "rejected":
            raise records.rejected(row)
        if row.state == "used":
            raise records.void(row, f"was used already by call {row.used_by}")
        if row.fingerprint != records.shown_fingerprint(ctx, entry):
            what = "its definition has changed since, or the hosts that the call may reach"
            raise records.void(row, f"is for {row.tool_name} as it was: {what}")
        _must_still_be_free(row, ctx, entry)
        self._must_be_of_this_policy(row)
        if at >= row.expires_at:
            raise records.void(row, f"expired at {row.expires_at:%Y-%m-%d %H:%M:%S %Z}")
        if at < row.created_at - MAX_CLOCK_SKEW:
            raise records.void(row, "comes from the future: a clock has jumped", "Check the clocks of your machines.")

    def _must_be_of_this_policy(self, row: ApprovalRow) -> None:
        if row.policy_hash != self._policy_hash():
            raise records.void(row, "was asked for under another policy: it has changed since")

    async def _use(self, row: ApprovalRow, call_id: str) -> bool:
        taken = ConsentTaken(approval=row.id)
        using = self._store.transact(approvals.use(row.id, row.tenant_id, call_id, self._clock()))
        return await self._takings.take(call_id, using, lambda used: taken if used else None, perhaps=taken)

    async def _agreed(self, ctx: InvokeContext, row: ApprovalRow) -> records.Agreement:
        """Note that the call uses an approval."""
        call = ctx.call
        self._must_work_there(row, call)  # it can have been pointed elsewhere while a person thought
        await self._note("approval.used", call.actor, row.tool_name, {"approval": row.id, "call": call.id})
        ctx.agreed_with = row.id
        if ctx.step is not None:
            ctx.step.state = "running"
        words = f"approved by {row.answered_by} through {row.answered_through} ({row.id})"
        return records.Agreement(words, self._edited(ctx, row))

    async def _agreed_before(self, ctx: InvokeContext, entry: Entry, step: CallStep) -> records.Agreement:
        """The call goes on, which was agreed to when it began."""
        row = await self._find(step.approval or "", ctx.call.actor)
        _must_still_be_free(row, ctx, entry)
        self._must_work_there(row, ctx.call)
        ctx.agreed_with = row.id
        words = f"approved by {row.answered_by} through {row.answered_through} when it began ({row.id})"
        return records.Agreement(words, self._edited(ctx, row))

    def _edited(self, ctx: InvokeContext, row: ApprovalRow) -> bytes | None:
        if row.edited is None or records.hash_of(ctx.canonical) != row.args_hash:
            return None
        original, shown = orjson.loads(ctx.canonical), orjson.loads(row.arguments)
        return records.canonical(restore(orjson.loads(row.edited), shown, original))

    # -- a call that asks

    async def _cover_or_question(
        self, draft: ApprovalRow, shown: bytes, *, may_cover: bool, join: bool
    ) -> tuple[list[GrantRow], ApprovalRow, bool]:
        """The grants for the call, or its question and whether that is new; the question is used by the call if it was
        approved before. One that another call of this process is asking is not its: two calls are two questions, even if
        they are the same."""
        hides = shown != draft.arguments.encode()
        sealed = await self.questions.seal.close(draft.id, shown) if hides else None
        may_ask = sealed is not None or not hides
        honours = partial(self._who.honours, draft.tool_name, records.asked_by(draft)) if may_cover else None
        while True:
            busy = frozenset(self.questions.awaited)
            work = self._store.transact(
                approvals.covered_or_waiting(
                    draft,
                    busy,
                    self._settings,
                    honours=honours,
                    join=join,
                    may_ask=may_ask,
                    sealed=sealed,
                )
            )
            try:
                covering, row, is_new = await self._takings.take(
                    draft.call_id, work, lambda found: taken_by(*found[:2], draft)
                )
            except AskedTooOften as bound:
                raise records.asked_too_often(draft, bound) from None
            if row is None:
                raise records.too_many_questions(draft) if may_ask else unkept(draft.tool_name)
            if covering or is_new or row.id not in self.questions.awaited:
                return covering, row, is_new

    async def _question(self, ctx: InvokeContext, row: ApprovalRow, shown: bytes, *, is_new: bool) -> ApprovalRow:
        """Ask whoever can be asked, and give the question as it was answered: used by this call, or by another one that
        asked it too. Raises Pending where there is no answer, Denied where it is no."""
        if ctx.step is not None:
            ctx.step.state, ctx.step.approval, ctx.step.question = "asked", row.id, records.pending(row, self._clock())
        if not self._approvers:
            if is_new:
                await self._note_request(row, ctx.call)
            raise self._left_waiting(row, is_new=is_new)
        woken = self.questions.awaited[row.id] = asyncio.Event()
        try:
            messages = await (self._note_request(row, ctx.call) if is_new else self.questions.messages(row))
            return await self._ask(ctx, row, shown, messages, woken, is_new=is_new)
        finally:
            del self.questions.awaited[row.id]

    def _left_waiting(self, row: ApprovalRow, *, is_new: bool) -> Pending:
        """The end of a call whose question nobody has answered yet: people who are elsewhere are told of a new one."""
        at = self._clock()
        if is_new and self.on_waiting is not None and records.state_of(row, at) == "waiting":
            self._telling.start(self.on_waiting(records.request_of(row, self.questions.terms(row))))
        return records.pending(row, at)

    async def _ask(
        self,
        ctx: InvokeContext,
        row: ApprovalRow,
        shown: bytes,
        messages: tuple[UserMessage, ...],
        woken: asyncio.Event,
        *,
        is_new: bool,
    ) -> ApprovalRow:
        """Ask one approver after the other. Whatever is answered elsewhere meanwhile counts."""

        async def is_over() -> bool:
            return (await self.questions.again(row)).state != "waiting" or self._clock() >= row.expires_at

        for approver in tuple(self._approvers):
            request = records.request_of(row, self.questions.terms(row), shown, messages)
            answer = await ask(approver, request, is_over, woken)
            if answer is not None and await self._take(ctx, row, shown, answer, name_of(approver)):
                return await self.questions.again(row)
            if await is_over():
                break
        return await self._follow(ctx, await self.questions.again(row), is_new=is_new)

    async def _take(self, ctx: InvokeContext, row: ApprovalRow, shown: bytes, answer: Answer, name: str) -> bool:
        """Record what an approver said; whether the call may go on. Raises if it said no."""
        by, through = words(answer.by) or name, words(answer.through) or "callback"
        call, taken = ctx.call, ConsentTaken(approval=row.id)
        if answer.verdict != "reject":
            self._must_be_of_this_policy(row)
        own = by == LOCAL.user
        recording = self.questions.record(row, shown, answer, by, through, call.actor, used_by=call.id, own=own)
        try:
            said = await self._takings.take(
                call.id, recording, lambda said: taken if said is not None and said.used_by else None, perhaps=taken
            )
        except ApprovalError as error:
            logger.warning("what the approver %s answered cannot be taken: %s", name, error)
            self._takings.keep(call.id)  # nothing was recorded
            return False
        if said is None:
            return False
        if said.state == "rejected":
            raise records.rejected(row._replace(answer_reason=said.answer_reason, answered_by=by))
        return said.state != "waiting"

    async def _follow(self, ctx: InvokeContext, row: ApprovalRow, *, is_new: bool) -> ApprovalRow:
        """No approver had the answer: go by what was answered elsewhere, if anything was."""
        if row.state == "rejected":
            raise records.rejected(row)
        if row.state == "approved":
            self._must_be_of_this_policy(row)
            await self._use(row, ctx.call.id)
            row = await self.questions.again(row)
        if row.state == "used":
            return row
        raise self._left_waiting(row, is_new=is_new)

    async def _note_request(self, row: ApprovalRow, call: Call) -> tuple[UserMessage, ...]:
        """Puts a new question on record, with what the user of its call typed last; gives that."""
        await self._prune_sometimes()
        messages = await self.questions.keep_messages(row, call)
        details = {
            "approval": row.id, "call": row.call_id, "session": row.session_id, "reason": row.reason,
            "args_hash": row.args_hash, "expires_at": row.expires_at.isoformat(), "outer_call": row.outer_call,
        }  # fmt: skip
        await self._note("approval.requested", call.actor, row.tool_name, details)
        return messages

    async def _prune_sometimes(self) -> None:
        at = self._clock()
        if at < self._prune_at:
            return
        self._prune_at = at + PRUNE_EVERY
        with contextlib.suppress(StoreError):  # an hour later is soon enough
            await self._store.transact(approvals.forget_user_words(at))
            if await self._store.transact(approvals.prune(at - KEEP_QUESTIONS)) == approvals.MAX_PRUNED_ROWS:
                self._prune_at = at  # there is more


def _must_still_be_free(row: ApprovalRow, ctx: InvokeContext, entry: Entry) -> None:
    """Raise if a person agreed to a free call, and others have used up the free tier since."""
    if entry.free_calls is not None and ctx.estimate.nano and not row.estimate:
        raise records.void(row, "is for a free call, and no free call is left: it would be billed")
