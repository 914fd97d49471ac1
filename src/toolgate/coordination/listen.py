"""Notices through a server: Redis's channels, or PostgreSQL's LISTEN and NOTIFY. A connection that is lost is made again,
and then everybody is told to look, because something may have been said meanwhile.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from typing import Any

import orjson

from toolgate.coordination.notices import Notices
from toolgate.coordination.redis import PREFIX, BusError, Redis
from toolgate.tasks import start_task

CHANNEL = f"{PREFIX}notices"
POSTGRES_CHANNEL = "toolgate_notices"
LONGEST = 7_000
"""Bytes that a notice may have; PostgreSQL takes 8,000. A longer text is left out."""
SILENCE_SECONDS = 10.0
"""A server that said nothing for this long is asked whether it is still there."""
CONNECT_SECONDS = 5.0
WAITS = (0.05, 0.2, 1.0, 5.0)
"""Seconds between attempts to connect."""

logger = logging.getLogger("toolgate")


class Listening(Notices, ABC):
    """What both have in common: the task that listens, and begins again."""

    place: str

    def __init__(self) -> None:
        super().__init__()
        self._task: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._failures = 0

    async def start(self) -> None:
        self._task = start_task(self._keep_listening())

    async def close(self) -> None:
        if self._task is not None:
            while not self._task.done():  # once is not enough: what it awaits may swallow a cancellation
                self._task.cancel()
                await asyncio.wait((self._task,), timeout=1)
            self._task = None

    async def announce(self, topic: str, text: str = "") -> None:
        message = orjson.dumps([topic, text]).decode()
        if len(message.encode()) > LONGEST:
            message = orjson.dumps([topic, ""]).decode()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._send(message)
        except Exception as error:  # noqa: BLE001 - the change is made; all that is lost is that others know at once
            logger.warning("a notice could not be sent to %s (%s): other processes learn of it later", self.place, error)
            self._hear(topic, text)

    @abstractmethod
    async def _send(self, message: str) -> None:
        """Say it on the channel."""

    @abstractmethod
    async def _listen(self) -> None:
        """Connect, call `_is_listening`, give each message to `_receive`; raise when the connection is lost."""

    async def _keep_listening(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - whatever the driver raises, it is tried again
                if self._failures == 0:
                    logger.warning("not listening to %s until it is back: %s", self.place, error)
            finally:
                self._connected.clear()
            await asyncio.sleep(WAITS[min(self._failures, len(WAITS) - 1)])
            self._failures += 1

    def _is_listening(self) -> None:
        self._failures = 0
        self._connected.set()
        self._may_have_missed()

    def _receive(self, message: str | bytes) -> None:
        try:
            topic, text = orjson.loads(message)
        except ValueError:
            topic, text = None, None
        if isinstance(topic, str) and isinstance(text, str):
            self._hear(topic, text)
        else:  # not one of ours
            self._may_have_missed()


class RedisNotices(Listening):
    """A channel of a Redis server."""

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        self._redis = redis
        self.place = redis.place

    async def _send(self, message: str) -> None:
        await self._redis.ask(lambda client: client.publish(CHANNEL, message))

    async def _listen(self) -> None:
        asked = False
        async with self._redis.client().pubsub() as channel:
            await channel.subscribe(CHANNEL)
            while True:
                message: Any = await channel.get_message(timeout=SILENCE_SECONDS)
                if message is None:
                    if asked:
                        raise BusError(f"{self.place} does not answer.")
                    await channel.ping()
                    asked = True
                    continue
                asked = False
                if message["type"] == "subscribe":  # at first, and whenever the client had to connect again
                    self._is_listening()
                elif message["type"] == "message":
                    self._receive(message["data"])


class PostgresNotices(Listening):
    """A channel of a PostgreSQL database, on a connection of its own."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.place = re.sub(r"//[^@/]*@", "//", url).partition("?")[0]
        self._connection: Any = None
        self._one_statement = asyncio.Lock()

    async def _send(self, message: str) -> None:
        await self._connected.wait()
        async with self._one_statement:
            await self._connection.execute("SELECT pg_notify($1, $2)", POSTGRES_CHANNEL, message)

    async def _listen(self) -> None:
        import asyncpg  # takes 100 ms, and is an extra

        self._connection = await asyncpg.connect(self._url, timeout=CONNECT_SECONDS)
        lost = asyncio.Event()
        try:
            self._connection.add_termination_listener(lambda _connection: lost.set())
            await self._connection.add_listener(POSTGRES_CHANNEL, lambda *said: self._receive(said[-1]))
            self._is_listening()
            while not lost.is_set():
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await lost.wait()
                except TimeoutError:
                    async with self._one_statement:
                        await self._connection.execute("SELECT 1", timeout=CONNECT_SECONDS)
            raise ConnectionError("the connection was lost")
        finally:
            self._connection.terminate()
