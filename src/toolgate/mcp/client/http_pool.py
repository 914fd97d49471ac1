"""The connections to remote servers: the TLS context and the limits of all, and the pool of the fast path.

In the pool a failure before anything was sent is Unreachable, after that ConnectionLost.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    InvalidURL,
    TCPConnector,
)
from httpx2 import Response

from toolgate.errors import described
from toolgate.mcp.client.errors import PARSE_ERROR, ConnectionLost, ErrorResponse, Unreachable, shown
from toolgate.mcp.client.sse import EventTooLong, SseEvent, SseParser
from toolgate.tasks import BackgroundTasks

logger = logging.getLogger("toolgate.mcp")
CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 4.0
"""Less than servers keep a connection (5 s), or a request may meet one that is being closed."""
MAX_POOL_CONNECTIONS = 256
DRAIN_SECONDS = 1.0
MAX_BACKGROUND_TASKS = 256
MAX_ERROR_BYTES = 65_536


@cache
def tls() -> ssl.SSLContext:
    """With the certificates of the system, or those in SSL_CERT_FILE or SSL_CERT_DIR. Making one takes 20 ms."""
    return ssl.create_default_context()


def goes_through_proxy(url: str) -> bool:
    """True if the environment names a proxy for a URL."""
    parts, proxies = urlsplit(url), getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(parts.hostname or "")


def is_stream(response: ClientResponse | Response) -> bool:
    return response.headers.get("Content-Type", "").lower().startswith("text/event-stream")


def is_json(response: ClientResponse | Response) -> bool:
    return response.headers.get("Content-Type", "").lower().startswith("application/json")


def is_compressed(response: ClientResponse | Response) -> bool:
    """True for a body that could be of any size once it is read. None is requested."""
    return response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity")


class HttpPool:
    """The connections to one URL."""

    def __init__(self, name: str, url: str, most: int) -> None:
        self._name, self._url, self._most = name, url, most
        self._pool: ClientSession | None = None
        self._behind = BackgroundTasks()
        """Work after a response was returned: bodies read to their end, cancellations, answers to questions."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> ClientResponse:
        try:
            return await self._http().post(self._url, data=body, headers=headers, allow_redirects=False)
        except (ClientConnectorError, ConnectionTimeoutError, InvalidURL) as error:
            raise Unreachable(message=f"Server {self._name} cannot be reached: {shown(described(error))}") from error
        except (ClientError, OSError) as error:
            raise self._lost(error) from error

    async def resume(self, headers: Mapping[str, str]) -> ClientResponse | None:
        """Resumes a broken stream; None if the server can't, or not now."""
        try:
            response = await self._http().get(self._url, headers=headers, allow_redirects=False)
        except (ClientError, OSError):
            return None
        if response.status == 200 and is_stream(response):
            return response
        response.close()
        return None

    def later(self, work: Coroutine[Any, Any, None], *, certainly: bool = False) -> None:
        """Starts background work, up to a limit, unless it must be done (`certainly`)."""
        if len(self._behind) >= MAX_BACKGROUND_TASKS and not certainly:
            work.close()
            return
        self._behind.start(work).add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.warning("server %s: background work of a call failed: %s", self._name, shown(described(error)))

    async def close(self) -> None:
        await self._behind.close()
        if self._pool is not None:
            await self._pool.close()

    async def body(self, response: ClientResponse) -> bytes:
        """Reads a body. Raises ErrorResponse if it is too long; if its length says so, nothing is read."""
        length, read = response.content_length, bytearray()
        try:
            if length is None or length <= self._most:
                async for chunk in response.content.iter_any():
                    read += chunk
                    if len(read) > self._most:
                        break
                else:
                    return bytes(read)
        except (ClientError, OSError) as error:
            raise self._lost(error) from error
        response.close()
        raise self._too_long()

    async def beginning(self, response: ClientResponse) -> bytes:
        """Reads the first part of a body, or what there is if it breaks off."""
        read = bytearray()
        try:
            async for chunk in response.content.iter_any():
                read += chunk
                if len(read) > MAX_ERROR_BYTES:
                    break
        except (ClientError, OSError):
            response.close()
        return bytes(read)

    async def events(self, response: ClientResponse) -> AsyncGenerator[SseEvent]:
        """Yields the events of a stream, until it ends or breaks."""
        events = SseParser(self._most)
        try:
            async for chunk in response.content.iter_any():
                for event in events.feed(chunk):
                    yield event
        except EventTooLong:
            response.close()
            raise self._too_long() from None
        except (ClientError, OSError):
            response.close()

    def done(self, stream: ClientResponse) -> None:
        """Releases a stream. If it has not ended, it is drained first, so that its connection can be used again."""
        if stream.closed or stream.content.at_eof():
            stream.release()
        else:
            self.later(_drain(stream))

    def _http(self) -> ClientSession:
        if self._pool is None:
            self._pool = ClientSession(
                connector=TCPConnector(ssl=tls(), limit=MAX_POOL_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS),
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
                timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            )
        return self._pool

    def _lost(self, error: BaseException) -> ConnectionLost:
        words = shown(described(error))
        return ConnectionLost(message=f"The connection to server {self._name} broke before the response: {words}")

    def _too_long(self) -> ErrorResponse:
        words = f"Server {self._name} gave an answer of more than {self._most} bytes (its setting output_bytes)."
        return ErrorResponse(PARSE_ERROR, words)


async def _drain(response: ClientResponse) -> None:
    try:
        with suppress(ClientError, OSError):  # a timeout is one
            async with asyncio.timeout(DRAIN_SECONDS):
                async for _ in response.content.iter_any():
                    pass
    finally:
        response.close()  # its connection is back in the pool if the end was reached
