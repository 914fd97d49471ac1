"""Claude Agent SDK: an MCP server inside this process, and the hook that pauses a session.

A call that needs a person is deferred: the run ends, and its result has `deferred_tool_use`. Resume the session: Claude Code
comes back to the call, which is then made, and Toolgate says what a person answered.
"""

import re
from collections import deque
from typing import TYPE_CHECKING, Any

from toolgate.adapters.calls import HostCalls, ToolForModels, WaitingCall, approval_of, content_of, text_of
from toolgate.adapters.requirement import framework
from toolgate.model import Actor, Outcome

with framework("The Claude Agent SDK", "claude-agent-sdk"):
    from claude_agent_sdk import HookContext, HookMatcher, ResultMessage, SdkMcpTool, ToolAnnotations, create_sdk_mcp_server

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.client import AsyncClient

HOST = "claude-agent"
MAX_LEFT = 100
"""Calls that the hook let pass and that are not made yet, of one tool with the same arguments."""


async def options(
    app: "App | AsyncClient", *, actor: Actor | None = None, session: str | None = None, name: str = "toolgate"
) -> dict[str, Any]:
    """Gives the options with which a session has the tools that an actor may see: `ClaudeAgentOptions(**await options(…))`.

    These are `mcp_servers`, `allowed_tools` and `hooks`: Claude Code asks nobody about these tools, since Toolgate does; and
    where it does, the call is deferred. Its own tools (Bash, Write …) are not governed: leave them out with `tools=[]`.

    Args:
        app: An open App, or an `AsyncClient` of a server.
        actor: Who calls; without it, the person at this machine. With a client, its key says who.
        session: The session that the calls belong to.
        name: The name of the MCP server, by which the model sees its tools: `mcp__NAME__TOOL`.
    """
    calls = HostCalls(app, actor, session)
    deferral = _Deferral(calls, prefix_of(name))
    found = await calls.tools()
    server = create_sdk_mcp_server(name, tools=[_tool(deferral, one) for one in found])
    return {
        "mcp_servers": {name: server},
        "allowed_tools": [deferral.prefix + one.name for one in found],
        "hooks": {"PreToolUse": [HookMatcher(matcher=f"{re.escape(deferral.prefix)}.*", hooks=[deferral.before])]},
    }


async def approval(
    app: "App | AsyncClient",
    result: ResultMessage,
    *,
    actor: Actor | None = None,
    session: str | None = None,
    name: str = "toolgate",
) -> str | None:
    """Gives the approval that a session waits for, by the result of its run; None: it is not paused at one of these tools.
    The rest is what the options were made with."""
    deferred = result.deferred_tool_use
    prefix = prefix_of(name)
    if deferred is None or not deferred.name.startswith(prefix):
        return None
    calls, tool = HostCalls(app, actor, session), deferred.name.removeprefix(prefix)
    waiting = await calls.waiting(tool, calls.id_of(tool, deferred.input, HOST, result.session_id, deferred.id))
    return None if waiting is None else waiting.approval


def prefix_of(server: str) -> str:
    """Gives what Claude Code puts before the names of a server's tools."""
    return f"mcp__{server}__"


class _Deferral:
    """The hook that Claude Code calls before each call of these tools, and what it leaves to the tool: of the two, only the
    hook is told the id of the call."""

    def __init__(self, calls: HostCalls, prefix: str) -> None:
        self.prefix = prefix
        self._calls = calls
        self._left: dict[str, deque[WaitingCall | Outcome]] = {}
        self._deferred: dict[str, tuple[str | None, str | None]] = {}
        """By session, the prompt and the call that it is paused at."""

    async def before(self, event: Any, call_id: str | None, _: HookContext) -> Any:
        """Defers a call that waits for a person; lets every other one be made."""
        tool, arguments, session = event["tool_name"].removeprefix(self.prefix), event["tool_input"], event["session_id"]
        if self._deferred.get(session, ("", ""))[1] == call_id:
            del self._deferred[session]
        if not await self._calls.asks(tool, arguments):
            return {}
        id = self._calls.id_of(tool, arguments, HOST, session, call_id)
        waiting = await self._calls.waiting(tool, id)
        if waiting is not None and await self._calls.is_answered(waiting.approval):
            self._leave(tool, arguments, waiting)
            return {}
        outcome = await self._calls.call(tool, arguments, id, waiting)
        if approval_of(outcome) is None:  # a person had agreed to the very same call before
            self._leave(tool, arguments, outcome)
            return {}
        # A session is paused at one call. Of a second one beside it the model is told that it waits, or it would be lost.
        prompt = event.get("prompt_id")
        if self._deferred.get(session, ("", ""))[0] == prompt:
            return _decided("deny", text_of(outcome))
        self._deferred[session] = prompt, call_id
        return _decided("defer", text_of(outcome))

    def _leave(self, tool: str, arguments: Any, left: WaitingCall | Outcome) -> None:
        self._left.setdefault(self._calls.id_of(tool, arguments, HOST), deque(maxlen=MAX_LEFT)).append(left)

    async def make(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        """Makes a call that the hook let pass."""
        id = self._calls.id_of(tool, arguments, HOST)
        queue = self._left.get(id)
        left = queue.popleft() if queue else None
        if not queue:
            self._left.pop(id, None)
        return left if isinstance(left, Outcome) else await self._calls.call(tool, arguments, id, left)


def _decided(decision: str, reason: str) -> dict[str, Any]:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason,
        }
    }  # fmt: skip


def _tool(deferral: _Deferral, tool: ToolForModels) -> SdkMcpTool[Any]:
    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        outcome = await deferral.make(tool.name, arguments)
        return {"content": content_of(outcome), "is_error": not outcome.ok}

    return SdkMcpTool(
        tool.name, tool.description, tool.schema, call, annotations=ToolAnnotations(readOnlyHint=tool.is_read_only)
    )
