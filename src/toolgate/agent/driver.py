"""Drives a run in this process: from where its journal is to its end, past what it waits for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import msgspec

from toolgate.agent.calls import UserCalls
from toolgate.agent.events import RunEvents
from toolgate.agent.journal import RunJournal, RunLost, dollars_left
from toolgate.agent.loop import Ended, Loop, LoopRoom
from toolgate.agent.run import PendingCall
from toolgate.errors import StoreError, ToolgateError, described
from toolgate.model import Invoke, SpendingLimit
from toolgate.tasks import finish, wait_for_any

SOONEST, LATEST = 0.05, 1.0
"""Seconds between two looks whether somebody has answered."""
STORE_PAUSES = (0.2, 1.0, 5.0)

Attendance = Literal["app", "caller", "job"]
"""The one who has a run driven: the App, which waits for answers with it; a caller that follows its events, or a job, to
which it is given back when it waits."""

logger = logging.getLogger("toolgate.agent")


class DriverRoom(NamedTuple):
    """The parts of an App that all drivers share."""

    loop: LoopRoom
    invoke: Invoke
    is_ready: Callable[[PendingCall, str], Awaitable[bool]]
    """Tells of something that a run of a tenant waits for whether it has come."""
    ended: Callable[[RunJournal], Awaitable[None]]
    """Told of a run that has ended: its grant ends with it."""


class Driver:
    """One run that this process drives."""

    def __init__(self, room: DriverRoom, journal: RunJournal, attendance: Attendance) -> None:
        self._room = room
        self.journal = journal
        self.attendance: Attendance = attendance
        self.events = RunEvents(journal.id)
        self.first = self.events.reader() if attendance == "caller" else None
        """For whoever has it driven: they miss nothing of what happens before they come."""
        self.task: asyncio.Task[None] | None = None
        self.rests = asyncio.Event()
        """Set while it waits, and when it is over."""
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._is_waiting = False
        self._loop: Loop | None = None

    def wake(self) -> None:
        """Has it go on now, if it waits, whether anybody has answered or not."""
        if self._is_waiting:
            self._is_waiting = False
            self.rests.clear()
            self._woken.set()

    def stop(self) -> None:
        """Has it begin nothing more: what is under way ends, and another process goes on."""
        self._stopping.set()
        self._woken.set()
        if self._loop is not None:
            self._loop.stopping.set()

    async def run(self) -> None:
        """Drives the run. Whatever happens, it is on record how it stands, if anything can be."""
        try:
            await self._drive()
        except RunLost:
            logger.info("run %s was cancelled, or is another process's now", self.journal.id)
        except asyncio.CancelledError:
            await finish(self._release())
            raise
        except StoreError as error:
            logger.error("run %s cannot go on here: %s", self.journal.id, error)
            await self._release()
        except Exception as error:
            logger.exception("run %s failed unexpectedly", self.journal.id)
            words = error.message if isinstance(error, ToolgateError) else described(error)
            await self._end(Ended("failed", f"Toolgate failed unexpectedly: {words}"))
        finally:
            self.rests.set()
            self.events.end()

    async def _drive(self) -> None:
        journal = self.journal
        while True:
            self.rests.clear()  # before the store is told: who waits for the run meanwhile would find it as it was
            await journal.save(status="running", reason=None)
            ended = await self._leg()
            if ended.status == "stopped":
                return await self._release()
            if ended.status != "waiting":
                return await self._end(ended)
            stays = self.attendance == "app"
            await journal.wait(ended.reason or "", keep=stays, **self._sums())
            await self._tell_end()
            if not stays or not await self._answered():
                return await self._release() if stays else None

    async def _leg(self) -> Ended:
        journal = self.journal
        spending = SpendingLimit(dollars_left(journal.limits, journal.leg, journal.row), is_run=True)
        calls = UserCalls(self._room.invoke, journal, spending)
        loop = self._loop = Loop(self._room.loop, journal, calls, self.events.emit, spending)
        if self._stopping.is_set():
            loop.stopping.set()
        try:
            return await loop.drive()
        finally:
            journal.row = journal.row._replace(**loop.sums())

    async def _answered(self) -> bool:
        """Waits until one of the things that the run waits for has come. False: this process is to end first."""
        self._is_waiting = True
        self._woken.clear()
        self.rests.set()
        tenant, pause = self.journal.row.tenant_id, SOONEST
        try:
            while not self._stopping.is_set() and self._is_waiting:
                for one in list(self.journal.pending.values()):
                    if await self._room.is_ready(one, tenant):
                        return True
                await wait_for_any(self._woken, seconds=pause)
                pause = min(pause * 1.5, LATEST)
        finally:
            self._is_waiting = False
        return not self._stopping.is_set()

    async def _end(self, ended: Ended) -> None:
        journal = self.journal
        for pause in (*STORE_PAUSES, None):
            try:
                await finish(journal.end(ended.status, ended.reason, ended.text, **self._sums()))
                break
            except StoreError as error:
                if pause is None:
                    logger.error("the end of run %s cannot be put on record: %s", journal.id, error)
                    return
                await asyncio.sleep(pause)
        await finish(self._room.ended(journal))
        await self._tell_end()

    async def _tell_end(self) -> None:
        run = await self.journal.told()
        self.events.tell("end", **msgspec.to_builtins(run.result))
        if self.journal.pending:
            self.events.end()

    def _sums(self) -> dict[str, Any]:
        return {"cost": self.journal.row.cost, "seconds": self.journal.row.seconds}

    async def _release(self) -> None:
        """Lets go of the run as it is: another process, or whoever resumes it, goes on."""
        try:
            await self.journal.save(process_id=None, **self._sums())
        except (RunLost, StoreError) as error:
            logger.info("run %s cannot be given back: %s", self.journal.id, error)
