"""NATS JetStream as an event stream.

The order of a session holds for all processes together: the stream puts each session into one of a fixed number of
partitions, each partition has one durable consumer, and that gives out one message at a time. A producer publishes to
`tool.requests.session.TOKEN`, with any token that is the same for all messages of a session; what is published to
`tool.requests` itself keeps no order. A message whose process died is delivered again after `redeliver_seconds`.
"""

import asyncio
import logging
import re
import sys
from collections.abc import Coroutine
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from toolgate.errors import described, plural
from toolgate.events.stream import (
    CONNECT_SECONDS,
    PUBLISH_SECONDS,
    REJECTED,
    Consumer,
    DeliveredEvent,
    EventMessage,
    Handler,
    MessageTooLong,
    StreamError,
    end_tasks,
    retry_pause,
)
from toolgate.extras import require
from toolgate.model import new_id
from toolgate.network.tls import tls
from toolgate.settings.events import EventSettings
from toolgate.tasks import BackgroundTasks, start_task

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

KEEP_SECONDS = 7 * 86_400.0
"""The time for which the streams that are made here keep a message."""
KEEP_REJECTED_SECONDS = 30 * 86_400.0
PULL_SECONDS = 5.0
"""The time for which a consumer waits for a message before it asks again: by then it knows that a connection was lost."""
IDLE_CONSUMER_SECONDS = 300.0
SEND_AGAIN_SECONDS = 2.0
PARTITIONS = re.compile(r"partition\((\d+),")
HEADER_LINE_BYTES = 4
"""Bytes of a line of headers besides the name and the value."""
ORDER_KEY = "toolgate-key"
"""The header that holds a message's key."""

logger = logging.getLogger("toolgate.events")


class NatsStream:
    """A NATS server, or several that know each other."""

    def __init__(self, settings: EventSettings, password: str | None) -> None:
        require("nats")
        self._settings = settings
        self._password = password
        self._client: Client | None = None
        self._partitions: dict[str, int] = {}
        """By topic that is known to have a stream, the number of its partitions."""
        self._one_at_a_time = asyncio.Lock()

    async def publish(self, topic: str, message: EventMessage) -> None:
        context = await self._ready(topic)
        subject = f"{topic}.session.{_token(message.key)}" if self._is_ordered(topic) else topic
        # With an id the server stores it once, however often it is sent: what was sent into a connection that was just lost.
        headers = {**message.headers, ORDER_KEY: message.key, "Nats-Msg-Id": message.id or new_id()}
        size = len(message.body) + sum(
            len(name) + len(value.encode()) + HEADER_LINE_BYTES for name, value in headers.items()
        )
        if size + HEADER_LINE_BYTES * 4 > self._max_payload:  # the library counts the body only; the server would hang up
            raise MessageTooLong("The message is longer than the setting max_payload of NATS.")
        deadline = asyncio.get_running_loop().time() + PUBLISH_SECONDS
        while True:
            try:
                await context.publish(subject, message.body, timeout=SEND_AGAIN_SECONDS, headers=headers)
                return
            except Exception as error:
                if not isinstance(error, TimeoutError) or asyncio.get_running_loop().time() >= deadline:
                    raise StreamError(f"NATS did not take a message: {described(error)}.") from error

    async def consume(self, topic: str, group: str, handler: Handler, concurrency: int) -> Consumer:
        return _NatsConsumer(self, topic, group, handler, concurrency, self._settings.redeliver_seconds)

    async def follow(self, topic: str, handler: Handler) -> Consumer:
        context = await self._ready(topic)
        last = await self._ask(context.stream_info(_stream_name(topic)))
        return _NatsFollower(self, topic, handler, last.state.last_seq + 1)

    async def ping(self) -> str:
        client = await self._connected()
        info = await self._ask(client.jetstream().account_info())
        version = client.connected_server_version
        return f"NATS {version.major}.{version.minor}.{version.patch}, {plural(info.streams, 'stream')}"

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # -- for the consumers

    async def bind(self, topic: str, config: Any) -> "JetStreamContext.PullSubscription":
        """Makes a consumer, or finds it, and has its messages pulled."""
        context, stream = await self._ready(topic), _stream_name(topic)
        await self._ask(context.add_consumer(stream, config))
        name = config.durable_name or config.name
        bound: JetStreamContext.PullSubscription = await self._ask(context.pull_subscribe_bind(name, stream))
        return bound

    async def partitions(self, topic: str) -> int:
        """The number of a topic's partitions. The streams of answers are made too: a service listens before it calls."""
        for one in (self._settings.results, f"{self._settings.requests}{REJECTED}", topic):
            await self._ready(one)
        return self._partitions[topic]

    # -- the connection and its streams

    @property
    def _max_payload(self) -> int:
        return sys.maxsize if self._client is None else self._client.max_payload

    async def _ready(self, topic: str) -> "JetStreamContext":
        client = await self._connected()
        context = client.jetstream(timeout=PUBLISH_SECONDS)
        if topic not in self._partitions:
            async with self._one_at_a_time:
                self._partitions[topic] = await self._ask(self._make_stream(context, topic))
        return context

    async def _make_stream(self, context: "JetStreamContext", topic: str) -> int:
        """Makes the stream of a topic, if there is none; gives the number of its partitions."""
        from nats.js import api, errors

        try:
            found = (await context.stream_info(_stream_name(topic))).config
        except errors.NotFoundError:
            ordered = self._is_ordered(topic)
            count = self._settings.partitions
            into = api.SubjectTransform(
                src=f"{topic}.session.*", dest=f"{topic}.partition.{{{{partition({count},1)}}}}.{{{{wildcard(1)}}}}"
            )
            wanted = api.StreamConfig(
                name=_stream_name(topic),
                subjects=[topic, f"{topic}.session.*"] if ordered else [topic],
                retention=api.RetentionPolicy.WORK_QUEUE if ordered else api.RetentionPolicy.LIMITS,
                max_age=KEEP_REJECTED_SECONDS if topic.endswith(REJECTED) else KEEP_SECONDS,
                storage=api.StorageType.FILE,
                subject_transform=into if ordered else None,
            )
            found = (await context.add_stream(wanted)).config
        transform = found.subject_transform
        counted = None if transform is None else PARTITIONS.search(transform.dest or "")
        return 0 if counted is None else int(counted[1])

    async def _connected(self) -> "Client":
        async with self._one_at_a_time:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> "Client":
        from nats.aio.client import Client

        settings, client = self._settings, Client()
        scheme = "tls" if settings.is_encrypted else "nats"
        options: dict[str, Any] = {"tls": tls()} if settings.is_encrypted else {}
        if settings.username is not None:
            options |= {"user": settings.username, "password": self._password}
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(
                    [f"{scheme}://{one}" for one in settings.addresses],
                    name="toolgate",
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    connect_timeout=2,
                    error_cb=_ignore,
                    **options,
                )
        except BaseException as error:
            await _abandon(client)
            if not isinstance(error, Exception):  # whoever asked did not wait
                raise
            words = f"no answer within {CONNECT_SECONDS:g} s" if isinstance(error, TimeoutError) else described(error)
            raise StreamError(f"NATS at {', '.join(settings.addresses)} cannot be reached: {words}.") from error
        return client

    async def _ask(self, asking: Any) -> Any:
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                return await asking
        except Exception as error:
            raise StreamError(f"NATS answered with an error: {described(error)}.") from error

    def _is_ordered(self, topic: str) -> bool:
        return topic == self._settings.requests


class _Puller:
    """Pulls messages one by one, binding its consumer anew whenever that fails."""

    def __init__(self, stream: NatsStream, topic: str) -> None:
        self._stream = stream
        self._topic = topic
        self._stopping = False

    async def pull(self, config: Any) -> "JetStreamContext.PullSubscription":
        """The subscription, tried until there is one."""
        attempt = 0
        while True:
            try:
                return await self._stream.bind(self._topic, config)
            except StreamError as error:
                self._go_on()
                attempt += 1
                logger.warning("%s waits for the event stream: %s", self._topic, error.message)
                await asyncio.sleep(retry_pause(attempt))

    async def next(self, subscription: Any) -> "Msg | None":
        """The next message; None: there is none yet. Raises StreamError if the consumer can't be used."""
        from nats import errors

        try:
            found = await subscription.fetch(1, timeout=PULL_SECONDS)
        except (errors.TimeoutError, TimeoutError):
            return None
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._go_on()
            raise StreamError(described(error)) from error
        return found[0] if found else None

    def _go_on(self) -> None:
        """Ends this where it is stopped: the library turns a cancellation into an error when its connection is closed."""
        if self._stopping:
            raise asyncio.CancelledError


class _NatsConsumer(_Puller):
    """All consumers of a topic, one for each partition, and one for what has no session."""

    def __init__(
        self, stream: NatsStream, topic: str, group: str, handler: Handler, concurrency: int, redeliver: float
    ) -> None:
        super().__init__(stream, topic)
        self._group, self._handler, self._redeliver = group, handler, redeliver
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._handling = BackgroundTasks()
        self._loops: list[asyncio.Task[None]] = []
        self._starting = start_task(self._start())

    async def stop(self, grace: float) -> None:
        self._stopping = True
        await end_tasks(self._starting)
        await end_tasks(*self._loops)
        await self._handling.close(grace=grace, limit=1)

    async def _start(self) -> None:
        attempt = 0
        while True:
            try:
                count = await self._stream.partitions(self._topic)
                break
            except StreamError as error:
                attempt += 1
                logger.warning("calls from %s wait for the event stream: %s", self._topic, error.message)
                await asyncio.sleep(retry_pause(attempt))
        if count:
            for number in range(count):
                self._begin(self._take(f"{self._group}-{number}", f"{self._topic}.partition.{number}.*", 1))
        else:
            logger.warning("the stream of %s has no partitions: sessions run one after the other", self._topic)
            self._begin(self._take(f"{self._group}-sessions", f"{self._topic}.session.*", 1))
        self._begin(self._take(self._group, self._topic, self._concurrency))

    def _begin(self, loop: Coroutine[Any, Any, None]) -> None:
        self._loops.append(start_task(loop, unheard=True))

    async def _take(self, name: str, subject: str, at_once: int) -> None:
        from nats.js import api

        config = api.ConsumerConfig(
            durable_name=name,
            filter_subject=subject,
            ack_wait=self._redeliver,
            max_ack_pending=at_once,
            max_deliver=-1,  # after the last the server would drop it in silence: the handler puts it aside
        )
        subscription = await self.pull(config)
        while not self._stopping:
            try:
                message = await self.next(subscription)
            except StreamError as error:
                logger.warning("%s waits for the event stream: %s", self._topic, error.message)
                await asyncio.sleep(retry_pause(1))
                subscription = await self.pull(config)
                continue
            if message is not None:
                handling = self._handling.start(self._handle(message), unheard=True)
                if at_once == 1:
                    await asyncio.wait((handling,))

    async def _handle(self, message: "Msg") -> None:
        alive = start_task(self._keep_alive(message), unheard=True)
        attempt = message.metadata.num_delivered
        try:
            async with self._slots:
                await self._handler(DeliveredEvent(_message(message), attempt))
        except Exception:  # noqa: BLE001 - it comes again; the handler has logged why
            await message.nak(delay=retry_pause(attempt))
        else:
            await message.ack()
        finally:
            alive.cancel()

    async def _keep_alive(self, message: "Msg") -> None:
        while True:
            await asyncio.sleep(self._redeliver / 3)
            await message.in_progress()


class _NatsFollower(_Puller):
    """Every message of a topic from a place in it on."""

    def __init__(self, stream: NatsStream, topic: str, handler: Handler, first: int) -> None:
        super().__init__(stream, topic)
        self._handler = handler
        self._next = first
        self._task = start_task(self._follow())

    async def stop(self, grace: float) -> None:  # noqa: ARG002 - nothing is acknowledged
        self._stopping = True
        await end_tasks(self._task)

    async def _follow(self) -> None:
        while not self._stopping:
            subscription = await self.pull(self._config())
            try:
                while not self._stopping:
                    message = await self.next(subscription)
                    if message is not None:
                        self._next = message.metadata.sequence.stream + 1
                        await self._handler(DeliveredEvent(_message(message), 1))
            except StreamError as error:
                logger.warning("%s waits for the event stream: %s", self._topic, error.message)
                await asyncio.sleep(retry_pause(1))

    def _config(self) -> Any:
        from nats.js import api

        return api.ConsumerConfig(
            name=f"toolgate-{new_id()}",
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._next,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=IDLE_CONSUMER_SECONDS,
        )


def _message(found: "Msg") -> EventMessage:
    headers = {name.lower(): value for name, value in (found.headers or {}).items()}
    return EventMessage(found.data, headers.get(ORDER_KEY, ""), headers)


def _stream_name(topic: str) -> str:
    return topic.replace(".", "_")


def _token(key: str) -> str:
    """A key as one token of a subject, whatever is in it."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


async def _ignore(_error: Exception) -> None:
    """Passes over trouble on the connection: what fails because of it tells of it."""


async def _abandon(client: "Client") -> None:
    try:
        await client.close()
    except Exception:  # noqa: BLE001 - it was never open
        logger.debug("a connection to NATS was not closed in order")
