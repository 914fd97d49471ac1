"""Settings of QStash, a queue over HTTP: which jobs it may bring, and which are handed to it."""

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from toolgate.settings.section import Section
from toolgate.settings.services import ServiceUrl

SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
JobType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class QStashActor(Section):
    """Whose the jobs of a type are that QStash brings. No message can say so."""

    tenant: str = Field(min_length=1)
    persona: str | None = None
    user: str = Field(default="qstash", min_length=1)


class QStashSettings(Section):
    """Jobs by way of QStash."""

    url: ServiceUrl | None = None
    """The public address of this server, as QStash calls it: `https://toolgate.example.com`. It is part of what is signed.
    None: nothing is taken from QStash."""
    take: dict[JobType, QStashActor] = Field(default_factory=dict)
    """The types of jobs that are taken from it, and whose they are: `{send_notification: {tenant: acme}}`."""
    send: tuple[JobType, ...] = ()
    """The types of jobs that `app.jobs.enqueue` hands to QStash, which brings them when they are due."""
    base_url: ServiceUrl = "https://qstash.upstash.io"
    """The address of QStash."""
    token: SecretName = "QSTASH_TOKEN"
    """The name of the secret, among those of servers, with which jobs are handed to it."""
    signing_key: SecretName = "QSTASH_CURRENT_SIGNING_KEY"
    """The name of the secret, among those of servers, with which it signs."""
    next_signing_key: SecretName = "QSTASH_NEXT_SIGNING_KEY"
    """The same of the key that it signs with next."""
    body_bytes: int = Field(default=1_048_576, ge=1_024, le=100_000_000)
    """The largest message that is taken."""
    retries: int = Field(default=3, ge=0, le=100)
    """The number of times that QStash tries to bring a job before it puts it into its dead letter queue."""

    @model_validator(mode="after")
    def _can_be_brought(self) -> "QStashSettings":
        if self.send and self.url is None:
            raise ValueError("qstash.send needs qstash.url: the address to which QStash brings the jobs")
        return self
