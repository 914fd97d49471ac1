"""The port to an event stream, and what opens the adapter of a URL.

A stream keeps messages in order for each key, and gives each of them at least once. A handler that returns has handled its
message: only then is it acknowledged. One that raises is given the same message again later, before any later one of the
same key.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from toolgate.errors import ToolgateError
from toolgate.settings.events import EventSettings

REJECTED = ".rejected"
"""The end of the name of a topic of messages that were put aside; before it stands the name of their own."""
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
"""The pauses before a message is given to its handler again; the last of them from then on."""
CONNECT_SECONDS = 5.0
PUBLISH_SECONDS = 10.0
CANCEL_AGAIN_SECONDS = 0.2


class StreamError(ToolgateError):
    """The event stream can't be used."""


class MessageTooLong(StreamError):
    """The event stream will never take the message: it is too long."""


class EventMessage(msgspec.Struct, frozen=True):
    """A message, as it is published and as it is delivered."""

    body: bytes
    key: str
    """Messages of one key keep their order."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    id: str | None = None
    """Published again within a short time, a message of the same id is not stored again where the stream can tell (NATS)."""


class DeliveredEvent(NamedTuple):
    """A message that was delivered, and how often it was delivered before, as far as the stream or the process knows."""

    message: EventMessage
    attempt: int


Handler = Callable[[DeliveredEvent], Awaitable[None]]


class Consumer(Protocol):
    """A running consumer."""

    async def stop(self, grace: float) -> None:
        """Takes no more messages, waits so many seconds for those that are being handled, and lets go of the rest."""


class EventStream(Protocol):
    """The stream. It connects by itself when it is first used, and again when the connection is lost."""

    async def publish(self, topic: str, message: EventMessage) -> None:
        """Publishes a message; when this returns the stream has it. Raises StreamError, and MessageTooLong for one that
        it is no use to publish again."""

    async def consume(self, topic: str, group: str, handler: Handler, concurrency: int) -> Consumer:
        """Has a handler handle the messages of a topic, shared with all processes of the group. Where the stream is not
        reached yet, that is tried until it is."""

    async def follow(self, topic: str, handler: Handler) -> Consumer:
        """Gives a handler every message of a topic that is published from now on, whatever others take. Raises StreamError
        if the stream is not reached."""

    async def ping(self) -> str:
        """Asks the stream something that it has to answer; gives what it is. Raises StreamError."""

    async def close(self) -> None:
        """Closes the connection."""


def open_stream(settings: EventSettings, find_secret: Callable[[str], str | None]) -> EventStream:
    """The adapter for the URL of the settings. Raises MissingExtra."""
    password = None if settings.password is None else find_secret(settings.password)
    if settings.password is not None and not password:
        raise StreamError(
            f"The secret {settings.password!r}, the password at the event stream, is not set.",
            suggestion=f"Run `toolgate secrets set {settings.password} --servers`.",
        )
    if settings.is_kafka:
        from toolgate.events.kafka_stream import KafkaStream

        return KafkaStream(settings, password)
    from toolgate.events.nats_stream import NatsStream

    return NatsStream(settings, password)


async def end_tasks(*tasks: "asyncio.Task[None]") -> None:
    """Cancels the loops of a consumer and waits for their ends, however often that takes: `asyncio.wait_for` of Python 3.11,
    which the libraries use, drops a cancellation that comes together with a message."""
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=CANCEL_AGAIN_SECONDS)


def retry_pause(attempt: int) -> float:
    """Seconds before a message is handled again, after so many attempts."""
    return RETRY_SECONDS[min(attempt, len(RETRY_SECONDS)) - 1]
