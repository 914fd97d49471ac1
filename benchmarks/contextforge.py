"""ContextForge (IBM's MCP gateway) as a contender: one process, SQLite, its cache in memory, its rate limit off.

Without that last setting it takes 100 requests a minute. Its other shape (gunicorn, PostgreSQL, Redis) is not measured.
"""

import json
import secrets
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from contest import WorkerCrashed
from processes import free_port, start, told

WHO = "admin@example.com"


class ContextForge:
    """A running gateway, and a token for it."""

    def __init__(self, python: Path, folder: Path, ending: ExitStack, *, sessions: bool) -> None:
        folder.mkdir(parents=True)
        key = secrets.token_hex(32)
        environment = {
            "DATABASE_URL": f"sqlite:///{folder / 'mcp.db'}", "CACHE_TYPE": "memory", "JWT_SECRET_KEY": key,
            "AUTH_ENCRYPTION_SECRET": secrets.token_hex(32), "PLATFORM_ADMIN_EMAIL": WHO,
            "PLATFORM_ADMIN_PASSWORD": f"Aa1!{secrets.token_hex(16)}", "BASIC_AUTH_PASSWORD": f"Aa1!{secrets.token_hex(16)}",
            "RATE_LIMITING_ENABLED": "false", "SSRF_ALLOW_LOCALHOST": "true", "MCPGATEWAY_UI_ENABLED": "false",
            "LOG_LEVEL": "CRITICAL", "USE_STATEFUL_SESSIONS": "true" if sessions else "false",
        }  # fmt: skip
        port = free_port()
        self._base = f"http://127.0.0.1:{port}"
        command = [str(python.with_name("mcpgateway")), "--host", "127.0.0.1", "--port", str(port)]
        self.running = start(command, f"{self._base}/mcp", folder, ending, environment)
        made = [str(python), "-m", "mcpgateway.utils.create_jwt_token", "-u", WHO, "--admin", "-e", "600", "-s", key]
        self.token = told(made, folder, environment)

    def register(self, upstream: str) -> str:
        """Have it serve the upstream's tools; gives the name under which it serves `add`."""
        self._wait()
        self._ask("POST", "/gateways", {"name": "up", "url": upstream, "transport": "STREAMABLEHTTP"})
        [tool] = self._ask("GET", "/tools")
        name: str = tool["name"]
        return name

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while True:
            try:
                self._ask("GET", "/health")
            except OSError as error:
                if time.monotonic() > until:
                    raise WorkerCrashed("ContextForge does not become healthy") from error
                time.sleep(0.2)
            else:
                return

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, sent, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise WorkerCrashed(f"ContextForge: {path}: {error.code} {error.read()[:300]!r}") from error
