"""Servers as processes: started, waited for until they answer, ended with all that they started."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from contest import WorkerCrashed

SECONDS = 120.0


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    pid: int


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def start(
    command: list[str], url: str, folder: Path, ending: ExitStack, environment: Mapping[str, str] | None = None
) -> Running:
    """Start a server and wait until its port is open. It has a group of its own, so that its children end with it."""
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **(environment or {})}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ending.callback(_end, process)
    address = ("127.0.0.1", urlsplit(url).port)
    until = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(address, 1).close()
            return Running(url, process.pid)
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise WorkerCrashed(f"{' '.join(command[:3])} does not serve {url}") from error
            time.sleep(0.05)


def told(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """The last line of what a command says."""
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise WorkerCrashed(f"{' '.join(command[:3])} ended with {done.returncode}: {done.stderr[-500:]}")
    return (done.stdout.strip().splitlines() or [""])[-1]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(15)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
