"""A server of protocol 2025-11-25 over stdin and stdout that asks for samples, well or badly. Standard library only.

`ask` sends the request that its argument holds, so often as it says, and gives back the responses. `late` answers first, and
asks when no call is under way. Each line that comes in is a line in the file that is named.
"""

import json
import sys
from pathlib import Path
from typing import Any

TOOLS = [
    {
        "name": name,
        "description": name,
        "inputSchema": {"type": "object", "properties": {"params": {"type": "object"}, "times": {"type": "integer"}}},
    }
    for name in ("ask", "late")
]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    with Path(sys.argv[1]).open("a") as file:
        file.write(line)
    message: dict[str, Any] = json.loads(line)
    return message


def ask(params: dict[str, Any], number: int) -> dict[str, Any]:
    """The response to a request of ours; what else comes meanwhile is passed over."""
    send(id=f"s{number}", method="sampling/createMessage", params=params)
    while (message := receive()).get("id") != f"s{number}":
        pass
    return {name: message[name] for name in ("result", "error") if name in message}


def call(id: Any, params: dict[str, Any]) -> None:
    given = params.get("arguments", {})
    if params["name"] == "ask":
        said = [ask(given["params"], number) for number in range(given.get("times", 1))]
        send(id=id, result={"content": [{"type": "text", "text": json.dumps(said)}]})
    else:
        send(id=id, result={"content": [{"type": "text", "text": "done"}]})
        ask(given["params"], 99)


while True:
    message = receive()
    match message.get("method"):
        case "initialize":
            about = {"serverInfo": {"name": "sampling", "version": "1"}, "capabilities": {"tools": {}}}
            send(id=message["id"], result={"protocolVersion": "2025-11-25", **about})
        case "tools/list":
            send(id=message["id"], result={"tools": TOOLS})
        case "tools/call":
            call(message["id"], message["params"])
        case "ping":
            send(id=message["id"], result={})
        case _ if "id" in message and "method" in message:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})
