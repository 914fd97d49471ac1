"""FastMCP: its in-memory client and server."""

import asyncio

from fastmcp import Client, FastMCP
from measure import add, serve, timed


async def main() -> None:
    server: FastMCP[None] = FastMCP("bench")
    server.tool(add)
    async with Client(server) as client:
        await serve({"run": timed(lambda: client.call_tool("add", {"a": 1, "b": 2}), lambda result: result.data)})


if __name__ == "__main__":
    asyncio.run(main())
