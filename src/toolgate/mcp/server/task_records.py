"""The tasks of MCP clients on record, so that they outlive a process and every process on the database can answer for them.

What a client sent or is asked is encrypted as the arguments of approvals are; a result is kept as it is given out, without
secrets. Processes tell each other of answers and cancellations by notices, and look once a second in case one was lost.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from toolgate.coordination.notices import Notices
from toolgate.gates.outputs import Artifacts
from toolgate.model import Call
from toolgate.store import mcp_tasks as table
from toolgate.store.database import Store, now
from toolgate.store.live_processes import ProcessHeartbeat
from toolgate.store.mcp_tasks import McpTaskRow
from toolgate.store.sealed_values import Seal

if TYPE_CHECKING:
    from toolgate.mcp.server.identity import Credential
    from toolgate.mcp.server.task_call import Task

PURPOSE, TOPIC = "mcp.tasks", "mcp.tasks"
MAX_ACTOR_TASKS = 100
"""Calls of one credential that are kept beyond their requests; more are waited for."""
MAX_RESULT_BYTES = 2_000_000
"""A longer result is kept as an artifact, and the task has a link to it."""


class TaskRequest(NamedTuple):
    """All that is needed to make a call again in another process."""

    tool: str
    arguments: Any
    session: str | None
    key: str | None
    timeout: float | None
    workspace: str | None
    capabilities: Mapping[str, Any]
    answers: Mapping[str, Any] | None = None
    """Answers to the tool's questions (protocol 2026-07-28), and its own state."""
    state: str | None = None
    connection: str | None = None


class TaskSnapshot(NamedTuple):
    """How a task of this process stands."""

    state: str
    message: str | None
    approval: str | None
    questions: dict[str, Any]
    ended: dict[str, Any]
    request: TaskRequest | None
    updated_at: datetime
    expires_at: datetime


class StoredTask(NamedTuple):
    """A task as it is on record."""

    row: McpTaskRow
    is_orphan: bool
    """True if its process is gone."""
    questions: dict[str, Any]
    """The unanswered ones."""

    @property
    def ended(self) -> dict[str, Any]:
        return {} if self.row.result is None else dict(orjson.loads(self.row.result))


class TaskRecords:
    """The tasks of this database."""

    def __init__(self, store: Store, presence: ProcessHeartbeat, notices: Notices, artifacts: Artifacts) -> None:
        self._store = store
        self._presence = presence
        self._notices = notices
        self._artifacts = artifacts
        self._seal = Seal(store, PURPOSE)

    def watch(self, woken: Callable[[], None]) -> Callable[[], None]:
        """Has something called when another process may have answered or cancelled a task. Gives what ends it."""
        return self._notices.watch(TOPIC, lambda _text: woken())

    # -- for the process that has a task

    async def add(self, task: "Task") -> bool:
        """Puts a task on record; False if its credential has too many."""
        await self._presence.show()
        at, who = now(), task.who
        row = McpTaskRow(
            id=task.id, kind="task" if task.is_task else "held", credential=who.id, actor=task.actor,
            tenant_id=who.actor.tenant, tool_name=task.tool, request=None, state="", message=None, approval_id=None,
            questions=None, result=None, process_id=self._presence.id, runs=task.runs, created_at=task.created_at,
            updated_at=at, expires_at=at,
        )  # fmt: skip
        return await self._store.transact(table.add(row._replace(**await self._columns(task)), MAX_ACTOR_TASKS))

    async def save(self, task: "Task") -> bool:
        """Puts on record how a task stands; False if it is not this process's any more, or was cancelled."""
        asked = tuple(task.questions())
        changes = await self._columns(task)
        saved = await self._store.transact(table.save(task.id, self._presence.id, task.runs, changes, asked))
        if not task.is_task or task.is_over:
            await self._notices.announce(TOPIC)  # another process may wait for it
        return saved

    async def _columns(self, task: "Task") -> dict[str, Any]:
        told = task.snapshot()
        request = None if told.request is None or told.ended else told.request._asdict()
        return {
            "state": told.state, "message": told.message, "approval_id": told.approval,
            "request": None if request is None else await self._sealed(f"{task.id} request", request),
            "questions": await self._sealed(f"{task.id} questions", told.questions) if told.questions else None,
            "result": await self._result(task, told.ended) if told.ended else None,
            "updated_at": told.updated_at, "expires_at": told.expires_at,
        }  # fmt: skip

    async def _result(self, task: "Task", ended: Mapping[str, Any]) -> str:
        text = orjson.dumps(ended)
        if len(text) <= MAX_RESULT_BYTES:
            return text.decode()
        whole = orjson.dumps(ended.get("result", ended))
        call = Call(task.id, task.tool, None, task.who.actor, door="mcp")
        kept = await self._artifacts.keep(call, whole, (f"the result: {len(whole):,} bytes",))
        link = f" It can be read as toolgate://artifacts/{kept.id}" if kept.id else ""
        words = f"The result of the task is too long to be kept with it ({kept.bytes:,} bytes).{link}"
        return orjson.dumps({"result": {"content": [{"type": "text", "text": words}], "isError": True}}).decode()

    async def news(self, only: str | None = None) -> tuple[dict[str, int], list[tuple[str, str, Mapping[str, Any]]]]:
        """The tasks that are this process's, with their turns, and answers to them that others have received. `only`: of
        one task."""
        mine, answers = await self._store.read(table.held_by(self._presence.id, only))
        opened = [(id, question, await self._opened(_answer_id(id, question), given)) for id, question, given in answers]
        return mine, [(id, question, given) for id, question, given in opened if isinstance(given, Mapping)]

    async def release(self, task: "Task") -> None:
        """Leaves a task to whichever process takes it."""
        await self._store.transact(table.save(task.id, self._presence.id, task.runs, {"process_id": None}))

    async def drop(self, id: str) -> None:
        await self._store.transact(table.drop(id))

    # -- for any process

    async def find(self, id: str, who: "Credential", actor: str) -> StoredTask | None:
        """A task of this credential; None: unknown, another's, or over."""
        if not (0 < len(id) <= 64 and id.isascii() and id.isprintable()):
            return None
        # Before the task: its process takes an answer and a question away at once, so a question that is read after the
        # answers were is either still open or its answer is known here.
        answered = await self._store.read(table.answered(id))
        found = await self._store.read(table.find(id, who.id, actor, lease=self._presence.seconds))
        if found is None:
            return None
        row, is_orphan = found
        asked = None if row.questions is None else await self._opened(f"{id} questions", row.questions)
        if not isinstance(asked, dict):
            return StoredTask(row, is_orphan, {})
        return StoredTask(row, is_orphan, {name: one for name, one in asked.items() if name not in answered})

    async def answer(self, found: StoredTask, responses: Any) -> None:
        """Leaves answers for the process that has the task; what answers no question is ignored."""
        given = responses if isinstance(responses, Mapping) else {}
        fitting = {name: given[name] for name in found.questions if isinstance(given.get(name), Mapping)}
        if not fitting:
            return
        id = found.row.id
        sealed = {name: await self._sealed(_answer_id(id, name), answer) for name, answer in fitting.items()}
        await self._store.transact(table.answer(id, {name: text for name, text in sealed.items() if text is not None}))
        await self._notices.announce(TOPIC)

    async def cancel(self, id: str) -> None:
        if await self._store.transact(table.cancel(id, now())):
            await self._notices.announce(TOPIC)

    # -- tasks whose process is gone

    async def orphans(self) -> list[McpTaskRow]:
        return await self._store.read(table.orphans(now(), lease=self._presence.seconds))

    async def request_of(self, row: McpTaskRow) -> TaskRequest | None:
        """The call of a task; None: it can't be read here."""
        found = None if row.request is None else await self._opened(f"{row.id} request", row.request)
        if not isinstance(found, dict) or found.keys() != set(TaskRequest._fields):
            return None  # of another version, or changed
        return TaskRequest(**found)

    async def claim(self, row: McpTaskRow) -> bool:
        """Takes a task; False if another process was quicker."""
        await self._presence.show()
        return await self._store.transact(table.claim(row, self._presence.id, now(), lease=self._presence.seconds))

    async def fail(self, row: McpTaskRow, error: Mapping[str, Any]) -> None:
        """Ends a task that can't go on."""
        result = orjson.dumps({"error": error}).decode()
        await self._store.transact(table.fail(row, result, now(), lease=self._presence.seconds))

    # -- encryption

    async def _sealed(self, id: str, value: Any) -> str | None:
        return await self._seal.close(id, orjson.dumps(value))

    async def _opened(self, id: str, text: str) -> Any:
        plain = await self._seal.open(id, text)
        return None if plain is None else orjson.loads(plain)


def _answer_id(id: str, question: str) -> str:
    """What an answer is encrypted for: it fits no other question."""
    return f"{id} answer {question}"
