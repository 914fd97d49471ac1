"""Kafka as an event stream.

Messages of one key are in one partition, in order. A process handles those of several keys at once, and commits only what
it has handled without a gap: after a crash everything from the first message on that was not handled comes again, to this
process or to the one that took over its partitions.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolgate.errors import described, plural
from toolgate.events.stream import (
    CONNECT_SECONDS,
    PUBLISH_SECONDS,
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
from toolgate.network.tls import tls
from toolgate.settings.events import EventSettings
from toolgate.tasks import BackgroundTasks, start_task

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

POLL_MS = 200
LONGEST_CALL_MS = 86_400_000
"""The longest time between two polls: a process shows that it is alive by heartbeats, and may be busy with calls."""
HEADER_BYTES = 16_384

logger = logging.getLogger("toolgate.events")


class KafkaStream:
    """A Kafka cluster."""

    def __init__(self, settings: EventSettings, password: str | None) -> None:
        require("kafka")
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what goes wrong is told by what fails because of it
        self._settings = settings
        self._password = password
        self._producer: AIOKafkaProducer | None = None
        self._one_at_a_time = asyncio.Lock()

    async def publish(self, topic: str, message: EventMessage) -> None:
        from aiokafka.errors import MessageSizeTooLargeError, RecordTooLargeError

        producer = await self._connected()
        headers = [(name, value.encode()) for name, value in message.headers.items()]
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                await producer.send_and_wait(topic, message.body, key=message.key.encode(), headers=headers)
        except (MessageSizeTooLargeError, RecordTooLargeError) as error:
            raise MessageTooLong("The message is longer than Kafka takes.") from error
        except Exception as error:
            raise StreamError(f"Kafka did not take a message: {described(error)}.") from error

    async def consume(self, topic: str, group: str, handler: Handler, concurrency: int) -> Consumer:
        return _KafkaConsumer(self, topic, group, handler, concurrency)

    async def follow(self, topic: str, handler: Handler) -> Consumer:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(topic, auto_offset_reset="latest", **self.consumer_options())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await consumer.start()
                while not consumer.assignment():  # the topic is made when it is first asked for
                    await asyncio.sleep(0.05)
                for partition in consumer.assignment():
                    await consumer.position(partition)
        except BaseException as error:
            await _stopped(consumer)
            raise self._unreachable(error) from error
        return _KafkaFollower(topic, consumer, handler)

    async def ping(self) -> str:
        producer = await self._connected()
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                known = await producer.client.fetch_all_metadata()
        except Exception as error:
            raise self._unreachable(error) from error
        if not known.brokers():
            raise self._unreachable(LookupError("it names no broker"))
        return f"Kafka, {plural(len(known.brokers()), 'broker')}"

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    def consumer_options(self) -> dict[str, Any]:
        """The settings that all consumers have in common."""
        size = self._settings.message_bytes + HEADER_BYTES
        return {**self._options(), "max_partition_fetch_bytes": size, "enable_auto_commit": False}

    @property
    def session_ms(self) -> int:
        """The time for which a process may give no sign of life; brokers take no less than six seconds by default."""
        return max(6_000, round(self._settings.redeliver_seconds * 1000))

    async def _connected(self) -> "AIOKafkaProducer":
        from aiokafka import AIOKafkaProducer

        async with self._one_at_a_time:
            if self._producer is None:
                size = self._settings.message_bytes + HEADER_BYTES
                producer = AIOKafkaProducer(enable_idempotence=True, max_request_size=size, **self._options())
                try:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await producer.start()
                except BaseException as error:
                    await _stopped(producer)
                    raise self._unreachable(error) from error
                self._producer = producer
            return self._producer

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        options: dict[str, Any] = {"bootstrap_servers": settings.addresses, "client_id": "toolgate"}
        if settings.is_encrypted:
            options["ssl_context"] = tls()
        protocol = "SSL" if settings.is_encrypted else "PLAINTEXT"
        if settings.username is not None:
            protocol = "SASL_SSL" if settings.is_encrypted else "SASL_PLAINTEXT"
            options |= {
                "sasl_mechanism": settings.mechanism,
                "sasl_plain_username": settings.username,
                "sasl_plain_password": self._password,
            }
        return {**options, "security_protocol": protocol}

    def _unreachable(self, error: BaseException) -> BaseException:
        """The error to raise; of a cancellation, itself."""
        if not isinstance(error, Exception):
            return error
        words = f"no answer within {CONNECT_SECONDS:g} s" if isinstance(error, TimeoutError) else described(error)
        return StreamError(f"Kafka at {', '.join(self._settings.addresses)} cannot be reached: {words}.")


class _PartitionProgress:
    """The messages of a partition that are under way, and how far it is handled."""

    def __init__(self) -> None:
        self.is_ours = True
        self._begun: dict[int, bool] = {}
        self._next = 0

    def begin(self, offset: int) -> bool:
        """Notes a message; False: it is being handled, or was."""
        if offset < self._next or offset in self._begun:
            return False
        self._begun[offset] = False
        return True

    def end(self, offset: int) -> int | None:
        """Notes that a message was handled; gives the offset that may be committed, if it has moved."""
        self._begun[offset] = True
        before = self._next
        for one in sorted(self._begun):
            if not self._begun[one]:
                break
            del self._begun[one]
            self._next = one + 1
        return self._next if self._next != before else None


class _KafkaConsumer:
    """A member of a consumer group."""

    def __init__(self, stream: KafkaStream, topic: str, group: str, handler: Handler, concurrency: int) -> None:
        self._stream, self._topic, self._group, self._handler = stream, topic, group, handler
        self._slots = asyncio.Semaphore(concurrency)
        self._most = 2 * concurrency
        """The number of messages that are held here, handled or waiting for one of their key."""
        self._lanes: dict[tuple[int, bytes], asyncio.Task[None]] = {}
        """By partition and key, the last message of it."""
        self._handling = BackgroundTasks()
        self._progress: dict[TopicPartition, _PartitionProgress] = {}
        self._moved = asyncio.Event()
        self._consumer: AIOKafkaConsumer | None = None
        self._task = start_task(self._run())

    async def stop(self, grace: float) -> None:
        await end_tasks(self._task)
        await self._handling.close(grace=grace, limit=1)
        if self._consumer is not None:
            await _stopped(self._consumer)

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                await self._take()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the library raises, it is tried again
                attempt += 1
                logger.warning("calls from %s wait for the event stream: %s", self._topic, described(error))
                if self._consumer is not None:
                    self._let_go(self._progress)
                    await _stopped(self._consumer)
                    self._consumer = None
                await asyncio.sleep(retry_pause(attempt))

    async def _take(self) -> None:
        from aiokafka import TopicPartition

        consumer = self._consumer = self._member()
        await consumer.start()
        while True:
            room = self._most - len(self._handling)
            if room <= 0:
                self._moved.clear()
                await self._moved.wait()
                continue
            for record in await _next_records(consumer):
                partition = TopicPartition(record.topic, record.partition)
                progress = self._progress.setdefault(partition, _PartitionProgress())
                if progress.begin(record.offset):
                    self._begin(consumer, partition, progress, record)

    def _member(self) -> "AIOKafkaConsumer":
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

        owner = self

        class Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
            """Forgets the messages of partitions that another process has now: it is given them again."""

            async def on_partitions_revoked(self, revoked: "Iterable[TopicPartition]") -> None:
                owner._let_go(revoked)

            async def on_partitions_assigned(self, assigned: "Iterable[TopicPartition]") -> None:
                owner._let_go(assigned)

        consumer = AIOKafkaConsumer(
            group_id=self._group,
            auto_offset_reset="earliest",
            session_timeout_ms=self._stream.session_ms,
            heartbeat_interval_ms=self._stream.session_ms // 3,
            max_poll_interval_ms=LONGEST_CALL_MS,
            **self._stream.consumer_options(),
        )
        consumer.subscribe([self._topic], listener=Rebalance())
        return consumer

    def _let_go(self, partitions: "Iterable[TopicPartition]") -> None:
        for partition in tuple(partitions):
            progress = self._progress.pop(partition, None)
            if progress is not None:
                progress.is_ours = False

    def _begin(
        self,
        consumer: "AIOKafkaConsumer",
        partition: "TopicPartition",
        progress: _PartitionProgress,
        record: "ConsumerRecord",
    ) -> None:
        lane = (partition.partition, record.key or b"")
        before = self._lanes.get(lane) if record.key else None
        task = self._lanes[lane] = self._handling.start(self._handle(consumer, partition, progress, record, before))
        task.add_done_callback(lambda ended: self._ended(lane, ended))

    def _ended(self, lane: tuple[int, bytes], task: "asyncio.Task[None]") -> None:
        if self._lanes.get(lane) is task:
            del self._lanes[lane]
        self._moved.set()

    async def _handle(
        self,
        consumer: "AIOKafkaConsumer",
        partition: "TopicPartition",
        progress: _PartitionProgress,
        record: "ConsumerRecord",
        before: "asyncio.Task[None] | None",
    ) -> None:
        if before is not None:
            await asyncio.wait((before,))
        attempt, message = 0, _message(record)
        while progress.is_ours:
            attempt += 1
            try:
                async with self._slots:
                    await self._handler(DeliveredEvent(message, attempt))
            except Exception:  # noqa: BLE001 - it is tried again; the handler has logged why
                await asyncio.sleep(retry_pause(attempt))
                continue
            offset = progress.end(record.offset)
            if offset is not None and progress.is_ours:
                await _commit(consumer, partition, offset)
            return


class _KafkaFollower:
    """Every message of a topic from now on."""

    def __init__(self, topic: str, consumer: "AIOKafkaConsumer", handler: Handler) -> None:
        self._topic, self._consumer, self._handler = topic, consumer, handler
        self._task = start_task(self._follow())

    async def stop(self, grace: float) -> None:  # noqa: ARG002 - nothing is acknowledged
        await end_tasks(self._task)
        await _stopped(self._consumer)

    async def _follow(self) -> None:
        while True:
            try:
                found = await _next_records(self._consumer)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the library raises, it is tried again
                logger.warning("%s waits for the event stream: %s", self._topic, described(error))
                await asyncio.sleep(retry_pause(1))
                continue
            for record in found:
                await self._handler(DeliveredEvent(_message(record), 1))


async def _next_records(consumer: "AIOKafkaConsumer") -> "list[ConsumerRecord]":
    """The next record, or some. One that the library can't read, as by a header whose name is not UTF-8, is passed over: it
    would be fetched for ever, and nothing behind it. Taken one by one, since those before it would be lost with it."""
    from aiokafka.errors import CorruptRecordException

    try:
        return [await consumer.getone()]
    except CorruptRecordException:
        found: list[ConsumerRecord] = []
    for partition in consumer.assignment():
        try:
            async with asyncio.timeout(POLL_MS / 1000):
                found.append(await consumer.getone(partition))
        except TimeoutError:
            continue
        except CorruptRecordException:
            offset = await consumer.position(partition)
            consumer.seek(partition, offset + 1)
            where = f"{partition.topic}, partition {partition.partition}, offset {offset}"
            logger.warning("a message cannot be read and is passed over: %s", where)
    return found


async def _commit(consumer: "AIOKafkaConsumer", partition: "TopicPartition", offset: int) -> None:
    try:
        await consumer.commit({partition: offset})
    except Exception as error:  # noqa: BLE001 - then it comes again, and is answered as before
        logger.debug("an offset was not committed: %s", described(error))


async def _stopped(connected: Any) -> None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connected.stop()
    except Exception as error:  # noqa: BLE001 - it is given up
        logger.debug("a connection to Kafka was not closed in order: %s", described(error))


def _message(record: "ConsumerRecord") -> EventMessage:
    headers: Mapping[str, str] = {name.lower(): (value or b"").decode(errors="replace") for name, value in record.headers}
    return EventMessage(record.value or b"", (record.key or b"").decode(errors="replace"), headers)
