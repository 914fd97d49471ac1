"""A service that makes calls over an event stream, as strangers do: it knows topics, a key and the form of messages, and
nothing else of Toolgate. What it signs can be made wrong on purpose."""

import asyncio
import contextlib
import hashlib
import hmac
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import orjson

from tests.patience import SOON
from toolgate.events.stream import DeliveredEvent, EventMessage, EventStream, open_stream
from toolgate.settings.events import EventSettings

SECRET = "0123456789abcdef0123456789abcdef-caller"
KEY = "crm"


def signed(body: bytes, *, key: str = KEY, secret: str = SECRET, purpose: str = "request") -> str:
    """The header, computed as the documentation says and not by the code under test."""
    text = f"v1\n{purpose}\n{key}\n".encode() + body
    return f"v1 {key} {hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()}"


class EventCaller:
    """Publishes requests and keeps every result and every rejected message that comes."""

    def __init__(self, stream: EventStream, settings: EventSettings) -> None:
        self.stream = stream
        self.settings = settings
        self.results: list[dict[str, Any]] = []
        self.rejected: list[EventMessage] = []
        self._came = asyncio.Condition()

    async def note_result(self, delivery: DeliveredEvent) -> None:
        message = delivery.message
        assert message.headers["toolgate-signature"] == signed(message.body, purpose="result")
        result = orjson.loads(message.body)
        assert message.headers["toolgate-request"] == result["id"]
        async with self._came:
            self.results.append(result)
            self._came.notify_all()

    async def note_rejected(self, delivery: DeliveredEvent) -> None:
        async with self._came:
            self.rejected.append(delivery.message)
            self._came.notify_all()

    def request(self, tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        return {
            "id": uuid.uuid4().hex,
            "tenant": "acme",
            "user": "u-1",
            "tool": tool,
            "arguments": arguments or {},
            "deadline": time.time() + 60,
            **fields,
        }

    async def send(self, tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> str:
        """Sends a request; gives its id."""
        request = self.request(tool, arguments, **fields)
        await self.publish(orjson.dumps(request), order=request.get("session") or request["id"])
        return str(request["id"])

    async def publish(self, body: bytes, header: str | None = "sign", order: str = "k") -> None:
        headers = {} if header is None else {"toolgate-signature": signed(body) if header == "sign" else header}
        await self.stream.publish(self.settings.requests, EventMessage(body, order, headers))

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        return await self.result(await self.send(tool, arguments, **fields))

    async def result(self, id: str, number: int = 1) -> dict[str, Any]:
        """The outcome in the result of a request, or in one of several."""
        found = await self.wait(lambda: [one for one in self.results if one["id"] == id], number)
        outcome: dict[str, Any] = found[number - 1]["outcome"]
        return outcome

    async def put_aside(self, number: int = 1) -> list[str]:
        """The reasons of the messages that were put aside, when there are so many."""
        found = await self.wait(lambda: self.rejected, number)
        return [message.headers["toolgate-reason"] for message in found]

    async def wait(self, found: Any, number: int) -> Any:
        async with asyncio.timeout(SOON), self._came:
            await self._came.wait_for(lambda: len(found()) >= number)
        return found()


@contextlib.asynccontextmanager
async def event_caller(settings: EventSettings) -> AsyncIterator[EventCaller]:
    stream = open_stream(settings, lambda _name: None)
    caller = EventCaller(stream, settings)
    results = await stream.follow(settings.results, caller.note_result)
    rejected = await stream.follow(f"{settings.requests}.rejected", caller.note_rejected)
    try:
        yield caller
    finally:
        await results.stop(0)
        await rejected.stop(0)
        await stream.close()
