"""Takes what users say about calls. A call is known by its record in the audit log of the user's tenant; feedback about one
that is not there is refused, whoever it belongs to.

Feedback that names a call which ran weighs on the order of searches as much as a call's own outcome, up to a few times an
hour for each user and tool. Feedback without a call is kept and shown, and weighs nothing: nobody can tell whether there was
one.
"""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import orjson

from toolgate.errors import Denied, InvalidInput
from toolgate.learning.past_tasks import MAX_TASK_CHARS, PastTasks, checked_text
from toolgate.learning.refusal import FeedbackRefused
from toolgate.model import Actor, new_id
from toolgate.settings.learning import LearningSettings
from toolgate.store import learning as table
from toolgate.store import tool_outcomes
from toolgate.store.database import Store, Transaction
from toolgate.store.learning import FeedbackRow
from toolgate.store.tool_outcomes import Observed

MAX_COMMENT_CHARS = 2_000
ARGS_HASH = re.compile("(?:sha256:)?[0-9a-f]{64}")
"""Nothing else passes for one: it is kept and sent out without being searched for secrets."""
MAX_ID_CHARS = 100
MAX_NUMBER = 2**53
WEIGHED_PER_HOUR = 5
"""Of one user and tool."""
HOUR = timedelta(hours=1)


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a user about a tool, or about one call of it."""

    tool_name: str
    success: bool
    call_id: str | None = None
    score: float | None = None
    """From 0 to 1."""
    comment: str | None = None
    task: str | None = None
    """The task that the tool was used for, kept to recommend it for similar ones."""
    duration_ms: float | None = None
    args_hash: str | None = None
    response_size: int | None = None
    tenant: str | None = None
    """Only the caller's own is taken."""
    persona_id: str | None = None


class FeedbackDesk:
    """Checks feedback and keeps it."""

    def __init__(
        self,
        store: Store,
        tasks: PastTasks,
        masked: Callable[[str], Awaitable[str]],
        settings: LearningSettings,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._masked = masked
        self._settings = settings
        self._clock = clock

    async def take(self, said: Feedback, actor: Actor, *, all_users: bool) -> FeedbackRow:
        """Keeps feedback of an actor. `all_users`: it may be about calls of others in the tenant. Raises `FeedbackRefused`,
        `InvalidInput`, and `Denied` (RATE_LIMITED)."""
        self._check(said, actor)
        comment = (
            None if said.comment is None else await self._masked(checked_text(said.comment, MAX_COMMENT_CHARS, "comment"))
        )
        task = None if said.task is None else checked_text(said.task, MAX_TASK_CHARS, "task")
        record = None if said.call_id is None else await self._record(said, actor, all_users=all_users)
        row = FeedbackRow(
            new_id(), actor.tenant, actor.user, actor.persona, said.tool_name, said.call_id, said.success, said.score,
            comment, *_facts(said, record), _has_run(record), self._clock(),
        )  # fmt: skip
        added = await self._store.transact(_adding(row, self._settings.feedback_per_hour))
        if added is None:
            raise FeedbackRefused("This user gave feedback about this call already.", category="conflict")
        if task is not None:
            await self._tasks.keep(actor, task, tool=said.tool_name, success=said.success)
        return added

    def _check(self, said: Feedback, actor: Actor) -> None:
        if said.tenant not in (None, actor.tenant) or said.persona_id not in (None, actor.persona):
            raise _missing()
        if checked_text(said.tool_name, 256, "tool_name") != said.tool_name:
            raise InvalidInput("tool_name is not a valid name of a tool.")
        if said.score is not None and not 0 <= said.score <= 1:
            raise InvalidInput("score is a number from 0 to 1.")
        for name in ("duration_ms", "response_size"):
            number = getattr(said, name)
            if number is not None and not 0 <= number < MAX_NUMBER:
                raise InvalidInput(f"{name} is a number from 0 on.")
        if said.args_hash is not None and not ARGS_HASH.fullmatch(said.args_hash):
            raise InvalidInput("args_hash is a SHA-256: 64 hexadecimal digits, with or without `sha256:` before them.")

    async def _record(self, said: Feedback, actor: Actor, *, all_users: bool) -> dict[str, Any]:
        """The record of the call, if the actor may speak about it."""
        await self._store.flush()
        found = None
        if said.call_id is not None and len(said.call_id) <= MAX_ID_CHARS and said.call_id.isprintable():
            found = await self._store.read(table.end_of_call(said.call_id, actor.tenant))
        body: dict[str, Any] = {} if found is None else orjson.loads(found[1])
        if found is None or (body.get("user") != actor.user and not all_users):
            raise _missing()
        if found[0] != said.tool_name:
            raise InvalidInput(f"The call is not one of {said.tool_name}.", suggestion="Name the tool that was called.")
        return body


def _missing() -> FeedbackRefused:
    """One refusal for all: whether another tenant has such a call is nobody's affair."""
    return FeedbackRefused(
        "There is no such call of this tenant and persona, or it is another user's.", category="missing",
        suggestion="Give the id of a call that ended, of the caller's own tenant and persona.",
    )  # fmt: skip


def _facts(said: Feedback, record: dict[str, Any] | None) -> tuple[float | None, str | None, int | None]:
    """Duration, hash of the arguments and size: what the record says wins over what the caller does."""
    if record is None:
        return said.duration_ms, said.args_hash, said.response_size
    return record.get("duration_ms"), record.get("args_hash"), said.response_size


def _has_run(record: dict[str, Any] | None) -> bool:
    """False without a call, and for one that was stopped: its user may not even have the tool."""
    return record is not None and bool(record.get("attempts"))


def _adding(row: FeedbackRow, most: int) -> Transaction[FeedbackRow | None]:
    """Adds feedback, and gives it as it is kept; None: the user spoke about this call before. What the user gave is counted
    here, one after the other: counted before, much that is sent at once would pass."""
    yield from tool_outcomes.hold()
    since = row.created_at - HOUR
    if (yield from table.given_since(row.tenant_id, row.user_id, since)) >= most:
        raise Denied("RATE_LIMITED", f"This user gave feedback {most:,} times in the last hour, the most there may be.")
    if row.is_weighed:
        weighed = yield from table.given_since(row.tenant_id, row.user_id, since, row.tool_name)
        row = row._replace(is_weighed=weighed < WEIGHED_PER_HOUR)
    if not (yield from table.add_feedback(row)):
        return None
    if row.is_weighed:
        seen = Observed("good" if row.success else "bad", int(row.created_at.timestamp()))
        yield from tool_outcomes.add({(row.tenant_id, row.tool_name): [seen]})
    return row
