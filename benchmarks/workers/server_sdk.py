"""The bare MCP SDK as a server of `add`: `server_sdk.py http PORT`, `json PORT` or `stdio`. It governs and records nothing.

Lowlevel, as quick as the SDK goes: the schema is at hand (otherwise each call lists all tools first), uvicorn has uvloop and
httptools. Arguments are checked, as every server must.
"""

import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="add", description="Add two numbers.", input_schema=SCHEMA)])


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    if params.name != "add" or type(given.get("a")) is not int or type(given.get("b")) is not int:
        return types.CallToolResult(content=[types.TextContent(text="two integers are needed")], is_error=True)
    return types.CallToolResult(content=[types.TextContent(text=str(given["a"] + given["b"]))])


async def main(kind: str, port: int) -> None:
    server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda _name: SCHEMA)
    if kind == "stdio":
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
        return
    manager = StreamableHTTPSessionManager(server, json_response=kind == "json")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await manager.handle_request(scope, receive, send)

    async with manager.run():
        config = uvicorn.Config(app, port=port, lifespan="off", log_level="critical", access_log=False, http="httptools")
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(main, "stdio", 0)
    else:
        anyio.run(main, sys.argv[1], int(sys.argv[2]), backend_options={"use_uvloop": True})
