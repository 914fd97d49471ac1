"""A remote MCP server whose tools a test changes while it runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.loopback import Asked, Said, site

READ_REPORT: dict[str, Any] = {
    "name": "read_report",
    "description": "Reads a report of the quarter.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    "annotations": {"readOnlyHint": True},
}


class Desk:
    """A server of protocol 2025-11-25 that answers each call with the number of calls so far."""

    def __init__(self) -> None:
        self.tools: list[dict[str, Any]] = [READ_REPORT]
        self.calls: list[str] = []
        self.url = ""

    async def __call__(self, asked: Asked) -> Said:
        if asked.method != "POST":
            return Said(405)
        message = asked.json
        if "id" not in message:
            return Said(202)
        said = self._said(message)
        if said is None:
            error = {"code": -32601, "message": "Method not found"}
            return Said(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        return Said(200, {"jsonrpc": "2.0", "id": message["id"], "result": said})

    def _said(self, message: dict[str, Any]) -> dict[str, Any] | None:
        match message["method"]:
            case "initialize":
                info = {"name": "desk", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self.tools}
            case "tools/call":
                self.calls.append(message["params"]["name"])
                return {"content": [{"type": "text", "text": f"report {len(self.calls)}"}]}
        return None


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    """The server, at an address of its own."""
    made = Desk()
    async with site(made) as running:
        made.url = f"{running.url}/mcp"
        yield made
