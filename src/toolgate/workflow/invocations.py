"""Workflows that are not waited for: noted before they are started, ended by a callback, or by the end of their time.

A callback may come before n8n has answered the request that started the workflow, more than once, late, or never. Whichever
report is noted first counts. One that comes after its time is noted all the same, so that nothing is lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import orjson

from toolgate.gates.redaction import Redactor
from toolgate.model import Actor, Call, new_id
from toolgate.store import workflow_invocations as table
from toolgate.store.database import Store
from toolgate.store.workflow_invocations import InvocationEnd, InvocationRow
from toolgate.tasks import finish, repeat, start_task, stop_tasks
from toolgate.threads import to_thread
from toolgate.workflow import callbacks
from toolgate.workflow.callbacks import CallbackKeys, CallbackRefused, Proof
from toolgate.workflow.client import header_text

COMPLETED = "workflow.completed"
EXPIRY_SECONDS = 5.0
"""The time between two looks for those of which nothing was heard."""
POLL_SECONDS = 0.5
"""The time between two looks at one that another process may have ended."""
KEPT_DAYS = 30
MAX_KNOWN = 10_000
"""Invocations whose secrets this process keeps in mind, to mask them in what is reported."""
TOO_LATE = {"code": "TIMEOUT", "message": "No callback came within the time of the workflow."}

Record = Callable[[str, Actor, str, dict[str, Any]], Awaitable[None]]
Tell = Callable[[str, dict[str, Any]], None]
FindSecrets = Callable[[Actor, str], tuple[str, ...]]
"""Gives the values of the secrets that a workflow may have been given for an actor."""
CheckOutput = Callable[[str, str, Any], str | None]
"""Tells what is wrong with an output of a workflow of a tenant; None: nothing."""

logger = logging.getLogger("toolgate")


class Invocation(NamedTuple):
    """A workflow that was started."""

    id: str
    workflow: str
    state: str
    """running, success, failure, timeout, or not_started."""
    tenant: str
    user: str
    persona: str | None
    idempotency_key: str
    call_id: str
    output: Any
    error: dict[str, Any] | None
    execution_id: str | None
    created_at: str
    deadline: str
    ended_at: str | None

    @property
    def is_over(self) -> bool:
        """True if it ended, or its time did."""
        return self.state != "running"


class Invocations:
    """The invocations of all workflows."""

    def __init__(
        self,
        store: Store,
        redactor: Redactor,
        *,
        record: Record,
        tell: Tell,
        secrets: FindSecrets,
        check_output: CheckOutput,
        clock: Callable[[], datetime],
    ) -> None:
        self.keys = CallbackKeys(store)
        self._store = store
        self._redactor = redactor
        self._record = record
        self._tell = tell
        self._secrets = secrets
        self._check_output = check_output
        self._clock = clock
        self._known: dict[str, tuple[str, ...]] = {}
        self._ended = asyncio.Event()
        """Set, and made anew, whenever one ends in this process."""
        self._expiring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look for those of which nothing is heard."""
        self._expiring = start_task(repeat(EXPIRY_SECONDS, self.expire, logger, "workflows could not be looked at"))

    async def stop(self) -> None:
        await stop_tasks(self._expiring)

    # -- starting

    async def begin(
        self, call: Call, workflow: str, seconds: float, known: tuple[str, ...] = ()
    ) -> tuple[InvocationRow, bool]:
        """Notes that a workflow is about to be started. Gives its row, and whether it is to be: not if it was for the
        same key. `known`: values of secrets that it is given."""
        at, actor = self._clock(), call.actor
        key = header_text(call.id if call.idempotency_key is None else call.idempotency_key)
        row = InvocationRow(
            f"wfi_{new_id()}", actor.tenant, actor.user, actor.persona, workflow, key, call.id, "running", None, None, None,
            at, at + timedelta(seconds=seconds), None,
        )  # fmt: skip
        begun, is_new = await finish(self._store.transact(table.begin(row)))
        if is_new and known:
            self._known[begun.id] = known
            while len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
        return begun, is_new

    async def note_execution(self, row: InvocationRow, execution_id: str) -> None:
        """Notes the id of the execution in n8n, unless it holds a secret."""
        if await self._masked(row, execution_id) == execution_id:
            await finish(self._store.transact(table.note_execution(row.id, execution_id)))

    async def note_not_started(self, row: InvocationRow, code: str, message: str) -> None:
        """Notes that n8n did not take it; its words may repeat what it was sent."""
        error = orjson.dumps({"code": code, "message": await self._masked(row, message)}).decode()
        await finish(self._store.transact(table.note_not_started(row.id, error, self._clock())))

    async def _masked(self, row: InvocationRow, value: Any) -> Any:
        """The words of n8n on an invocation, secrets masked: those that it was given, and its key."""
        known = (*self._secrets(_actor(row), row.workflow), *self._known.get(row.id, ()), await self.keys.of(row.id))
        if not self._redactor.ready:
            await self._redactor.prepare(value)
        return await to_thread(self._redactor.mask, value, frozenset(), known)

    # -- ending

    async def receive(self, id: str, proof: Proof, body: bytes) -> None:
        """Takes a callback. Raises CallbackRefused; for who can't sign, whether or not there is such an invocation."""
        callbacks.check_time(proof, self._clock().timestamp())
        callbacks.check_signature(await self.keys.of(id), proof, body)
        said = callbacks.parse(body)
        row = await self._store.read(table.find(id))
        if row is None:
            raise CallbackRefused("unknown", "There is no such invocation.")
        ending = await self._ending(row, said)
        ended, is_first = await finish(self._end(row, ending))
        if ended is None:
            raise CallbackRefused("unknown", "There is no such invocation.")
        if not is_first:
            raise CallbackRefused("repeated", "The end of this invocation was reported before.")

    async def _ending(self, row: InvocationRow, said: callbacks.Callback) -> InvocationEnd:
        """The report as it is kept: secrets masked, as in the outcome of a call."""
        error: dict[str, Any] | None = None
        if not said.success:
            error = {"code": "N8N_ERROR", "message": said.message or "The workflow failed."}
        elif (wrong := self._check_output(row.workflow, row.tenant_id, said.output)) is not None:
            error = {"code": "OUTPUT_INVALID", "message": wrong}
        value = {"output": None if error else said.output, "error": error, "execution": said.execution_id}
        kept = await self._masked(row, value)
        return InvocationEnd(
            "failure" if error else "success",
            None if kept["output"] is None else orjson.dumps(kept["output"]).decode(),
            None if error is None else orjson.dumps(kept["error"]).decode(),
            said.execution_id if kept["execution"] == said.execution_id else None,
            self._clock(),
        )

    async def _end(self, row: InvocationRow, ending: InvocationEnd) -> tuple[InvocationRow | None, bool]:
        ended, is_first = await self._store.transact(table.end(row.id, ending))
        if ended is not None and is_first:
            self._known.pop(row.id, None)
            await self._announce(ended, late=row.state == "timeout")
        return ended, is_first

    async def expire(self) -> None:
        """Ends those of which nothing was heard in their time, and forgets old ones."""
        at = self._clock()
        for row in await finish(self._store.transact(table.expire(at, orjson.dumps(TOO_LATE).decode()))):
            await finish(self._announce(row))
        await finish(self._store.transact(table.forget(at - timedelta(days=KEPT_DAYS))))

    async def _announce(self, row: InvocationRow, *, late: bool = False) -> None:
        """Puts an end on record, and tells the listeners and those who wait."""
        ended = row.ended_at or row.created_at
        details = {
            "invocation": row.id,
            "status": row.state,
            "execution_id": row.execution_id,
            "call": row.call_id,
            "duration_ms": round((ended - row.created_at).total_seconds() * 1000),
            "late": late,
        }
        await self._record(COMPLETED, _actor(row), row.workflow, details)
        self._ended.set()
        self._ended = asyncio.Event()
        self._tell(COMPLETED, {**details, "workflow": row.workflow, "user": row.user_id, "scope": {"tenant": row.tenant_id}})

    # -- for people, and for jobs that wait

    async def get(self, id: str, actor: Actor) -> Invocation | None:
        """An invocation of an actor's user; None: there is none."""
        row = await self._store.read(table.find(id))
        if row is None or (row.tenant_id, row.user_id) != (actor.tenant, actor.user):
            return None
        if row.state == "running" and row.deadline < self._clock():
            await self.expire()
            row = await self._store.read(table.find(id)) or row
        return _shown(row)

    async def list(
        self, actor: Actor, *, all_users: bool = False, workflow: str | None = None, state: str | None = None, limit: int
    ) -> list[Invocation]:
        """The latest invocations of an actor's user, or of all users of the tenant, oldest first."""
        user = None if all_users else actor.user
        rows = await self._store.read(table.listed(actor.tenant, user, workflow, state, limit))
        return [_shown(row) for row in rows]

    async def wait(self, id: str, actor: Actor, seconds: float) -> Invocation | None:
        """An invocation, when it is over or the time is."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            ended = self._ended
            found = await self.get(id, actor)
            left = until - loop.time()
            if found is None or found.is_over or left <= 0:
                return found
            try:
                await asyncio.wait_for(ended.wait(), min(left, POLL_SECONDS))
            except TimeoutError:
                continue


def _actor(row: InvocationRow) -> Actor:
    return Actor(row.tenant_id, row.persona_id, row.user_id)


def _shown(row: InvocationRow) -> Invocation:
    return Invocation(
        row.id,
        row.workflow,
        row.state,
        row.tenant_id,
        row.user_id,
        row.persona_id,
        row.idempotency_key,
        row.call_id,
        None if row.output is None else orjson.loads(row.output),
        None if row.error is None else orjson.loads(row.error),
        row.execution_id,
        row.created_at.isoformat(timespec="milliseconds"),
        row.deadline.isoformat(timespec="milliseconds"),
        None if row.ended_at is None else row.ended_at.isoformat(timespec="milliseconds"),
    )
