"""pydantic-ai: `ToolManager.handle_call`, what an agent's run does with a tool call, without hooks or retries set.

`thin` goes below it: the toolset's validator and `call_tool`, which is the least that still checks the arguments.
"""

import asyncio
from typing import Any

from measure import add, serve, timed
from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage


async def main() -> None:
    toolset: FunctionToolset[None] = FunctionToolset([add])
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager = await ToolManager(toolset).for_run_step(context)
    tool = (await toolset.get_tools(context))["add"]

    def thin() -> Any:
        arguments = tool.args_validator.validate_python({"a": 1, "b": 2})
        return toolset.call_tool("add", arguments, context, tool)

    def call() -> Any:
        return manager.handle_call(ToolCallPart("add", {"a": 1, "b": 2}, tool_call_id="call-1"))

    await serve({"run": timed(call), "thin": timed(thin)})


if __name__ == "__main__":
    asyncio.run(main())
