"""The way to Redis: one pool of connections for an App, made when it is first needed. Its errors are `CoordinationError`s.

Steps send scripts, each of which Redis runs as one act, and read the time there: the clocks of our machines may differ.
A connection that turns out to be dead is replaced and the script sent once more, so scripts must bear being run twice.
"""

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import orjson

from toolgate.errors import ToolgateError
from toolgate.extras import require
from toolgate.tasks import BackgroundTasks

if TYPE_CHECKING:
    import redis.asyncio as client_library

PREFIX = "toolgate:"
CONNECTIONS = 64
PAUSE_SECONDS = 1.0
"""How long a Redis that did not answer in time is left alone: else every call would wait for it in turn."""

T = TypeVar("T")
Argument = str | bytes | int | float


class CoordinationError(ToolgateError):
    """Redis can't be used."""


def key(kind: str, *parts: str) -> str:
    """The name of something in Redis. Written as JSON, because the names of tenants and users may hold anything."""
    return f"{PREFIX}{kind}:{orjson.dumps(parts).decode()}"


class Redis:
    """A Redis server, by URL (redis://, rediss:// or unix://)."""

    def __init__(self, url: str, seconds: float = 2.0) -> None:
        require("redis")
        self._url = url
        self._seconds = seconds
        self._client: client_library.Redis | None = None
        self._scripts: dict[str, Any] = {}
        self._asking = BackgroundTasks()
        self._left_alone_until = 0.0
        self._closed = False

    @property
    def place(self) -> str:
        """The URL without user and password, fit to be shown."""
        parts = urlsplit(self._url)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"

    def client(self) -> "client_library.Redis":
        """The client of the package redis, made at the first call."""
        if self._closed:
            raise CoordinationError("Redis is not used any more: the App is closed.")
        if self._client is None:
            self._client = _connect(self._url, self._seconds)
        return self._client

    async def run(self, script: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a Lua script there, as one act."""
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = self.client().register_script(script)
        return await self.ask(lambda _client: known(keys, arguments))

    async def get(self, name: str) -> bytes | None:
        """The value that is kept under a name, if there is one."""
        found = await self.ask(lambda client: client.get(PREFIX + name))
        return found if isinstance(found, bytes) else None

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Keep a value for a while."""
        await self.ask(lambda client: client.set(PREFIX + name, value, px=max(1, int(seconds * 1000))))

    async def ping(self) -> None:
        """Raise if it does not answer."""
        await self.ask(lambda client: client.ping())

    async def ask(self, question: "Callable[[client_library.Redis], Awaitable[T]]") -> T:
        """Have the client do something, in a task of its own: a caller that goes away would break a connection in the middle
        of an answer, and on Python 3.11 the client's use of `wait_for` can swallow its cancellation."""
        return await self._asking.finish(self._ask(question))

    async def _ask(self, question: "Callable[[client_library.Redis], Awaitable[T]]") -> T:
        client = self.client()
        from redis.exceptions import RedisError
        from redis.exceptions import TimeoutError as Silent

        if self._left_alone_until > monotonic():
            raise self._explain("it did not answer a moment ago")
        try:
            return await question(client)
        except (RedisError, OSError) as error:
            if isinstance(error, Silent | TimeoutError):
                self._left_alone_until = monotonic() + PAUSE_SECONDS
            raise self._explain(str(error) or type(error).__name__) from error

    def _explain(self, words: str) -> CoordinationError:
        return CoordinationError(
            f"Redis at {self.place} cannot be used: {words.rstrip('.')}.",
            suggestion="Check that it runs and that TOOLGATE_REDIS_URL names it with the right user and password.",
        )

    async def close(self) -> None:
        await self._asking.wait()
        self._closed = True
        client, self._client = self._client, None
        self._scripts.clear()
        if client is not None:
            await client.aclose()


def _connect(url: str, seconds: float) -> "client_library.Redis":
    import redis.asyncio as client_library  # 180 ms to import
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as Lost

    try:
        pool = client_library.BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=seconds,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 1, supported_errors=(Lost,)),
            protocol=2,
        )
    except ValueError as error:
        raise CoordinationError(
            f"The Redis URL cannot be read: {error}.", suggestion="Write it as redis://user:password@host:6379/0."
        ) from None
    return client_library.Redis.from_pool(pool)
