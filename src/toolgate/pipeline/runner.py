"""The port of whatever runs tools: functions in this process, the sandbox, MCP servers. Each lives with its feature."""

from collections.abc import Awaitable
from typing import Any, Protocol

from toolgate.model import Entry
from toolgate.pipeline.context import InvokeContext


class Runner(Protocol):
    """Runs the tools of one kind."""

    def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Awaitable[Any]:
        """What to await for the output, within `ctx.time_limit`. Raises, or lets the awaited raise, what the tool raises."""

    async def close(self) -> list[str]:
        """Let go; gives what went wrong in doing so."""
