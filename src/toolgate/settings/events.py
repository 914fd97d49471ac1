"""Settings of calls over an event stream: where the stream is, its topics, and the keys that sign its messages."""

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from toolgate.network.addresses import is_loopback
from toolgate.settings.secrets import SECRET_NAME
from toolgate.settings.section import Section

EVERY_TENANT = "*"
KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
TOPIC = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
MAX_TOPIC_CHARS = 200
SCHEMES = {"nats": 4222, "tls": 4222, "kafka": 9092, "kafka+tls": 9092}
"""The schemes of an address, and their usual ports: the last two of Kafka, the first two of NATS; `tls` encrypts."""


class EventKeySettings(Section):
    """A key that signs messages, and what it may be used for."""

    secret: str
    """The name of the secret that holds it, at least 32 bytes: `toolgate secrets set NAME --servers` sets it."""
    tenants: tuple[str, ...] = ()
    """The tenants that it may speak for; `*` for all. Without any, none of its messages is run."""
    scopes: tuple[str, ...] = ()
    """The scopes that calls signed with it have."""
    governs: bool = False
    """True: whoever signs with it is a Toolgate of the same operator that has asked, counted and charged for a call
    already: its calls are not asked about, counted or charged here again, and have the scopes that it says."""

    @field_validator("secret")
    @classmethod
    def _is_secret_name(cls, name: str) -> str:
        if not SECRET_NAME.match(name):
            raise ValueError(f"{name!r} is not the name of a secret: letters, digits and _, and no digit first")
        return name


class EventSettings(Section):
    """Calls over NATS JetStream or Kafka."""

    url: str | None = None
    """`nats://host:4222`, `tls://host:4222`, `kafka://host:9092` or `kafka+tls://host:9092`; several hosts with commas.
    None: there is no event stream."""
    requests: str = Field(default="tool.requests", pattern=TOPIC, max_length=MAX_TOPIC_CHARS)
    """The topic of calls. What cannot be read or has no valid signature goes to the same name with `.rejected`."""
    results: str = Field(default="tool.results", pattern=TOPIC, max_length=MAX_TOPIC_CHARS)
    """The topic of what came of them."""
    group: str = Field(default="toolgate", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    """The consumer group (Kafka) or the name of the durable consumers (NATS) that all processes share."""
    take_requests: bool = True
    """True: `serve` and `worker` take calls from `requests`. False: tools are only sent out."""
    keys: dict[str, EventKeySettings] = Field(default_factory=dict)
    """The keys that sign messages, by the name that messages call them by."""
    sign_with: str | None = None
    """The key that signs the calls which are sent out from here."""
    username: str | None = None
    """The user name at the stream; None: none is sent."""
    password: str | None = None
    """The name of the secret that holds the user's password."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """The way in which the user name and the password are sent to Kafka."""
    concurrency: int = Field(default=16, ge=1, le=1_000)
    """Calls from the stream that run at once in one process."""
    partitions: int = Field(default=16, ge=1, le=256)
    """NATS: how many sessions can make calls at the same time. Holds when the stream is made."""
    message_bytes: int = Field(default=1_000_000, ge=1_024, le=64_000_000)
    """The largest message, in and out."""
    redeliver_seconds: float = Field(default=30, ge=1, le=3_600)
    """The time for which a process may give no sign of life before another one is given its messages."""
    max_deliver: int = Field(default=5, ge=1, le=100)
    """The number of times that a message is tried which cannot be handled, before it goes to `.rejected`."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        scheme, _, rest = url.partition("://")
        if scheme not in SCHEMES:
            raise ValueError(f"must begin with {', '.join(f'{one}://' for one in SCHEMES)}")
        for host in rest.rstrip("/").split(","):
            parts = urlsplit(f"//{host}")
            if parts.username is not None or parts.password is not None:
                raise ValueError("must hold no user and password: use username and password, which names a secret")
            if not parts.hostname or parts.path or parts.query or parts.fragment or _bad_port(parts.netloc):
                raise ValueError("must be an address such as nats://127.0.0.1:4222")
        return url.rstrip("/")

    @field_validator("keys")
    @classmethod
    def _named_keys(cls, keys: dict[str, EventKeySettings]) -> dict[str, EventKeySettings]:
        wrong = next((name for name in keys if not KEY_NAME.match(name)), None)
        if wrong is not None:
            raise ValueError(f"{wrong[:80]!r} cannot be a key's name: up to 64 letters, digits, '.', '_' and '-'")
        return keys

    @model_validator(mode="after")
    def _fits(self) -> "EventSettings":
        if self.sign_with is not None and self.sign_with not in self.keys:
            raise ValueError(f"sign_with names {self.sign_with!r}, which is not among keys")
        if self.requests == self.results:
            raise ValueError("requests and results must be two topics")
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together")
        if self.username is not None and not self.is_encrypted and not all(map(is_loopback, self.hosts)):
            raise ValueError("url must begin with tls:// or kafka+tls://, since a password is sent there")
        return self

    @property
    def is_kafka(self) -> bool:
        return self.url is not None and self.url.startswith("kafka")

    @property
    def is_encrypted(self) -> bool:
        return self.url is not None and self.url.startswith(("tls://", "kafka+tls://"))

    @property
    def addresses(self) -> list[str]:
        """The hosts of the stream, each with its port."""
        scheme, _, rest = (self.url or "").partition("://")
        hosts = rest.split(",") if rest else []
        return [one if _has_port(one) else f"{one}:{SCHEMES[scheme]}" for one in hosts]

    @property
    def hosts(self) -> list[str]:
        return [urlsplit(f"//{one}").hostname or "" for one in self.addresses]


def _bad_port(netloc: str) -> bool:
    try:
        return urlsplit(f"//{netloc}").port == 0
    except ValueError:
        return True


def _has_port(host: str) -> bool:
    return urlsplit(f"//{host}").port is not None
