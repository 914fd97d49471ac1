"""Brokers for the tests of the event stream: a real NATS server, and librdkafka's mock of a Kafka cluster in a process of
its own. Both listen on a free loopback port and are stopped afterwards, also if this process is killed."""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.servers import PORT_ATTEMPTS, START_SECONDS, Account, _free_port, _stop, _watched

MOCK = """
import sys
from confluent_kafka import Producer
cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


class NatsServer:
    """A NATS server with JetStream on disk, which can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = 0
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it with what it has on disk: on the port that it had, or on a free one."""
        for _ in range(PORT_ATTEMPTS):
            port = self.port or _free_port()
            options = ["--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", str(self.home / "data")]
            self._server = _watched([_nats_program(), *options], self.home, Account(os.geteuid(), os.getegid()))
            if self._answers(port):
                self.port = port
                return
            self.stop()
        raise RuntimeError(f"NATS did not start:\n{(self.home / 'log').read_text()}")

    def stop(self) -> None:
        if self._server is not None:
            _stop(self._server)
            self._server = None

    def _answers(self, port: int) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._server is None or self._server.poll() is not None:
                return False
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                return connection.makefile().readline().startswith("INFO")
            time.sleep(0.02)
        raise TimeoutError(f"NATS was not ready within {START_SECONDS} s")


class KafkaMock:
    """A Kafka cluster of one broker that keeps everything in memory."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = f"kafka://{self._process.stdout.readline().strip()}"

    def stop(self) -> None:
        self._process.communicate("", timeout=10)


@contextlib.contextmanager
def nats_server() -> Iterator[NatsServer]:
    with tempfile.TemporaryDirectory(prefix="toolgate-nats-", ignore_cleanup_errors=True) as home:
        server = NatsServer(Path(home))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def kafka_mock() -> Iterator[KafkaMock]:
    cluster = KafkaMock()
    try:
        yield cluster
    finally:
        cluster.stop()


def _nats_program() -> str:
    bundled = Path(sys.executable).parent / "nats-server"
    if importlib.util.find_spec("nats") is not None and bundled.exists():
        return str(bundled)
    installed = shutil.which("nats-server")
    if installed is None:
        raise RuntimeError("No NATS server for the tests: install the development dependencies (make test does)")
    return installed
