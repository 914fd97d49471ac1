"""Continuations: an outer call whose inner call waits for a person's answer, and goes on after it.

It goes on from the top: policy, arguments and money are looked at again, its program runs again, and each inner call that
was made before is answered from the record without being made. What was agreed to stays agreed to; what waits uses the
answer that was given for it, there and nowhere else. A program that calls something else than it did before is stopped: what
it did is never done twice. A continuation is run by one call at a time, in whichever process; it ends with its questions.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import orjson

from toolgate.errors import CallError, Failed, Pending, StoreError
from toolgate.gates.approval.continuation_steps import (
    StepRecord,
    cannot_go_on,
    diverged,
    give_up,
    goes_on_already,
    not_kept,
    row_of,
    step_of,
    taken_over,
)
from toolgate.gates.approval.grants import Grants
from toolgate.gates.approval.records import ASK_AGAIN, ApprovalRoom, find_row, hash_of, pending, state_of, void
from toolgate.model import Actor, Call, Entry, Outcome
from toolgate.pipeline.call_tree import CallNode, CallStep, CallTree
from toolgate.pipeline.context import InvokeContext
from toolgate.store import approvals, continuations
from toolgate.store.approvals import ApprovalRow
from toolgate.store.continuations import ContinuationRow
from toolgate.store.live_processes import ProcessHeartbeat
from toolgate.tasks import finish, start_task

MEET_SECONDS = 2.0
"""How long a new call of a program that goes on waits for those that it made before. Where it makes several side by side,
they need not come in the same order."""
LONG_AGO = timedelta(days=30)
"""How long what can't go on is remembered, where its idempotency key must not be used again."""
ORPHANS_SECONDS = 5.0
"""How long a call that is to wait waits for inner calls that its tool began and left behind."""

logger = logging.getLogger("toolgate.approval")


class Continuations:
    """The gate, for outer and inner calls."""

    def __init__(self, room: ApprovalRoom, presence: ProcessHeartbeat, announce: Callable[[], Awaitable[None]]) -> None:
        """`announce` tells the other processes that there is one more."""
        self._store, _, _, self._workspace, self._policy_hash, self._clock, _ = room
        self._grants = Grants(room)
        self._presence = presence
        self._announce = announce
        self._running: dict[str, ContinuationRow] = {}
        """By the call of this process that runs it."""
        self.tools: frozenset[str] = frozenset()
        """The tools of which a call waits, so that no other call need look for one."""

    async def refresh(self) -> None:
        """Take over what other processes left waiting, and forget what can't go on."""
        self.tools = await self._store.read(continuations.tools(self._clock()))
        if await self._store.read(continuations.are_over(self._clock())):
            with contextlib.suppress(StoreError):  # it may be done later as well
                await self._store.transact(continuations.prune(self._clock(), self._clock() - LONG_AGO))

    # -- a call comes in

    async def enter(self, ctx: InvokeContext, entry: Entry) -> bool:
        """True: the call is answered already, an inner one that was made before. An outer one that waited goes on from
        here with what was done. Raises a CallError where a call can't be made, or still waits."""
        place: CallNode | None = ctx.call.place
        if place is not None:
            return await self._enter_inner(ctx, entry, place)
        found, row = await self._find(ctx, entry)
        if found is not None:
            await self._resume(ctx, entry, found, row)
        return False

    async def _find(self, ctx: InvokeContext, entry: Entry) -> tuple[ContinuationRow | None, ApprovalRow | None]:
        """The continuation that an outer call is meant for: by the approval that it brings, by its idempotency key, or
        because it is the same call; and that approval."""
        call, tenant = ctx.call, ctx.call.actor.tenant
        if call.approval is not None:
            row = await self._question(call.approval, tenant)
            return (None, None) if row is None else (await self._of(row), row)
        if call.idempotency_key is not None:
            wanted = self._drafted(ctx, entry, "")
            return await self._store.read(continuations.with_key(wanted)), None
        if entry.name not in self.tools:
            return None, None
        wanted = self._drafted(ctx, entry, hash_of(ctx.canonical))
        return await self._store.read(continuations.same_call(wanted, self._clock())), None

    async def _question(self, id: str, tenant: str) -> ApprovalRow | None:
        """The question of this id, if it was about an inner call."""
        row = await find_row(self._store, id, tenant)
        return row if row is not None and row.outer_call is not None else None

    async def _of(self, row: ApprovalRow) -> ContinuationRow:
        found = await self._store.read(continuations.get(row.outer_call or "", row.tenant_id))
        if found is None:
            raise void(row, f"was asked for inside call {row.outer_call} of {row.outer_tool}, which has ended")
        return found

    async def arguments_of(self, call: Call) -> dict[str, Any] | None:
        """The arguments of an outer call that comes with the approval of an inner one and no arguments of its own; None if
        its approval is not of an inner one."""
        row = None if call.approval is None else await self._question(call.approval, call.actor.tenant)
        if row is None:
            return None
        found = await self._of(row)
        _must_be_for(found, row, call)
        if not found.complete:
            raise Failed(
                "VALIDATION_ERROR",
                f"The arguments of call {found.id} are not on record: secrets in them were masked.",
                suggestion="Call again with the approval and the same arguments.",
            )
        arguments: dict[str, Any] = orjson.loads(found.arguments)
        return arguments

    async def outer_of(self, id: str, tenant: str) -> ContinuationRow | None:
        """The outer call that waits for this approval."""
        row = await self._question(id, tenant)
        return None if row is None else await self._of(row)

    # -- an outer call that goes on

    async def _resume(self, ctx: InvokeContext, entry: Entry, found: ContinuationRow, row: ApprovalRow | None) -> None:
        call = ctx.call
        if row is not None:
            _must_be_for(found, row, call)
        self._must_fit(found, row, ctx, entry)
        await self._must_be_answered(found, row, call)
        if not self._presence.is_shown:
            await self._presence.show()
        is_idle = all(running.id != found.id for running in self._running.values())
        self._running[call.id] = found
        claim = continuations.claim(found.id, call.id, self._presence.id, lease=self._presence.seconds, is_idle=is_idle)
        claiming = start_task(self._store.transact(claim))
        try:
            steps = await finish(claiming)
            if steps is None:
                raise goes_on_already(found)
        except BaseException as error:
            await asyncio.wait((claiming,))
            if isinstance(error, asyncio.CancelledError):  # its caller went away, and it may have been taken all the same
                await self._store.transact(continuations.release(found.id, call.id))
            del self._running[call.id]
            raise
        tree = CallTree(found.id, found.tool_name)
        tree.load([step_of(kept) for kept in steps])
        tree.writer = StepRecord(self._store, found.id, call.id)
        ctx.node, ctx.step, ctx.resumed = CallNode(tree), tree.root, True

    def _must_fit(self, found: ContinuationRow, row: ApprovalRow | None, ctx: InvokeContext, entry: Entry) -> None:
        """Raise unless the call is the very one that waits."""
        call = ctx.call
        if hash_of(ctx.canonical) not in (found.given_hash, found.args_hash) or found.tool_name != entry.name:
            if row is None:
                raise Failed(
                    "IDEMPOTENCY_CONFLICT",
                    f"This idempotency key belongs to call {found.id} of {found.tool_name}, which waits for approval and "
                    "whose tool or arguments differ from this call's; nothing was run.",
                    suggestion="Use a new key for a new call.",
                )
            raise void(row, f"is for other arguments of {found.tool_name}", f"Call with the same arguments, or: {ASK_AGAIN}")
        why = None
        if found.fingerprint != entry.fingerprint:
            why = f"the definition of {found.tool_name} has changed since"
        elif found.policy_hash != self._policy_hash():
            why = "the policy has changed since"
        elif _identity(call.actor, call.session) != (found.persona_id, found.user_id, found.scopes, found.session_id):
            why = "it was made by another actor, with other scopes, or in another session"
        elif self._clock() >= found.expires_at:
            why = f"it expired at {found.expires_at:%Y-%m-%d %H:%M:%S %Z}"
        if why is not None:
            raise cannot_go_on(found, why)

    async def _must_be_answered(self, found: ContinuationRow, row: ApprovalRow | None, call: Call) -> None:
        """Raise Pending while none of its questions is answered: nothing would come of running it again."""
        if not await self._store.read(continuations.workspaces(found.id)) <= {self._workspace(call)}:
            raise cannot_go_on(found, "it would work in another folder than before")
        asked = await self._store.read(continuations.questions(found.id))
        waiting = [question for question in asked if state_of(question, self._clock()) == "waiting"]
        answered = any(question.state in ("approved", "rejected") for question in asked)
        if found.state != "waiting" or answered or not waiting:
            return
        for question in waiting:
            if await self._grants.covers(question):
                return
        named = row is not None and next((question for question in waiting if question.id == row.id), None)
        raise pending(named or waiting[0], self._clock())

    # -- an inner call

    async def _enter_inner(self, ctx: InvokeContext, entry: Entry, place: CallNode) -> bool:
        tree, call, parent = place.tree, ctx.call, place.parent
        above, is_journaled = ("", False) if parent is None else (parent.path, parent.is_journaled)
        key = tree.key(above, entry.name, hash_of(ctx.canonical), call.idempotency_key if is_journaled else None)
        step = tree.meet(key)
        if tree.halted is not None:
            raise tree.stop()
        if step is not None and step.state == "running":
            give_up(step)
        if step is not None and step.state == "done":
            place.step = step
            return self._replay(ctx, step, parent)
        if step is None:
            if not is_journaled and not await tree.all_met(above, MEET_SECONDS):
                tree.halt(diverged(tree, entry.name))
            if tree.halted is not None:
                raise tree.stop()
            step = CallStep(key, above, entry.name, call.id, has_effect=entry.tier != "read_only")
            tree.add(step)
        elif step.state == "asked":
            await self._look_at(step, call.actor.tenant)
        ctx.resumed = step.state == "open"
        step.call_id, step.cost = call.id, 0
        place.step = ctx.step = step
        is_kept = step.approval is not None or not is_journaled  # else its idempotency key tells what became of it
        if tree.writer is not None and step.has_effect and step.state != "open" and is_kept:
            step.state = "running"
            await tree.writer.note(step)
        return False

    def _replay(self, ctx: InvokeContext, step: CallStep, parent: CallNode | None) -> bool:
        """Answer a call from the record."""
        call = ctx.call
        ctx.cached = True
        ctx.decision = (*ctx.decision, f"answered from the record of call {step.call_id}")
        if call.spending_limit is not None:
            call.spending_limit.take(step.cost)
        if parent is not None and parent.step is not None:
            parent.step.cost += step.cost
        try:
            first = msgspec.convert(orjson.loads(step.outcome or b""), Outcome)
        except (orjson.JSONDecodeError, msgspec.ValidationError) as error:
            raise Failed("OUTCOME_UNKNOWN", f"The record of call {step.call_id} cannot be read: {error}.") from error
        first.raise_for_status()
        ctx.output, ctx.artifact = first.output, first.artifact
        return True

    async def _look_at(self, step: CallStep, tenant: str) -> None:
        """A question that waits still waits, unless a grant covers it by now. One that expired before anybody answered is
        asked anew."""
        row = await self._store.read(approvals.get(step.approval or "", tenant))
        state = None if row is None else state_of(row, self._clock())
        if row is not None and state == "waiting" and not await self._grants.covers(row):
            raise pending(row, self._clock())
        if state in (None, "expired", "waiting"):
            step.approval = None

    async def confirm(self, ctx: InvokeContext) -> None:
        """Make sure, once the start record of a call is on disk, that the continuation was not taken from us. Raises Failed:
        then the tool must not run."""
        node = ctx.node
        if (
            node is None
            or not isinstance(node.tree.writer, StepRecord)
            or (ctx.step is not None and not ctx.step.has_effect)
        ):
            return
        if not await self._store.transact(continuations.confirm(node.tree.id, node.tree.writer.call_id)):
            raise taken_over(node.tree.id)

    # -- a call ends

    async def conclude(self, ctx: InvokeContext) -> None:
        """A call has run, or was stopped. An inner one that was stopped stays open, an outer one waits, with all that was
        done; or it has ended, and nothing of it is kept."""
        node = ctx.node
        if node is None:
            return
        tree = node.tree
        if node.parent is not None:
            if node.is_halted and ctx.step is not None and ctx.step.state != "done":
                step = ctx.step
                step.state, step.approval, step.agreed = "open", ctx.agreed_with, ctx.agreed_with is not None
                _stop(ctx, tree)
            return
        if tree.halted is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ORPHANS_SECONDS):
                    await node.halts()
            _stop(ctx, tree)
        elif isinstance(ctx.error, Pending) and ctx.error.kind == "approval":
            tree.halt(ctx.error)  # it is asked about itself, on its way back
        elif _was_interrupted(ctx.error) and (open_question := next((s.question for s in tree.asked if s.question), None)):
            tree.halt(open_question)
            if not ctx.went_away:
                _stop(ctx, tree)
        await self._end(ctx, tree)

    async def _end(self, ctx: InvokeContext, tree: CallTree) -> None:
        """Put on record what becomes of an outer call."""
        call = ctx.call
        try:
            if isinstance(tree.halted, Pending):
                await self._suspend(ctx, tree)
            elif tree.writer is not None and not ctx.ran:
                await self._store.transact(continuations.release(tree.id, call.id))
            elif tree.writer is not None or tree.has_asked or tree.asked:
                if ctx.error is None and tree.unmet and ctx.entry is not None and ctx.entry.retry is None:
                    ctx.error, ctx.result = diverged(tree, None), None
                await self._store.transact(continuations.finish(tree.id, call.id, self._clock()))
                if tree.writer is not None:
                    await self.refresh()
        except StoreError as error:
            logger.error("what became of call %s and its inner calls cannot be written: %s", tree.id, error)
            if isinstance(tree.halted, Pending):
                ctx.error = not_kept(tree, error.message)
        finally:
            self._running.pop(call.id, None)

    async def _suspend(self, ctx: InvokeContext, tree: CallTree) -> None:
        entry, call = ctx.entry, ctx.call
        if entry is None:
            return
        if tree.too_large:
            ctx.error = not_kept(tree, "what they gave is too much to be kept")
            return await self._store.transact(continuations.finish(tree.id, call.id, self._clock()))
        row = self._running.get(call.id) or self._drafted(ctx, entry, await self._given_hash(ctx))
        recorded = ctx.recorded or ctx.canonical
        row = row._replace(
            call_id=call.id, args_hash=hash_of(ctx.canonical), arguments=recorded.decode(),
            complete=recorded == ctx.canonical,
        )  # fmt: skip
        if tree.root.state != "asked":
            tree.root.state = "open"
            agreed = ctx.agreed_with or (tree.root.approval if tree.root.agreed else None)
            tree.root.approval, tree.root.agreed = agreed, agreed is not None
        steps = (tree.root, *(step for step in tree.steps.values() if _is_news(step, tree)))
        became = await self._store.transact(continuations.suspend(row, [row_of(tree.id, step) for step in steps]))
        if became == "taken over":
            ctx.error = taken_over(tree.id)
            return None
        if became == "too many":
            ctx.error = not_kept(tree, f"{continuations.MAX_WAITING} calls of this user wait already")
            return await self._store.transact(continuations.finish(tree.id, call.id, self._clock()))
        self.tools |= {entry.name}
        await self._announce()
        return None

    async def _given_hash(self, ctx: InvokeContext) -> str:
        """Of the arguments that the caller gave: a person may have edited them."""
        if ctx.agreed_with is not None:
            row = await self._store.read(approvals.get(ctx.agreed_with, ctx.call.actor.tenant))
            if row is not None:
                return row.args_hash
        return hash_of(ctx.canonical)

    def _drafted(self, ctx: InvokeContext, entry: Entry, given_hash: str) -> ContinuationRow:
        call, at = ctx.call, self._clock()
        persona, user, scopes, session = _identity(call.actor, call.session)
        return ContinuationRow(
            id=call.id,
            tenant_id=call.actor.tenant,
            persona_id=persona,
            user_id=user,
            scopes=scopes,
            session_id=session,
            tool_name=entry.name,
            fingerprint=entry.fingerprint,
            policy_hash=self._policy_hash(),
            given_hash=given_hash,
            args_hash=given_hash,
            arguments="",
            complete=False,
            idempotency_key=call.idempotency_key,
            state="waiting",
            call_id=call.id,
            process_id=None,
            created_at=at,
            expires_at=at,
        )


def _identity(actor: Actor, session: str | None) -> tuple[str | None, str, str, str | None]:
    return actor.persona, actor.user, orjson.dumps(sorted(actor.scopes)).decode(), session


def _must_be_for(found: ContinuationRow, row: ApprovalRow, call: Call) -> None:
    """Raise unless the approval of an inner call is brought by the outer one that waits for it."""
    if (found.persona_id, found.user_id) != (call.actor.persona, call.actor.user):
        raise void(row, "was given to another actor")
    if call.tool != found.tool_name:
        raise void(
            row,
            f"is for {row.tool_name} inside call {found.id} of {found.tool_name}, and for no other call",
            f"Call {found.tool_name} again with the same arguments and this approval.",
        )


def _is_news(step: CallStep, tree: CallTree) -> bool:
    """True of a step that is to be written when its outer call waits: what is done while it goes on was, and what may be
    made again need not be."""
    return step.has_effect if step.state == "running" else step.state != "done" or tree.writer is None


def _stop(ctx: InvokeContext, tree: CallTree) -> None:
    """End a call as its tree was halted. If it will go on, it is paid for when it has."""
    ctx.error, ctx.result = tree.stop(), None
    if isinstance(ctx.error, Pending) and ctx.charged > 0:
        ctx.unpaid += 1


def _was_interrupted(error: CallError | None) -> bool:
    """True if a call was ended from outside, while it may have waited for a person's answer about an inner one."""
    if error is None:
        return False
    return error.code in ("TIMEOUT", "CANCELLED") or (error.details or {}).get("stopped") == "time"
