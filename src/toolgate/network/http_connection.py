"""One HTTP exchange over one connection to an address that was judged before.

Imported when the first request is sent, since httpcore2 takes long to load. A connection serves one request: so no request
goes over a connection that was opened for another caller, or was judged by other rules.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import httpcore2

from toolgate.network.http_response import REDIRECTS, TooLong, read_body
from toolgate.network.tls import tls
from toolgate.network.urls import Url

CONNECT_SECONDS = 10.0
MAX_ADDRESSES = 4
READ_BYTES = 4_096

for _name in ("httpx2", "httpcore2"):
    # They log headers and addresses. What matters of it, we say ourselves.
    logging.getLogger(_name).setLevel(logging.CRITICAL)

Broken = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)
"""What a connection can end with."""


class Exchange(NamedTuple):
    """What came back: headers with names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool


class PatientStream(httpcore2.AsyncNetworkStream):
    """Reads a little at a time, and lets others have a turn before each read. Of one large read, a server could make ten
    thousand chunks or interim answers of a byte each, which are taken apart without a pause."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await asyncio.sleep(0)
        return await self._inner.read(min(max_bytes, READ_BYTES), timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return PatientStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were judged, whatever a name resolves to by now."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses[:MAX_ADDRESSES]
        self._inner = httpcore2.AnyIOBackend()
        self.connected = False

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in self._addresses:
            try:
                stream = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                self.connected = True
                return PatientStream(stream)
        raise failure


class Opened(NamedTuple):
    """An answer that has begun: headers with names in lower case, and the body as it comes over the wire."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterable[bytes]


@asynccontextmanager
async def opened(
    backend: PinnedBackend, method: str, url: Url, headers: Sequence[tuple[str, str]], content: bytes
) -> AsyncIterator[Opened]:
    """Sends a request; the certificate must be the host's. Raises one of `Broken`, here or where the body is read."""
    origin = httpcore2.Origin(url.scheme.encode(), url.host.encode(), url.port)
    request = httpcore2.Request(
        method,
        httpcore2.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=url.target.encode()),
        headers=[(name.encode(), value.encode("latin-1")) for name, value in headers],
        content=content,
        extensions={"timeout": {"connect": CONNECT_SECONDS}},
    )
    connection = httpcore2.AsyncHTTPConnection(
        origin, ssl_context=tls() if url.scheme == "https" else None, network_backend=backend
    )
    try:
        response = await connection.handle_async_request(request)
        async with aclosing(response.aiter_stream()) as chunks:
            yield Opened(response.status, _headers(response.headers), chunks)
    finally:
        await connection.aclose()


async def exchange(
    backend: PinnedBackend,
    method: str,
    url: Url,
    headers: Sequence[tuple[str, str]],
    content: bytes,
    most: int,
    *,
    cut: bool,
) -> Exchange:
    """Sends a request and reads its answer. Raises as `opened`, zlib.error, or TooLong unless the body may be `cut`. The
    body of a redirect is not read."""
    async with opened(backend, method, url, headers, content) as response:
        found = response.headers
        if response.status in REDIRECTS and "location" in found:
            return Exchange(response.status, found, b"", False)
        try:
            body = await read_body(response.chunks, found.get("content-encoding", ""), most)
        except TooLong as error:
            if not cut:
                raise
            return Exchange(response.status, found, error.read, True)
        return Exchange(response.status, found, body, False)


def _headers(pairs: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def is_connect_error(error: Exception) -> bool:
    """True if nothing was sent yet: the TLS handshake failed."""
    return isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout)


CLOSED = re.compile(r"closed connection|disconnected")
"""In the words of h11 and httpcore for a server that hangs up too early, which they count among errors of the protocol."""


def words(error: Exception) -> str:
    """An error of a connection in words that name nothing of this machine."""
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {cause.verify_message.rstrip('.')}"
    if CLOSED.search(str(error)):
        return "it was closed"
    for kind, text in _WORDS.items():
        if isinstance(error, kind):
            return text
    return "it broke"


_WORDS: dict[type[Exception], str] = {
    httpcore2.ConnectTimeout: f"no answer within {CONNECT_SECONDS:g} s",
    httpcore2.ConnectError: "nothing answers at this address, or the TLS handshake failed",
    httpcore2.ProtocolError: "what it sends is not valid HTTP",
    httpcore2.TimeoutException: "it is too slow",
    httpcore2.NetworkError: "it was closed",
}
