"""Tools that call tools: the same pipeline, the same rights, linked in the log."""

import json
from typing import Any

import pytest

from toolgate import InvokeContext, tool
from toolgate.store import audit_log
from toolgate.testing import memory_app


@pytest.mark.requirement("PIPE-1")
async def test_a_tool_calls_another_through_the_same_pipeline_and_the_log_links_them() -> None:
    @tool(tier="read_only")
    async def outer(ctx: InvokeContext, what: str) -> Any:
        """Calls another tool."""
        inner = await ctx.call_tool(what, text="hello")
        return {"status": inner.status, "code": inner.error.code if inner.error else None, "output": inner.output}

    @tool(tier="execute")
    async def dangerous(text: str) -> str:
        """Runs code."""
        return text

    async with memory_app() as app:
        app.register(outer)
        app.register(dangerous)
        assert (await app.invoke("outer", {"what": "echo"})).output["output"] == {"text": "hello"}
        assert (await app.invoke("outer", {"what": "dangerous"})).status == "pending"
        await app.flush()
        rows = [row for row in await app.parts.store.read(audit_log.latest(100)) if row[2] == "end"]
        first, second = rows[0], rows[1]
        assert (first[5], second[5]) == ("echo", "outer")
        assert json.loads(first[7])["parent"] == second[3]


@pytest.mark.requirement("PIPE-1")
async def test_tools_that_call_each_other_without_end_are_stopped() -> None:
    @tool(tier="read_only")
    async def again(ctx: InvokeContext) -> Any:
        """Calls itself."""
        inner = await ctx.call_tool("again")
        return inner.error.code if inner.error else inner.output

    async with memory_app() as app:
        app.register(again)
        assert (await app.invoke("again")).output == "CAPACITY_EXCEEDED"
