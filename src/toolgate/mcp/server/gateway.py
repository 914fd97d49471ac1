"""The MCP server: the handlers of the protocol's methods. One object serves all clients, of all protocol versions.

It holds no rules: the door says who made a request (`who`), the App what they may see and do. Tools are called through
`tool_calls`; prompts and resources are those of upstream servers (`prompts_resources`). A tool that fails is a result; a
request that can't be served is a protocol error.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError

from toolgate.mcp.server.caller import LOG_LEVEL_KEY, TASKS_EXTENSION, Request, is_modern
from toolgate.mcp.server.change_notifications import ChangeNotifier
from toolgate.mcp.server.identity import CURRENT_TOOL, Credential, IdentifyCaller, RecallCredential
from toolgate.mcp.server.prompts_resources import PromptsAndResources, VisibleUpstreams
from toolgate.mcp.server.request_state import InputRequiredResult, state_boundary
from toolgate.mcp.server.results import JsonObject, ProtocolError, call_result, is_refused, list_page, refusal
from toolgate.mcp.server.session_records import KEPT_KEY, KeptSession
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
        self.changes = ChangeNotifier(app, who, upstreams)
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
            "subscriptions/listen", types.SubscriptionsListenRequestParams, protocol_handler(self.changes.listen)
        )
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self.changes.begin)
        server.extensions[TASKS_EXTENSION] = {}
        self._tasks.start()
        return server

    async def __aexit__(self, *_: object) -> None:
        await self.changes.close()
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
            ("resources/subscribe", types.SubscribeRequestParams, self.changes.subscribe),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, self.changes.unsubscribe),
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
        state = ctx.session._connection.state
        state[LOG_LEVEL_KEY] = params.level
        if isinstance(kept := state.get(KEPT_KEY), KeptSession):
            await kept.set_level(params.level)
        return {}


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
