"""A server that says its secret wherever it can: `python -S telltale.py ERA`, the secret in the variable PW.

Over HTTP the tests serve the same words (`Telltale.said`). It needs nothing but the standard library.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

MODERN = "2026-07-28"
QUESTION = "question"
FORM = {"type": "object", "properties": {}}


class Telltale:
    """What it says to each message. `pw`: gives the secret, in the shape of this moment."""

    def __init__(self, pw: Callable[[], str], *, modern: bool) -> None:
        self._pw, self._modern = pw, modern

    def said(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """All messages that one is answered with, the answer last; or nothing, if it does not have to be answered."""
        if "id" not in message:
            return []
        found = self._found(message["method"], message.get("params") or {})
        *before, last = found if isinstance(found, list) else [found]
        return [*before, {"jsonrpc": "2.0", "id": message["id"], **last}]

    def _found(self, method: str, params: dict[str, Any]) -> Any:
        words = f"pw {self._pw()}!"
        if method == "tools/call":
            return self._called(params["name"], params, words)
        if method == ("initialize" if self._modern else "server/discover"):
            return {"error": {"code": -32601, "message": "Method not found"}}
        known: dict[str, dict[str, Any]] = {
            "initialize": {"protocolVersion": "2025-11-25", "serverInfo": {"name": words, "version": "1"}},
            "server/discover": {
                "supportedVersions": [MODERN],
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": words, "version": "1"}},
            },
            "tools/list": {"tools": [{"name": "result", "description": words, "inputSchema": FORM}]},
            "prompts/list": {"prompts": [{"name": "p", "description": words}]},
            "resources/list": {"resources": [{"uri": "mem://one", "name": words}]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "mem://{x}", "name": words}]},
            "completion/complete": {"completion": {"values": [words]}},
            "resources/read": {"contents": [{"uri": "mem://one", "text": words}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]},
            "tasks/get": {"taskId": "t", "status": "completed", "result": {"content": [{"type": "text", "text": words}]}},
        }
        given = known.get(method, {})
        if method in ("initialize", "server/discover"):
            has: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}, "logging": {}}
            given |= {"instructions": words, "capabilities": {**has, "experimental": {self._pw(): {}}}}
        return {"result": {**given, **({"resultType": "complete"} if self._modern else {})}}

    def _called(self, name: str, params: dict[str, Any], words: str) -> Any:
        token = (params.get("_meta") or {}).get("progressToken")
        answer = {"result": {"content": [{"type": "text", "text": "done"}], "structuredContent": {}}}
        if name == "result":
            return {"result": {"content": [{"type": "text", "text": words}], "structuredContent": {self._pw(): [words]}}}
        if name == "echo":
            return {"result": {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}}
        if name == "error":
            return {"error": {"code": -32042, "message": words, "data": {self._pw(): [words]}}}
        if name == "progress":
            return [_notice("progress", progressToken=token, progress=1, message=words), answer]
        if name == "log":
            return [_notice("message", level="error", logger=words, data={self._pw(): words}), answer]
        if name == "ask" and self._modern:
            asked = {"method": "elicitation/create", "params": {"message": words, "requestedSchema": FORM}}
            return {"result": {"resultType": "input_required", "inputRequests": {"q": asked}, "requestState": words}}
        if name == "ask":
            params = {"message": words, "requestedSchema": FORM}
            return [{"jsonrpc": "2.0", "id": QUESTION, "method": "elicitation/create", "params": params}, answer]
        return answer


def _notice(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def main() -> None:
    """Until its input ends. What follows a question waits for the answer to it."""
    server = Telltale(lambda: os.environ["PW"], modern=sys.argv[1] == "modern")
    held: list[dict[str, Any]] = []
    for line in sys.stdin:
        message = json.loads(line)
        saying = server.said(message) if "method" in message else held
        held = saying[1:] if saying and saying[0].get("id") == QUESTION else []
        for one in saying[: len(saying) - len(held)]:
            sys.stdout.write(json.dumps(one) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
