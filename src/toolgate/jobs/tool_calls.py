"""Calls of tools as jobs: `CallQueue` is the gate at which a call that is to run in the background is queued, `ToolCalls`
is the handler that makes it.

The call passes the gates twice. When it is queued, policy, arguments, a person's agreement and its money are looked at, and
the money is taken along. When a worker makes it, it passes all gates again: what was changed meanwhile counts. It has an
idempotency key, so that a call that was begun when its worker died is not made again: nobody knows whether it had its
effect, and it is parked for a person to settle, unless running it again can do no harm.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import orjson

from toolgate.errors import CODES, CallError, Failed, Pending
from toolgate.jobs.handlers import JobContext, JobParked, JobWaits
from toolgate.jobs.job import Job
from toolgate.jobs.queue import JobQueue, check_wish
from toolgate.jobs.runner import JobFailed, RetryJob
from toolgate.model import LOCAL, LOCAL_DOORS, Actor, Call, Entry, Invoke, Outcome, new_id
from toolgate.model.outcome import ErrorInfo
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict

TYPE = "execute_tool"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tool": {"type": "string"},
        "arguments": {"type": ["object", "null"]},
        "session": {"type": ["string", "null"]},
        "connection": {"type": ["string", "null"]},
        "approval": {"type": ["string", "null"]},
        "timeout": {"type": ["number", "null"]},
        "workspace": {"type": ["string", "null"]},
        "here": {"type": ["string", "null"]},
        "request_id": {"type": ["string", "null"]},
        "door": {"type": "string"},
        "needs_key": {"type": "boolean"},
    },
    "required": ["tool", "arguments", "door"],
    "additionalProperties": False,
}
NOTHING_RAN = frozenset({"RATE_LIMITED", "CAPACITY_EXCEEDED", "CIRCUIT_OPEN"})
"""Codes of a call that did not get as far as its tool: it may be made again whatever it does."""


class CallQueue:
    """The gate. Only calls that ask for it, and calls of tools that always run so, come here."""

    def __init__(
        self,
        queue: JobQueue,
        hand_over: Callable[[InvokeContext], Awaitable[None]],
        has_key: Callable[[Actor], Awaitable[bool]],
    ) -> None:
        """`hand_over` has what the call has reserved wait for the job; `has_key` tells whether an API key lets its holder
        act as an actor."""
        self._queue = queue
        self._hand_over = hand_over
        self._has_key = has_key

    def check(self, call: Call) -> None:
        """Raises Failed for a wish that no job can have, before anybody is asked about the call."""
        if call.background is not None:
            check_wish(call.idempotency_key, call.background.delay, call.background.priority)

    async def payload(self, call: Call) -> dict[str, Any]:
        """A call as the payload of a job. What came in with an API key is not made once the key is revoked."""
        needs_key = call.door not in LOCAL_DOORS and await self._has_key(call.actor)
        return {**payload_of(call), "needs_key": True} if needs_key else payload_of(call)

    async def enter(self, ctx: InvokeContext, entry: Entry) -> Outcome:
        """Queues the call and raises Pending. Where it was queued before, with the same key, and is over: its outcome."""
        call = ctx.call
        payload = {**await self.payload(call), "tool": entry.name, "arguments": orjson.loads(ctx.canonical)}
        shown = {**payload, "arguments": orjson.loads(ctx.recorded or ctx.canonical)}
        wanted = call.background
        job = await self._queue.enqueue(
            TYPE,
            payload,
            actor=call.actor,
            key=call.idempotency_key,
            delay=0.0 if wanted is None else wanted.delay,
            priority=0 if wanted is None else wanted.priority,
            shown=shown,
            call_id=call.id,
        )
        before = outcome_of(job)
        if before is not None:
            return before
        if call.idempotency_key is None or await self._queue.is_of_call(job.id, call.id):
            await self._hand_over(ctx)  # else the job has the money of the call that queued it, and this one gives its back
        raise queued(job)

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        if entry.background and ctx.call.parent is None:
            yield GateVerdict("queue", "pass", "it runs in the background, as a job")


def queued(job: Job) -> Pending:
    """The end of a call that was queued."""
    return Pending(message=f"The call is queued as job {job.id}.", kind="job", id=job.id)


def payload_of(call: Call) -> dict[str, Any]:
    """A call as the payload of a job; its arguments as they were given. One that would work in the current folder does so as
    a job too, wherever its worker runs."""
    arguments = call.arguments
    if isinstance(arguments, str | bytes):
        arguments = orjson.loads(arguments)
    elif isinstance(arguments, Mapping):
        arguments = dict(arguments)
    is_local = call.door in LOCAL_DOORS and call.actor.tenant == LOCAL.tenant
    here = str(Path.cwd()) if is_local and call.session is None and call.workspace is None else None
    return {
        "tool": call.tool, "arguments": arguments, "session": call.session, "approval": call.approval,
        "timeout": call.timeout, "workspace": call.workspace, "request_id": call.request_id, "door": call.door,
        "here": here, "connection": call.connection,
    }  # fmt: skip


def outcome_of(job: Job) -> Outcome | None:
    """The outcome of a call that was made as a job; None while there is none."""
    if job.type != TYPE or job.result is None or not job.is_over:
        return None
    outcome: Outcome = msgspec.convert(job.result, Outcome)
    return outcome


class ToolCalls:
    """The handler."""

    def __init__(
        self,
        invoke: Invoke,
        find: Callable[[str, str], Entry | None],
        settle: Callable[[Actor, str], Awaitable[None]],
        forget: Callable[[Actor, str, str], Awaitable[None]],
    ) -> None:
        """`settle` frees an idempotency key whose outcome nobody knows, `forget` also one whose call has failed."""
        self._invoke = invoke
        self._find = find
        self._settle = settle
        self._forget = forget

    async def __call__(self, ctx: JobContext) -> Any:
        row, given = ctx.row, ctx.payload
        entry = self._find(given["tool"], ctx.actor.tenant)
        is_harmless = _is_harmless(entry)
        is_repeatable = row.idempotency_key is None and _is_repeatable(entry)
        key = _key(ctx, is_harmless)
        if is_harmless and row.attempts and not is_repeatable:
            await self._forget(ctx.actor, key, given["tool"])
        is_first = row.attempts == 0 and row.crashes == 0 and row.call_id is not None
        approval = row.approval or given.get("approval")
        call = Call(
            row.call_id if is_first and row.call_id else new_id(), given["tool"], given["arguments"], ctx.actor,
            given.get("session"), key, approval, given.get("timeout"), door=given["door"], caller=_Progress(ctx),
            request_id=given.get("request_id"), workspace=given.get("workspace"), job=row.id,
            is_counted=row.call_id is not None, is_repeatable=is_repeatable, here=given.get("here"),
            connection=given.get("connection"),
        )  # fmt: skip
        outcome = await self._invoke(call)
        if outcome.ok:
            return outcome.to_dict()
        if outcome.pending is not None:
            raise JobWaits(outcome.pending.id)
        error = outcome.error or ErrorInfo("UNEXPECTED_ERROR", CODES["UNEXPECTED_ERROR"].message)
        metrics = outcome.metrics
        if error.code == "OUTCOME_UNKNOWN":
            await self._judge_unknown(ctx, key, error, is_harmless=is_harmless, ran=metrics.attempts > 0)
        if error.code == "UNEXPECTED_ERROR" and not metrics.attempts and not metrics.cached:
            raise RetryJob(error)  # it did not get as far as its tool: the store was away, say
        if error.retryable and (is_harmless or error.code in NOTHING_RAN):
            details = error.details or {}
            after = details.get("retry_after")
            raise RetryJob(error, after=after if isinstance(after, int | float) else 0.0)
        raise JobFailed(error, outcome.to_dict())

    async def _judge_unknown(self, ctx: JobContext, key: str, error: ErrorInfo, *, is_harmless: bool, ran: bool) -> None:
        if is_harmless:
            with contextlib.suppress(CallError):  # whoever had it has said meanwhile what came of it
                await self._settle(ctx.actor, key)
            raise RetryJob(error, counts=ran)
        raise JobParked(
            f"{error.message} Nobody knows whether it had its effect.",
            suggestion=f"Find out, then `toolgate jobs retry {ctx.id}` to make it again, or cancel it.",
        )


def _is_harmless(entry: Entry | None) -> bool:
    """Tells whether a call can be made again whatever became of it."""
    return entry is not None and (entry.tier == "read_only" or entry.tool.annotations.get("idempotentHint") is True)


def _is_repeatable(entry: Entry | None) -> bool:
    """Tells whether a call has no effect, costs nothing and asks nobody: to keep what came of it under the key of its job,
    which nobody else knows, would be three commits for nothing."""
    return entry is not None and entry.tier == "read_only" and not entry.priced and entry.asks is None


def _key(ctx: JobContext, is_harmless: bool) -> str:
    """The idempotency key of an attempt. After a crash it is the same one, and so it is for a tool that may be called again:
    it may pass the key on, and what it calls then knows it again. Else, after a failure, when it is known that the attempt
    is over, it is another."""
    if ctx.row.attempts == 0 or is_harmless:
        return ctx.row.idempotency_key or f"job:{ctx.id}"
    return f"job:{ctx.id}#{ctx.row.attempts}"


class _Progress:
    """The way back to whoever looks at the job, for tools that say how far they are; nobody can be asked anything."""

    capabilities: Mapping[str, Any] = {}
    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
    log_level: str | None = None
    can_come_again = False

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._ctx.progress(progress, total, message)

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Nobody listens."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        raise Failed("INVOCATION_ERROR", f"{method} cannot be answered: the call runs in the background.")

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        """Nobody comes back."""

    def goes_on(self) -> None:
        """Nobody waits."""
