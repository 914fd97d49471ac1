"""LangChain: `StructuredTool.ainvoke`."""

import asyncio

from langchain_core.tools import StructuredTool
from measure import add, serve, timed

if __name__ == "__main__":
    tool = StructuredTool.from_function(coroutine=add)
    asyncio.run(serve({"run": timed(lambda: tool.ainvoke({"a": 1, "b": 2}))}))
