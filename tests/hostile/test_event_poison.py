"""Messages that a stranger, or the holder of one key, writes to the topic of requests so that others' are not handled."""

from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException

from tests.behaviour.test_events import both, ran, settings
from tests.event_caller import EventCaller
from toolgate import Actor, tool
from toolgate.events.kafka_stream import KafkaStream, _next_records
from toolgate.events.nats_stream import NatsStream
from toolgate.events.stream import EventMessage

__all__ = ["settings"]
pytestmark = pytest.mark.requirement("JOB-3")


async def send_raw(caller: EventCaller, topic: str, body: bytes, headers: list[tuple[str, bytes | None]]) -> None:
    """Writes a message with headers that no adapter would send."""
    stream = caller.stream
    if isinstance(stream, KafkaStream):
        producer = await stream._connected()
        await producer.send_and_wait(topic, body, key=b"k", headers=headers)
        return
    assert isinstance(stream, NatsStream)
    await stream._ready(topic)
    client = await stream._connected()
    lines = b"".join(name.encode() + b": " + (value or b"") + b"\r\n" for name, value in headers)
    head = b"NATS/1.0\r\n" + lines + b"\r\n"
    subject = f"{topic}.session.poison" if topic == caller.settings.requests else topic
    await client._send_command(f"HPUB {subject} {len(head)} {len(head) + len(body)}\r\n".encode() + head + body + b"\r\n")
    await client.flush()


HEADERS: list[list[tuple[str, bytes | None]]] = [
    [("toolgate-signature", None)],
    [("x", None), ("", b"")],
    [("a(b)@[]", b"1")],
    [("toolgate-key", b"k" * 60_000)],
    [("toolgate-key", b"\xff\x00\x01"), ("\u00e9", b"\xff")],
    [(f"h{number}", b"v" * 900) for number in range(60)],
]


async def test_strange_headers_put_a_message_aside_and_hold_up_nobody(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        for number, headers in enumerate(HEADERS):
            await send_raw(caller, caller.settings.requests, b"%d" % number, headers)
        await caller.put_aside(len(HEADERS))
        for number in range(8):
            assert (await caller.call("note_down", {"number": number}, session=f"s{number}"))["status"] == "success"
        assert sorted(ran) == list(range(8))


async def test_a_long_order_key_does_not_make_a_message_too_long_to_be_put_aside(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with both(tmp_path, settings) as (_, caller):
        if isinstance(caller.stream, KafkaStream):
            await caller.stream.publish(caller.settings.requests, EventMessage(b"x" * 60_000, "k" * 850_000))
        else:
            await send_raw(caller, caller.settings.requests, b"x", [("toolgate-key", b"k" * 65_450)])
        assert await caller.put_aside() == ["It has no signature."]


async def test_a_strange_result_does_not_end_the_following(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        seen = len(caller.rejected)
        await send_raw(caller, f"{caller.settings.requests}.rejected", b"x", [("toolgate-reason", None), ("y", b"\xff")])
        await caller.publish(b"unsigned", None)
        await caller.put_aside(seen + 2)


@pytest.mark.parametrize(
    "fields", [{"session": "a\x00b"}, {"session": "a\r\nNats-Rollup: all"}, {"tenant": "a\x00"}, {"tool": "a\x00b"}]
)
async def test_names_that_not_every_database_keeps_are_refused_and_answered(
    fields: dict[str, Any], tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings["keys"]["crm"]["tenants"] = ["*"]
    async with both(tmp_path, settings) as (_, caller):
        outcome = await caller.call(**{"tool": "note_down", "arguments": {"number": 1}, **fields})
        assert outcome["error"]["code"] == "VALIDATION_ERROR"
        assert ran == []


async def test_a_deadline_that_no_calendar_has_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings) as (_, caller):
        first = await caller.call("note_down", {"number": 1}, idempotency_key="once")
        assert first["status"] == "success"
        again = await caller.call("note_down", {"number": 1}, idempotency_key="once", deadline=-1e18)
        assert again["error"]["code"] == "VALIDATION_ERROR"
        assert ran == [1] and not caller.rejected


async def test_a_final_result_that_is_too_long_is_said_to_be(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with both(tmp_path, settings, limits={"output_string": 10**6, "lease_seconds": 1}) as (app, caller):

        @tool(tier="execute")
        async def shout(times: int) -> str:
            """Gives a long text, which a person is asked about."""
            return "abc " * times

        app.register(shout)
        id = await caller.send("shout", {"times": 30_000})
        pending = (await caller.result(id))["pending"]
        await app.approvals.answer(pending["id"], True, actor=Actor("acme", user="boss"))
        assert (await caller.result(id, number=2))["error"]["code"] == "OUTPUT_INVALID"


class BrokenPartition:
    """A consumer of aiokafka with one partition, in which one record can't be read."""

    def __init__(self) -> None:
        self.at = 0

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0)]

    async def getone(self, *_: TopicPartition) -> int:
        if self.at == 1:
            raise CorruptRecordException("not UTF-8")
        self.at += 1
        return self.at - 1

    async def position(self, _partition: TopicPartition) -> int:
        return self.at

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self.at = offset


async def test_a_record_that_the_library_cannot_read_is_passed_over() -> None:
    consumer: Any = BrokenPartition()
    assert [await _next_records(consumer) for _ in range(4)] == [[0], [], [2], [3]]
