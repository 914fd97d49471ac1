"""Settings of work in the background."""

from typing import Literal

from pydantic import Field

from toolgate.settings.section import Section


class JobSettings(Section):
    """Settings of jobs: how they are kept and run."""

    engine: Literal["store", "dbos"] = "store"
    """The engine that decides which job is run when, and by which worker: Toolgate's own queue in its database, or DBOS."""
    serve: bool = True
    """True: `toolgate serve` runs jobs, besides workers that may be there."""
    concurrency: int = Field(default=8, ge=1, le=1_000)
    """Jobs that one process runs at once."""
    max_queued: int = Field(default=100_000, ge=1)
    """Jobs of one tenant that are not done yet. Processes that queue at the same time may together go over it by a tenth for
    each of them but one."""
    max_payload_bytes: int = Field(default=1_000_000, ge=1_024)
    """The payload of one job, as JSON."""
    max_crashes: int = Field(default=5, ge=1, le=1_000)
    """A job whose workers died this often has failed: it may be what kills them."""
    backoff_seconds: float = Field(default=1.0, gt=0, le=86_400)
    """The pause before the second attempt; each further one is twice as long."""
    max_backoff_seconds: float = Field(default=600.0, gt=0, le=864_000)
    """The longest pause between two attempts."""
    drain_seconds: float = Field(default=30.0, ge=0, le=86_400)
    """The time for which a worker that is told to stop waits for what it runs. What is not done then is queued again."""
    schedules_per_user: int = Field(default=100, ge=0, le=100_000)
    """Schedules that one user may have."""
    schedule_seconds: float = Field(default=60.0, ge=60, le=86_400)
    """The least time between two firings of a schedule."""
    schedule_failures: int = Field(default=5, ge=1, le=1_000)
    """A schedule whose jobs failed this often in a row is paused, and its user notified."""
    keep_days: float = Field(default=30.0, gt=0, le=36_500)
    """The time for which jobs that are over can be looked at."""
