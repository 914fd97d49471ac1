"""A real n8n on loopback, with the workflows of `examples/n8n` imported, and what they reach: mail, calendar, push."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.n8n.installation import environment, folder, node

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "n8n"
WORKFLOWS = ("send-email", "calendar-create", "send-notification", "long-report")
START_SECONDS = 180.0
COMMAND_SECONDS = 180.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


class N8n:
    """A server in a folder of its own."""

    def __init__(self, home: Path, secret: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.home = home
        self.log = home / "n8n.log"
        self._secret = secret
        self._environment = environment() | {
            "N8N_USER_FOLDER": str(home), "N8N_LISTEN_ADDRESS": "127.0.0.1", "N8N_PORT": str(self.port),
            "N8N_RUNNERS_BROKER_PORT": str(free_port()), "N8N_RUNNERS_BROKER_LISTEN_ADDRESS": "127.0.0.1",
            "N8N_DIAGNOSTICS_ENABLED": "false", "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
            "N8N_TEMPLATES_ENABLED": "false", "N8N_PERSONALIZATION_ENABLED": "false", "N8N_SECURE_COOKIE": "false",
        }  # fmt: skip

    def command(self, *words: str) -> list[str]:
        return [str(node()), str(folder() / "node_modules" / "n8n" / "bin" / "n8n"), *words]

    def prepare(self, settings: dict[str, str], smtp_port: int) -> None:
        """Imports credentials and workflows, as a person does, with their own values in place of the examples'."""
        credentials = json.loads((EXAMPLES / "credentials.example.json").read_text())
        values: dict[str, dict[str, Any]] = {
            "httpHeaderAuth": {"value": self._secret},
            "smtp": {"host": "127.0.0.1", "port": smtp_port, "user": "", "password": "", "disableStartTls": True},
            "httpBasicAuth": {"user": "ann", "password": "calendar-password"},
        }
        for one in credentials:
            one["data"] |= values[one["type"]]
        self._import("credentials", credentials)
        for name in WORKFLOWS:
            workflow = json.loads((EXAMPLES / f"{name}.json").read_text())
            for part in workflow["nodes"]:
                if part["name"] == "Your settings":
                    for one in part["parameters"]["assignments"]["assignments"]:
                        one["value"] = settings.get(one["name"], one["value"])
            self._import("workflow", workflow)
            self._run("publish:workflow", f"--id={workflow['id']}")

    def _import(self, what: str, content: Any) -> None:
        file = self.home / f"{what}.json"
        file.write_text(json.dumps(content))
        self._run(f"import:{what}", f"--input={file}")

    def _run(self, *words: str) -> None:
        done = subprocess.run(
            self.command(*words), env=self._environment, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2_000:]} {done.stderr[-2_000:]}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """The server, until the end: its processes too."""
        with self.log.open("w") as log:
            process = subprocess.Popen(
                self.command("start"), env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait(process)
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
            shutil.rmtree(self.home / ".n8n", ignore_errors=True)

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        """Until every webhook is there: with a wrong secret it answers 403, and 404 before."""
        until = time.monotonic() + START_SECONDS
        paths = [json.loads((EXAMPLES / f"{name}.json").read_text())["nodes"][0]["parameters"]["path"] for name in WORKFLOWS]
        while paths and time.monotonic() < until and process.poll() is None:
            paths = [path for path in paths if self._status(path) != 403]
            time.sleep(0.5)
        assert not paths, f"no webhook at {paths}: {self.log.read_text()[-3_000:]}"

    def _status(self, path: str) -> int | None:
        request = urllib.request.Request(f"{self.url}/webhook/{path}", b"{}", {"X-Webhook-Secret": "wrong"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None
