"""LangChain and LangGraph: tools for `create_agent`, a `ToolNode`, or whatever takes LangChain's tools.

A call that needs a person interrupts the graph: `interrupt`, and `Command(resume=…)` with a checkpointer. LangGraph executes
a tool that it resumes from the top, and with it those beside it in one node; each call has an idempotency key made of the
task and the model's id for the call, so that none has its effect twice.
"""

from typing import TYPE_CHECKING, Any, Literal

from toolgate.adapters.calls import HostCalls, WaitingCall, approval_of, text_of
from toolgate.adapters.requirement import framework
from toolgate.model import Actor, Outcome

with framework("LangChain", "langchain"):
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, ToolException
    from langgraph.types import interrupt

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.client import AsyncClient


async def tools(app: "App | AsyncClient", *, actor: Actor | None = None, session: str | None = None) -> list[BaseTool]:
    """Gives the tools that an actor may see as tools of LangChain, which are async only.

    The text of a `ToolMessage` is what the model is told, its `artifact` the outcome as JSON. In a graph with a thread id, a
    call that waits for a person interrupts the graph with `{"approval": …, "tool": …, "arguments": …}`; resumed with
    whatever value, it goes on if that was answered, and interrupts again if it was not.

    Args:
        app: An open App, or an `AsyncClient` of a server.
        actor: Who calls; without it, the person at this machine. With a client, its key says who.
        session: The session that the calls belong to.
    """
    calls = HostCalls(app, actor, session)
    return [
        GovernedTool(
            name=one.name, description=one.description, args_schema=one.schema, calls=calls, is_read_only=one.is_read_only
        )
        for one in await calls.tools()
    ]


class GovernedTool(BaseTool):  # type: ignore[misc,unused-ignore]
    """A tool of LangChain that is called through Toolgate."""

    calls: Any
    is_read_only: bool
    handle_tool_error: bool = True  # the model is told the text of a ToolException, and goes on
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Hands the arguments on as one value: by keyword, some of their names would be taken for LangChain's own."""
        return (tool_call_id, self._parse_input(tool_input, tool_call_id)), {}

    def _run(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError("Tools of Toolgate are async: call the agent with ainvoke or astream.")

    async def _arun(
        self, call_id: str | None, arguments: dict[str, Any], *, run_config: RunnableConfig
    ) -> tuple[str, dict[str, Any]]:
        place = (run_config or {}).get("configurable", {})
        thread, task = place.get("thread_id"), place.get("checkpoint_ns")
        if thread and task and call_id:
            outcome = await self._resumable(
                arguments, self.calls.id_of(self.name, arguments, "langgraph", thread, task, call_id)
            )
        else:
            outcome = await self.calls.call(
                self.name, arguments, self.calls.id_of(self.name, arguments, "langchain", call_id)
            )
        if not outcome.ok:
            raise ToolException(text_of(outcome))
        return text_of(outcome), outcome.to_dict()

    async def _resumable(self, arguments: dict[str, Any], id: str) -> Outcome:
        """Makes a call that can be paused. What was interrupted before is interrupted first, since LangGraph hands out the
        values that it is resumed with in the order of the interrupts."""
        waiting = await self.calls.waiting(self.name, id)
        while True:
            if waiting is not None:
                interrupt({"approval": waiting.approval, "tool": self.name, "arguments": arguments})
            outcome: Outcome = await self.calls.call(
                self.name, arguments, id, waiting, key=None if self.is_read_only else id
            )
            approval = approval_of(outcome)
            if approval is None:
                return outcome
            waiting = await self.calls.waiting(self.name, id) or WaitingCall(approval, None)
