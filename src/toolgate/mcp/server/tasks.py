"""Calls that go on after their request was answered.

A client with the extension io.modelcontextprotocol/tasks (SEP-2663) need not hold a connection open: a call that takes long,
whose tool says that it will, or that waits for an approval becomes a task, which the client polls (tasks/get), answers
(tasks/update) or cancels (tasks/cancel). Any other client of 2026-07-28 is told what input is required and repeats the call;
if the tool's server is older and wants the answer while it runs, the call is held until then.

It is the same governed call all the time. It belongs to the credential that made it and runs in one process; every process
on the same database can be asked about it, takes answers for it, and cancels it. When its process has died, another goes on
with it where that is safe (`task_recovery`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import mcp_types as types

from toolgate.errors import StoreError
from toolgate.mcp.server.caller import TASKS_EXTENSION, Request, has_tasks, is_modern
from toolgate.mcp.server.identity import Credential, IdentifyCaller, actor_id
from toolgate.mcp.server.request_state import InputRequiredResult, RetryState
from toolgate.mcp.server.results import INTERNAL_ERROR, INVALID_PARAMS, JsonObject, ProtocolError
from toolgate.mcp.server.task_call import Task, task_json
from toolgate.mcp.server.task_records import StoredTask, TaskRecords
from toolgate.mcp.server.task_recovery import TaskRecovery, gone_with_its_process
from toolgate.tasks import repeat, start_task, stop_tasks, wait_for_any

if TYPE_CHECKING:
    from toolgate.model import Entry

TASK_AFTER_SECONDS = 1.0
LOOK_SECONDS = 1.0
"""The time between two looks for what other processes did, unless a notice tells of it."""
HELD_LOOK_SECONDS = 0.25
MAX_TASKS = 1_000
"""Calls of all clients that this process keeps beyond their requests; more are waited for."""
METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY = -32601, -32020, -32021
StartCall = Callable[["Task | None"], Awaitable[JsonObject]]

logger = logging.getLogger("toolgate.mcp")


class TaskParams(types.RequestParams):
    task_id: str


class Tasks:
    def __init__(
        self,
        who: IdentifyCaller,
        records: TaskRecords,
        recovery: TaskRecovery,
        entry: Callable[[str, Credential], "Entry | None"],
        withdraw: Callable[..., Awaitable[None]],
    ) -> None:
        """`withdraw` ends an approval that a task waits for."""
        self._who = who
        self._withdraw = withdraw
        self._records = records
        self._recovery = recovery
        self._entry = entry
        self._tasks: dict[str, Task] = {}
        self._woken = asyncio.Event()
        self._unwatch: Callable[[], None] | None = None
        self._looking: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to look for what other processes do about tasks, and for tasks whose process has died."""
        self._unwatch = self._records.watch(self._woken.set)
        trouble = "what other processes did about tasks cannot be read"
        self._looking = [
            start_task(repeat(0, self._look_when_told, logger, trouble)),
            start_task(repeat(LOOK_SECONDS, self._recover, logger, "tasks of processes that ended cannot be read")),
        ]

    async def run(self, ctx: Request, start: StartCall, *, tool: str, may_be_task: bool = False) -> JsonObject:
        """Makes a call, or continues one that waits for its client, and answers the request: with its result, with the
        required input, or with the task that it has become."""
        if not is_modern(ctx):
            return await start(None)
        who = self._who(ctx)
        held = RetryState.of((ctx.params or {}).get("requestState")).held
        if held is not None:
            task = self._tasks.get(held)
            if task is None or task.is_lost:
                return await self._continue_elsewhere(ctx, who, held)
            self._continue(ctx, who, task)
        else:
            task = Task(who, self._records, is_task=may_be_task and has_tasks(ctx))
            task.tool = tool
            if not self._has_room():
                return await start(None)
            task.running = start_task(start(task), unheard=True)  # if nobody comes back for it
        return await self._wait(task, task.running)

    async def _wait(self, task: Task, running: "asyncio.Future[JsonObject] | None") -> JsonObject:
        assert running is not None
        event = task.begun if task.is_task else task.asked
        task.is_attended = True
        try:
            await wait_for_any(event, running, seconds=TASK_AFTER_SECONDS if task.is_task else None)
            if not running.done() and await task.keep() and (task.is_task or not running.done()):
                return self._go_on(task, running)
            if task.begun.is_set() and task.is_kept:
                return self._go_on(task, running)
            return await running  # it has ended, or too many tasks are kept
        except asyncio.CancelledError:
            running.cancel()
            self._tasks.pop(task.id, None)
            start_task(task.forget(), unheard=True)  # its client went away
            raise
        finally:
            task.is_attended = False
            if running.done() and not (task.is_task and task.begun.is_set()):
                self._tasks.pop(task.id, None)
                if task.is_kept:
                    await task.forget()

    def _go_on(self, task: Task, running: "asyncio.Future[JsonObject]") -> JsonObject:
        """Answers the request of a call that goes on."""
        self._tasks[task.id] = task
        running.add_done_callback(task.end)
        if not task.is_task:
            return _ask(task)
        if not task.begun.is_set():
            task.begin()
        return {"resultType": "task", **task.created()}

    def _has_room(self) -> bool:
        """True if one more call may be kept."""
        return len(self._tasks) < MAX_TASKS

    # -- calls that are held until their client has answered

    def _continue(self, ctx: Request, who: Credential, task: Task) -> None:
        """Passes a client's answers to the call that waits for them. The state that names it is sealed for its actor and
        request."""
        if task.client is None or not task.is_of(who):
            raise _has_ended()
        task.client.come(ctx)
        task.answer((ctx.params or {}).get("inputResponses"))

    async def _continue_elsewhere(self, ctx: Request, who: Credential, id: str) -> JsonObject:
        """Passes a client's answers to the process that holds its call, and waits for what comes of it."""
        found = await self._held(id, who)
        await self._records.answer(found, (ctx.params or {}).get("inputResponses"))
        woken = asyncio.Event()
        unwatch = self._records.watch(woken.set)
        try:
            while True:
                woken.clear()
                found = await self._held(id, who)
                if not found.row.is_live:
                    await self._records.drop(id)
                    return _given(found)
                if found.questions:
                    return InputRequiredResult(found.questions, RetryState(held=id).to_text()).to_dict()
                await wait_for_any(woken, seconds=HELD_LOOK_SECONDS)
        except asyncio.CancelledError:
            start_task(self._records.cancel(id), unheard=True)
            raise
        finally:
            unwatch()

    async def _held(self, id: str, who: Credential) -> StoredTask:
        found = await self._records.find(id, who, actor_id(who.actor))
        if found is None or found.row.kind != "held":
            raise _has_ended()
        if found.is_orphan and found.row.is_live:
            raise gone_with_its_process(self._entry(found.row.tool_name, who))
        return found

    # -- what other processes did

    async def _look_when_told(self) -> None:
        await wait_for_any(self._woken, seconds=LOOK_SECONDS)
        self._woken.clear()
        for task in [one for one in self._tasks.values() if one.is_written_off]:
            del self._tasks[task.id]
        kept = [task for task in self._tasks.values() if task.is_kept and not task.is_over and not task.is_lost]
        if kept:
            await self._follow(kept)

    async def _follow(self, kept: list[Task], only: str | None = None) -> None:
        """Does with tasks of this process what others have put on record: answers, cancellations."""
        mine, answers = await self._records.news(only)
        for id, question, given in answers:
            if id in self._tasks:
                self._tasks[id].answer({question: given})
        for task in kept:
            if mine.get(task.id) != task.runs and not task.is_over:
                task.lose()
                if self._tasks.get(task.id) is task:
                    del self._tasks[task.id]

    async def _recover(self) -> None:
        for task, running in await self._recovery.claim():
            task.running = start_task(running, unheard=True)
            task.running.add_done_callback(task.end)
            if (before := self._tasks.get(task.id)) is not None:
                before.lose()  # this process was taken for dead
            self._tasks[task.id] = task

    # -- the methods

    async def get(self, ctx: Request, params: TaskParams) -> JsonObject:
        task = await self._find(ctx, params)
        if isinstance(task, Task) and task.is_kept and not task.is_over:
            await task.written()
            await self._follow([task], task.id)  # what another process was told a moment ago is not news to its client
            task = await self._find(ctx, params)
        return task.shown() if isinstance(task, Task) else _shown(task)

    async def update(self, ctx: Request, params: TaskParams) -> JsonObject:
        task, responses = await self._find(ctx, params), (ctx.params or {}).get("inputResponses")
        if isinstance(task, Task):
            task.answer(responses)
            await asyncio.sleep(0)  # so that a client that looks at once sees that the call goes on
            await task.written()  # also one that asks another process
        else:
            await self._records.answer(task, responses)
        return {}

    async def cancel(self, ctx: Request, params: TaskParams) -> JsonObject:
        task = await self._find(ctx, params)
        if isinstance(task, Task):
            task.cancel()
            await task.written()
        else:
            await self._records.cancel(params.task_id)
        approval = task.approval if isinstance(task, Task) else task.row.approval_id
        if approval is not None:
            await self._withdraw(approval, actor=self._who(ctx).actor, reason="its task was cancelled")
        return {}

    async def _find(self, ctx: Request, params: TaskParams) -> Task | StoredTask:
        if not is_modern(ctx):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not has_tasks(ctx):
            needed: JsonObject = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
            raise ProtocolError(MISSING_CAPABILITY, f"The client does not have the extension {TASKS_EXTENSION}", needed)
        if ctx.request is not None and ctx.request.headers.get("mcp-name") != params.task_id:
            raise ProtocolError(HEADER_MISMATCH, "The header Mcp-Name is not the id of the task")
        who, task = self._who(ctx), self._tasks.get(params.task_id)
        if task is not None and task.is_task and not task.is_lost and task.is_of(who):
            return task
        found = await self._records.find(params.task_id, who, actor_id(who.actor))
        if found is None or found.row.kind != "task":
            raise ProtocolError(INVALID_PARAMS, "Unknown task", {"taskId": params.task_id[:128]})
        return found

    async def close(self) -> None:
        """Stops what still runs. A task is left to the next process as it is on record: one that waits for a person goes on
        there."""
        if self._unwatch is not None:
            self._unwatch()
        await stop_tasks(*self._looking)
        left = [task for task in self._tasks.values() if task.is_kept and not task.is_over]
        for task in left:
            task.is_left = True
        await stop_tasks(*(task.running for task in self._tasks.values()))
        await asyncio.gather(*(task.written(at_last=True) for task in self._tasks.values()))
        for task in left:
            with contextlib.suppress(StoreError):  # it counts as another's once this process counts as dead
                await self._records.release(task)


def _ask(task: Task) -> JsonObject:
    """The input that the client must provide, while the call waits for it here."""
    if task.client is not None:
        task.client.is_gone = True
    return InputRequiredResult(task.questions(), RetryState(held=task.id).to_text()).to_dict()


def _shown(found: StoredTask) -> JsonObject:
    row, state = found.row, found.row.state
    if state == "input_required" and not found.questions:
        state = "working"  # its process is about to take the answers
    told = {**task_json(row.id, state, row.message, row.created_at, row.updated_at, row.expires_at), **found.ended}
    return {**told, "inputRequests": found.questions} if state == "input_required" else told


def _given(found: StoredTask) -> JsonObject:
    """What came of a call that another process held."""
    ended = found.ended
    if "result" in ended:
        return dict(ended["result"])
    error = ended.get("error") or {"code": INVALID_PARAMS, "message": "The call that this answers was cancelled"}
    raise ProtocolError(error.get("code", INTERNAL_ERROR), error.get("message", "Internal error"), error.get("data"))


def _has_ended() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "The call that this answers has ended; call again")
