"""A server of protocol 2026-07-28 over stdin and stdout whose tools do not end at once. Standard library only.

`pay` asks a question when it has done its work already; `poll` only wants to be called again, with what it said; `greet`
answers. Every call is a line in the file that is named.
"""

import json
import sys
from pathlib import Path
from typing import Any

VERSION = "2026-07-28"
QUESTION = {"message": "Sure?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "server/discover":
        about = {"io.modelcontextprotocol/serverInfo": {"name": "wanting", "version": "1"}}
        return {"supportedVersions": [VERSION], "capabilities": {"tools": {}}, "_meta": about}
    if method == "tools/list":
        tools = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("pay", "poll", "greet")]
        return {"tools": tools, "ttlMs": 100_000, "cacheScope": "public"}
    return call(params) if method == "tools/call" else {}


def call(params: dict[str, Any]) -> dict[str, Any]:
    name, state = params["name"], params.get("requestState")
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{name} {state}\n")
    if name == "pay":
        asked = {"sure": {"method": "elicitation/create", "params": QUESTION}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "paid"}
    if name == "poll" and state != "begun":
        return {"resultType": "input_required", "requestState": "begun"}
    return {"content": [{"type": "text", "text": "done"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"resultType": "complete", **answer(message["method"], message.get("params") or {})}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()
