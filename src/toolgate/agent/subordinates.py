"""Subordinates: a run inside a call of `call_subordinate`, with a persona of its own and no more rights or money than its
caller.

Each of its calls must be allowed for it and for everybody above it, and counts for all of them (`Call.on_behalf_of`). Its
journal is found by the call that it is in, so that it goes on where it was: after a person's answer, for which the outer
call waits, and after the process has died, when the loop above makes that call again.
"""

import asyncio
import logging
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
import orjson

from toolgate.agent.calls import RunScope, SubordinateCalls
from toolgate.agent.journal import (
    JournalEntry,
    Journals,
    RunJournal,
    RunLost,
    dollars_left,
    fresh_run,
)
from toolgate.agent.limits import too_many
from toolgate.agent.loop import Ended, Loop, LoopRoom
from toolgate.agent.model_grants import ModelGrants
from toolgate.agent.prompt import Prompts
from toolgate.agent.run import PendingCall, RunEvent, RunLimits, RunResult
from toolgate.errors import Denied, Failed, Pending, StoreError
from toolgate.llm.completion import Message
from toolgate.model import NANO, Actor, SpendingLimit
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.early_exit import Halt
from toolgate.pipeline.subordinate_calls import keep_journal
from toolgate.settings.agent import AgentSettings
from toolgate.store import agent_runs as table
from toolgate.store.agent_runs import RunRow
from toolgate.store.live_processes import ProcessHeartbeat
from toolgate.tasks import finish

MARGIN_SECONDS = 5.0
"""Seconds that a subordinate ends before its call would."""

logger = logging.getLogger("toolgate.agent")


class SubordinateRoom(NamedTuple):
    """The parts of an App that subordinates need."""

    journals: Journals
    loop: LoopRoom
    prompts: Prompts
    grants: ModelGrants
    presence: ProcessHeartbeat
    settings: AgentSettings


class Subordinates:
    """Runs subordinates. Found by the tool with `ctx.get(Subordinates)`."""

    def __init__(self, room: SubordinateRoom) -> None:
        self._room = room
        self._driven: set[str] = set()

    async def call(self, ctx: InvokeContext, agent: str, message: str) -> RunResult:
        """Has a subordinate do something, and gives what came of it. Raises Halt where a call of it waits for a person."""
        actor = self._actor(ctx, agent)
        place = keep_journal(ctx)
        key = ctx.call.idempotency_key
        origin = f"key:{key}" if key is not None else f"call:{place}"
        args_hash = sha256(orjson.dumps((agent, message))).hexdigest()
        store = self._room.journals.store
        row = await store.read(table.of_call(actor.tenant, actor.user, origin))
        if row is not None and row.args_hash != args_hash:
            raise Failed(
                "IDEMPOTENCY_CONFLICT", f"Run {row.id} was made by this call with other arguments; nothing was run."
            )
        if row is not None and not row.is_live:
            return (await self._room.journals.told(row)).result  # its caller was not told before the process died
        scope: RunScope | None = ctx.try_get(RunScope)
        journal = await (self._begun(ctx, actor, message, origin, args_hash, scope) if row is None else self._taken(row))
        return await self._drive(ctx, journal, scope)

    def _actor(self, ctx: InvokeContext, agent: str) -> Actor:
        """The actor that a subordinate is. Raises Denied for a persona that the caller may not call."""
        actor, settings = ctx.actor, self._room.settings
        persona = agent or actor.persona
        if len(ctx.call.on_behalf_of) >= settings.depth:
            raise Denied(
                "PERMISSION_DENIED",
                f"Subordinates may call subordinates {settings.depth} deep, and no deeper.",
                suggestion="Do it yourself.",
            )
        is_own = persona == actor.persona
        is_named = persona is not None and any(
            rule.allows(persona, by=actor.persona, tenant=actor.tenant) for rule in settings.subordinates
        )
        if not is_own and not is_named:
            raise Denied(
                "PERMISSION_DENIED",
                f"There is no subordinate {agent[:64]!r} that this persona may call.",
                suggestion="Leave agent empty for one of your own persona; the setting agent.subordinates names others.",
            )
        return msgspec.structs.replace(actor, persona=persona)

    async def _begun(
        self, ctx: InvokeContext, actor: Actor, message: str, origin: str, args_hash: str, scope: RunScope | None
    ) -> RunJournal:
        call, journals, at = ctx.call, self._room.journals, self._room.journals.clock()
        limits = self._limits(ctx, scope)
        style = self._room.settings.style if scope is None else scope.style
        above = (*call.on_behalf_of, call.actor)
        prompt = await self._room.prompts.system(actor, session=call.session, style=style, on_behalf_of=above)
        await self._room.presence.show()
        process = self._room.presence.id
        row = fresh_run(actor, call.session, call.door, call.workspace, call.here, style, limits, process, at)._replace(
            is_attended=True, parent_run=None if scope is None else scope.run, origin=origin, args_hash=args_hash
        )
        row = row._replace(grants=await self._grant(ctx, row, limits, scope))
        system = JournalEntry(1, 1, "system", Message("system", prompt.text), at, tools=prompt.tools)
        said = JournalEntry(2, 1, "user", Message("user", message), at)
        rows = [await journals.row_of(row.id, entry) for entry in (system, said)]
        most = self._room.settings.live_runs
        if not await finish(journals.store.transact(table.add(row, rows, most))):
            await self._room.grants.end(row)
            raise too_many(most)
        return RunJournal(journals, row, [system, said])

    def _limits(self, ctx: InvokeContext, scope: RunScope | None) -> RunLimits:
        """The settings' limits, and never more than is left to the caller."""
        settings, limit = self._room.settings, ctx.call.spending_limit
        seconds = min(settings.seconds, ctx.time_limit - MARGIN_SECONDS, *(() if scope is None else (scope.seconds_left(),)))
        cost = settings.cost_usd if limit is None else min(settings.cost_usd, Decimal(max(limit.room, 0)) / NANO)
        return RunLimits(settings.turns, max(seconds, 1.0), cost, settings.same_call)

    async def _grant(self, ctx: InvokeContext, row: RunRow, limits: RunLimits, scope: RunScope | None) -> str:
        """The grants of a subordinate for its turns. Those above it have one each already, if it is in a run: its turns are
        charged to them too. Whoever calls one directly gets one as well, as if they had started a run. A program gets none:
        nobody agreed to what it does."""
        above = [actor.persona for actor in ctx.call.actors]
        if ctx.call.parent is None and scope is None:
            return await self._room.grants.make(row, limits, *dict.fromkeys((row.persona_id, *above)))
        if scope is None or row.persona_id in above:
            return "[]"
        return await self._room.grants.make(row, limits, root=scope.root)

    async def _taken(self, row: RunRow) -> RunJournal:
        """A subordinate that was begun before, as this process's."""
        journals, presence = self._room.journals, self._room.presence
        await presence.show()
        claim = table.claim(
            row.id, presence.id, journals.clock(), lease=presence.seconds, statuses=("running", "waiting"),
            is_idle=row.id not in self._driven,
        )  # fmt: skip
        taken = await finish(journals.store.transact(claim))
        if taken is None:
            raise Failed("IDEMPOTENCY_CONFLICT", f"Run {row.id} of a subordinate goes on already.", retryable=True)
        return RunJournal(journals, taken, await journals.entries(row.id))

    async def _drive(self, ctx: InvokeContext, journal: RunJournal, scope: RunScope | None) -> RunResult:
        row = journal.row
        left = dollars_left(journal.limits, journal.leg, row)
        spending = SpendingLimit(left, above=ctx.call.spending_limit, is_run=True)
        calls = SubordinateCalls(ctx, journal.actor, spending, row.id if scope is None else scope.root)
        emit: Callable[[RunEvent], None] = _silent if scope is None else scope.emit
        loop = Loop(self._room.loop, journal, calls, emit, spending)
        self._driven.add(row.id)
        journal.pending.clear()  # the outer call has come with the answers
        try:
            await journal.save(status="running", reason=None)
            ended = await loop.drive()
            await self._end(journal, ended, loop.sums())
        except Halt as halt:
            await finish(self._suspend(journal, halt, loop.sums()))
            raise
        except RunLost:
            raise Failed("CANCELLED", f"Run {row.id} of a subordinate was cancelled.") from None
        except asyncio.CancelledError:
            await finish(self._release(journal, loop.sums()))
            raise
        finally:
            self._driven.discard(row.id)
        return (await journal.told()).result

    async def _end(self, journal: RunJournal, ended: Ended, sums: dict[str, Any]) -> None:
        await finish(journal.end(ended.status, ended.reason, ended.text, **sums))
        await self._room.grants.end(journal.row)

    async def _suspend(self, journal: RunJournal, halt: Halt, sums: dict[str, Any]) -> None:
        """A call of it can't go on now: it waits, with the call that it is in."""
        error = halt.error
        if not isinstance(error, Pending):
            return await self._release(journal, sums)
        tool = str((error.details or {}).get("tool") or "a call")
        journal.pending = {0: PendingCall(0, "approval", error.id, tool)}
        try:
            await journal.wait(f"A person has to answer about {tool}.", keep=False, **sums)
        except (RunLost, StoreError) as trouble:
            logger.info("run %s of a subordinate is not put on record as waiting: %s", journal.id, trouble)

    async def _release(self, journal: RunJournal, sums: dict[str, Any]) -> None:
        try:
            await journal.save(process_id=None, **sums)
        except (RunLost, StoreError) as trouble:
            logger.info("run %s of a subordinate cannot be given back: %s", journal.id, trouble)


def _silent(_event: RunEvent) -> None:
    """Nobody watches."""
