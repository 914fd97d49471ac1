"""openai-agents: `FunctionTool.on_invoke_tool`, the one public way to call a tool without a model.

`run` makes a `ToolContext` for every call, as the SDK's own runner does, because it holds that call's id and arguments.
`reused` makes one for all: no run of an agent does that, but it is the least that the method itself costs.
"""

import asyncio
from typing import Any

from agents import function_tool
from agents.tool_context import ToolContext
from measure import THREE_WORDS, add, add_later, count_words, serve, timed

ARGUMENTS = '{"a": 1, "b": 2}'
TEXT = f'{{"text": "{THREE_WORDS}"}}'


def context(arguments: str = ARGUMENTS) -> ToolContext[Any]:
    return ToolContext(context=None, tool_name="add", tool_call_id="call-1", tool_arguments=arguments)


if __name__ == "__main__":
    tool = function_tool(add)
    suspending = function_tool(add_later)
    texts = function_tool(count_words)
    shared = context()
    asyncio.run(
        serve(
            {
                "run": timed(lambda: tool.on_invoke_tool(context(), ARGUMENTS)),
                "reused": timed(lambda: tool.on_invoke_tool(shared, ARGUMENTS)),
                "suspends": timed(lambda: suspending.on_invoke_tool(context(), ARGUMENTS)),
                "text": timed(lambda: texts.on_invoke_tool(context(TEXT), TEXT)),
            }
        )
    )
