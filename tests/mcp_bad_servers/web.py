"""A server of the old protocol over HTTP: `python -I -S web.py [HOW]`; it prints its address.

Its one tool asks the caller a question on the call's own stream, or (`aside`) on the stream that belongs to no call.
HOW `cookies`: it sets a cookie. HOW `forgetful`: it forgets each session after a few requests.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from queue import Queue
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else "well"
SESSIONS: dict[str, int] = {}
ANSWERS: dict[str, Queue[Any]] = {}
ASIDE: Queue[dict[str, Any]] = Queue()
BOTH = threading.Barrier(2)
NUMBERS = count(1)
REMEMBERED = 4
"""Requests of a session before it is forgotten."""


class Door(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """A message."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        id, method, session = message.get("id"), message.get("method"), self.headers.get("mcp-session-id")
        if method == "initialize":
            session = f"s{next(NUMBERS)}"
            SESSIONS[session] = 0
            about = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            }
            self.answer({"jsonrpc": "2.0", "id": id, "result": about}, session)
        elif session is None or session not in SESSIONS:
            error = {"code": -32600, "message": "Session not found" if session else "Begin with initialize"}
            self.answer({"jsonrpc": "2.0", "id": id, "error": error}, status=404 if session else 400)
        elif method is None:
            ANSWERS[id].put(message.get("result", message.get("error")))
            self.accepted()
        elif id is None:
            self.accepted()
        else:
            SESSIONS[session] += 1
            if HOW == "forgetful" and SESSIONS[session] >= REMEMBERED:
                del SESSIONS[session]
            self.work(id, message["params"].get("arguments", {}))

    def work(self, id: Any, arguments: dict[str, Any]) -> None:
        """Ask, wait for the answer, and tell it."""
        number = f"q{next(NUMBERS)}"
        ANSWERS[number] = Queue()
        params = {"message": arguments.get("message", ""), "requestedSchema": {"type": "object", "properties": {}}}
        question = {"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        if arguments.get("both"):  # it asks nothing before two calls are under way
            BOTH.wait(20)
        if arguments.get("plain"):
            said = "plain"
        else:
            if arguments.get("aside"):
                ASIDE.put(question)
            else:
                self.event(question)
            said = json.dumps(ANSWERS[number].get(timeout=20))
        self.event({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": said}]}})
        self.close_connection = True

    def do_GET(self) -> None:
        """The stream that belongs to no call."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        while True:
            self.event(ASIDE.get())

    def do_DELETE(self) -> None:
        """The end of a session."""
        SESSIONS.pop(self.headers.get("mcp-session-id", ""), None)
        self.accepted()

    def event(self, message: dict[str, Any]) -> None:
        """On a stream."""
        self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        self.wfile.flush()

    def accepted(self) -> None:
        """Nothing to say."""
        self.send_response(202)
        self.send_header("content-length", "0")
        self.end_headers()

    def answer(self, message: dict[str, Any], session: str | None = None, status: int = 200) -> None:
        """All at once."""
        body = json.dumps(message).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if session is not None:
            self.send_header("mcp-session-id", session)
        if HOW == "cookies":
            self.send_header("set-cookie", "crumb=1; path=/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not wanted."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.daemon_threads = True
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}/mcp\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until whoever started it is gone
