"""A light client: the same request over and over, on a few connections, and the time and the server's CPU that it took.

It parses nothing but where an answer ends, so that what is measured is the server: the SDK's own client takes 1.2 ms a call,
more than any of these servers. `open` says whom to ask, `run` asks. CPU is that of the server's processes, all threads of
all that it started, as the kernel counts it.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any
from urllib.parse import urlsplit

from measure import serve

THREE = (b'"text":"3"', b'"text": "3"')
INITIALIZE = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}},
}  # fmt: skip


class Connection(asyncio.Protocol):
    """One connection, with one request on it at a time."""

    def __init__(self) -> None:
        self._data = b""
        self._whole: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._whole is not None and not self._whole.done() and is_whole(self._data):
            self._whole.set_result(self._data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._whole is not None and not self._whole.done():
            self._whole.set_exception(exc or ConnectionError("the server hung up"))

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        self._data = b""
        self._whole = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._whole

    def close(self) -> None:
        self._transport.close()


def is_whole(data: bytes) -> bool:
    head, gap, body = data.partition(b"\r\n\r\n")
    if not gap:
        return False
    lower = head.lower()
    start = lower.find(b"content-length:")
    if start >= 0:
        return len(body) >= int(lower[start + 15 :].split(b"\r\n", 1)[0])
    return b"transfer-encoding: chunked" not in lower or body.endswith(b"0\r\n\r\n")


class Target:
    """A server, and the request that it is sent."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.url = urlsplit(request["url"])
        self.headers: dict[str, str] = request["headers"]
        self.body: dict[str, Any] = request["body"]
        self.pid: int = request["pid"]
        self.sessions: bool = request["sessions"]

    async def connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, self.url.hostname, self.url.port)
        return connection

    def request(self, body: dict[str, Any], more: dict[str, str]) -> bytes:
        sent = json.dumps(body, separators=(",", ":")).encode()
        headers = {
            "Host": self.url.netloc, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            **self.headers, **more, "Content-Length": str(len(sent)),
        }  # fmt: skip
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.url.path} HTTP/1.1\r\n{lines}\r\n".encode() + sent

    async def ready(self, connection: Connection) -> bytes:
        """The request, after the handshake if the server wants one."""
        more: dict[str, str] = {}
        if self.sessions:
            head = (await connection.ask(self.request(INITIALIZE, {}))).partition(b"\r\n\r\n")[0].decode("latin-1")
            for line in head.split("\r\n")[1:]:
                name, _, value = line.partition(":")
                if name.lower() == "mcp-session-id":
                    more["Mcp-Session-Id"] = value.strip()
            await connection.ask(self.request({"jsonrpc": "2.0", "method": "notifications/initialized"}, more))
        return self.request(self.body, more)


def cpu_of(pid: int) -> float:
    """Microseconds that a process and all below it have run."""
    total = 0
    for one in tree(pid):
        for task in Path(f"/proc/{one}/task").glob("*/schedstat"):
            total += int(task.read_text().split()[0])
    return total / 1e3


def tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from tree(int(child))


async def measure(target: Target, calls: int, connections: int) -> dict[str, float]:
    opened = [await target.connect() for _ in range(connections)]
    requests = [await target.ready(one) for one in opened]
    took: list[int] = []

    async def ask_again(connection: Connection, request: bytes) -> None:
        for _ in range(calls // connections):
            start = perf_counter_ns()
            answer = await connection.ask(request)
            took.append(perf_counter_ns() - start)
            if not any(three in answer for three in THREE):
                raise AssertionError(f"1 + 2 gave {answer!r:.500}")

    cpu, begin = cpu_of(target.pid), perf_counter()
    await asyncio.gather(*(ask_again(one, request) for one, request in zip(opened, requests, strict=True)))
    seconds, used = perf_counter() - begin, cpu_of(target.pid) - cpu
    for one in opened:
        one.close()
    took.sort()
    count = len(took)
    return {
        "p50": took[count // 2] / 1e3, "p95": took[count * 95 // 100] / 1e3, "mean": seconds / count * 1e6,
        "per_second": count / seconds, "cpu": used / count,
    }  # fmt: skip


async def main() -> None:
    targets: dict[str, Target] = {}

    async def open_target(request: dict[str, Any]) -> dict[str, Any]:
        targets[request["name"]] = Target(request)
        return {}

    async def run(request: dict[str, Any]) -> dict[str, Any]:
        return await measure(targets[request["name"]], request["calls"], request["connections"])

    await serve({"open": open_target, "run": run})


if __name__ == "__main__":
    try:
        from uvloop import run as run_loop
    except ImportError:
        run_loop = asyncio.run  # type: ignore[assignment]
    run_loop(main())
