"""Runs one job that a worker has taken, and puts on record what came of it.

What an attempt did outside may be done again by the next one, after a crash, unless its handler gives the job's id along as
the idempotency key of what it does. Calls of tools (`tool_calls`) have such a key.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from math import isfinite
from random import uniform
from typing import Any

import msgspec
import orjson

from toolgate.errors import CallError, StoreError, ToolgateError, described, said
from toolgate.jobs.handlers import JobContext, JobParked, JobType, JobWaits, PermanentFailure
from toolgate.jobs.job import JobProgress, actor_of
from toolgate.jobs.queue import JobQueue, encoded, give_back
from toolgate.jsontext import find_not_json
from toolgate.model.outcome import ErrorInfo
from toolgate.store import jobs as table
from toolgate.store import reservations
from toolgate.store.database import Store, Transaction
from toolgate.store.jobs import JobRow
from toolgate.tasks import finish, start_task

PROGRESS_SECONDS = 0.2
"""Between two writes of a job's progress."""
STORE_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0, 30.0)
"""Seconds between attempts to put a job's end on record. After them it is left to whoever recovers it."""
MAX_MESSAGE_CHARS = 2_000
MIN_HIDDEN_CHARS = 4
MASK = "[redacted]"

logger = logging.getLogger("toolgate.jobs")

AttemptObserver = Callable[[JobRow, str, float], None]
"""Told of each attempt that has ended: the job as it was taken, the state that it is in now, and the seconds it took."""


class RetryJob(Exception):
    """A job is to be tried again: not sooner than in so many seconds, and as an attempt of its own, or the same one."""

    def __init__(self, error: ErrorInfo, *, after: float = 0.0, counts: bool = True) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after
        self.counts = counts


class JobFailed(Exception):
    """A job has failed for good; with what its handler gives to be kept as its result."""

    def __init__(self, error: ErrorInfo, result: Any = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.result = result


class JobRunner:
    """Runs jobs of this process."""

    def __init__(
        self, store: Store, queue: JobQueue, providers: Mapping[Any, Any], observers: Sequence[AttemptObserver] = ()
    ) -> None:
        self._store = store
        self._queue = queue
        self._providers = providers
        self._observers = observers

    async def run(self, row: JobRow, worked: Callable[[], None]) -> str:
        """Runs a job to the end of one attempt, and puts it on record. Cancelled, it says so in the record: somebody wanted
        that, or the worker stops and the job is queued again. `worked` is called when nothing is left to do but to wait for
        the record, which the store has by then. Gives the state that the job is in."""
        self._queue.running.add(row.id)
        begun = asyncio.get_running_loop().time()
        changes: dict[str, Any] = {"state": row.state}
        try:
            changes = await self._attempt(row)
        except asyncio.CancelledError:
            changes = await finish(self._record_interrupted(row))
            raise
        else:
            if changes.get("error"):
                changes["error"] = await self._masked(row, changes["error"])
            recording = start_task(self._record(row, changes))
            asyncio.get_running_loop().call_soon(worked)  # after the first step of that task
            await finish(recording)
            return str(changes["state"])
        finally:
            for observe in self._observers:
                observe(row, changes["state"], asyncio.get_running_loop().time() - begun)

    async def _masked(self, row: JobRow, error: str) -> str:
        """An error without the values of the payload that are not shown: a handler's message may quote them."""
        hidden = hidden_texts(await self._queue.payload_of(row), orjson.loads(row.shown))
        told = msgspec.json.decode(error, type=ErrorInfo)
        message, suggestion = told.message, told.suggestion
        for text in sorted(hidden, key=len, reverse=True):
            message = message.replace(text, MASK)
            suggestion = suggestion and suggestion.replace(text, MASK)
        if (message, suggestion) == (told.message, told.suggestion):
            return error
        return encoded(msgspec.structs.replace(told, message=message, suggestion=suggestion))

    async def _record_interrupted(self, row: JobRow) -> dict[str, Any]:
        """Records that a job was interrupted; gives the changes, or the state as it was if they can't be written."""
        try:
            changes = await self._interrupted(row)
            await self._record(row, changes)
        except StoreError as error:
            self._queue.running.discard(row.id)
            logger.error("that job %s was interrupted cannot be put on record: %s", row.id, error)
            return {"state": row.state}
        return changes

    async def _interrupted(self, row: JobRow) -> dict[str, Any]:
        now_kept = await self._store.read(table.get(row.id))
        if now_kept is not None and now_kept.is_cancelled:
            return self._ended("cancelled", error=ErrorInfo("CANCELLED", "The job was cancelled."))
        return {"state": "queued", "process_id": None}

    async def _attempt(self, row: JobRow) -> dict[str, Any]:
        """Makes one attempt; gives the changes of the record after it."""
        try:
            kind, payload = await self._prepared(row)
            hidden = () if kind.is_masked else hidden_texts(payload, orjson.loads(row.shown))
            result = await self._handled(row, kind, payload)
            return self._done(result if kind.is_masked else self._shown(result, hidden))
        except JobWaits as waits:
            return {"state": "waiting", "approval": waits.approval, "process_id": None}
        except JobParked as parked:
            return self._ended("parked", error=ErrorInfo("OUTCOME_UNKNOWN", parked.message, False, parked.suggestion))
        except JobFailed as failed:
            return self._failed(failed.error, failed.result)
        except RetryJob as again:
            return self._again(row, again.error, again.after, counts=again.counts)
        except PermanentFailure as error:
            return self._failed(ErrorInfo("INVOCATION_ERROR", error.message, False, error.suggestion))
        except CallError as error:
            info = ErrorInfo(error.code, error.message, error.retryable, error.suggestion)
            return self._again(row, info) if error.retryable else self._failed(info)
        except ToolgateError as error:
            return self._again(row, ErrorInfo("INVOCATION_ERROR", error.message, True, error.suggestion))
        except Exception as error:  # whatever a handler raises
            logger.exception("job %s of type %s failed", row.id, row.type)
            return self._again(row, ErrorInfo("INVOCATION_ERROR", said(described(error))[:MAX_MESSAGE_CHARS], True))

    async def _prepared(self, row: JobRow) -> tuple[JobType, dict[str, Any]]:
        """The type of a job and its payload. Raises JobFailed where an upgrade has changed what fits."""
        kind = self._queue.handlers.get(row.type)
        if kind is None:
            words = f"This worker has no handler for jobs of type {row.type}."
            raise JobFailed(ErrorInfo("UNKNOWN_TOOL_TYPE", words))
        payload = await self._queue.payload_of(row)
        if payload is None:
            raise JobFailed(ErrorInfo("UNEXPECTED_ERROR", "The payload of the job cannot be read."))
        fault = kind.fault(payload)
        if fault is not None:
            words = f"The payload does not fit what jobs of type {row.type} take now: {fault}."
            raise JobFailed(ErrorInfo("VALIDATION_ERROR", words))
        return kind, payload

    async def _handled(self, row: JobRow, kind: JobType, payload: dict[str, Any]) -> Any:
        progress = ProgressWriter(self._store, self._queue, row)
        ctx = JobContext(row, actor_of(row), payload, self._providers, progress.report)
        try:
            async with asyncio.timeout(kind.timeout) as limit:
                return await kind.handler(ctx)
        except TimeoutError as error:
            if not limit.expired():
                raise
            words = f"The job did not finish within {kind.timeout:g} s."
            raise RetryJob(ErrorInfo("TIMEOUT", words, True)) from error

    # -- what the record is to say

    def _shown(self, result: Any, hidden: Collection[str]) -> Any:
        """A result without secrets, and without the values of the payload that are not shown. One that is no JSON is left as
        it is: it is not kept."""
        return result if find_not_json(result) is not None else self._queue.masked(result, tuple(hidden))

    def _done(self, result: Any) -> dict[str, Any]:
        wrong = find_not_json(result)
        if wrong is not None:
            where = f" at {wrong.path}" if wrong.path else ""
            return self._failed(
                ErrorInfo("OUTPUT_INVALID", f"The result of the job is not JSON:{where} it {wrong.message}.")
            )
        return self._ended("done", result=encoded(result), error=None)

    def _failed(self, error: ErrorInfo, result: Any = None) -> dict[str, Any]:
        kept = {} if result is None else {"result": encoded(result)}
        return self._ended("failed", error=error, **kept)

    def _ended(self, state: str, *, error: ErrorInfo | None, **changes: Any) -> dict[str, Any]:
        told = None if error is None else self._told(error)
        return {"state": state, "error": told, "ended_at": self._queue.clock(), "process_id": None, **changes}

    def _told(self, error: ErrorInfo) -> str:
        """An error as the record may hold it: what a handler raises can have a secret in its words."""
        return encoded(msgspec.structs.replace(error, message=self._queue.masked(error.message)))

    def _again(self, row: JobRow, error: ErrorInfo, after: float = 0.0, *, counts: bool = True) -> dict[str, Any]:
        """An attempt has failed: another one later, or none. The pauses grow, and differ by chance, so that jobs that failed
        together do not come back together."""
        attempts = row.attempts + counts
        if attempts >= row.max_attempts:
            return {**self._failed(error), "attempts": attempts}
        settings = self._queue.settings
        pause = min(settings.backoff_seconds * 2 ** (attempts - 1), settings.max_backoff_seconds) if counts else 0.0
        run_at = self._queue.clock() + timedelta(seconds=max(after, pause * uniform(0.8, 1.2)))
        return {
            "state": "queued", "attempts": attempts, "run_at": run_at, "error": self._told(error), "process_id": None,
        }  # fmt: skip

    async def _record(self, row: JobRow, changes: dict[str, Any]) -> None:
        for pause in (*STORE_PAUSES, None):
            try:
                if not await self._store.transact(_moved(row, changes)):
                    logger.warning("job %s was taken by another worker meanwhile; what came of it here is not kept", row.id)
                break
            except StoreError as error:
                if pause is None:
                    self._queue.running.discard(row.id)
                    logger.error("what came of job %s cannot be put on record: %s", row.id, error)
                    return
                await asyncio.sleep(pause)
        self._queue.running.discard(row.id)
        await self._queue.tell(row.id)


def hidden_texts(payload: Any, shown: Any) -> set[str]:
    """The texts of a payload that are masked where it is shown."""
    if isinstance(payload, dict):
        others = shown if isinstance(shown, dict) else {}
        return {text for name, value in payload.items() for text in hidden_texts(value, others.get(name))}
    if isinstance(payload, list):
        pairs = zip(payload, shown, strict=False) if isinstance(shown, list) else ((value, None) for value in payload)
        return {text for value, other in pairs for text in hidden_texts(value, other)}
    return {payload} if isinstance(payload, str) and payload != shown and len(payload) >= MIN_HIDDEN_CHARS else set()


def _moved(row: JobRow, changes: dict[str, Any]) -> Transaction[bool]:
    """Puts an attempt's end on record. The first attempt alone makes the call that money was reserved for: where it did not
    get so far as to take that, nothing else would give it back."""
    is_ours = yield from table.move(row, **changes)
    if is_ours and changes["state"] == "cancelled":
        yield from give_back(row, changes["ended_at"])
    elif is_ours and row.call_id is not None and ("ended_at" in changes or changes.get("attempts")):
        yield from reservations.release(row.call_id)
    return is_ours


class ProgressWriter:
    """Keeps the progress of a job in its record, not more often than anybody can see."""

    def __init__(self, store: Store, queue: JobQueue, row: JobRow) -> None:
        self._store = store
        self._queue = queue
        self._row = row
        self._written = 0.0

    async def report(self, progress: JobProgress) -> None:
        if not isfinite(progress.done) or not isfinite(progress.total or 0.0):
            return  # what no JSON could say
        moment = asyncio.get_running_loop().time()
        is_last = progress.total is not None and progress.done >= progress.total
        if moment - self._written < PROGRESS_SECONDS and not is_last:
            return
        self._written = moment
        if progress.message is not None:
            words = self._queue.masked(progress.message[: 2 * MAX_MESSAGE_CHARS])[:MAX_MESSAGE_CHARS]
            progress = JobProgress(progress.done, progress.total, words)
        try:
            await self._store.transact(table.move(self._row, progress=encoded(progress)))
        except StoreError as error:
            logger.warning("the progress of job %s cannot be kept: %s", self._row.id, error)
            return
        await self._queue.tell(self._row.id)
