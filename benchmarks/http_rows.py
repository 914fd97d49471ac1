"""Row 12: calls over HTTP by wrk, on /v1 and on /mcp, beside FastAPI with an empty handler and FastMCP; one process and two.

Servers are asked in turn, so what is noisy is noisy for all. On two cores, wrk and the kernel take a part of what two
processes would like to have, and one process can take more than one core, since its writer runs beside its event loop: how
much is told with the figures, and what a second process brings is measured once more with half a core for each.
"""

import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import cores
from contest import WorkerCrashed
from mcp_rows import META, MODERN, WORKERS
from processes import free_port, start, told
from rows import Bench

FASTAPI, FASTMCP = "FastAPI, empty handler", "FastMCP"
INVOKE, MCP = "Toolgate, POST /v1/tools/echo/invoke", "Toolgate, /mcp tools/call"
TWO = ", two processes"
GOAL_TWO = 1.7
SHARE = 0.5
"""Of a core, for each process where one and two are compared."""
CONNECTIONS = 64
"""As many as the system spreads evenly over two processes."""
RATE = re.compile(r"([0-9]+) requests in .*Requests/sec:\s+([0-9.]+)", re.DOTALL)
FAULTS = re.compile(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)")


class Load(NamedTuple):
    """What came of wrk's requests."""

    rate: float
    server_us: float
    """CPU that a request took, of a server of ours."""
    wrk_us: float

    @property
    def cores(self) -> float:
        """The cores that server and wrk took together."""
        return self.rate * (self.server_us + self.wrk_us) / 1e6


@dataclass(frozen=True)
class Target:
    """An address, and what is sent there again and again."""

    url: str
    script: Path
    server: int = 0
    """The process of a server of ours."""

    def load(self, seconds: int) -> Load:
        """Sends requests, all of which succeed."""
        pids = cores.serving(self.server) if self.server else []
        before, wrk_before = cores.used(pids), _wrk_seconds()
        command = ["wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", f"{seconds}s", "-s", str(self.script), self.url]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if faults := FAULTS.search(said):
            raise WorkerCrashed(f"{self.url}: {faults[0]}")
        found = RATE.search(said)
        if found is None:
            raise WorkerCrashed(f"wrk said nothing of {self.url}: {said[-300:]}")
        served = int(found[1]) / 1e6
        return Load(float(found[2]), (cores.used(pids) - before) / served, (_wrk_seconds() - wrk_before) / served)


def _wrk_seconds() -> float:
    """CPU of all that was run here and has ended: of wrk, while it is measured."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def http(bench: Bench) -> None:
    if shutil.which("wrk") is None:
        bench.found(12, "calls over HTTP", "not measured: wrk is not installed (apt-get install wrk)")
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        targets = _targets(bench, Path(folder), ending)
        for target in targets.values():
            target.load(1)
        _judge(bench, _rates(bench, targets))
        ours = {name: target for name, target in targets.items() if target.server}
        is_limited = all(cores.limit(cores.serving(one.server), SHARE, ending) for one in _servers(ours))
        _judge_two(bench, _rates(bench, ours) if is_limited else None)


def _servers(targets: dict[str, Target]) -> list[Target]:
    """One target of each server."""
    return list({target.server: target for target in targets.values()}.values())


def _rates(bench: Bench, targets: dict[str, Target]) -> dict[str, Load]:
    seconds, rounds = (2, 1) if bench.rounds <= 3 else (5, 5)
    loads: dict[str, list[Load]] = {name: [] for name in targets}
    for number in range(rounds):
        for name, target in targets.items():
            bench.said(f"wrk, round {number + 1} of {rounds}: {name}")
            loads[name].append(target.load(seconds))
    return {name: Load(*map(median, zip(*found, strict=True))) for name, found in loads.items()}


def _judge(bench: Bench, loads: dict[str, Load]) -> None:
    for name, load in loads.items():
        bench.figures[f"wrk: {name}"] = {"requests/s": load.rate, "CPU µs": load.server_us, "wrk's": load.wrk_us}
        told = f", {load.server_us:.0f} µs of CPU each, wrk's {load.wrk_us:.0f}" if load.server_us else ""
        bench.found(12, name, f"{load.rate:,.0f} requests/s{told}")
    for ours, peer in ((INVOKE, FASTAPI), (MCP, FASTMCP)):
        bench.found(12, f"{ours} / {peer}", f"{loads[ours].rate / loads[peer].rate:.2f}")
    for name in (INVOKE, MCP):
        one, two, there = loads[name], loads[name + TWO], cores.count()
        words = f"{two.rate / one.rate:.2f}; one and wrk took {one.cores:.2f} of {there} cores"
        bench.found(12, f"{name}: two processes / one, on {there} cores with wrk", words)


def _judge_two(bench: Bench, rates: dict[str, Load] | None) -> None:
    if rates is None:
        bench.found(12, "two processes / one, half a core each", "not measured: needs root and control groups")
        return
    for name in (INVOKE, MCP):
        one, two = rates[name].rate, rates[name + TWO].rate
        more = two / one
        bench.figures[f"wrk, half a core each: {name}"] = {"requests/s": one, "two": two}
        bench.found(
            12, f"{name}: two processes / one, half a core each", f"{more:.2f}", f"at least {GOAL_TWO:g}", more >= GOAL_TWO
        )


def _targets(bench: Bench, folder: Path, ending: ExitStack) -> dict[str, Target]:
    made: dict[str, Target] = {}
    port = free_port()
    address = f"http://127.0.0.1:{port}/echo"
    start([str(bench.peers), str(WORKERS / "server_fastapi.py"), str(port)], address, folder, ending)
    made[FASTAPI] = Target(address, _script(folder / "fastapi.lua", {"text": "x"}, {}))
    port = free_port()
    address = f"http://127.0.0.1:{port}/mcp"
    start([str(bench.peers), str(WORKERS / "server_fastmcp.py"), str(port)], address, folder, ending)
    called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
    made[FASTMCP] = Target(
        address, _script(folder / "fastmcp.lua", {**called, "params": params}, {**MODERN, "Mcp-Name": "add"})
    )
    for suffix, workers in (("", "1"), (TWO, "2")):
        home = folder / f"toolgate{workers}"
        home.mkdir()
        program = str(Path(sys.executable).with_name("toolgate"))
        key = {"Authorization": f"Bearer {told([program, 'keys', 'create', 'bench'], home)}"}
        port = free_port()
        root = f"http://127.0.0.1:{port}"
        server = start([program, "serve", "--port", str(port), "--workers", workers], root, home, ending).pid
        body = {"arguments": {"text": "x"}}
        made[INVOKE + suffix] = Target(f"{root}/v1/tools/echo/invoke", _script(home / "invoke.lua", body, key), server)
        params = {"name": "echo", "arguments": {"text": "x"}, "_meta": META}
        script = _script(home / "mcp.lua", {**called, "params": params}, {**MODERN, "Mcp-Name": "echo", **key})
        made[MCP + suffix] = Target(f"{root}/mcp", script, server)
    return made


def _script(path: Path, body: dict[str, object], headers: dict[str, str]) -> Path:
    """A file that tells wrk what to send."""
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    lines = ['wrk.method = "POST"', f"wrk.body = {json.dumps(json.dumps(body))}"]
    lines += [f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in sent.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
