"""A server that speaks OPA's REST API, for tests: the real evaluator behind the answers' real shapes.

No registry has an OPA executable, but PyPI has OPA's evaluator as a Go library (opa-golib-python-bindings, see
requirements/oracle.txt). It does not survive a fork, so it runs in a process of its own: `python -m tests.opa_server` prints
its port and serves until its stdin closes, which it does whatever happens to the tests.
"""

import contextlib
import http.client
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 60
NO_INPUT = {"code": "api_usage_warning", "message": "'input' key missing from the request"}


# -- the process that serves


class Engine:
    """What the server decides by. The library can only add data, so a change makes a new engine."""

    def __init__(self) -> None:
        self.policies: dict[str, str] = {}
        self.data: dict[str, Any] = {}
        self._engine: Any = None
        self._lock = threading.Lock()

    def put_policy(self, name: str, text: str) -> str | None:
        """Take a policy; gives what is wrong with it, if anything."""
        with self._lock:
            kept, self._engine = dict(self.policies), None
            self.policies[name] = text
            try:
                self._build().eval_query("true")
            except Exception as error:  # noqa: BLE001 - the library has one class for all
                self.policies, self._engine = kept, None
                return str(error)
        return None

    def put_data(self, path: list[str], value: Any) -> None:
        with self._lock:
            self._engine = None
            inner = self.data
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            if path:
                inner[path[-1]] = value
            else:
                self.data = value

    def evaluate(self, path: list[str], asked: Any) -> dict[str, Any]:
        """OPA's answer: {"result": …}, or {} for what is undefined."""
        with self._lock:
            if self._engine is None:
                self._engine = self._build()
            try:
                return {"result": self._engine.eval_document(".".join(path), asked)}
            except _library().OpaUndefinedError:
                return {}

    def _build(self) -> Any:
        engine = _library().OpaEngine()
        for name, text in self.policies.items():
            engine.add_policy(name, text)
        engine.add_data(self.data)
        return engine


def _library() -> Any:
    """It has no types, and must not be loaded by the tests' own process."""
    return importlib.import_module("opa_bindings.engine")


class Handler(BaseHTTPRequestHandler):
    """OPA's routes, as far as anybody here calls them."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # head and body in one packet
    engine: Engine

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {})
        else:
            self._answer(404, {"code": "resource_not_found", "message": "not found"})

    def do_PUT(self) -> None:
        body = self._body()
        kind, path = self._route()
        if kind == "policies":
            wrong = self.engine.put_policy("/".join(path), body.decode())
            if wrong is None:
                self._answer(200, {})
            else:
                self._answer(400, {"code": "invalid_parameter", "message": f"error(s) occurred while compiling: {wrong}"})
        elif kind == "data":
            try:
                self.engine.put_data(path, json.loads(body))
            except ValueError as error:
                self._answer(400, {"code": "invalid_parameter", "message": str(error)})
            else:
                self._answer(204, None)
        else:
            self._answer(404, {"code": "resource_not_found", "message": "not found"})

    def do_POST(self) -> None:
        body = self._body()
        kind, path = self._route()
        if kind != "data":
            return self._answer(404, {"code": "resource_not_found", "message": "not found"})
        try:
            asked = json.loads(body) if body else {}
        except ValueError as error:
            message = f"body contains malformed input document: {error}"
            return self._answer(400, {"code": "invalid_parameter", "message": message})
        try:
            answer = self.engine.evaluate(path, asked.get("input"))
        except Exception as error:  # noqa: BLE001 - as OPA does with what fails in a policy
            return self._answer(500, {"code": "internal_error", "message": str(error)})
        self._answer(200, answer if "input" in asked else {**answer, "warning": NO_INPUT})

    def _route(self) -> tuple[str, list[str]]:
        parts = self.path.partition("?")[0].strip("/").split("/")
        return (parts[1], parts[2:]) if len(parts) > 1 and parts[0] == "v1" else ("", parts)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, value: Any) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Say nothing: stdout is for the port."""


def serve() -> None:
    Handler.engine = Engine()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


# -- what a test has of it


class Opa:
    """A running server, and a connection to it that is kept open."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)

    def load(self, policy: str, documents: Mapping[str, Any]) -> None:
        """Replace policy and data."""
        assert self.request("PUT", "/v1/data", dict(documents)) is None
        assert self.request("PUT", "/v1/policies/toolgate", policy) == {}

    def evaluate(self, rule: str, asked: Any) -> Any:
        """The answer for a rule of the package: its value; None if it is undefined."""
        return self.request("POST", f"/v1/data/soma/policy/{rule}", {"input": asked}).get("result")

    def request(self, method: str, path: str, body: Any) -> Any:
        self._connection.request(method, path, (body if isinstance(body, str) else json.dumps(body)).encode())
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 204):
            raise RuntimeError(f"status {answer.status}: {text.decode()}")
        return json.loads(text) if text else None

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def running() -> Iterator[Opa]:
    """A server of one's own."""
    command = [sys.executable, "-m", "tests.opa_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            with contextlib.closing(Opa(int(server.stdout.readline()))) as opa:
                yield opa
        finally:
            server.kill()


if __name__ == "__main__":
    serve()
