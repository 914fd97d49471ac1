"""MCP Python SDK: its own client and server in one process, which dispatches without JSON in between."""

import asyncio

from mcp import Client
from mcp.server.mcpserver import MCPServer
from measure import add, serve, timed


async def main() -> None:
    server = MCPServer("bench")
    server.tool()(add)
    async with Client(server) as client:
        call = timed(lambda: client.call_tool("add", {"a": 1, "b": 2}), lambda result: result.structured_content["result"])
        await serve({"run": call})


if __name__ == "__main__":
    asyncio.run(main())
