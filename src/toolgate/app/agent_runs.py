"""Makes the parts of an App that run agents, and drives runs for jobs."""

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from toolgate.agent.agents import AgentRoom, Agents
from toolgate.agent.driver import DriverRoom
from toolgate.agent.journal import Journals, RunJournal, actor_of
from toolgate.agent.loop import LoopRoom
from toolgate.agent.model_grants import ModelGrants
from toolgate.agent.run import PendingCall
from toolgate.agent.subordinates import SubordinateRoom, Subordinates
from toolgate.agent.takeover import RunTakeover
from toolgate.app.schedule_check import ScheduleCheck
from toolgate.app.typed_words import keep_words
from toolgate.errors import CallError
from toolgate.gates.approval.records import state_of
from toolgate.jobs.handlers import JobContext, JobWaits
from toolgate.jobs.runner import RetryJob
from toolgate.model import CALL_TOOL, Actor
from toolgate.model.outcome import ErrorInfo
from toolgate.store import agent_runs as table
from toolgate.store import approvals, jobs
from toolgate.store.agent_runs import RunRow
from toolgate.store.approvals import ApprovalRow

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

TYPE = "agent_run"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"run": {"type": "string"}},
    "required": ["run"],
    "additionalProperties": False,
}
LOOK_AGAIN_SECONDS = 2.0
"""The pause before a run that waits for a job is looked at again."""


class RunSurroundings:
    """Answers the questions of runs about approvals, grants, keys and jobs."""

    def __init__(self, parts: "Parts", grants: ModelGrants) -> None:
        self._parts = parts
        self._grants = grants
        self._keys = ScheduleCheck(parts.store, parts.now)

    async def why_stopped(self, journal: RunJournal) -> str | None:
        """The reason why a run may not go on: also one that a run above it was stopped for."""
        row: RunRow | None = journal.row
        while row is not None:
            if row.needs_key and not await self._keys.has_key(actor_of(row)):
                return "No API key that lets its user do this is valid any more."
            revoked = await self._grants.why_revoked(row)
            if revoked is not None or row.parent_run is None:
                return revoked
            row = await self._parts.store.read(table.get(row.parent_run))
        return "The run that called it is gone."

    async def edited(self, tenant: str, call: str, approval: str | None) -> dict[str, Any] | None:
        """The arguments that a person had run in place of those of a call, or of the one that `call_tool` made."""
        row: ApprovalRow | None = None
        if approval is not None:
            row = await self._parts.store.read(approvals.get(approval, tenant))
        if row is None or (row.outer_call is not None and row.outer_tool != CALL_TOOL):
            row = await self._parts.store.read(approvals.used_by(call, tenant))
        if row is None or row.edited is None:
            return None
        edited: dict[str, Any] = self._parts.redactor.mask(orjson.loads(row.edited))
        return edited

    async def approval(self, waiting: PendingCall | None, actor: Actor) -> str | None:
        """The approval that a call is to come with which has waited. A question that a grant covers by now is withdrawn."""
        if waiting is None or waiting.kind != "approval":
            return None
        row = await self._parts.store.read(approvals.get(waiting.id, actor.tenant))
        if row is None:
            return None
        is_open = row.outer_call is None and state_of(row, self._parts.now()) == "waiting"
        if not is_open or not await self._parts.consent.grants.covers(row):
            return waiting.id
        await self._parts.consent.questions.withdraw(waiting.id, actor, "a grant covers the call")
        return None

    async def is_ready(self, waiting: PendingCall, tenant: str) -> bool:
        """Tells whether something that a run waits for has come."""
        if waiting.kind == "job":
            job = await self._parts.jobs.get(waiting.id, tenant)
            return job is None or job.is_over
        row = await self._parts.store.read(approvals.get(waiting.id, tenant))
        return row is None or state_of(row, self._parts.now()) != "waiting" or await self._parts.consent.grants.covers(row)

    async def withdraw(self, kind: str, id: str, actor: Actor) -> None:
        if kind == "approval":
            await self._parts.consent.questions.withdraw(id, actor, "the run was cancelled")
            return
        try:
            await self._parts.jobs.cancel(id, actor.tenant)
        except CallError:
            return  # it is over

    async def ended(self, journal: RunJournal) -> None:
        """Ends the grant of a run, and puts its end on record."""
        row = journal.row
        await self._grants.end(row)
        details = {"run": row.id, "session": row.session_id, "status": row.status, "reason": row.reason, "turns": row.turns}
        await self._parts.events.record("agent.ended", journal.actor, "", details)


def make_agents(parts: "Parts") -> tuple[RunTakeover, Agents]:
    """The runs of an App, what takes over those of others, and the subordinates that its tool calls."""
    settings = parts.settings
    journals = Journals(parts.store, parts.now)
    grants = ModelGrants(parts.consent.grants, parts.catalog.find, settings.approvals.expire_seconds)
    about = RunSurroundings(parts, grants)
    loop = LoopRoom(settings.agent, parts.catalog.find, parts.redactor.mask, about.edited, about.approval, about.why_stopped)
    takeover = RunTakeover(journals, parts.presence, settings.agent, grants, partial(_enqueue, parts), parts.events.record)
    invoke = parts.pipeline.__call__
    parts.providers.everywhere[Subordinates] = Subordinates(
        SubordinateRoom(journals, loop, parts.prompts, grants, parts.presence, settings.agent)
    )
    return takeover, Agents(
        AgentRoom(
            journals=journals,
            driver=DriverRoom(loop, invoke, about.is_ready, about.ended),
            prompts=parts.prompts,
            grants=grants,
            presence=parts.presence,
            settings=settings.agent,
            announce=parts.notices.announce,
            watch=parts.notices.watch,
            record=parts.events.record,
            takeover=takeover,
            withdraw=about.withdraw,
            has_key=ScheduleCheck(parts.store, parts.now).has_key,
            spoke=partial(_spoke, parts),
        )
    )


async def _spoke(parts: "Parts", actor: Actor, session: str | None, text: str) -> None:
    """Keeps what a user says to an agent as the user's own words. What one agent tells another does not come here."""
    await keep_words(parts, actor, session, text, "agent")


async def _enqueue(parts: "Parts", actor: Actor, run: str, key: str) -> None:
    await parts.jobs.enqueue(TYPE, {"run": run}, actor=actor, key=key, max_attempts=1)


class DriveRun:
    """The handler of jobs that drive runs."""

    def __init__(self, parts: "Parts") -> None:
        self._agents = parts.agents
        self._store = parts.store

    async def __call__(self, ctx: JobContext) -> Any:
        id = ctx.payload["run"]

        async def is_cancelled() -> bool:
            job = await self._store.read(jobs.get(ctx.id))
            return job is not None and job.is_cancelled

        result = await self._agents.drive_job(id, ctx.actor, is_cancelled)
        if result.status == "waiting" and result.pending:
            approval = next((one for one in result.pending if one.startswith("ap_")), None)
            if approval is not None:
                raise JobWaits(approval)
            words = f"Run {id} waits for {', '.join(result.pending)}."
            raise RetryJob(ErrorInfo("CAPACITY_EXCEEDED", words, True), after=LOOK_AGAIN_SECONDS, counts=False)
        told = msgspec.to_builtins(result)
        del told["text"]  # which is encrypted where it is kept
        return told
