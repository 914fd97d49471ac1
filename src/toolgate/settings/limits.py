"""Settings of limits: the size and number of calls, the circuit breaker, money and rates."""

from decimal import Decimal
from typing import Literal

from pydantic import Field, model_validator

from toolgate.settings.section import Section
from toolgate.settings.timezones import Timezone


class LimitSettings(Section):
    """Limits on the size, number and duration of calls."""

    input_bytes: int = Field(default=4_194_304, ge=1024)
    """Arguments larger than this, as JSON, are refused; so are more than 100,000 values."""
    output_string: int = Field(default=10_000, ge=1)
    """Characters of one string of the output."""
    output_items: int = Field(default=100, ge=1)
    """Items of one list of the output."""
    output_bytes: int = Field(default=1_000_000, ge=1024)
    """The whole output, as JSON. What is cut is kept as an artifact."""
    artifact_bytes: int = Field(default=64_000_000, ge=1024)
    """An output larger than this is not kept, only cut."""
    artifact_days: float = Field(default=7, gt=0, le=36_500)
    """How long an artifact can be fetched."""
    attachment_bytes: int = Field(default=30_000_000, ge=1024)
    """A file larger than this can't be uploaded."""
    attachments_bytes: int = Field(default=300_000_000, ge=1024)
    """The files that a user uploaded, together."""
    tenant_concurrency: int | None = Field(default=None, ge=1)
    """Calls of one tenant that may run at once; None is without limit."""
    threads: int = Field(default=32, ge=1)
    """Synchronous tools that may run at once."""
    hook_seconds: float = Field(default=10, gt=0, le=86_400)
    """How long a hook may take at one stage, unless it has a `timeout` of its own."""
    lease_seconds: float = Field(default=30, gt=0, le=3600)
    """A process that has given no sign of life for this long counts as dead: what it had reserved or begun is settled."""
    key_days: float = Field(default=30, gt=0, le=36_500)
    """How long an idempotency key is remembered."""
    backup_bytes: int = Field(default=100_000_000, ge=0)
    """A file larger than this is not changed by a tool, because it can't be backed up first."""
    backup_days: float = Field(default=30, gt=0, le=36_500)
    """How long a change can be undone."""
    document_passages: int = Field(default=50_000, ge=1)
    """Passages of documents that a tenant may have, of some 900 characters each."""


class BreakerSettings(Section):
    """The circuit breaker of a failing target."""

    failures: int = Field(default=5, ge=1)
    """Consecutive failures that open the circuit."""
    reset_seconds: float = Field(default=30, gt=0)
    """After this long one call may try again."""


class BudgetSettings(Section):
    """Caps that hold without anybody having set a budget."""

    external_api_daily: Decimal | None = Field(default=Decimal(10), ge=0)
    """Dollars that each user may spend a day on tools of tier external_api; None: no cap."""
    timezone: Timezone = "UTC"
    """Where days and months begin."""


class RateRule(Section):
    """A rate limit on calls: of those that match, counted separately for each value of the fields in `by`."""

    tenant: str | None = None
    persona: str | None = None
    user: str | None = None
    tool: str | None = None
    by: tuple[Literal["tenant", "persona", "user", "tool"], ...] = ("user",)
    per_minute: int | None = Field(default=None, ge=1)
    per_hour: int | None = Field(default=None, ge=1)
    per_day: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _limits_something(self) -> "RateRule":
        if self.per_minute is None and self.per_hour is None and self.per_day is None:
            raise ValueError("says neither per_minute nor per_hour nor per_day")
        return self
