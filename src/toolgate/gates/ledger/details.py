"""The details of a call, kept beside its records: the gates that it passed, with their times and verdicts, and its output.

They are made from the marks of the call in the writer's thread. They lie outside the hash chain, because retention removes
what is too old or too much; the end record holds their hash.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

import msgspec
import orjson

from toolgate.jsontext import valid_text
from toolgate.model import Outcome, Tier, Tool
from toolgate.pipeline.stage_marks import (
    ATTEMPT_FAILED,
    HOOKS_DONE,
    HOOKS_STOPPED,
    NOT_JSON,
    TIMED,
    CallEnded,
    StageMarks,
)
from toolgate.settings import Settings
from toolgate.store import call_details
from toolgate.store.database import Store
from toolgate.tasks import repeat, start_task, stop_tasks

VERDICTS = {"denied": "deny", "pending": "ask"}
"""The verdict of the gate at which a call ended, by its status; `fail` for the others."""
RETRY_WAIT = "retry wait"
MAX_FAULTS = 20
PRUNE_SECONDS = 10.0
State = Literal["kept", "pruned", "removed", "changed"]

logger = logging.getLogger("toolgate.audit")


class KeptStages:
    """Knows of which tools the stages are kept, and which gates have something to do for them."""

    def __init__(self, settings: Settings, mask: Callable[..., Any]) -> None:
        self._settings = settings
        self._mask = mask
        self._made: dict[tuple[int, frozenset[str]], StageMarks] = {}

    def marks(self, tool: Tool, tier: Tier, *, takes_text: bool, asks: bool) -> StageMarks | None:
        """The marks of a tool's calls, shared by tools that pass the same gates; None: nothing is kept of them."""
        settings, details = self._settings, self._settings.audit.details
        keep = next((rule.keep for rule in details.rules if rule.matches(tool.name, tier)), "nothing")
        if keep == "nothing":
            return None
        costs = bool(tool.cost.fixed or tool.cost.per_unit or any(one.estimated_cost for one in tool.capabilities))
        idle = {
            "will_check_consent": not asks,
            "will_acquire_quota": not (costs or settings.rate_limits or tool.rate_limit),
            "will_acquire_semaphore": not (settings.limits.tenant_concurrency or tool.concurrency),
            "will_redact_input": not takes_text,
            "will_inject_secrets": not takes_text and tool.requires_auth is None,
            "will_read_cache": tool.cache is None,
        }
        without = frozenset(stage for stage, is_idle in idle.items() if is_idle)
        size = details.output_bytes if keep == "output" else 0
        return self._made.setdefault((size, without), StageMarks(size, self._mask, without))


class Span(msgspec.Struct, omit_defaults=True):
    """The time that a call spent at one gate. Times are milliseconds, `start_ms` from the beginning of the call."""

    gate: str
    start_ms: float
    ms: float
    """Without the time of users' hooks."""
    verdict: str
    """pass, deny, ask (a person), or fail."""
    hooks_ms: float = 0.0
    reason: str | None = None
    code: str | None = None
    attempt: int | None = None


def detail(marks: list[Any], outcome: Outcome, decision: tuple[str, ...], reason: str | None) -> bytes:
    """The details of a call as JSON."""
    ended = CallEnded._make(marks[-1])
    spans = list(_spans(marks[:-1], ended.started_at, ended.finished_at))
    _explain(spans, outcome, decision, reason, cached=ended.cached)
    found: dict[str, Any] = {"stages": [msgspec.to_builtins(span) for span in spans]}
    if ended.output_bytes:
        output = _written(ended.output)
        found["output_bytes"] = len(output)
        if len(output) <= ended.output_bytes:
            found["output"] = orjson.Fragment(output)
        else:
            found["output_beginning"] = output[: ended.output_bytes].decode("utf-8", "ignore")
    return orjson.dumps(found)


def _written(output: Any) -> bytes:
    try:
        return output if isinstance(output, bytes) else orjson.dumps(output)
    except TypeError:  # half of a surrogate pair, say, that a hook has put there
        return NOT_JSON


def _spans(marks: list[Any], started_at: float, finished_at: float) -> Iterator[Span]:
    """The gates in the order in which they were passed. A gate's time ends where the next one's begins."""
    begin = since = started_at
    span, attempts = Span("catalog", 0.0, 0.0, "pass"), 0
    for name, at in zip(marks[::2], marks[1::2], strict=True):
        passed = _ms(at - started_at)
        name, beside = name if isinstance(name, tuple) else (name, None)  # as `mark` was given it
        if name in (HOOKS_DONE, HOOKS_STOPPED):
            span.hooks_ms = _ms(span.hooks_ms / 1000 + at - since)
            if name == HOOKS_STOPPED:
                span.reason = f"a hook at {beside} ended it here"
        elif name == ATTEMPT_FAILED or name in TIMED:
            yield _closed(span, begin, at)
            begin = at
            if name == ATTEMPT_FAILED:
                span.verdict, span.code = "fail", beside
            span = Span(TIMED.get(name, RETRY_WAIT), passed, 0.0, "pass")
            if name == "will_execute":
                attempts += 1
                span.attempt = attempts
        since = at
    if span.gate != RETRY_WAIT:  # the call ended with the attempt that failed
        yield _closed(span, begin, finished_at)


def _closed(span: Span, begin: float, end: float) -> Span:
    span.ms = max(_ms(end - begin - span.hooks_ms / 1000), 0.0)
    return span


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 4)


def _explain(spans: list[Span], outcome: Outcome, decision: tuple[str, ...], reason: str | None, *, cached: bool) -> None:
    """Say why the gates let the call pass, and at the last one how it ended."""
    known = dict(zip(("policy", "consent"), decision, strict=False))
    for span in spans:
        span.reason = span.reason or valid_text(known.get(span.gate, "")) or None
    last = spans[-1]
    if outcome.error is not None:
        last.verdict, last.code = VERDICTS.get(outcome.status, "fail"), outcome.error.code
        last.reason = valid_text(reason or outcome.error.message)
    elif cached:
        last.reason = "answered from the cache" if last.gate == "cache" else "answered with the first outcome of its key"


class CallDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """The details of one call, as they are shown."""

    seq: int
    """The number of the end record."""
    state: State
    """pruned: retention removed it. removed: somebody else did. changed: it is not what was written, and is not shown."""
    stages: tuple[dict[str, Any], ...] = ()
    """The gates in the order in which they were passed: gate, start_ms, ms, verdict, and where there is one hooks_ms,
    reason, code, attempt."""
    output_bytes: int | None = None
    """The size of the output as JSON, if it is kept."""
    output: Any = None
    output_beginning: str | None = None
    """In place of `output`, where that is larger than the setting audit.details.output_bytes."""

    def to_dict(self) -> dict[str, Any]:
        """The details as plain values, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if self.output_bytes is not None and self.output_beginning is None:
            plain["output"] = self.output  # which may be null
        return plain


class DetailArchive:
    """The details of all calls."""

    def __init__(self, store: Store, *, days: float, total_bytes: int, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._age = timedelta(days=days)
        self._total_bytes = total_bytes
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        trouble = "details of calls could not be pruned"
        self._task = start_task(repeat(PRUNE_SECONDS, self.prune, logger, trouble, at_once=True))

    async def close(self) -> None:
        await stop_tasks(self._task)

    async def prune(self) -> int:
        """Remove what is too old or too much; gives of how many calls. A few at a time, so that records do not wait long."""
        removed = 0
        limits = int((self._clock() - self._age).timestamp() * 1_000_000), self._total_bytes
        while await self._store.read(call_details.expired(*limits)):  # a look takes no lock that records wait for
            removed += await self._store.transact(call_details.prune(*limits))
        return removed

    async def faults(self) -> list[str]:
        """Compares all details with the hashes in the chained records: a sentence for each call whose details somebody
        altered, or removed before retention was due to, and for details that no record names."""
        found, missing = [], []
        last, is_too_early = 0, await self._too_early()
        while records := await self._store.read(call_details.records(last)):
            first, last = records[0][0], records[-1][0]
            contents = await self._store.read(call_details.contents(first, last))
            for seq, at, call_id, body in records:
                digest = _digest(body)
                if seq in contents and sha256(contents[seq]).hexdigest() != digest:
                    found.append(f"the details of call {call_id} (row {seq}) are not what was written")
                elif seq not in contents and digest is not None and is_too_early(seq, at):
                    missing.append((seq, at, call_id))
        # Planted ones could also hide a removal, since they count for what retention is due to remove.
        planted = await self._store.read(call_details.unnamed(MAX_FAULTS))
        found += [f"somebody added details for row {seq}, which is no end record that names any" for seq in planted]
        is_too_early = await self._too_early()  # retention may have removed some meanwhile
        for seq, at, call_id in missing:
            if is_too_early(seq, at):
                found.append(f"the details of call {call_id} (row {seq}) are missing, and not yet due by audit.details")
        return found[:MAX_FAULTS]

    async def _too_early(self) -> Callable[[int, int], bool]:
        """Tells of missing details whether retention, which removes nothing but the oldest, was not due to remove them."""
        oldest, size = await self._store.read(call_details.extent())
        before = int((self._clock() - self._age).timestamp() * 1_000_000)
        return lambda seq, at: (at >= before and size < self._total_bytes) or (oldest is not None and seq > oldest)

    async def of_record(self, seq: int, body: str) -> CallDetails | None:
        """The details beside an end record; None if there never were any."""
        digest = _digest(body)
        if digest is None:
            return None
        content, older = await self._store.read(call_details.fetch(seq))
        if content is None:
            return CallDetails(seq, "removed" if older else "pruned")
        try:
            if sha256(content).hexdigest() == digest:
                return CallDetails(seq, "kept", **orjson.loads(content))
        except (TypeError, orjson.JSONDecodeError):  # whoever wrote it could change the record as well: `verify` tells
            pass
        return CallDetails(seq, "changed")


def _digest(body: str) -> str | None:
    """The hash of the details that an end record names; None: it names none."""
    try:
        digest = orjson.loads(body).get("details_sha256")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return digest if isinstance(digest, str) else None
