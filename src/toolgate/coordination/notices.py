"""Notices: how one process tells the others that something happened, through whatever an installation has for that.

A notice has a topic and a text. A text may be lost, never the fact: a watcher that is told "" must look for itself. The
topic `DATA` says that flags, policy or other data that every call relies on have changed in the store; `changed` tests for
it, and costs so little that every call can ask:

    if notices.changed():
        await notices.catch_up(read_the_store_again)
"""

import asyncio
import contextlib
import logging
import mmap
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from toolgate.coordination.redis import PREFIX, CoordinationError, Redis
from toolgate.tasks import start_task, stop_tasks

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DATA = "data"
COUNTER_FILE_BYTES = 16
CHANGES, NOTICES = 0, 1
POLL_SECONDS = 0.1
CHANNEL = f"{PREFIX}notices"
POSTGRES_CHANNEL = "toolgate_notices"
MAX_NOTICE_BYTES = 7_000
"""Bytes that a notice may have; PostgreSQL takes 8,000. A longer text is left out."""
SILENCE_SECONDS = 10.0
"""A server that said nothing for this long is asked whether it is still there."""
CONNECT_SECONDS = 5.0
WAITS = (0.05, 0.2, 1.0, 5.0)
"""Seconds between attempts to connect."""

Watcher = Callable[[str], None]

logger = logging.getLogger("toolgate")


class Notices:
    """Within this process. The other kinds differ in how a notice travels; whoever sends one hears it too."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}
        self._heard = 0
        self._seen = 0
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """Begin to listen. What is read from the store after this is up to date, or `changed` will say so."""

    async def close(self) -> None:
        """Stop listening."""

    async def announce(self, topic: str, text: str = "") -> None:
        """Tell everybody, after the change is committed. Never fails: what can't be told is logged."""
        self._hear(topic, text)

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        """Have something called with the text of each notice. Gives what ends it."""
        watchers = self._watchers.setdefault(topic, [])
        watchers.append(watcher)
        return lambda: watchers.remove(watcher)

    def changed(self) -> bool:
        """Tells whether data changed since it was last caught up with."""
        return self._heard != self._seen

    async def catch_up(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Read again what changed: once for all who find at the same time that it must be done, and all wait until it is.
        If it fails, the data still counts as changed."""
        async with self._one_at_a_time:
            if self.changed():
                mark = self._mark()
                await refresh()
                self._catch(mark)

    def _mark(self) -> int:
        return self._heard

    def _catch(self, mark: int) -> None:
        self._seen = mark

    def _hear(self, topic: str, text: str) -> None:
        if topic == DATA:
            self._heard += 1
        self._tell(topic, text)

    def _may_have_missed(self) -> None:
        """Notices may have been lost: everybody must look."""
        for topic in [DATA, *self._watchers.keys() - {DATA}]:
            self._hear(topic, "")

    def _tell(self, topic: str, text: str) -> None:
        for watcher in tuple(self._watchers.get(topic, ())):
            try:
                watcher(text)
            except Exception:  # one watcher's fault is not the others'
                logger.exception("a watcher of %s failed", topic)


class FileNotices(Notices):
    """Between processes on one machine that share a SQLite file: counters in a small file beside it, mapped into the memory
    of each process. A change that one process announced is seen by the very next call in another.

    The file holds two numbers of eight bytes: how often data changed, and how often anything was announced. Texts do not
    travel: other processes' watchers are told "" within a tenth of a second."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._descriptor = -1
        self._counters = memoryview(bytearray(COUNTER_FILE_BYTES)).cast("Q")
        self._noticed = 0
        self._counting: asyncio.Handle | None = None
        """Set while there are notices that are counted at the next turn of the loop."""
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            if os.fstat(self._descriptor).st_size < COUNTER_FILE_BYTES:
                os.ftruncate(self._descriptor, COUNTER_FILE_BYTES)  # what it adds is zeros, so it does no harm if two do it
            self._counters = memoryview(mmap.mmap(self._descriptor, COUNTER_FILE_BYTES)).cast("Q")
        except OSError as error:
            await self.close()
            raise CoordinationError(
                f"{self._file} cannot be used: {error.strerror}.", suggestion="Check who owns the folder of the database."
            ) from error
        self._seen, self._noticed = self._counters
        self._polling = start_task(self._poll())

    async def close(self) -> None:
        await stop_tasks(self._polling)
        self._polling = None
        if self._counting is not None:
            self._count()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        # The map itself goes with the last view of it; who asks after this finds that nothing changes any more.
        self._counters = memoryview(bytearray(self._counters)).cast("Q")

    async def announce(self, topic: str, text: str = "") -> None:
        if topic == DATA:
            self._count(changes=1)
        elif self._counting is None:  # other processes look ten times a second: one count tells them of many notices
            self._counting = asyncio.get_running_loop().call_soon(self._count)
        self._tell(topic, text)

    def _count(self, changes: int = 0) -> None:
        """Counts the notices that were not counted yet, for other processes to see."""
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None
        with self._alone():
            self._counters[CHANGES] += changes
            self._counters[NOTICES] += 1
            noticed = self._counters[NOTICES]
        if noticed == self._noticed + 1:
            self._noticed = noticed  # it was only us: nobody here has to look

    def changed(self) -> bool:
        return self._counters[CHANGES] != self._seen

    def _mark(self) -> int:
        return self._counters[CHANGES]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process adds to the counters meanwhile: to add is to read, then to write."""
        if fcntl is None or self._descriptor < 0:
            yield
            return
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            noticed = self._counters[NOTICES]
            if noticed != self._noticed:
                self._noticed = noticed
                self._may_have_missed()


class ChannelNotices(Notices, ABC):
    """Through a server's channel. A connection that is lost is made again, and then everybody is told to look, because
    something may have been said meanwhile."""

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
        if len(message.encode()) > MAX_NOTICE_BYTES:
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


class RedisNotices(ChannelNotices):
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
                        raise CoordinationError(f"{self.place} does not answer.")
                    await channel.ping()
                    asked = True
                    continue
                asked = False
                if message["type"] == "subscribe":  # at first, and whenever the client had to connect again
                    self._is_listening()
                elif message["type"] == "message":
                    self._receive(message["data"])


class PostgresNotices(ChannelNotices):
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


def open_notices(database: str, redis: Redis | None = None) -> Notices:
    """The notices for a database URL, not yet started. A SQLite file is on one machine, where a file beside it is quicker
    and surer than any server."""
    if database.startswith("sqlite:///"):
        file = Path(database.removeprefix("sqlite:///"))
        return FileNotices(file.with_name(f"{file.name}-epoch"))
    if redis is not None:
        return RedisNotices(redis)
    if database.startswith("memory://"):
        return Notices()
    return PostgresNotices(database)
