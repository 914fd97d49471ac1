"""A job: work of one type that is done in the background."""

from datetime import datetime
from typing import Any, Literal

import msgspec
import orjson

from toolgate.model import Actor
from toolgate.model.outcome import ErrorInfo
from toolgate.store.jobs import JobRow

JobState = Literal["queued", "running", "waiting", "done", "failed", "cancelled", "parked"]
STATES: tuple[JobState, ...] = ("queued", "running", "waiting", "done", "failed", "cancelled", "parked")
"""waiting: for a person's approval. failed: after all its attempts. parked: nobody knows whether it had its effect."""
MIN_PRIORITY, MAX_PRIORITY = -10, 10


class JobProgress(msgspec.Struct, frozen=True):
    """The progress of a job."""

    done: float
    total: float | None = None
    message: str | None = None


class Job(msgspec.Struct, frozen=True):
    """A job, as people and programs are shown it: secrets in its payload are masked."""

    id: str
    type: str
    state: JobState
    tenant: str
    persona: str | None
    user: str
    payload: dict[str, Any]
    key: str | None
    """Its idempotency key: of all jobs of a user with one key there is one."""
    priority: int
    run_at: datetime
    attempts: int
    """That failed."""
    max_attempts: int
    crashes: int
    """Of workers that had it."""
    approval: str | None
    schedule: str | None
    progress: JobProgress | None
    result: Any
    error: ErrorInfo | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def is_over(self) -> bool:
        """True once nothing more happens to it, unless somebody has it tried again."""
        return self.state in ("done", "failed", "cancelled", "parked")

    def to_dict(self) -> dict[str, Any]:
        """Gives the job as plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def job_of(row: JobRow) -> Job:
    """A job from its row."""
    return Job(
        row.id,
        row.type,
        msgspec.convert(row.state, JobState),
        row.tenant_id,
        row.persona_id,
        row.user_id,
        orjson.loads(row.shown),
        row.idempotency_key,
        -row.rank,
        row.run_at,
        row.attempts,
        row.max_attempts,
        row.crashes,
        row.approval,
        row.schedule_id,
        None if row.progress is None else msgspec.json.decode(row.progress, type=JobProgress),
        None if row.result is None else orjson.loads(row.result),
        None if row.error is None else msgspec.json.decode(row.error, type=ErrorInfo),
        row.created_at,
        row.started_at,
        row.ended_at,
    )


def actor_of(row: JobRow) -> Actor:
    """The actor for whom a job is done."""
    return Actor(row.tenant_id, row.persona_id, row.user_id, tuple(orjson.loads(row.scopes)))


def sealed_for(id: str, actor: Actor, type: str) -> str:  # noqa: A002 - as handlers name it
    """The name that a payload is encrypted for: in the row of another id, actor or type it cannot be read."""
    return orjson.dumps((id, actor.tenant, actor.persona, actor.user, actor.scopes, type)).decode()
