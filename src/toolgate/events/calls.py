"""Calls over the event stream, both ways, with one connection: made with the App, started by what takes requests."""

import asyncio
import logging
from collections.abc import Callable

from toolgate.events.answers import POLL_SECONDS, FinalResults
from toolgate.events.door import RequestDoor
from toolgate.events.runner import EventRunner
from toolgate.events.signatures import SigningKeys
from toolgate.events.stream import EventStream, open_stream
from toolgate.settings.events import EventSettings
from toolgate.tasks import repeat, start_task, stop_tasks

logger = logging.getLogger("toolgate.events")


class EventCalls:
    """The connection to the event stream, and what goes over it."""

    def __init__(self, settings: EventSettings, find_secret: Callable[[str], str | None]) -> None:
        self.settings = settings
        self.keys = SigningKeys(settings.keys, find_secret)
        self.runner = EventRunner(settings, self.keys, self.stream)
        self._find_secret = find_secret
        self._stream: EventStream | None = None
        self._door: RequestDoor | None = None
        self._finals: asyncio.Task[None] | None = None

    def stream(self) -> EventStream:
        """The stream, opened when it is first asked for. Raises MissingExtra or StreamError."""
        if self._stream is None:
            self._stream = open_stream(self.settings, self._find_secret)
        return self._stream

    async def start(self, door: RequestDoor, finals: FinalResults) -> None:
        """Takes requests from now on."""
        await door.start()
        self._door = door
        self._finals = start_task(repeat(POLL_SECONDS, finals.look, logger, "final results cannot be looked for"))

    async def stop(self, grace: float) -> None:
        """Takes no more requests, and waits so many seconds for calls that run."""
        door, self._door = self._door, None
        if door is not None:
            await door.stop(grace)
        await stop_tasks(self._finals)
        self._finals = None

    async def close(self) -> None:
        await self.stop(0)
        await self.runner.close()
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()
