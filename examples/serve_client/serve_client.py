"""Serve tools to a client by address, with a key that says who it is.

Starts `toolgate serve` on a free port, makes a key, and does what a desktop client or an agent does: connects over MCP,
lists the tools, calls one. Needs the extra `serve`, which `make run` installs (docs/howto/install.md).
"""

import asyncio
import json
import sys
from pathlib import Path

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

TOOLGATE = str(Path(sys.executable).with_name("toolgate"))


async def toolgate(*words: str) -> dict:
    """Runs a command with --json, as a script would."""
    process = await asyncio.create_subprocess_exec(TOOLGATE, *words, "--json", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return json.loads(out)


async def main() -> None:
    key = await toolgate("keys", "create", "desktop", "--tenant", "acme", "--persona", "clerk", "--user", "ann")
    server = await asyncio.create_subprocess_exec(TOOLGATE, "serve", "--port", "0", "--json", stdout=asyncio.subprocess.PIPE)
    try:
        listening = json.loads(await server.stdout.readline())
        print("serving MCP at", listening["mcp"])
        headers = {"Authorization": f"Bearer {key['key']}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(listening["mcp"], http_client=http)) as client,
        ):
            print("tools:", ", ".join(sorted(one.name for one in (await client.list_tools()).tools)))
            result = await client.call_tool("calculator", {"expression": "6*7"})
            print("calculator says", result.structured_content["result"])
    finally:
        server.terminate()
        await server.wait()
        await toolgate("keys", "revoke", "desktop")
    record = await toolgate("audit", "tail", "--tool", "calculator", "-n", "1")
    print("on record:", record["tenant"], record["body"]["user"], record["tool"], record["status"])


asyncio.run(main())
