"""The runs of this App: begun, gone on with, followed, cancelled; and those of processes that died, which a worker takes.

A run belongs to the tenant, persona and user that started it. To any other actor it is missing.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from toolgate.agent.driver import Attendance, Driver, DriverRoom
from toolgate.agent.journal import (
    JournalEntry,
    Journals,
    Leg,
    RunJournal,
    actor_of,
    fresh_run,
    leg_json,
    limits_json,
    pending_of,
    shown,
)
from toolgate.agent.limits import checked, too_many
from toolgate.agent.model_grants import ModelGrants
from toolgate.agent.prompt import Prompts
from toolgate.agent.run import STATUSES, Run, RunEvent, RunLimits, RunResult, RunStatus, Style, Transcript
from toolgate.agent.takeover import RunTakeover
from toolgate.agent.tool_results import refusal
from toolgate.errors import Denied, Failed, span_words, unknown
from toolgate.llm.completion import Message
from toolgate.llm.models import MAX_PROBLEM_CHARS
from toolgate.model import LOCAL, LOCAL_DOORS, Actor, ErrorInfo
from toolgate.settings.agent import AgentSettings
from toolgate.store import agent_runs as table
from toolgate.store.agent_runs import RunRow
from toolgate.store.live_processes import ProcessHeartbeat
from toolgate.tasks import BackgroundTasks, finish, stop_tasks

TOPIC = "agents"
"""Of the notices by which processes tell each other that a run was cancelled or has ended."""
LOOK_SECONDS = 0.5
"""Between two looks at a run that another process drives."""
STOP_SECONDS = 5.0
"""The time that calls under way have to end when a run is stopped."""

StartDriver = Literal["app", "caller", "worker"]
logger = logging.getLogger("toolgate.agent")


class AgentRoom(NamedTuple):
    """The parts of an App that runs need."""

    journals: Journals
    driver: DriverRoom
    prompts: Prompts
    grants: ModelGrants
    presence: ProcessHeartbeat
    settings: AgentSettings
    announce: Callable[[str, str], Awaitable[None]]
    watch: Callable[[str, Callable[[str], None]], Callable[[], None]]
    record: Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]
    takeover: RunTakeover
    withdraw: Callable[[str, str, Actor], Awaitable[None]]
    """Gives up something that a run waits for: its kind and id."""
    has_key: Callable[[Actor], Awaitable[bool]]
    spoke: Callable[[Actor, str | None, str], Awaitable[None]]
    """Told what a user said in a session."""


class Agents:
    """The runs of one App."""

    def __init__(self, room: AgentRoom) -> None:
        self._room = room
        self._journals = room.journals
        self._store = room.journals.store
        self._clock = room.journals.clock
        self._driven: dict[str, Driver] = {}
        self._beginning: set[str] = set()
        """Runs that somebody resumes just now: a second one would take them away again."""
        self._tasks = BackgroundTasks()
        self._unwatch: Callable[[], None] | None = None

    # -- beginning

    async def start(
        self,
        text: str,
        actor: Actor,
        *,
        session: str | None,
        limits: RunLimits | None,
        style: Style | None,
        workspace: str | None,
        driver: StartDriver,
        door: str,
    ) -> Run:
        limits, style = self._checked(text, limits), style or self._room.settings.style
        if style not in ("native", "json"):
            raise _invalid(f"style {unknown(style, ('native', 'json'))}.")
        await self._room.spoke(actor, session, text)
        prompt = await self._room.prompts.system(actor, session=session, style=style)
        is_local = door in LOCAL_DOORS and actor.tenant == LOCAL.tenant
        here = str(Path.cwd()) if is_local and session is None and workspace is None else None
        at = self._clock()
        row = fresh_run(actor, session, door, workspace, here, style, limits, await self._process(driver), at)._replace(
            is_attended=driver == "caller",
            is_queued=driver == "worker",
            needs_key=door not in LOCAL_DOORS and await self._room.has_key(actor),
        )
        system = JournalEntry(1, 1, "system", Message("system", prompt.text), at, tools=prompt.tools)
        said = JournalEntry(2, 1, "user", Message("user", text), at)
        row = row._replace(grants=await self._room.grants.make(row, limits))
        rows = [await self._journals.row_of(row.id, entry) for entry in (system, said)]
        most = self._room.settings.live_runs
        if not await finish(self._store.transact(table.add(row, rows, most))):
            await self._room.grants.end(row)
            raise too_many(most)
        await self._record("agent.started", row, limit_usd=str(limits.cost_usd), grants=row.grants)
        return await self._begin(RunJournal(self._journals, row, [system, said]), driver)

    async def say(self, id: str, text: str, actor: Actor, *, limits: RunLimits | None, driver: StartDriver) -> Run:
        limits = self._checked(text, limits)
        row = await self._own(id, actor)
        if row.origin is not None:
            raise _conflict(f"Run {id} is that of a subordinate: only its caller speaks to it.")
        _check_scopes(row, actor)
        if row.is_live:
            raise _conflict(f"Run {id} {_state(row)}.", "Wait until it has answered, or cancel it.")
        await self._room.spoke(actor, row.session_id, text)
        prompt = await self._room.prompts.system(actor, session=row.session_id, style=_style(row))
        journal = await self._taken(row, driver, ("done", "failed", "cancelled"))
        await self._begin_leg(journal, limits)
        await self._fill(journal)
        entries = []
        system, seq = journal.system, journal.next_seq
        if system is None or (system.message.text, system.tools) != (prompt.text, prompt.tools):
            told = Message("system", prompt.text)
            entries.append(msgspec.structs.replace(journal.entry("system", told, tools=prompt.tools), seq=seq))
            seq += 1
        entries.append(journal.entry("user", Message("user", text), seq=seq))
        await journal.save(*entries)
        return await self._begin(journal, driver)

    async def resume(self, id: str, actor: Actor) -> Run:
        row = await self._own(id, actor)
        _check_scopes(row, actor)
        driven = self._driven.get(id)
        if driven is not None and not (driven.task is not None and driven.task.done()):
            driven.wake()
            return await self._journals.told(driven.journal.row)
        _check_is_own(row)
        if row.status in ("done", "cancelled"):
            raise _conflict(f"Run {id} is {row.status}: there is nothing left to do.", "Say something in it to go on.")
        driver: StartDriver = "caller" if row.is_attended else "app"
        if id in self._beginning:
            raise _conflict(f"Run {id} is under way.", "Wait, or cancel it.")
        self._beginning.add(id)
        try:
            journal = await self._taken(row, driver, ("running", "waiting", "failed"))
            if row.status == "failed":
                await self._begin_leg(journal, journal.limits)
            await self._record("agent.resumed", row)
            return await self._begin(journal, driver)
        finally:
            self._beginning.discard(id)

    async def _process(self, driver: StartDriver) -> str | None:
        if driver == "worker":
            return None
        await self._room.presence.show()
        return self._room.presence.id

    async def _taken(self, row: RunRow, driver: StartDriver, statuses: tuple[str, ...]) -> RunJournal:
        """A run that this process has from now on."""
        await self._room.presence.show()
        process = self._room.presence.id
        is_idle = row.id not in self._driven
        claim = table.claim(
            row.id, process, self._clock(), lease=self._room.presence.seconds, statuses=statuses, is_idle=is_idle
        )
        taken = await finish(self._store.transact(claim))
        if taken is None:
            now = await self._own(row.id, actor_of(row))
            lease = span_words(self._room.presence.seconds)
            advice = f"Wait, or cancel it. If its process has died, it can be resumed within {lease}."
            raise _conflict(f"Run {row.id} {_state(now)}.", advice)
        journal = RunJournal(self._journals, taken, await self._journals.entries(row.id))
        await journal.save(is_attended=driver == "caller")
        return journal

    async def _begin_leg(self, journal: RunJournal, limits: RunLimits) -> None:
        """Has a run's limits count from now, with a grant of their own."""
        row = journal.row
        grants = await self._room.grants.make(row, limits)
        leg = Leg(row.turns, row.cost, row.seconds)
        await journal.save(leg=leg_json(leg), limits=limits_json(limits), grants=grants, answer=None, reason=None)
        journal.leg, journal.limits = leg, limits

    async def _fill(self, journal: RunJournal) -> None:
        """Tells the model of calls whose results are missing that they are: each call has to have one."""
        words = "The run ended before this call did; whether it had its effect is not known."
        error = ErrorInfo("OUTCOME_UNKNOWN", words, suggestion="Find out before you call it again.")
        journal.pending.clear()
        most = self._room.settings.result_chars
        filled = [
            journal.entry("tool", refusal(request, error, is_json=journal.is_json, most=most), seq=seq)
            for seq, request in journal.missing
        ]
        await journal.save(*filled)

    async def _begin(self, journal: RunJournal, driver: StartDriver) -> Run:
        run = await journal.told()
        if driver == "worker":
            row = journal.row
            if row.process_id is not None:
                await journal.save(process_id=None)
            await self._room.takeover.queue(journal.row)
        else:
            self._drive(journal, driver)
        return run

    def _drive(self, journal: RunJournal, attendance: Attendance) -> Driver:
        if self._unwatch is None:
            self._unwatch = self._room.watch(TOPIC, self._heard)
        driver = self._driven[journal.id] = Driver(self._room.driver, journal, attendance)
        driver.task = self._tasks.start(driver.run(), unheard=True)
        driver.task.add_done_callback(lambda _task: self._left(driver))
        return driver

    def _left(self, driver: Driver) -> None:
        if self._driven.get(driver.journal.id) is driver:
            del self._driven[driver.journal.id]

    # -- watching

    async def follow(self, id: str, actor: Actor, *, stop_when_left: bool) -> AsyncIterator[RunEvent]:
        driver = self._driven.get(id)
        row = await self._own(id, actor)
        driver = driver or self._driven.get(id)
        if driver is None or (driver.rests.is_set() and driver.first is None):
            result = await self._rested(row)
            yield RunEvent("end", msgspec.to_builtins(result), id)
            return
        reader, driver.first = driver.first or driver.events.reader(), None
        is_over = False
        try:
            async for event in reader:
                is_over = event.kind == "end" and event.run == id
                yield event
        finally:
            driver.events.leave(reader)
            if stop_when_left and not is_over:
                with contextlib.suppress(Failed):
                    await finish(self.cancel(id, actor))

    async def _rested(self, row: RunRow) -> RunResult:
        """The result of a run that another process drives, once it has ended or waits."""
        while row.status == "running":
            await asyncio.sleep(LOOK_SECONDS)
            found = await self._store.read(table.get(row.id))
            if found is None:
                break
            row = found
        return (await self._journals.told(row)).result

    async def wait(self, id: str, seconds: float, actor: Actor) -> RunResult:
        row = await self._own(id, actor)
        driver = self._driven.get(id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if driver is not None:
                    await driver.rests.wait()
                else:
                    await self._rested(row)
        return (await self._journals.told(await self._own(id, actor))).result

    async def list(self, actor: Actor, *, status: RunStatus | None, limit: int, before: str | None) -> list[Run]:
        if status is not None and status not in STATUSES:
            raise _invalid(f"status {unknown(status, STATUSES)}.")
        wanted = table.listed(actor.tenant, actor.persona, actor.user, status=status, before=before, most=limit)
        return [await self._journals.told(row) for row in await self._store.read(wanted)]

    async def show(self, id: str, actor: Actor) -> Transcript:
        row = await self._own(id, actor)
        messages = shown(await self._journals.entries(row.id), self._room.driver.loop.mask)
        subordinates = [await self._journals.told(child) for child in await self._store.read(table.children(row.id))]
        return Transcript(await self._journals.told(row), messages, tuple(subordinates))

    async def _own(self, id: str, actor: Actor) -> RunRow:
        """A run of an actor's, or of a subordinate in one. Raises Failed: missing and another's look the same."""
        row = await self._store.read(table.get(id)) if isinstance(id, str) and id.isprintable() else None
        root: RunRow | None = row
        while root is not None and root.parent_run is not None:
            root = await self._store.read(table.get(root.parent_run))
        owner = (actor.tenant, actor.persona, actor.user)
        if row is None or root is None or (root.tenant_id, root.persona_id, root.user_id) != owner:
            raise Failed(
                "VALIDATION_ERROR",
                f"There is no run {str(id)[:64]!r}.",
                suggestion="A run is found only as the tenant, persona and user that started it.",
                category="missing",
            )
        return row

    # -- ending

    async def cancel(self, id: str, actor: Actor) -> Run:
        row = await self._own(id, actor)
        return await finish(self._cancel(row, actor))

    async def _cancel(self, row: RunRow, actor: Actor) -> Run:
        children = await self._store.read(table.children(row.id))
        ended = await self._store.transact(table.end(row.id, "cancelled", "It was cancelled.", self._clock()))
        if ended is None:
            raise _conflict(f"Run {row.id} {_state(await self._own(row.id, actor))}: there is nothing left to cancel.")
        driver = self._driven.get(row.id)
        if driver is not None and driver.task is not None:
            driver.task.cancel()
            await asyncio.wait((driver.task,), timeout=STOP_SECONDS)
        for one in {pending for run in (ended, *children) for pending in pending_of(run)}:
            await self._room.withdraw(one.kind, one.id, actor)
        await self._room.grants.end(ended)
        await self._record("agent.cancelled", ended)
        await self._room.announce(TOPIC, row.id)
        return await self._journals.told(await self._own(row.id, actor))

    def _heard(self, id: str) -> None:
        """A run may have been cancelled through another process ("": any of them)."""
        for driver in [self._driven[id]] if id in self._driven else [] if id else list(self._driven.values()):
            self._tasks.start(self._look(driver), unheard=True)

    async def _look(self, driver: Driver) -> None:
        row, ours = await self._store.read(table.get(driver.journal.id)), driver.journal.row
        is_ours = row is not None and row.is_live and (row.process_id, row.claims) == (ours.process_id, ours.claims)
        if not is_ours and driver.task is not None:
            driver.task.cancel()

    async def close(self, seconds: float) -> None:
        """Has the runs that this App drives end what is under way, and leaves them to other processes."""
        for driver in list(self._driven.values()):
            driver.stop()
        await self._tasks.close(grace=seconds, limit=STOP_SECONDS)
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    async def drive_job(self, id: str, actor: Actor, is_cancelled: Callable[[], Awaitable[bool]]) -> RunResult:
        """Drives a run for a job, until it has ended or waits. One that waits, or that another process has, is left so.
        `is_cancelled`: tells, if it is interrupted, whether somebody has cancelled the job, and the run with it."""
        row = await self._own(id, actor)
        _check_is_own(row)
        _check_scopes(row, actor)
        waiting = pending_of(row)
        is_ready = not waiting or any([await self._room.driver.is_ready(one, row.tenant_id) for one in waiting])
        if not row.is_live or id in self._driven or not is_ready:
            return (await self._journals.told(row)).result
        try:
            journal = await self._taken(row, "app", ("running", "waiting"))
        except Failed:
            return (await self._journals.told(await self._own(id, actor))).result
        driver = self._drive(journal, "job")
        assert driver.task is not None
        try:
            await asyncio.wait((driver.task,))
        except asyncio.CancelledError:
            await finish(self._interrupt(driver, row, actor, is_cancelled))
            raise
        return (await self._journals.told(await self._own(id, actor))).result

    async def _interrupt(
        self, driver: Driver, row: RunRow, actor: Actor, is_cancelled: Callable[[], Awaitable[bool]]
    ) -> None:
        """Stops a run whose job was interrupted; the next worker goes on with it, unless it was cancelled."""
        if await is_cancelled():
            with contextlib.suppress(Failed):  # it has ended
                await self._cancel(row, actor)
            return
        assert driver.task is not None
        driver.stop()
        await asyncio.wait((driver.task,), timeout=STOP_SECONDS)
        await stop_tasks(driver.task)

    # -- small questions

    def _checked(self, text: str, limits: RunLimits | None) -> RunLimits:
        if not isinstance(text, str) or not text.strip():
            raise _invalid("There is nothing to say to the agent.")
        if len(text) > MAX_PROBLEM_CHARS:
            raise _invalid(f"The text is too long for a model: {MAX_PROBLEM_CHARS:,} characters is the most.")
        try:
            return checked(limits, self._room.settings)
        except ValueError as error:
            raise _invalid(f"The limits of the run are wrong: {error}.") from None

    async def _record(self, action: str, row: RunRow, **details: Any) -> None:
        await self._room.record(action, actor_of(row), "", {"run": row.id, "session": row.session_id, **details})


def _style(row: RunRow) -> Style:
    return "json" if row.style == "json" else "native"


def _state(row: RunRow) -> str:
    if row.status == "running":
        return "is under way"
    return "waits for an answer" if row.status == "waiting" else f"is {row.status}"


def _check_is_own(row: RunRow) -> None:
    """Refuses to drive a subordinate beside the call that it is in: it would act for nobody but itself."""
    if row.origin is not None:
        raise _conflict(f"Run {row.id} is that of a subordinate: it goes on with the call that it is in.")


def _check_scopes(row: RunRow, actor: Actor) -> None:
    """Refuses to let somebody act by a run of their own that was started with more than they come with now."""
    more = set(actor_of(row).scopes) - set(actor.scopes)
    if more:
        raise Denied(
            "PERMISSION_DENIED",
            f"Run {row.id} was started with scopes that this call lacks: {', '.join(sorted(more))}.",
            suggestion="Go on with it as it was started, or begin another run.",
        )


def _conflict(words: str, advice: str | None = None) -> Failed:
    return Failed("VALIDATION_ERROR", words, suggestion=advice, category="conflict")


def _invalid(words: str) -> Failed:
    return Failed("VALIDATION_ERROR", words)
