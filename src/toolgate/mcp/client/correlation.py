"""Correlates a server's messages with calls.

Progress carries a token. A request (elicitation, sampling, roots) or a log line carries none: over HTTP its stream says
whose it is; otherwise it belongs to a call only if that is the only one that the server can be working on, abandoned calls
that it has not answered included. What can't be attributed is refused or dropped, since it might be another tenant's.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

import orjson
from mcp.shared.dispatcher import DispatchContext, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import ErrorData, RequestId

from toolgate.errors import CallError
from toolgate.mcp.client.errors import METHOD_NOT_FOUND
from toolgate.mcp.client.untrusted_text import printable
from toolgate.model import Caller
from toolgate.tasks import start_task

if TYPE_CHECKING:
    from toolgate.mcp.client.connection import InboundStream

REJECTED = -1
"""MCP's code for a request that the user rejected."""
REQUEST_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The requests that a server may send, and the capability that each needs."""
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MAX_QUEUED_MESSAGES = 256
"""Messages that wait for one slow caller."""
MAX_LOG_BYTES = 65_536
MAX_PROGRESS_CHARS = 4_000
MAX_SERVER_REQUESTS, MAX_CALL_REQUESTS = 32, 8
"""Unanswered requests of one server, and of one call."""
TOO_MANY_REQUESTS = "Too many requests at once."
MAX_ABANDONED_CALLS = 1_000
FLUSH_SECONDS = 2.0
"""Seconds for a caller to take the messages that came before the response."""

logger = logging.getLogger("toolgate.mcp")
_tokens = count(1)
CURRENT_CALL: ContextVar["ActiveCall | None"] = ContextVar("toolgate_mcp_call", default=None)
"""The call for which something is sent; the SDK's HTTP transport reads responses in the context that sent the request."""


class ActiveCall:
    """A call that a server works on."""

    def __init__(self, caller: Caller | None) -> None:
        self.caller = caller
        self.token = next(_tokens)
        self.request_id: Any = None
        """The JSON-RPC id, where the dispatcher sent it."""
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque(maxlen=MAX_QUEUED_MESSAGES)
        self._passing: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Future[Mapping[str, Any]]] = set()

    def progress(self, params: Mapping[str, Any]) -> None:
        caller, done, total = self.caller, _number(params.get("progress")), _number(params.get("total"))
        message = params.get("message")
        words = printable(message, MAX_PROGRESS_CHARS) if isinstance(message, str) else None
        if caller is not None and done is not None:
            self._pass_on(lambda: caller.progress(done, total, words))

    def log(self, params: Mapping[str, Any]) -> None:
        """Passes a log message on, if the caller wants its level."""
        caller, level, name = self.caller, params.get("level"), params.get("logger")
        if caller is None or caller.log_level not in LOG_LEVELS or level not in LOG_LEVELS:
            return
        if LOG_LEVELS.index(level) >= LOG_LEVELS.index(caller.log_level):
            data, logger_name = _bounded(params.get("data")), printable(name, 200) if isinstance(name, str) else None
            self._pass_on(lambda: caller.log(level, data, logger_name))

    def _pass_on(self, message: Callable[[], Awaitable[None]]) -> None:
        """Delivers messages in order; a slow caller loses the oldest."""
        self._waiting.append(message)
        if self._passing is None:
            self._passing = start_task(self._pass_all())

    async def _pass_all(self) -> None:
        try:
            while self._waiting:
                await self._waiting.popleft()()
        finally:
            self._passing = None

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Puts a request to the caller; no longer than the call lasts."""
        if self.caller is None:
            raise CallError("MCP_ERROR", "The call has no caller that can be asked.")
        if len(self._asking) >= MAX_CALL_REQUESTS:
            raise CallError("CAPACITY_EXCEEDED", TOO_MANY_REQUESTS)
        asking = start_task(self.caller.ask(method, params))
        self._asking.add(asking)
        try:
            return await asking
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            raise CallError("CANCELLED", "The call has ended.") from None
        finally:
            self._asking.discard(asking)

    async def over(self) -> None:
        """The response has come: messages before it are delivered first, and nobody is asked any more."""
        self._stop_asking()
        if self._passing is not None:
            await asyncio.wait({self._passing}, timeout=FLUSH_SECONDS)

    def end(self) -> None:
        """Ends delivery to the caller."""
        self._stop_asking()
        self._waiting.clear()
        if self._passing is not None:
            self._passing.cancel()

    def _stop_asking(self) -> None:
        for asking in list(self._asking):
            asking.cancel()


def _bounded(data: Any) -> Any:
    """The data of a log line; if it is too long, its beginning as text."""
    plain = orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
    return data if len(plain) <= MAX_LOG_BYTES else printable(plain[:MAX_PROGRESS_CHARS], MAX_PROGRESS_CHARS)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class CorrelatingDispatcher(JSONRPCDispatcher):
    """The SDK's dispatcher, with incoming messages given to the call that they belong to."""

    def __init__(
        self, read: "InboundStream", write: Any, notice: Callable[[str, Mapping[str, Any]], None], goes_on: float
    ) -> None:
        """`goes_on`: seconds after which an abandoned call is taken to have ended at the server."""
        super().__init__(read, write)
        self._read = read
        self._notice = notice
        self._goes_on = goes_on
        self._calls: dict[int, ActiveCall] = {}
        self._given_up: dict[Any, float] = {}
        """Abandoned calls that the server may still work on, and until when."""
        self._asked_now = 0

    def begin(self, caller: Caller | None) -> ActiveCall:
        call = ActiveCall(caller)
        self._calls[call.token] = call
        return call

    def forget(self, call: ActiveCall) -> None:
        """Removes a call that was answered, or never sent."""
        self._calls.pop(call.token, None)
        call.end()

    def give_up(self, call: ActiveCall) -> None:
        """Marks a call as abandoned: the server may go on with it, and ask about it."""
        self.forget(call)
        self._given_up[call if call.request_id is None else call.request_id] = monotonic() + self._goes_on
        if len(self._given_up) > MAX_ABANDONED_CALLS:
            del self._given_up[next(iter(self._given_up))]

    def _allocate_id(self) -> int:
        id, call = super()._allocate_id(), CURRENT_CALL.get()
        if call is not None:
            call.request_id = id
        return id

    def _resolve_pending(self, request_id: RequestId | None, outcome: dict[str, Any] | ErrorData) -> None:
        id = coerce_request_id(request_id) if request_id is not None else None
        if id not in self._pending:
            self._given_up.pop(id, None)
            self._read.pace.charge(1)
        super()._resolve_pending(request_id, outcome)

    def _whose(self, call: ActiveCall | None) -> ActiveCall | None:
        if call is not None:
            return call if self._calls.get(call.token) is call else None
        if self._given_up:
            now = monotonic()
            self._given_up = {one: until for one, until in self._given_up.items() if until > now}
        return next(iter(self._calls.values())) if len(self._calls) == 1 and not self._given_up else None

    async def serve(self, started: "DispatcherStarted") -> None:
        await self.run(self._request, _unheard, self._notification, task_status=started)

    def _notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Handles notifications in the order in which they come."""
        given = params or {}
        if method == "notifications/progress":
            call = self._calls.get(_token(given.get("progressToken")))
            if call is not None:
                call.progress(given)
        elif method == "notifications/message":
            context = self._read.last_context
            call = self._whose(context.get(CURRENT_CALL) if context is not None else None)
            if call is not None:
                call.log(given)
        else:
            self._notice(method, given)
        return True

    async def _request(
        self, _: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answers a server's request. It runs in the context of the call's own stream, where there is one."""
        if self._asked_now >= MAX_SERVER_REQUESTS and method in REQUEST_CAPABILITIES:
            return _refusal(method, TOO_MANY_REQUESTS)
        self._asked_now += 1
        try:
            return await answer_server(self._whose(CURRENT_CALL.get()), method, params or {})
        finally:
            self._asked_now -= 1


async def answer_server(call: ActiveCall | None, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Puts a server's request to the caller of the call that it belongs to. Raises MCPError where nobody answers it."""
    if method == "ping":
        return {}
    if method not in REQUEST_CAPABILITIES:
        raise MCPError(METHOD_NOT_FOUND, "Method not found")
    if call is None or call.caller is None or REQUEST_CAPABILITIES[method] not in call.caller.capabilities:
        return _refusal(method, "The caller cannot be asked for this.")
    try:
        return dict(await call.ask(method, params))
    except CallError as error:
        return _refusal(method, error.message)


class DispatcherStarted(asyncio.Event):
    """Set by the dispatcher once messages can be sent."""

    def started(self, value: None = None) -> None:  # noqa: ARG002 - as anyio has it
        self.set()


async def _unheard(_: DispatchContext[TransportContext], method: str, __: Mapping[str, Any] | None) -> None:
    logger.debug("a notification was ignored: %s", printable(method, 80))


def _token(token: Any) -> int:
    """Some servers return a token as text."""
    if isinstance(token, str):
        with suppress(ValueError):
            return int(token[:20])
    return token if isinstance(token, int) and not isinstance(token, bool) else -1


def _refusal(method: str, words: str) -> dict[str, Any]:
    """Cancels an elicitation that nobody answers; other requests are refused."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    raise MCPError(REJECTED if method == "sampling/createMessage" else METHOD_NOT_FOUND, words)
