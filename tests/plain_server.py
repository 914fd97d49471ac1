"""An MCP server as a program, by hand: it offers what a JSON file says, and tells its client when that file has changed.

    python plain_server.py FILE

The file holds {"tools": [definition, …], "capabilities": {…}, "answers": {tool: result}}, and may hold "prompts",
"resources" and "templates"; the tools in "silent" never answer. A tool without an answer says which tool it is and what it
was given. It is quick to start because it needs nothing but the standard library.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
PROTOCOL = "2025-11-25"
LISTS = {
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "templates"),
}
one_at_a_time = threading.Lock()


def read() -> dict[str, Any]:
    held: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return held


def send(message: dict[str, Any]) -> None:
    with one_at_a_time:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def watch() -> None:
    """Tell when the file has changed."""
    known = FILE.read_bytes()
    while True:
        time.sleep(0.02)
        try:
            found = FILE.read_bytes()
        except OSError:
            continue
        if found != known:
            known = found
            for what in ("tools", *(name for name in ("prompts", "resources") if name in read().get("capabilities", {}))):
                send({"method": f"notifications/{what}/list_changed"})


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    held = read()
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, **held.get("capabilities", {})}
        version = params.get("protocolVersion", PROTOCOL)
        info = {"name": "plain", "version": "1.0.0"}
        known = version in ("2024-11-05", "2025-03-26", "2025-06-18", PROTOCOL)
        return {"protocolVersion": version if known else PROTOCOL, "capabilities": capabilities, "serverInfo": info}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": held.get("tools", [])}
    if method in LISTS:
        field, name = LISTS[method]
        return None if held.get(name) == "broken" else {field: held.get(name, [])}
    if method == "tools/call":
        name = params["name"]
        words = {"tool": name, "arguments": params.get("arguments"), "pid": os.getpid()}
        result: dict[str, Any] = held.get("answers", {}).get(name) or {
            "content": [{"type": "text", "text": json.dumps(words)}]
        }
        return result
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"what is at {params['uri']}"}]}
    if method == "prompts/get":
        text = f"{params['name']} {json.dumps(params.get('arguments'))}"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    if method == "completion/complete":
        return {"completion": {"values": [params["argument"]["value"] + "!"], "hasMore": False}}
    return None


def main() -> None:
    threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        request = json.loads(line)
        params = request.get("params") or {}
        if "id" not in request or (request["method"] == "tools/call" and params["name"] in read().get("silent", ())):
            continue
        result = answer(request["method"], params)
        if result is None:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": request["id"], "result": result})


main()
