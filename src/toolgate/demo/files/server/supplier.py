"""An MCP server on bare pipes: the catalogue of a supplier. `python -I -S supplier.py`, in the folder of definitions.json.

It needs nothing but the standard library, so that it starts at once in any jail. What it says of its tools is read anew each
time it is asked: an update of the package changes it, as updates of real servers do.
"""

import json
import sys
from pathlib import Path
from typing import Any

ARTICLES = {"A-100": ("hex bolt M8", 0.12), "A-200": ("ball bearing 608", 1.35), "A-300": ("timing belt", 8.9)}
METHOD_NOT_FOUND = -32601


def call(name: str, arguments: dict[str, Any]) -> str:
    if name == "search_catalogue":
        found = [f"{code} {words}" for code, (words, _) in ARTICLES.items() if arguments["words"].lower() in words]
        return "\n".join(found) or "nothing found"
    if name == "quote":
        words, price = ARTICLES[arguments["article"]]
        return f"{arguments['pieces']} x {words}: ${price * arguments['pieces']:.2f}, valid for 14 days"
    return f"delivery {arguments['number']}: left the warehouse, arrives in two days"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None: there is no such method."""
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-11-25"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "supplier", "version": "1.4.0"},
        }
    if method == "tools/list":
        return {"tools": json.loads(Path("definitions.json").read_text("utf-8"))}
    if method == "tools/call":
        try:
            said, failed = call(params["name"], params.get("arguments", {})), False
        except KeyError as error:
            said, failed = f"there is no {error.args[0]!r} in the catalogue", True
        return {"content": [{"type": "text", "text": said}], "isError": failed}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = answer(request["method"], request.get("params") or {})
        said = {"result": result} if result is not None else {"error": {"code": METHOD_NOT_FOUND, "message": "unknown"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
