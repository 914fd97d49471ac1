"""Calls that go on after their request was answered.

A client with the extension io.modelcontextprotocol/tasks (SEP-2663) need not hold a connection open: a call that takes long,
whose tool says that it will, or that waits for an approval becomes a task, which the client polls (tasks/get), answers
(tasks/update) or cancels (tasks/cancel). Any other client of 2026-07-28 is told what input is required and repeats the call;
if the tool's server is older and wants the answer while it runs, the call is held here until then.

It is the same governed call all the time. It belongs to the credential that made it, and lives in this process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from secrets import token_urlsafe
from time import monotonic
from typing import Any

import mcp_types as types

from toolgate.mcp.server.caller import TASKS_EXTENSION, ClientCaller, Request, has_tasks, is_modern
from toolgate.mcp.server.identity import IdentifyCaller, actor_id
from toolgate.mcp.server.request_state import InputRequiredResult, RetryState
from toolgate.mcp.server.results import INTERNAL_ERROR, INVALID_PARAMS, JsonObject, ProtocolError
from toolgate.tasks import start_task, stop_tasks, wait_for_any

TASK_AFTER_SECONDS = 1.0
TASK_TTL_SECONDS = 7_200
"""The time that a task can be polled after it has begun."""
POLL_MS = 500
MAX_TASKS = 1_000
MAX_ACTOR_TASKS = 100
"""Calls that are kept beyond their requests, in all and for one actor; more are waited for."""
METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY = -32601, -32020, -32021
StartCall = Callable[["Task | None"], Awaitable[JsonObject]]


class TaskParams(types.RequestParams):
    task_id: str


class Task:
    """A call that may go on: a task as soon as it does, if its client has the extension, and until then an ordinary call."""

    def __init__(self, owner: str, *, is_task: bool) -> None:
        self.id = token_urlsafe(24)
        self.owner = owner
        self.is_task = is_task
        self.begun = asyncio.Event()
        self.asked = asyncio.Event()
        self.client: ClientCaller | None = None
        self.running: asyncio.Future[JsonObject] | None = None
        self.made = monotonic()
        self._created = self._updated = _now()
        self._status = "working"
        self._words: str | None = None
        self._ended: JsonObject = {}
        self._questions: dict[str, tuple[JsonObject, asyncio.Future[Mapping[str, Any]]]] = {}
        self._count = 0

    # -- what the call does

    def begin(self, words: str | None = None) -> None:
        """Detaches the call from its request."""
        self._words = words
        self.begun.set()
        if self.client is not None:
            self.client.let_go()

    async def put(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Asks the client, which finds the question when it polls, or in the response to its request."""
        if self.is_task and not self.begun.is_set():
            self.begin()
        self._count += 1
        name, given = f"question-{self._count}", asyncio.get_running_loop().create_future()
        self._questions[name] = {"method": method, "params": dict(params)}, given
        self._be("input_required")
        self.asked.set()
        try:
            answer: Mapping[str, Any] = await given
            return answer
        finally:
            self._questions.pop(name, None)
            if not self._questions and self._status == "input_required":
                self._be("working")

    def end(self, running: "asyncio.Future[JsonObject]") -> None:
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
        if not self.is_over:
            self._status, self._ended, self._updated = status, ended, _now()

    # -- what its client does

    @property
    def is_over(self) -> bool:
        return self._status in ("completed", "failed", "cancelled")

    def created(self) -> JsonObject:
        told: JsonObject = {
            "taskId": self.id, "status": self._status, "createdAt": self._created, "lastUpdatedAt": self._updated,
            "ttlMs": TASK_TTL_SECONDS * 1000, "pollIntervalMs": POLL_MS,
        }  # fmt: skip
        return told if self._words is None or self.is_over else {**told, "statusMessage": self._words}

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
        if not self.questions():
            self.asked.clear()

    def cancel(self) -> None:
        if not self.is_over and self.running is not None:
            self.running.cancel()
            self._be("cancelled")


class Tasks:
    def __init__(self, who: IdentifyCaller) -> None:
        self._who = who
        self._tasks: dict[str, Task] = {}

    async def run(self, ctx: Request, start: StartCall, *, may_be_task: bool = False) -> JsonObject:
        """Makes a call, or continues one that waits for its client, and answers the request: with its result, with the
        required input, or with the task that it has become."""
        if not is_modern(ctx):
            return await start(None)
        task = self._held(ctx)
        if task is None:
            task = Task(self._owner(ctx), is_task=may_be_task and has_tasks(ctx))
            if not self._has_room(task.owner):
                return await start(None)
            task.running = start_task(start(task), unheard=True)  # if nobody comes back for it
        return await self._wait(task, task.running)

    async def _wait(self, task: Task, running: "asyncio.Future[JsonObject] | None") -> JsonObject:
        assert running is not None
        event = task.begun if task.is_task else task.asked
        try:
            await wait_for_any(event, running, seconds=TASK_AFTER_SECONDS if task.is_task else None)
        except asyncio.CancelledError:
            self._tasks.pop(task.id, None)
            running.cancel()
            raise
        if running.done() and not task.begun.is_set():
            self._tasks.pop(task.id, None)
            return await running
        self._tasks[task.id] = task
        return self._become_task(task, running) if task.is_task else _ask(task)

    def _become_task(self, task: Task, running: "asyncio.Future[JsonObject]") -> JsonObject:
        if not task.begun.is_set():
            task.begin()
        running.add_done_callback(task.end)
        return {"resultType": "task", **task.created()}

    def _held(self, ctx: Request) -> Task | None:
        """The call that a client continues with answers. The state that names it is sealed for its actor and request."""
        held = RetryState.of((ctx.params or {}).get("requestState")).held
        if held is None:
            return None
        task = self._tasks.get(held)
        if task is None or task.client is None or task.owner != self._owner(ctx):
            raise ProtocolError(INVALID_PARAMS, "The call that this answers has ended; call again")
        task.client.come(ctx)
        task.answer((ctx.params or {}).get("inputResponses"))
        return task

    def _owner(self, ctx: Request) -> str:
        """The credential that made a call. Another one of the same actor may not be allowed to approve."""
        who = self._who(ctx)
        return f"{who.id} {actor_id(who.actor)}"

    def _has_room(self, owner: str) -> bool:
        """True if one more call may be kept; expired ones are dropped."""
        over = monotonic() - TASK_TTL_SECONDS
        for task in tuple(self._tasks.values()):
            if (task.running is None or task.running.done()) and (task.made < over or not task.is_task):
                del self._tasks[task.id]
        return len(self._tasks) < MAX_TASKS and sum(task.owner == owner for task in self._tasks.values()) < MAX_ACTOR_TASKS

    async def get(self, ctx: Request, params: TaskParams) -> JsonObject:
        return self._find(ctx, params).shown()

    async def update(self, ctx: Request, params: TaskParams) -> JsonObject:
        self._find(ctx, params).answer((ctx.params or {}).get("inputResponses"))
        await asyncio.sleep(0)  # so that a client that looks at once sees that the call goes on
        return {}

    async def cancel(self, ctx: Request, params: TaskParams) -> JsonObject:
        self._find(ctx, params).cancel()
        return {}

    def _find(self, ctx: Request, params: TaskParams) -> Task:
        if not is_modern(ctx):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not has_tasks(ctx):
            needed: JsonObject = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
            raise ProtocolError(MISSING_CAPABILITY, f"The client does not have the extension {TASKS_EXTENSION}", needed)
        if ctx.request is not None and ctx.request.headers.get("mcp-name") != params.task_id:
            raise ProtocolError(HEADER_MISMATCH, "The header Mcp-Name is not the id of the task")
        task = self._tasks.get(params.task_id)
        if task is None or not task.is_task or task.owner != self._owner(ctx):
            raise ProtocolError(INVALID_PARAMS, "Unknown task", {"taskId": params.task_id[:128]})
        return task

    async def close(self) -> None:
        await stop_tasks(*(task.running for task in self._tasks.values()))


def _ask(task: Task) -> JsonObject:
    """The input that the client must provide, while the call waits for it here."""
    if task.client is not None:
        task.client.is_gone = True
    return InputRequiredResult(task.questions(), RetryState(held=task.id).to_text()).to_dict()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
