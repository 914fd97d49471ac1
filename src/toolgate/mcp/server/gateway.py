"""The MCP server: the handlers of the protocol's methods. One object serves all clients, of all protocol versions.

It holds no rules: the door says who made a request (`who`), the App what they may see and do. Tools are called through
`tool_calls`; prompts and resources are those of upstream servers (`prompts_resources`). A tool that fails is a result; a
request that can't be served is a protocol error.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from toolgate.mcp.server.caller import LOG_LEVEL_KEY, TASKS_EXTENSION, Request, is_modern
from toolgate.mcp.server.change_notifications import ChangeNotifier
from toolgate.mcp.server.identity import (
    CREDENTIAL_KEY,
    CURRENT_TOOL,
    Credential,
    IdentifyCaller,
    RecallCredential,
    actor_id,
    credential_in_scope,
)
from toolgate.mcp.server.prompts_resources import PromptsAndResources, VisibleUpstreams
from toolgate.mcp.server.request_state import InputRequiredResult, state_boundary
from toolgate.mcp.server.results import JsonObject, ProtocolError, call_result, is_refused, list_page, refusal
from toolgate.mcp.server.task_call import Task
from toolgate.mcp.server.task_records import TaskRequest
from toolgate.mcp.server.task_recovery import TaskRecovery
from toolgate.mcp.server.tasks import TaskParams, Tasks
from toolgate.mcp.server.tool_calls import ClientCalls
from toolgate.model import Outcome
from toolgate.version import VERSION

if TYPE_CHECKING:
    from toolgate.app.app import App

SERVER_NAME = "toolgate"
INSTRUCTIONS = (
    "Every call is checked against a policy and recorded. Some need a person's approval first: a result with status pending "
    "says so, and the same call again goes on once it is given."
)
SESSIONLESS_VERSIONS = (b"2026-07-28",)
MAX_SESSIONS, MAX_CREDENTIAL_SESSIONS = 5_000, 200
"""Handshake sessions: in all, and of one credential."""
SESSION_IDLE_SECONDS = 900.0
T = TypeVar("T")
Handler = Callable[[Request, Any], Awaitable[JsonObject]]
Method = tuple[str, type[types.RequestParams], Handler]


class Gateway:
    def __init__(
        self,
        app: "App",
        who: IdentifyCaller,
        *,
        recall: RecallCredential,
        session: str | None = None,
        workspace: Path | None = None,
    ) -> None:
        """`recall` gives the credential of a task that another process began, if it is one of this door's."""
        self._app = app
        self._who = who
        self._calls = ClientCalls(app, session, workspace)
        recovery = TaskRecovery(app, self._calls, recall, self._resume)
        self._tasks = Tasks(who, app.mcp_tasks, recovery, self._calls.entry, app.approvals.withdraw)
        upstreams = VisibleUpstreams(app)
        self._prompts_resources = PromptsAndResources(app, who, upstreams, self._calls, self._tasks)
        self._changes = ChangeNotifier(app, who, upstreams)
        self.server = server = Server[Any](SERVER_NAME, version=VERSION, title="Toolgate", instructions=INSTRUCTIONS)
        # Handshake clients too are told that lists may change: over HTTP the SDK would not.
        options = partial(server.create_initialization_options, NotificationOptions(True, True, True))
        server.create_initialization_options = options  # type: ignore[method-assign]
        if not app.settings.tracing:
            server.middleware.clear()  # the SDK's spans: of use only to who traces, and they cost

    async def __aenter__(self) -> Server[Any]:
        server = self.server
        server.middleware.append(await state_boundary(self._app, self._who))
        server.get_tool_input_schema = self.input_schema
        for method, params, answer in self._methods():
            server.add_request_handler(method, params, complete_handler(answer))
        server.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, protocol_handler(self._changes.listen)
        )
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._changes.begin)
        server.extensions[TASKS_EXTENSION] = {}
        self._tasks.start()
        return server

    async def __aexit__(self, *_: object) -> None:
        await self._changes.close()
        await self._tasks.close()

    def _methods(self) -> list[Method]:
        return [
            ("tools/list", types.PaginatedRequestParams, self._list_tools),
            ("tools/call", types.CallToolRequestParams, self._call_tool),
            ("logging/setLevel", types.SetLevelRequestParams, self._set_level),
            ("prompts/list", types.PaginatedRequestParams, self._prompts_resources.list_prompts),
            ("prompts/get", types.GetPromptRequestParams, self._prompts_resources.get_prompt),
            ("resources/list", types.PaginatedRequestParams, self._prompts_resources.list_resources),
            ("resources/templates/list", types.PaginatedRequestParams, self._prompts_resources.list_templates),
            ("resources/read", types.ReadResourceRequestParams, self._prompts_resources.read_resource),
            ("resources/subscribe", types.SubscribeRequestParams, self._changes.subscribe),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, self._changes.unsubscribe),
            ("completion/complete", types.CompleteRequestParams, self._prompts_resources.complete),
            ("tasks/get", TaskParams, self._tasks.get),
            ("tasks/update", TaskParams, self._tasks.update),
            ("tasks/cancel", TaskParams, self._tasks.cancel),
        ]

    # -- tools

    async def _list_tools(self, ctx: Request, params: types.PaginatedRequestParams) -> JsonObject:
        return await list_page(self._app, self._who(ctx).actor, params.cursor)

    async def _call_tool(self, ctx: Request, params: types.CallToolRequestParams) -> JsonObject:
        who = self._who(ctx)

        async def call(task: Task | None) -> JsonObject:
            ended = await self._calls.call(ctx, who, params.name, params.arguments or {}, task)
            return self._result(ended, params.name, who, task)

        return await self._tasks.run(ctx, call, tool=params.name, may_be_task=True)

    async def _resume(self, task: Task, request: TaskRequest) -> JsonObject:
        """Goes on with the call of a task whose process is gone."""
        return self._result(await self._calls.resume(task, request), request.tool, task.who, task)

    def _result(self, ended: Outcome | InputRequiredResult, tool: str, who: Credential, task: Task | None) -> JsonObject:
        if isinstance(ended, InputRequiredResult):
            return ended.to_dict()
        if task is not None and task.begun.is_set() and is_refused(ended):
            raise refusal(ended)  # a task that failed; one whose tool failed is complete
        return call_result(ended, self._calls.entry(tool, who))

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool that the actor may see, for the SDK to compare a request's headers with its arguments."""
        entry = CURRENT_TOOL.get()
        return entry.tool.input_schema if entry is not None and entry.name == name else None

    async def _set_level(self, ctx: Request, params: types.SetLevelRequestParams) -> JsonObject:
        ctx.session._connection.state[LOG_LEVEL_KEY] = params.level
        return {}


class HttpSessionManager(StreamableHTTPSessionManager):
    """MCP over streamable HTTP, by the SDK: `async with open_http(app) as manager`, which serves requests that are
    authenticated already.

    Requests of protocol 2026-07-28 stand alone: any process can answer any of them. Older clients have a session in one
    process, which belongs to the credential that began it; each credential may have so many.
    """

    def __init__(self, app: "App", server: Server[Any]) -> None:
        super().__init__(
            server,
            max_request_body_size=app.settings.serve.body_bytes,
            max_sessions=MAX_SESSIONS,
            session_idle_timeout=SESSION_IDLE_SECONDS,
        )
        self._tools = app.tools

    async def serve(self, credential: Credential, scope: Scope, receive: Receive, send: Send) -> None:
        # blanks around a value are not part of it (RFC 9110), and the SDK compares values with what is in the body
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        headers = dict(scope["headers"])
        begins = b"mcp-session-id" not in headers and headers.get(b"mcp-protocol-version") not in SESSIONLESS_VERSIONS
        if begins and not self._has_room(credential.id):
            await PlainTextResponse("Too many open sessions", 429)(scope, receive, send)
            return
        owner = AccessToken(token="", client_id=credential.id, scopes=[], subject=actor_id(credential.actor))
        scope["user"] = AuthenticatedUser(owner)  # another credential does not find its session
        scope[CREDENTIAL_KEY] = credential
        called = headers.get(b"mcp-name") if headers.get(b"mcp-method") == b"tools/call" else None
        name = None if called is None else decode_header_value(called.decode("latin-1"))  # the SDK compares it with the body
        CURRENT_TOOL.set(None if name is None else await self._tools.visible(name, credential.actor))
        await self.handle_request(scope, receive, send)

    def _has_room(self, credential: str) -> bool:
        return sum(owner["client_id"] == credential for owner in self._session_owners.values()) < MAX_CREDENTIAL_SESSIONS

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Sessions are admitted one at a time here: of concurrent requests none has a session when `serve` looks."""
        if requestor is None or not self._has_room(str(requestor["client_id"])):
            return None
        return super()._admit_session(requestor)


@asynccontextmanager
async def open_http(app: "App") -> AsyncIterator[HttpSessionManager]:
    async def recall(id: str) -> Credential | None:
        app.issuers.recall(id)
        return await app.keys.recall(id)

    async with Gateway(app, credential_in_scope, recall=recall) as server:
        manager = HttpSessionManager(app, server)
        async with manager.run():
            yield manager


def complete_handler(answer: Handler) -> Handler:
    """A handler whose result is complete unless it says otherwise, and that raises protocol errors."""
    given = protocol_handler(answer)

    async def handle(ctx: Request, params: Any) -> JsonObject:
        answered = await given(ctx, params)
        return {"resultType": "complete", **answered} if is_modern(ctx) else answered

    return handle


def protocol_handler(answer: Callable[[Request, Any], Awaitable[T]]) -> Callable[[Request, Any], Awaitable[T]]:
    async def handle(ctx: Request, params: Any) -> T:
        try:
            return await answer(ctx, params)
        except ProtocolError as error:
            raise MCPError(error.code, error.message, error.data) from None

    return handle
