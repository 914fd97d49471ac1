"""Settings of workflows: the n8n server that runs them, and those of its workflows that are tools."""

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from toolgate.errors import CODES
from toolgate.model import Tier
from toolgate.settings.secrets import SECRET_NAME
from toolgate.settings.section import Section
from toolgate.settings.services import ServiceUrl, plain_url

SYNC_SECONDS = 120
"""A workflow that may take longer than this is not waited for, unless its settings say so."""
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]{1,100}"
WEBHOOK_PATH = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,7}}\Z")
"""The path of a webhook: it stays below /webhook/, whatever reads it."""


class N8nSettings(Section):
    """The n8n server that runs workflows."""

    base_url: ServiceUrl | None = None
    """Where it is reached: `http://127.0.0.1:5678`. None: there is none, and tools that are workflows say so."""
    webhook_secret: str = "N8N_WEBHOOK_SECRET"
    """The name of the secret that the webhooks check, in the header X-Webhook-Secret."""
    callback_url: Annotated[str, AfterValidator(plain_url)] | None = None
    """Where n8n reaches this Toolgate, to report the end of a workflow that is not waited for."""
    start_seconds: float = Field(default=30, gt=0, le=600)
    """How long it may take to accept a workflow that is not waited for."""

    @field_validator("webhook_secret")
    @classmethod
    def _is_secret_name(cls, name: str) -> str:
        if not SECRET_NAME.match(name):
            raise ValueError("must be the name of a secret, not its value: letters, digits and _, and no digit first")
        return name


class WorkflowRetrySettings(Section):
    """How often a workflow that failed is started again, and after which errors."""

    max_attempts: int = Field(default=3, ge=1, le=20)
    """All attempts, the first among them."""
    initial_delay_ms: int = Field(default=1_000, ge=0, le=600_000)
    backoff_multiplier: float = Field(default=2.0, ge=1, le=100)
    max_delay_ms: int = Field(default=30_000, ge=0, le=3_600_000)
    retryable_errors: tuple[str, ...] = ("CONNECTION_ERROR",)
    """Codes. After CONNECTION_ERROR nothing was started; after others it may have been, so that the workflow itself has to
    look at X-Idempotency-Key."""

    @field_validator("retryable_errors")
    @classmethod
    def _known(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        for code in codes:
            if code not in CODES:
                raise ValueError(f"unknown error code {code[:40]!r}")
        return codes


class WorkflowSettings(Section):
    """A workflow that is a tool."""

    model_config = ConfigDict(populate_by_name=True)

    webhook_path: str
    """The path of its webhook, after /webhook/."""
    description: str = Field(min_length=1, max_length=8_192)
    """What it does, for models."""
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    """The JSON Schema of its arguments."""
    output_schema: dict[str, Any] | None = None
    """Of what it answers; None: anything."""
    tier: Tier = "external_api"
    cost: Decimal = Field(default=Decimal(0), ge=0)
    """Dollars a call."""
    timeout: float = Field(default=30, gt=0, le=86_400)
    """Seconds that it may take."""
    retry: WorkflowRetrySettings | None = None
    """None: it is started once."""
    requires_permission: str | None = None
    """The scope that a caller must have."""
    runs_async: bool | None = Field(default=None, alias="async")
    """Whether its end is reported by a callback instead of waited for; None: if it may take longer than 120 seconds."""

    @field_validator("webhook_path")
    @classmethod
    def _is_path(cls, path: str) -> str:
        if not WEBHOOK_PATH.match(path):
            raise ValueError("must be the path of a webhook such as send-email: letters, digits and . _ ~ - between slashes")
        return path

    @property
    def waits_for_callback(self) -> bool:
        """True if its end is reported by a callback."""
        return self.timeout > SYNC_SECONDS if self.runs_async is None else self.runs_async
