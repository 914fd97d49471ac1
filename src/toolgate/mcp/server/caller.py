"""The MCP client that made a call, as the call sees it: receives progress, and is asked for input.

A client with a handshake session is asked while its call runs, on the stream of its own request. One of protocol 2026-07-28
can't be: it is told what input is required, and repeats the call with the answers.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from toolgate.errors import Failed
from toolgate.mcp.client.correlation import LOG_LEVELS
from toolgate.mcp.server.trace_context import trace_context

if TYPE_CHECKING:
    from toolgate.mcp.server.task_call import Task

Request = ServerRequestContext[Any, Any]
"""A client's request, as the SDK hands it to a handler."""

LOG_LEVEL_KEY = "toolgate_log_level"
"""In the state of a handshake session: the level of logging/setLevel."""
ClientRequest = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
CLIENT_REQUESTS: dict[str, tuple[str, type[ClientRequest]]] = {
    "elicitation/create": ("elicitation", types.ElicitRequest),
    "sampling/createMessage": ("sampling", types.CreateMessageRequest),
    "roots/list": ("roots", types.ListRootsRequest),
}
"""The requests that a client can be sent, and the capability that each needs."""


TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
"""The extension with which a call may go on after its request was answered."""


class ClientAnswer(BaseModel):
    """A client's answer, as it came; the SDK has checked its shape."""

    model_config = ConfigDict(extra="allow")


def is_modern(ctx: Request) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _headers_of(ctx: Request) -> Iterable[tuple[bytes, bytes]]:
    """The headers of the HTTP request that a message came with; of one by another transport, none."""
    scope = getattr(ctx.request, "scope", None)
    return () if scope is None else scope["headers"]


def meta_of(ctx: Request) -> Mapping[str, Any]:
    meta = ctx.params.get("_meta") if ctx.params is not None else None
    return meta if isinstance(meta, Mapping) else {}


def capabilities_of(ctx: Request) -> dict[str, Any]:
    """The requests that a client can be sent, and extensions that we have too: the tool's server is told the same."""
    declared = ctx.session.client_capabilities
    said = {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)
    known = {name: said[name] for name, _ in CLIENT_REQUESTS.values() if name in said}
    return {**known, "extensions": {TASKS_EXTENSION: {}}} if has_tasks(ctx) else known


def has_tasks(ctx: Request) -> bool:
    """True if a client can be given a task in place of a result."""
    declared = ctx.session.client_capabilities
    return is_modern(ctx) and declared is not None and TASKS_EXTENSION in (declared.extensions or {})


class ClientCaller:
    """A `model.Caller`: the client that made one request."""

    def __init__(
        self,
        ctx: Request | None,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        detached: "Task | None" = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        """With `detached`, the call may go on after its request was answered. Without a request, it has been answered, by
        another process, and `capabilities` are those of its client."""
        self._detached = detached
        self._progressed: float | None = None
        self.come(ctx)
        self.capabilities: Mapping[str, Any] = capabilities_of(ctx) if ctx is not None else capabilities or {}
        self.input_responses = input_responses
        self.request_state = request_state
        self.can_come_again = ctx is not None and is_modern(ctx)
        self.log_level = self._wanted_level()
        self.deadline: float | None = None
        """By the loop's clock, when a question must be answered: before the timeout of the call that asks it, so that a slow
        person is not taken for a slow server."""
        self.reminder: str | None = None
        """The state that the tool wants back with the answers."""
        self.wanted: Mapping[str, Any] = {}
        """Its questions."""

    def _wanted_level(self) -> str | None:
        if self._ctx is None:
            return None
        if self.can_come_again:
            level = meta_of(self._ctx).get(types.LOG_LEVEL_META_KEY)
        else:
            level = self._ctx.session._connection.state.get(LOG_LEVEL_KEY, LOG_LEVELS[0])
        return level if level in LOG_LEVELS else None

    @property
    def can_approve(self) -> bool:
        """True if it can show a form to its user."""
        asked = self.capabilities.get("elicitation")
        return isinstance(asked, dict) and (not asked or "form" in asked) and (self.can_come_again or self._can_be_asked)

    def knows(self, questions: Iterable[Any]) -> bool:
        """True if it has the capabilities for all these questions."""
        methods = [asked.get("method") if isinstance(asked, Mapping) else None for asked in questions]
        return all(method in CLIENT_REQUESTS and CLIENT_REQUESTS[method][0] in self.capabilities for method in methods)

    @property
    def can_wait(self) -> bool:
        """True if its call may go on as a task."""
        return self._detached is not None and self._detached.is_task

    @property
    def _can_be_asked(self) -> bool:
        if self._detached is not None or self._ctx is None:
            return self._detached is not None
        return not self.is_gone and self._ctx.session.can_send_request

    def come(self, ctx: Request | None) -> None:
        """Sets the request on whose stream the client is sent messages."""
        self._ctx = ctx
        self._token = None if ctx is None else meta_of(ctx).get("progressToken")
        self.trace_context = None if ctx is None else trace_context(_headers_of(ctx), meta_of(ctx))
        self.is_gone = ctx is None
        """True once the request is answered: after that nothing may be sent on its stream."""

    def goes_on(self) -> None:
        if self._detached is not None and self._detached.is_task:
            self._detached.begin()

    async def waits_for(self, approval: str, words: str | None, until: datetime | None) -> bool:
        """The call goes on as a task when somebody has answered; False if it can't be one."""
        return (
            self._detached is not None and self._detached.is_task and await self._detached.wait_for(approval, words, until)
        )

    async def confirm(self) -> None:
        """A task that has waited goes on here only if no other process has taken it."""
        if self._detached is not None:
            await self._detached.confirm()

    def let_go(self) -> None:
        """The call goes on as a task: the client is asked when it polls."""
        self.is_gone, self.can_come_again = True, False

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        token = self._token
        if self.is_gone or not isinstance(token, str | int) or isinstance(token, bool):
            return
        if self._progressed is not None and progress <= self._progressed:
            return  # the protocol wants it to grow
        self._progressed = progress
        params = types.ProgressNotificationParams(progress_token=token, progress=progress, total=total, message=message)
        await self._send(types.ProgressNotification(params=params))

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if self.is_gone or self.log_level is None or level not in LOG_LEVELS:
            return
        if LOG_LEVELS.index(level) < LOG_LEVELS.index(self.log_level):
            return
        params = types.LoggingMessageNotificationParams.model_validate({"level": level, "data": data, "logger": logger})
        await self._send(types.LoggingMessageNotification(params=params))

    async def _send(self, notification: types.ServerNotification) -> None:
        assert self._ctx is not None  # who has no request is gone
        with contextlib.suppress(Exception):  # the client went away: the call will be told so by other means
            await self._ctx.session.send_notification(notification, related_request_id=self._ctx.request_id)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        known = CLIENT_REQUESTS.get(method)
        if known is None or known[0] not in self.capabilities or not self._can_be_asked:
            raise Failed("MCP_ERROR", f"The calling client does not support {method:.40}.")
        try:
            async with asyncio.timeout_at(self.deadline):
                return await self._put(method, params, known[1])
        except TimeoutError:
            raise Failed("MCP_ERROR", "The calling client did not answer in time.") from None

    async def _put(self, method: str, params: Mapping[str, Any], request: type[ClientRequest]) -> Mapping[str, Any]:
        if self._detached is not None:
            return await self._detached.put(method, params)
        assert self._ctx is not None  # who has none can be asked only through a task
        try:
            asked = request.model_validate({"method": method, "params": dict(params)}, by_name=False)
            related = ServerMessageMetadata(related_request_id=self._ctx.request_id)
            answer = await self._ctx.session.send_request(asked, ClientAnswer, metadata=related)
        except ValidationError:
            raise Failed("MCP_ERROR", f"The {method} sent to the calling client, or its answer, is invalid.") from None
        except MCPError as error:
            raise Failed("MCP_ERROR", f"The calling client refused: {error.error.message:.500}") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Failed("MCP_ERROR", "The calling client disconnected.") from None
        return answer.model_dump(by_alias=True, mode="json")

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        self.reminder, self.wanted = state, requests
