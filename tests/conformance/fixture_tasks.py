"""The tasks extension (SEP-2663) of the fixture: calls that go on after their request was answered.

The SDK does not have it. A task runs in this process and is asked for with tasks/get; what it wants to know is answered
with tasks/update, and it ends early by tasks/cancel.
"""

import asyncio
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from tests.conformance.turns import TASKS, Ask, Context, Json, Later, Play, Turn, knows_tasks, missing

KEPT_MS = 600_000
POLL_MS = 200


class TaskParams(types.RequestParams):
    """What all methods on tasks take."""

    task_id: str


@dataclass
class Task:
    """A call that goes on."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: str = field(default_factory=lambda: _now())
    updated: str = field(default_factory=lambda: _now())
    status: str = "working"
    ended: Json = field(default_factory=dict)
    """`result` or `error`, when it has ended."""
    questions: dict[str, Json] = field(default_factory=dict)
    """That are not answered yet."""
    answers: Json = field(default_factory=dict)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """All questions are answered."""
    running: asyncio.Task[None] | None = None

    def be(self, status: str, **ended: Any) -> None:
        self.status, self.ended, self.updated = status, ended, _now()

    def shown(self) -> Json:
        return {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": KEPT_MS,
            "pollIntervalMs": POLL_MS,
        }


class Tasks:
    """All tasks of a server."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def serve(self, server: Server[Any]) -> None:
        """Add the extension's methods to a server."""
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", TaskParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def start(self, work: Play, turn: Turn) -> Json:
        """Let something go on; the answer to the request that began it."""
        task = Task()
        self._tasks[task.id] = task
        # What was asked and answered before the task began is no business of the task's.
        task.running = asyncio.create_task(_run(task, work, replace(turn, answers={}, state=None)))
        return {"resultType": "task"} | task.shown()

    def _find(self, ctx: Context, id: str) -> Task:
        if not knows_tasks(ctx):
            raise missing({"extensions": {TASKS: {}}})
        named = ctx.request.headers.get("mcp-name") if ctx.request is not None else id
        if named != id:
            raise MCPError(types.HEADER_MISMATCH, "Mcp-Name is not the id of the task")
        if id not in self._tasks:
            raise MCPError(types.INVALID_PARAMS, "There is no such task", {"taskId": id})
        return self._tasks[id]

    async def _get(self, ctx: Context, params: TaskParams) -> Json:
        task = self._find(ctx, params.task_id)
        asked = {"inputRequests": task.questions} if task.status == "input_required" else {}
        return task.shown() | task.ended | asked

    async def _update(self, ctx: Context, params: TaskParams) -> Json:
        task = self._find(ctx, params.task_id)
        for name, answer in ((ctx.params or {}).get("inputResponses") or {}).items():
            if task.questions.pop(name, None) is not None:
                task.answers[name] = answer
        if not task.questions:
            task.told.set()
        return {}

    async def _cancel(self, ctx: Context, params: TaskParams) -> Json:
        task = self._find(ctx, params.task_id)
        if task.running is not None and not task.ended and task.status != "cancelled":
            task.running.cancel()
            task.be("cancelled")
        return {}


async def _run(task: Task, work: Play, turn: Turn) -> None:
    try:
        done = await work(turn)
        while not isinstance(done, dict):
            if isinstance(done, Later):
                work = done.work
            else:
                turn = replace(turn, answers=await _answers(task, done), state=done.state)
            done = await work(turn)
        task.be("completed", result=done)
    except Exception as error:  # noqa: BLE001  # whatever breaks is the task's end, and its client's to know
        task.be("failed", error={"code": types.INTERNAL_ERROR, "message": str(error)})


async def _answers(task: Task, ask: Ask) -> Json:
    task.questions, task.answers = dict(ask.requests), {}
    task.told.clear()
    task.be("input_required")
    await task.told.wait()
    task.be("working")
    return task.answers


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
