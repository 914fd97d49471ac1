"""A call that may go on after its request was answered, in the process that runs it.

Each change of it is put on record once it is a task, or is held for its client's answers, so that other processes can say
how it stands (`task_records`). An ordinary call writes nothing.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from toolgate.errors import Failed, StoreError
from toolgate.mcp.server.identity import Credential, actor_id
from toolgate.mcp.server.results import INTERNAL_ERROR, JsonObject, ProtocolError
from toolgate.mcp.server.task_records import TaskRecords, TaskRequest, TaskSnapshot
from toolgate.store.database import now
from toolgate.tasks import finish, start_task

if TYPE_CHECKING:
    from toolgate.mcp.server.caller import ClientCaller
    from toolgate.store.mcp_tasks import McpTaskRow

TASK_TTL_SECONDS = 7_200
"""The time that a task can be polled after it has begun; one that waits for a person, as long after that as is left to
answer."""
AFTER_APPROVAL = timedelta(minutes=10)
POLL_MS = 500
ENDED = ("completed", "failed", "cancelled")
SOONEST, LATEST = 0.1, 5.0
"""Seconds between two tries to write."""

logger = logging.getLogger("toolgate.mcp")


class Task:
    """A call that may go on: a task as soon as it does, if its client has the extension, and until then an ordinary call."""

    def __init__(self, who: Credential, records: TaskRecords, *, is_task: bool) -> None:
        self.id = token_urlsafe(24)
        self.who = who
        self.actor = actor_id(who.actor)
        self.is_task = is_task
        self.runs = 1
        """Which process's turn this is; the first is the one that the call was made in."""
        self.tool = ""
        self.request: TaskRequest | None = None
        self.begun = asyncio.Event()
        self.asked = asyncio.Event()
        self.client: ClientCaller | None = None
        self.running: asyncio.Future[JsonObject] | None = None
        self.is_attended = False
        """True while a request in this process waits for it."""
        self.is_lost = False
        """True if it was cancelled through another process, or that took it over: what is on record holds."""
        self.approval: str | None = None
        self.created_at = self._updated_at = now()
        self._expires_at = self.created_at + timedelta(seconds=TASK_TTL_SECONDS)
        self._status = "working"
        self._words: str | None = None
        self._ended: JsonObject = {}
        self._questions: dict[str, tuple[JsonObject, asyncio.Future[Mapping[str, Any]]]] = {}
        self._count = 0
        self._records = records
        self._recording = asyncio.Lock()
        self._is_new = False
        """True if it has changed since it was last written."""
        self._writing: asyncio.Task[None] | None = None
        self.is_kept = False
        """True if it is on record."""
        self.is_left = False
        """True if this process is ending: it is left to another one as it is on record."""

    @classmethod
    def taken_over(cls, row: "McpTaskRow", who: Credential, records: TaskRecords, request: TaskRequest) -> "Task":
        """A task that this process has just claimed."""
        task = cls(who, records, is_task=True)
        task.id, task.runs, task.tool, task.request = row.id, row.runs + 1, row.tool_name, request
        task.approval, task._words = row.approval_id, row.message
        task.created_at, task._expires_at = row.created_at, row.expires_at
        task.is_kept = True
        task.begun.set()
        return task

    # -- what the call does

    def begin(self) -> None:
        """Detaches the call from its request."""
        self.begun.set()
        if self.client is not None:
            self.client.let_go()

    async def wait_for(self, approval: str, words: str | None, until: datetime | None) -> bool:
        """Goes on as a task once somebody has answered; False if too many tasks are kept."""
        before = self.approval, self._words, self._expires_at
        self.approval, self._words = approval, words
        if until is not None:
            self._expires_at = max(self._expires_at, until + AFTER_APPROVAL)
        if not await self.keep():
            self.approval, self._words, self._expires_at = before
            return False
        self._change()
        self.begin()
        return True

    async def put(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Asks the client, which finds the question when it polls, or in the response to its request."""
        self._count += 1
        name, given = f"question-{self.runs}-{self._count}", asyncio.get_running_loop().create_future()
        self._questions[name] = {"method": method, "params": dict(params)}, given
        self._be("input_required")
        try:
            if not await self.keep():
                raise Failed("MCP_ERROR", "The calling client cannot be asked: too many of its calls wait already.")
            if self.is_task and not self.begun.is_set():
                self.begin()
            self.asked.set()
            answer: Mapping[str, Any] = await given
            return answer
        finally:
            self._questions.pop(name, None)
            if not self._questions and self._status == "input_required":
                self._be("working")

    def end(self, running: "asyncio.Future[JsonObject]") -> None:
        if not self.is_task and self.is_attended:
            return  # its client is given the result now
        if running.cancelled():
            self._be("cancelled")
            return
        error = running.exception()
        if error is None:
            self._be("completed", result=running.result())
        elif isinstance(error, ProtocolError):
            self._be("failed", error=error.to_dict())
        else:
            self._be("failed", error={"code": INTERNAL_ERROR, "message": "Internal error"})

    def _be(self, status: str, **ended: Any) -> None:
        if not self.is_over and not self.is_left:
            self._status, self._ended, self._updated_at = status, ended, now()
            self._change()

    # -- its record

    async def keep(self) -> bool:
        """Puts the call on record, once; False if too many of its owner's are, or it can't be: then it is waited for."""
        if not self.is_kept:
            await finish(self._keep())  # so that it is known whether it is
        return self.is_kept

    async def _keep(self) -> None:
        async with self._recording:
            if self.is_kept:
                return
            self._is_new = False
            try:
                self.is_kept = await self._records.add(self)
            except StoreError as error:
                logger.warning("a call cannot be put on record as a task: %s", error)
            if self._is_new:
                self._change()

    async def forget(self) -> None:
        """Removes the call from the record, if it is there: its client has the result, or went away before it was told."""
        async with self._recording:
            if self.is_kept:
                self.is_lost = True
                await self._records.drop(self.id)

    def _change(self) -> None:
        self._is_new = True
        if self.is_kept and (self._writing is None or self._writing.done()):
            self._writing = start_task(self._write(), unheard=True)

    async def _write(self) -> None:
        pause = SOONEST
        while self._is_new and not self.is_lost:
            self._is_new = False
            try:
                saved = await self._records.save(self)
            except StoreError as error:
                logger.warning("a task cannot be put on record yet: %s", error)
                self._is_new = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, LATEST)
                continue
            if not saved and not self.is_left:
                self.lose()

    @property
    def is_written_off(self) -> bool:
        """True if it has ended, and all of it is on record."""
        return self.is_over and self.is_kept and not self._is_new and (self._writing is None or self._writing.done())

    async def confirm(self) -> None:
        """Makes sure that the task is still this process's, before it goes on after a wait; cancels it if not."""
        if self.is_kept:
            self._change()
            if self._writing is not None:
                await asyncio.wait((self._writing,))

    async def written(self, *, at_last: bool = False) -> None:
        """Waits until what is on record is up to date, if the store can be written. `at_last`: it is not tried again."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait((self._writing,), timeout=LATEST)
            if at_last:
                self._writing.cancel()

    def lose(self) -> None:
        """It was cancelled elsewhere, or is another process's now: nothing more comes of it here."""
        self.is_lost = True
        if self.running is not None:
            self.running.cancel()

    def snapshot(self) -> TaskSnapshot:
        times = self._updated_at, self._expires_at
        return TaskSnapshot(self._status, self._words, self.approval, self.questions(), self._ended, self.request, *times)

    # -- what its client does

    @property
    def is_over(self) -> bool:
        return self._status in ENDED

    def is_of(self, who: Credential) -> bool:
        """True if this credential made it. Another one of the same actor may not be allowed to approve."""
        return self.who.id == who.id and self.actor == actor_id(who.actor)

    def created(self) -> JsonObject:
        times = self.created_at, self._updated_at, self._expires_at
        return task_json(self.id, self._status, self._words, *times)

    def shown(self) -> JsonObject:
        told = {**self.created(), **self._ended}
        return {**told, "inputRequests": self.questions()} if self._status == "input_required" else told

    def questions(self) -> JsonObject:
        """The unanswered ones."""
        return {name: asked for name, (asked, given) in self._questions.items() if not given.done()}

    def answer(self, responses: Any) -> None:
        """Takes answers; what answers no question is ignored."""
        for name, response in responses.items() if isinstance(responses, Mapping) else ():
            question = self._questions.get(name)
            if question is not None and isinstance(response, Mapping) and not question[1].done():
                question[1].set_result(response)
                self._change()  # also if others are left: another process may be asked which
        if not self.questions():
            self.asked.clear()

    def cancel(self) -> None:
        if not self.is_over and self.running is not None:
            self.running.cancel()
            self._be("cancelled")


def task_json(
    id: str, status: str, words: str | None, created: datetime, updated: datetime, expires: datetime
) -> JsonObject:
    """A task as its client is told of it."""
    told: JsonObject = {
        "taskId": id, "status": status, "createdAt": _stamp(created), "lastUpdatedAt": _stamp(updated),
        "ttlMs": round((expires - created).total_seconds() * 1000), "pollIntervalMs": POLL_MS,
    }  # fmt: skip
    return told if words is None or status in ENDED else {**told, "statusMessage": words}


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
