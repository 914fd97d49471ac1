"""The HTTP client for the SDK's transports: a failure stays with the one request that it happened to.

The SDK's session ends for good when a connection is refused or cut, or when a login fails. Here each of these becomes a
response: a JSON-RPC error that names the failure (`errors`). Bodies are bounded, compressed ones (which could be any size)
are refused, redirects to another origin are not followed (by the SDK), and one TLS context serves all. Imported only where a
remote server is used, since httpx2 takes long to load.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2
import orjson

from toolgate.errors import CallError, ToolgateError, described
from toolgate.jsontext import MAX_JSON_VALUES, holds_too_much
from toolgate.mcp.client.errors import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    PARSE_ERROR,
    FailureKind,
    as_jsonrpc_error,
    http_refusal,
    shown,
    status_message,
)
from toolgate.network.http_client import HttpClient
from toolgate.network.http_connection import PinnedBackend
from toolgate.network.sse import EventTooLong, SseEvent, SseParser, encode_event
from toolgate.network.tls import tls

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 4.0
"""Less than servers keep a connection (5 s), or a request may meet one that is being closed."""
MAX_POOL_CONNECTIONS = 256
MAX_ERROR_BYTES = 65_536
MAX_READ_SECONDS = 3_600.0
"""Seconds without a byte after which a response is given up, whatever the call's own timeout."""
SESSION_DELETE_SECONDS = 3.0
SESSION_HEADER = "mcp-session-id"

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from toolgate.mcp.client.http_transport import HttpTransport

for _name in ("httpx2", "httpcore2", "mcp.client.streamable_http", "mcp.client.sse", "mcp.client.auth"):
    # They log addresses, messages, session ids and what authorization servers answer. What matters of it, we say ourselves.
    logging.getLogger(_name).setLevel(logging.CRITICAL)

Late = Callable[[dict[str, Any]], Awaitable[None]]
"""Puts an error among the server's messages: for the SSE transport, where responses don't come with the request."""


def goes_through_proxy(url: str) -> bool:
    """True if the environment names a proxy for a URL."""
    parts, proxies = urlsplit(url), getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(parts.hostname or "")


def is_stream(response: "ClientResponse | httpx2.Response") -> bool:
    return response.headers.get("Content-Type", "").lower().startswith("text/event-stream")


def is_json(response: "ClientResponse | httpx2.Response") -> bool:
    return response.headers.get("Content-Type", "").lower().startswith("application/json")


def is_compressed(response: "ClientResponse | httpx2.Response") -> bool:
    """True for a body that could be of any size once it is read. None is requested."""
    return response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity")


tls()  # now: modules are imported in a thread, and making it takes 20 ms


class ResponseTooLong(httpx2.TransportError): ...


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner, self._left = inner, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise ResponseTooLong("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _WholeEvents(httpx2.AsyncByteStream):
    """Whole events. A stream that ends without a response gets one from us, unless the SDK can resume it."""

    def __init__(self, inner: httpx2.AsyncByteStream, name: str, most: int) -> None:
        self._inner, self._name, self._most = inner, name, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        events, answered, resumable = SseParser(self._most), False, False
        failure: Exception | None = None
        try:
            async for chunk in self._inner:
                for event in events.feed(chunk):
                    if holds_too_much(event.data):
                        raise EventTooLong
                    answered = answered or _is_answer(event)
                    resumable = resumable or event.id is not None
                    yield encode_event(event)
        except EventTooLong:
            failure, resumable = ResponseTooLong("the event is too long"), False
        except httpx2.TransportError as error:
            if resumable:
                raise
            failure = error
        if not answered and not resumable:
            kind, message, code = _failed(self._name, failure or httpx2.RemoteProtocolError("it ended"), self._most)
            yield b"data: " + orjson.dumps(as_jsonrpc_error(kind, message, code=code, id=0)) + b"\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()


class BoundedClient(httpx2.AsyncClient):
    """An HTTP client whose responses are bounded. Redirects are left to the caller."""

    def __init__(self, most: int, **rest: Any) -> None:
        hooks = {"response": [self._bound]}
        super().__init__(verify=tls(), headers={"accept-encoding": "identity"}, event_hooks=hooks, **rest)
        self._most = most

    async def _bound(self, response: httpx2.Response) -> None:
        if is_compressed(response):
            raise httpx2.DecodingError("the response is compressed, which was not requested", request=response.request)
        if not self._is_bounded_by_event(response):
            response.stream = _BoundedStream(response.stream, self._most)  # type: ignore[arg-type]

    def _is_bounded_by_event(self, _: httpx2.Response) -> bool:
        return False


class JudgedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses that an HTTP client lets a tool reach; they are judged anew for each connection."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        name = f"[{host}]" if ":" in host else host
        try:
            addresses = await self._http.addresses(f"{'https' if port == 443 else 'http'}://{name}:{port}/")
        except ToolgateError as error:
            raise httpcore2.ConnectError(error.message) from error
        return await PinnedBackend(addresses).connect_tcp(host, port, timeout, local_address, socket_options)


class JudgedTransport(httpx2.AsyncHTTPTransport):
    """A transport without proxies, all of whose connections are judged."""

    def __init__(self, http: HttpClient, limits: httpx2.Limits) -> None:
        super().__init__(verify=tls(), trust_env=False, limits=limits)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=JudgedBackend(http),
        )


class GuardedClient(BoundedClient):
    """The HTTP client of one server. `failure` is the last failure, as a sentence."""

    def __init__(self, to: "HttpTransport", read_seconds: float) -> None:
        limits = httpx2.Limits(
            max_connections=MAX_POOL_CONNECTIONS, max_keepalive_connections=20, keepalive_expiry=KEEPALIVE_SECONDS
        )
        super().__init__(
            to.most,
            auth=None if to.login is None else httpx2.Auth(),  # adds nothing: not even what a URL may hold
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=read_seconds, write=60.0, pool=60.0),
            limits=limits,
            transport=None if to.http is None else JudgedTransport(to.http, limits),
        )
        self.failure: str | None = None
        self.session_id: str | None = None
        self.late: Late | None = None
        self.hopeless = False
        self._to, self._name = to, to.name

    async def send(self, request: httpx2.Request, *, stream: bool = False, **rest: Any) -> httpx2.Response:
        """Sends a request; one that can't be delivered gets an error response, and responses are read whole."""
        if request.method != "POST":
            return await self._listen(request, stream=stream, **rest)
        try:
            await request.aread()  # one that follows a redirect was not read yet
            request.headers.update(self._to.headers())
            response = await self._deliver(request, stream=True, **rest)
            try:
                settled = await self._settled(request, response)
            except BaseException:
                await response.aclose()
                raise
            if settled is not response:
                await response.aclose()
            return settled
        except CallError as error:  # a login or a secret that is not there
            return await self._instead(request, "login", error.message, CONNECTION_CLOSED)
        except Exception as error:  # noqa: BLE001 - whatever it was, it must not end the session of all others
            return await self._instead(request, *_failed(self._name, error, self._most, login=self._to.login is not None))

    async def _deliver(self, request: httpx2.Request, **rest: Any) -> httpx2.Response:
        deliver = partial(super().send, request, **rest)
        return await (deliver() if self._to.login is None else self._to.login.send(request, deliver))

    async def _listen(self, request: httpx2.Request, *, stream: bool, **rest: Any) -> httpx2.Response:
        """Opens a stream that the server may leave silent for any time; or deletes the session."""
        request.headers.update(self._to.headers())
        if request.method == "DELETE":
            return await self._take_leave(request, **rest)
        timeouts = {**request.extensions.get("timeout", {}), "read": None}
        request.extensions = {**request.extensions, "timeout": timeouts}
        return await self._deliver(request, stream=stream, **rest)

    async def _take_leave(self, request: httpx2.Request, **rest: Any) -> httpx2.Response:
        """Deletes the session, without waiting long for the response."""
        if self.hopeless:
            return httpx2.Response(204, request=request)
        async with asyncio.timeout(SESSION_DELETE_SECONDS):
            response = await self._deliver(request, stream=True, **rest)
            await response.aclose()
        return httpx2.Response(response.status_code, request=request)

    def _is_bounded_by_event(self, response: httpx2.Response) -> bool:
        """True for event streams, which may be endless."""
        return response.is_success and is_stream(response) and (self.late is None or response.request.method == "GET")

    async def _settled(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The response that the SDK may see: the server's own, or an error in its place."""
        status = response.status_code
        if status >= 400:
            return await self._refusal(request, response)
        self.session_id = response.headers.get(SESSION_HEADER) or self.session_id
        id = _id_of(request)
        if id is None or self.late is not None or status == 202 or response.is_redirect:
            return response
        if is_stream(response):
            response.stream = _WholeEvents(response.stream, self._name, self._most)  # type: ignore[arg-type]
            return response
        if not is_json(response):
            words = shown(response.headers.get("content-type", "nothing"))
            message = f"Server {self._name} answered with {words}, where JSON or an event stream was expected."
            return await self._instead(request, "refused", message, PARSE_ERROR)
        body = await response.aread()
        if holds_too_much(body):
            raise ResponseTooLong("the answer holds too much")
        answer = _parsed(body)
        if answer is None or answer.get("id") != id:
            what = "no JSON-RPC message" if answer is None else "an answer to something else"
            return await self._instead(request, "refused", f"Server {self._name} answered with {what}.", PARSE_ERROR)
        self.failure = None
        return _response(request, status, answer, response.headers.get(SESSION_HEADER))

    async def _refusal(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        status, id = response.status_code, _id_of(request)
        message: Mapping[str, Any] = {}
        if is_json(response):  # what was read before, for a login, can't be read again
            message = _parsed(await beginning(response.aiter_raw(), httpx2.StreamError)) or {}
        kind, error = http_refusal(status, message, id, in_session=SESSION_HEADER in request.headers)
        if error is not None:
            return _response(request, status, {**message, "id": id})
        return await self._instead(request, kind, status_message(self._name, status), INTERNAL_ERROR)

    async def _instead(self, request: httpx2.Request, kind: FailureKind, message: str, code: int) -> httpx2.Response:
        """Answers a request with an error of ours. Notifications need no response."""
        self.failure = message
        id = _id_of(request)
        body = as_jsonrpc_error(kind, message, code=code, id=id)
        if self.late is None:
            return _response(request, 400, body)
        if id is not None:
            await self.late(body)
        return httpx2.Response(202, request=request)


def _failed(name: str, error: Exception, most: int, *, login: bool = False) -> tuple[FailureKind, str, int]:
    """Classifies an exception: its kind, message and JSON-RPC code."""
    if isinstance(error, ResponseTooLong):
        what = f"{most} bytes (its setting output_bytes) or {MAX_JSON_VALUES} values"
        return "refused", f"Server {name} gave an answer of more than {what}.", INTERNAL_ERROR
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.UnsupportedProtocol):
        return "unreachable", f"Server {name} cannot be reached: {_why(error)}.", CONNECTION_CLOSED
    if isinstance(error, httpx2.TransportError) or not login:
        return "lost", f"The connection to server {name} broke before the response: {_why(error)}.", CONNECTION_CLOSED
    return "login", f"The login to server {name} failed: {_why(error)}.", CONNECTION_CLOSED


def _why(error: Exception) -> str:
    return shown(described(error)).rstrip(".")


async def beginning(chunks: AsyncIterator[bytes], *broken: type[Exception]) -> bytes:
    """Reads the first part of a body, or what there is until one of these errors."""
    read = bytearray()
    with suppress(*broken):
        async for chunk in chunks:
            read += chunk
            if len(read) > MAX_ERROR_BYTES:
                break
    return bytes(read)


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return message if isinstance(message, dict) else None


def _is_answer(event: SseEvent) -> bool:
    message = _parsed(event.data) if event.name == "message" and event.data else None
    return message is not None and "method" not in message


def _id_of(request: httpx2.Request) -> Any:
    """The id of the JSON-RPC request; None for notifications and responses."""
    message = _parsed(request.content)
    return message.get("id") if message is not None and "method" in message else None


def _response(request: httpx2.Request, status: int, body: Mapping[str, Any], session: str | None = None) -> httpx2.Response:
    headers = {"content-type": "application/json", **({SESSION_HEADER: session} if session else {})}
    return httpx2.Response(status, content=orjson.dumps(body), headers=headers, request=request)
