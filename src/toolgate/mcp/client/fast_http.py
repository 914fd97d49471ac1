"""The fast path to a remote server that the SDK's session is already connected to: one POST, one response.

The session's own layers cost a millisecond a request. Here the same request (headers, `_meta`, an id of its own) goes out on
a pool of open connections, and the response is read as JSON or as server-sent events. Whatever needs more (a token that has
to be refreshed, a redirect, cookies) raises `FastPathUnavailable`: nothing was sent, and the session is to be used. The
session stays the one that connects, lists, subscribes and listens. Imported only where a remote server is used.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import orjson
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
from mcp.shared.exceptions import MCPError

from toolgate.errors import CallError, described
from toolgate.jsontext import MAX_JSON_VALUES, holds_too_much
from toolgate.mcp.client.correlation import ActiveCall, answer_server
from toolgate.mcp.client.errors import (
    MAX_ERROR_CHARS,
    PARSE_ERROR,
    ConnectionLost,
    ErrorResponse,
    FastPathUnavailable,
    Unreachable,
    as_call_error,
    http_refusal,
    shown,
    status_message,
)
from toolgate.mcp.client.guarded_http import (
    CONNECT_SECONDS,
    KEEPALIVE_SECONDS,
    MAX_POOL_CONNECTIONS,
    beginning,
    is_compressed,
    is_json,
    is_stream,
)
from toolgate.mcp.client.request_meta import FAST_METHODS, MODERN_VERSION, request_headers, with_meta
from toolgate.mcp.client.untrusted_text import printable
from toolgate.model import Caller
from toolgate.network.sse import EventTooLong, SseEvent, SseParser
from toolgate.network.tls import tls
from toolgate.tasks import BackgroundTasks

if TYPE_CHECKING:
    from toolgate.mcp.client.http_transport import HttpTransport

MAX_SERVER_REQUESTS = 64
"""Requests of the server that are handled at once; more are not answered."""
MAX_RESUMES = 3
"""Resumptions of a broken stream on which nothing new comes."""
RESUME_SECONDS = 1.0
MAX_RESUME_SECONDS = 60.0
DRAIN_SECONDS = 1.0
MAX_BACKGROUND_TASKS = 256

logger = logging.getLogger("toolgate.mcp")


class FastHttp:
    """The fast path to one server, for the negotiated protocol version."""

    def __init__(self, address: "HttpTransport", protocol: str) -> None:
        self.notice: Callable[[str, Mapping[str, Any]], None] | None = None
        self._to, self._protocol, self._modern = address, protocol, protocol >= MODERN_VERSION
        self._ids = count(1)
        self._http = HttpPool(address.name, address.url, address.most)
        self._off = False
        self._asked_now = 0
        self._always = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller | None,
        headers: Mapping[str, str] | None = None,
        call: ActiveCall | None = None,
    ) -> Mapping[str, Any]:
        """Sends a request and returns the result as the server sent it. Raises the errors of `errors`, or
        FastPathUnavailable.

        `headers`: arguments that are sent as headers too. `call`: receives progress, log messages and questions.
        """
        if self._off or method not in FAST_METHODS or self._to.client.cookies:
            raise FastPathUnavailable
        if call is None and caller is not None:
            call = ActiveCall(caller)
        id = f"w{next(self._ids)}"
        sent = self._headers(method, params)
        if headers:
            sent.update(headers)
        given = with_meta(params, self._protocol, caller, call.token if call is not None else None)
        try:
            body = orjson.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": given}, default=dict)
        except TypeError:  # numbers of more than 64 bits: the session writes them
            raise FastPathUnavailable from None
        try:
            return await self._answer(await self._http.post(body, sent), id, call)
        except asyncio.CancelledError:
            if not self._modern:  # there, closing the connection says nothing
                told = self._tell({"method": "notifications/cancelled", "params": {"requestId": id}})
                self._http.later(told, certainly=True)
            raise
        finally:
            if call is not None:
                call.end()

    async def close(self) -> None:
        self._off = True
        await self._http.close()

    def _headers(self, method: str | None = None, params: Mapping[str, Any] | None = None) -> dict[str, str]:
        sent = {**self._to.headers(), **self._always, **request_headers(self._protocol, method, params)}
        if self._to.login is not None:
            token = self._to.login.token()
            if token is None:
                raise FastPathUnavailable  # the session sees to logins
            sent["Authorization"] = f"Bearer {token}"
        if not self._modern and (session := self._to.client.session_id) is not None:
            sent["Mcp-Session-Id"] = session
        return sent

    async def _tell(self, message: Mapping[str, Any]) -> None:
        """Sends a message that needs no response."""
        with suppress(CallError, FastPathUnavailable, TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                body = orjson.dumps({"jsonrpc": "2.0", **message}, default=dict)
                (await self._http.post(body, self._headers())).release()

    async def _answer(self, response: ClientResponse, id: str, call: ActiveCall | None) -> Mapping[str, Any]:
        compressed = is_compressed(response)
        if response.status == 200 and is_stream(response) and not compressed:
            return await self._from_stream(response, id, call)
        try:
            if response.status >= 300:
                raise await self._refusal(response, id)
            if compressed:
                raise ErrorResponse(
                    PARSE_ERROR, f"Server {self._to.name} sent a compressed response, which was not requested."
                )
            if response.status == 200 and is_json(response):
                return self._result(self._read(await self._http.body(response)), id)
            kind = response.headers.get("Content-Type") or "nothing"
            what = shown(kind) if response.status == 200 else f"HTTP {response.status}"
            words = f"Server {self._to.name} answered with {what}, where JSON or an event stream was expected."
            raise ErrorResponse(PARSE_ERROR, words)
        except asyncio.CancelledError:
            response.close()  # which tells a server of the new protocol to stop
            raise
        finally:
            response.release()  # it is used again if it was read to its end, else closed

    async def _refusal(self, response: ClientResponse, id: str) -> Exception:
        """The error for an HTTP status other than success."""
        name, status = self._to.name, response.status
        if status < 400:  # the session follows it, unless it leads elsewhere
            self._off = True
            return FastPathUnavailable()
        if status in (401, 403) and self._to.login is not None:
            return FastPathUnavailable()
        in_session = not self._modern and self._to.client.session_id is not None
        message: Mapping[str, Any] = {}
        if is_json(response):
            message = self._read(await beginning(response.content.iter_any(), ClientError, OSError))
        kind, error = http_refusal(status, message, id, in_session=in_session)
        if error is not None:
            return _refused(error)
        response.close()
        return as_call_error(kind, name, status_message(name, status))

    def _read(self, body: bytes) -> Mapping[str, Any]:
        """Parses a message, with secrets masked; empty if it is no JSON object."""
        if holds_too_much(body):
            raise ErrorResponse(PARSE_ERROR, f"Server {self._to.name} gave an answer of more than {MAX_JSON_VALUES} values.")
        try:
            message = orjson.loads(body)
        except orjson.JSONDecodeError:
            return {}
        return self._to.masker.mask_message(message) if isinstance(message, dict) else {}

    def _result(self, message: Mapping[str, Any], id: str) -> Mapping[str, Any]:
        result = message.get("result")
        if message.get("id") == id and isinstance(result, dict):
            return result
        if isinstance(message.get("error"), dict) and message.get("id") in (id, None):
            raise _refused(message["error"])
        what = "an answer to something else" if "result" in message or "error" in message else "no JSON-RPC message"
        raise ErrorResponse(PARSE_ERROR, f"Server {self._to.name} answered with {what}.")

    async def _from_stream(self, response: ClientResponse, id: str, call: ActiveCall | None) -> Mapping[str, Any]:
        """Reads the response from a stream; a broken one is resumed where the server can (protocols before 2026-07-28)."""
        place = _StreamPosition()
        stream: ClientResponse | None = response
        while True:
            if stream is not None:
                answer = await self._listen(stream, place, call)
                if answer is not None:
                    if call is not None:
                        await call.over()
                    return self._result(answer, id)
            if place.last is None or self._modern or place.left == 0:
                raise ConnectionLost(message=f"Server {self._to.name} ended the stream without a response.")
            place.left -= 1
            await asyncio.sleep(place.wait)
            headers = {**self._headers(), "Accept": "text/event-stream", "Last-Event-ID": place.last}
            del headers["Content-Type"]
            stream = await self._http.resume(headers)

    async def _listen(
        self, stream: ClientResponse, place: "_StreamPosition", call: ActiveCall | None
    ) -> Mapping[str, Any] | None:
        """Reads a stream up to the response; None if it ends without one."""
        try:
            async with aclosing(self._http.events(stream)) as events:
                async for event in events:
                    place.move(event)
                    answer = self._heard(event, call)
                    if answer is not None:
                        return answer
        except asyncio.CancelledError:
            stream.close()  # which tells a server of the new protocol to stop
            raise
        finally:
            self._http.done(stream)
        return None

    def _heard(self, event: SseEvent, call: ActiveCall | None) -> Mapping[str, Any] | None:
        """Handles one message on the stream of a request; returns the response."""
        if event.name != "message" or not event.data:
            return None
        message = self._read(event.data)
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return message
        given = params if isinstance(params, dict) else {}
        if "id" in message:
            if not self._modern and self._asked_now < MAX_SERVER_REQUESTS:
                self._asked_now += 1
                self._http.later(self._asked(message["id"], method, given, call), certainly=True)
        elif method == "notifications/progress":
            if call is not None and str(given.get("progressToken")) == str(call.token):
                call.progress(given)
        elif method == "notifications/message":
            if call is not None:
                call.log(given)
        elif self.notice is not None:
            self.notice(method, given)
        return None

    async def _asked(self, id: object, method: str, params: Mapping[str, Any], call: ActiveCall | None) -> None:
        """Answers a request that the server sent on a call's own stream."""
        try:
            await self._tell({"id": id, "result": await answer_server(call, method, params)})
        except MCPError as error:
            await self._tell({"id": id, "error": {"code": error.code, "message": error.message}})
        finally:
            self._asked_now -= 1


class _StreamPosition:
    """The position on a stream, for resuming it."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.left, self.wait = MAX_RESUMES, RESUME_SECONDS

    def move(self, event: SseEvent) -> None:
        self.left, self.last = MAX_RESUMES, event.id or self.last
        if event.retry is not None:
            self.wait = min(event.retry / 1_000, MAX_RESUME_SECONDS)


def _refused(error: Mapping[str, Any]) -> ErrorResponse:
    code, message = error.get("code"), error.get("message")
    number = code if isinstance(code, int) and not isinstance(code, bool) else PARSE_ERROR
    return ErrorResponse(
        number, printable(message, MAX_ERROR_CHARS) if isinstance(message, str) else "(no message)", error.get("data")
    )


class HttpPool:
    """The connections to one URL. A failure before anything was sent is Unreachable, after that ConnectionLost."""

    def __init__(self, name: str, url: str, most: int) -> None:
        self._name, self._url, self._most = name, url, most
        self._pool: ClientSession | None = None
        self._closed = False
        self._behind = BackgroundTasks()
        """Work after a response was returned: bodies read to their end, cancellations, answers to questions."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> ClientResponse:
        if self._closed:
            raise Unreachable(message=f"The connection to server {self._name} is closed.")
        try:
            return await self._http().post(self._url, data=body, headers=headers, allow_redirects=False)
        except (ClientConnectorError, ConnectionTimeoutError, InvalidURL) as error:
            raise Unreachable(message=f"Server {self._name} cannot be reached: {shown(described(error))}") from error
        except (ClientError, OSError) as error:
            raise self._lost(error) from error

    async def resume(self, headers: Mapping[str, str]) -> ClientResponse | None:
        """Resumes a broken stream; None if the server can't, or not now."""
        if self._closed:
            return None
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
        if self._closed or (len(self._behind) >= MAX_BACKGROUND_TASKS and not certainly):
            work.close()
            return
        self._behind.start(work).add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.warning("server %s: background work of a call failed: %s", self._name, shown(described(error)))

    async def close(self) -> None:
        """Closes the connections, also if whoever awaits it is cancelled meanwhile. None is opened afterwards."""
        self._closed = True
        try:
            await self._behind.close()
        finally:
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
