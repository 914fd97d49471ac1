"""One connection to a server: the negotiated protocol, requests, and notifications.

It uses the SDK's dispatcher and transports, not its session: results stay the plain JSON that the server sent, since many
servers are less strict than the SDK; and each request declares what its own caller can do. Both kinds of protocol are
spoken: 2026-07-28, where every request stands alone, and the older ones with their handshake.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from anyio.abc import ObjectReceiveStream
from mcp.client._transport import ReadStream
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import mcp_param_headers
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import CONNECTION_CLOSED, JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse
from mcp_types.jsonrpc import HEADER_MISMATCH
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolgate.mcp.client.correlation import CURRENT_CALL, LOG_LEVELS, ActiveCall, CorrelatingDispatcher, DispatcherStarted
from toolgate.mcp.client.errors import (
    ConnectionLost,
    ErrorResponse,
    FastPathUnavailable,
    Unreachable,
    check_result,
    from_mcp_error,
)
from toolgate.mcp.client.handshake import Era, agree
from toolgate.mcp.client.list_cache import fetch
from toolgate.mcp.client.model import ServerInfo
from toolgate.mcp.client.request_meta import FAST_METHODS, request_headers, request_meta, with_meta
from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.untrusted_text import longest_timeout, sentence
from toolgate.model import Caller
from toolgate.settings import ServerSettings
from toolgate.tasks import finish, start_task, stop_tasks

if TYPE_CHECKING:
    from toolgate.mcp.client.fast_http import FastHttp
    from toolgate.mcp.client.http_transport import HttpTransport
    from toolgate.mcp.client.stdio import StdioChannel

    ServerChannel: TypeAlias = StdioChannel | HttpTransport

OnNotification = Callable[[str, Mapping[str, Any]], None]
TRACKED_METHODS = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Requests during which a server may send requests of its own."""
HEARTBEAT_METHODS = frozenset({"ping", "server/discover"})
"""Requests that are not cancelled: late responses do no harm."""
ABANDONED_CALL_SECONDS = 600.0
"""The least time that a server is taken to go on with an abandoned call."""
REASON_SECONDS = 3.0
"""Seconds that a failed request waits for the reason."""
MAX_MESSAGES_PER_TURN = 32
"""Messages that are delivered before other tasks have their turn."""
MAX_BURST_MESSAGES, MESSAGES_PER_SECOND = 2_000, 2_000.0
"""Messages that a server may send unasked: at once, and per second. Beyond that it is read more slowly: nothing is lost."""
REQUEST_COST = 10
"""Messages that a request counts for, since it has to be answered."""

_streams = count(1)
logger = logging.getLogger("toolgate.mcp")


class InboundRate:
    """The token bucket for unasked messages."""

    def __init__(self) -> None:
        self._left, self._since = float(MAX_BURST_MESSAGES), monotonic()

    def charge(self, cost: int) -> None:
        self._left -= cost

    def delay(self) -> float:
        """Seconds to wait before the next message is read."""
        if self._left >= 0:
            return 0.0
        now = monotonic()
        self._left = min(MAX_BURST_MESSAGES, self._left + (now - self._since) * MESSAGES_PER_SECOND)
        self._since = now
        return max(0.0, -self._left / MESSAGES_PER_SECOND)


class InboundStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The reading end of any transport, with secrets masked: paces a server that sends too much."""

    def __init__(self, server: str, inner: ReadStream[SessionMessage | Exception], masker: SecretMasker) -> None:
        self._server = server
        self._inner = inner
        self._masker = masker
        self.pace = InboundRate()
        self._stretch = 0
        self.heard = monotonic()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done before any waiter learns that the connection is closed."""

    @property
    def last_context(self) -> Context | None:
        """The context of the task that wrote the last message, where the transport knows it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Returns the next message. What the transport could not parse is logged and skipped."""
        while True:
            try:
                item = await self._inner.receive()
            except BaseException:
                self.end()
                raise
            self.heard = monotonic()
            if not isinstance(item, Exception):
                self._mask(item.message)
                await self._take_turns(item.message)
                return item
            logger.debug("server %s: %s", self._server, self._masker.mask_text(sentence(item)))

    async def _take_turns(self, message: JSONRPCMessage) -> None:
        """Lets other tasks run: a transport may have thousands of messages at hand."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            self.pace.charge(REQUEST_COST if isinstance(message, JSONRPCRequest) else 1)
        self._stretch += 1
        if delay := self.pace.delay():
            await asyncio.sleep(delay)
        elif self._stretch >= MAX_MESSAGES_PER_TURN:
            await asyncio.sleep(0)
        else:
            return
        self._stretch = 0

    def _mask(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse):
            message.result = self._masker.mask_value(message.result)
        elif isinstance(message, JSONRPCError):
            message.error.message = self._masker.mask_text(message.error.message)
            message.error.data = self._masker.mask_value(message.error.data)
        elif message.params is not None:
            message.params = self._masker.mask_value(message.params)

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def aclose(self) -> None:
        self.end()
        await self._inner.aclose()


class Connection:
    def __init__(
        self, name: str, settings: ServerSettings, channel: "ServerChannel", notice: OnNotification, masker: SecretMasker
    ) -> None:
        self.name, self.settings = name, settings
        self.about = ServerInfo("", {}, {})
        self.modern = False
        self.fast_http: FastHttp | None = None
        self.renewed = False
        self.begun = DispatcherStarted()
        self.answered = 0
        """The number of responses so far."""
        self.header_maps: dict[str, Mapping[tuple[str, ...], str]] = {}
        """By tool: the arguments that are also sent as headers."""
        self.reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The reason why it ended, as a sentence; set by the supervisor."""
        self._notice = notice
        self._watched = InboundStream(name, channel.read, masker)
        self.dispatch = CorrelatingDispatcher(
            self._watched, channel.write, self.notice, max(ABANDONED_CALL_SECONDS, longest_timeout(settings))
        )
        self._acknowledging: dict[str, asyncio.Event] = {}
        self._log_level = len(LOG_LEVELS)

    @property
    def ended(self) -> asyncio.Future[None]:
        """Done when nothing more will come."""
        return self._watched.ended

    @property
    def silent(self) -> float:
        """Seconds since the last message."""
        return monotonic() - self._watched.heard

    def end(self) -> None:
        self._watched.end()

    def renew(self) -> None:
        """Ends it, to be replaced at once: the server has lost the session."""
        self.renewed = True
        self.end()

    async def serve(self) -> None:
        """Dispatches messages until the transport ends."""
        try:
            await self.dispatch.serve(self.begun)
        except Exception as error:  # noqa: BLE001 - whatever the transport ends with, it has ended
            logger.debug("server %s: %s", self.name, sentence(error))
        finally:
            self.begun.set()
            self.end()

    async def request(self, method: str, params: Mapping[str, Any], caller: Caller | None) -> Mapping[str, Any]:
        """Sends a request and returns the plain result; raises the errors of `errors`."""
        if self.ended.done():
            raise Unreachable(message=f"The connection to server {self.name} has just ended.")
        try:
            raw = await self._ask(method, params, caller)
        except ErrorResponse as error:
            if not (self.modern and method == "tools/call" and error.number == HEADER_MISMATCH):
                raise
            await fetch(self, "tools", self.settings)  # which learns the headers
            raw = await self._ask(method, params, caller)
        self.answered += 1
        return check_result(self.name, method, raw)

    async def _ask(self, method: str, params: Mapping[str, Any], caller: Caller | None) -> Mapping[str, Any]:
        if method not in TRACKED_METHODS:
            return await self._send_fast(method, params, caller, None)
        await self._want_logs(caller)
        call = self.dispatch.begin(caller)
        token = CURRENT_CALL.set(call)
        forget = self.dispatch.give_up
        try:
            answer = await self._send_fast(method, params, caller, call)
            forget = self.dispatch.forget
            return answer
        except (ErrorResponse, Unreachable):
            forget = self.dispatch.forget
            raise
        finally:
            CURRENT_CALL.reset(token)
            forget(call)

    async def _send_fast(
        self, method: str, params: Mapping[str, Any], caller: Caller | None, call: ActiveCall | None
    ) -> Mapping[str, Any]:
        """Uses the fast path where it can send the request."""
        if self.fast_http is not None and method in FAST_METHODS:
            with suppress(FastPathUnavailable):
                return await self.fast_http.request(method, params, caller, self._param_headers(method, params), call)
        raw = await self._send(method, params, caller, call.token if call is not None else None)
        if call is not None:
            await call.over()
        return raw

    async def _send(
        self, method: str, params: Mapping[str, Any], caller: Caller | None, token: int | None
    ) -> Mapping[str, Any]:
        headers = request_headers(self.about.protocol, method, params) | self._param_headers(method, params)
        given = with_meta(params, self.about.protocol, caller, token)
        try:
            options: CallOptions = {"headers": headers, "cancel_on_abandon": method not in HEARTBEAT_METHODS}
            return await self.dispatch.send_raw_request(method, given, options)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and self.ended.done():
                raise ConnectionLost(
                    message=f"Server {self.name} ended the connection before it answered. {await self._why()}"
                ) from None
            raise from_mcp_error(error, self.name, self.settings) from None

    async def _why(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                return await finish(self.reason)
        return ""

    def _param_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        known = self.header_maps.get(str(params.get("name"))) if self.modern and method == "tools/call" else None
        arguments = params.get("arguments")
        return mcp_param_headers(known, arguments if isinstance(arguments, Mapping) else {}) if known else {}

    async def _want_logs(self, caller: Caller | None) -> None:
        """Sets the most verbose log level that a caller wants (protocols before 2026-07-28)."""
        if self.modern or caller is None or caller.log_level not in LOG_LEVELS or "logging" not in self.about.capabilities:
            return
        level = LOG_LEVELS.index(caller.log_level)
        if level < self._log_level:
            self._log_level = level
            with suppress(ErrorResponse):
                await self._send("logging/setLevel", {"level": caller.log_level}, None, None)

    async def listen(self, wanted: Mapping[str, Any], acknowledged: asyncio.Event) -> None:
        """Subscribes to changes until the stream ends (2026-07-28). They come as notifications."""
        name = f"listen-{next(_streams)}"
        headers = request_headers(self.about.protocol, "subscriptions/listen")
        params = {"notifications": dict(wanted), "_meta": request_meta(self.about.protocol, {})}
        self._acknowledging[name] = acknowledged
        try:
            await self.dispatch.send_raw_request("subscriptions/listen", params, {"request_id": name, "headers": headers})
        except MCPError as error:
            raise from_mcp_error(error, self.name, self.settings) from None
        finally:
            self._acknowledging.pop(name, None)

    def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """Handles a notification that belongs to no call."""
        if method == "notifications/subscriptions/acknowledged":
            meta = params.get("_meta")
            name = meta.get(SUBSCRIPTION_ID_META_KEY) if isinstance(meta, dict) else None
            if isinstance(name, str) and name in self._acknowledging:
                self._acknowledging[name].set()
        else:
            self._notice(method, params)

    async def beat(self) -> None:
        """Sends a heartbeat. Raises Unreachable or ConnectionLost; any response is a sign of life."""
        with suppress(ErrorResponse):
            await self._send("server/discover" if self.modern else "ping", {}, None, None)


@asynccontextmanager
async def open_connection(
    name: str, settings: ServerSettings, channel: "ServerChannel", era: Era, notice: OnNotification, masker: SecretMasker
) -> AsyncIterator[Connection]:
    """A negotiated connection over an open transport. Entered and left by the server's supervisor."""
    connection = Connection(name, settings, channel, notice, masker)
    serving = start_task(connection.serve())
    try:
        await connection.begun.wait()
        connection.about = await agree(connection, era)
        connection.modern = connection.about.protocol in MODERN_PROTOCOL_VERSIONS
        connection.fast_http = channel.fast_http(connection.about)
        if connection.fast_http is not None:
            connection.fast_http.notice = connection.notice
        yield connection
    finally:
        connection.end()
        try:
            await stop_tasks(serving)
        finally:
            if connection.fast_http is not None:
                await connection.fast_http.close()
