"""Rows 4 and 5: a governed `tools/call` over HTTP beside the bare SDK's, and Toolgate as a gateway beside other gateways.

All servers run at once and are asked in turn by one light client (`workers/load.py`), so what is noisy is noisy for all.
Toolgate checks a key, decides, and records each call in SQLite; the SDK's server and mcp-proxy do none of it.
"""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import peers
from contest import Rounds, Spread, Worker, figure, ratio
from contextforge import ContextForge
from processes import Running, free_port, start, told
from rows import Bench

SDK, SDK_JSON, FASTMCP, OURS = "MCP SDK", "MCP SDK, JSON answers", "FastMCP", "Toolgate"
OUR_GATEWAY, FASTMCP_PROXY, MCP_PROXY = "Toolgate as gateway", "FastMCP proxy", "mcp-proxy (to stdio)"
CONTEXTFORGE, CONTEXTFORGE_SESSIONS = "ContextForge", "ContextForge, with sessions"
GATEWAYS = (OUR_GATEWAY, MCP_PROXY, FASTMCP_PROXY, CONTEXTFORGE, CONTEXTFORGE_SESSIONS)
CONNECTIONS = 8
SECONDS = 1.0
"""What a turn takes, at most twice that."""
WORKERS = Path(__file__).parent / "workers"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
}
TOOLS = '''from toolgate import tool


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
MODERN = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
LEGACY = {"MCP-Protocol-Version": "2025-11-25"}


class Field:
    """The servers that compete, and the client that asks them."""

    def __init__(self, bench: Bench, folder: Path, ending: ExitStack) -> None:
        self._bench = bench
        self._folder = folder
        self._ending = ending
        self._load: Worker = bench.toolgate("load.py")
        self.names: list[str] = []
        self.upstream = ""

    def start_all(self) -> None:
        python, gateways = self._bench.peers, peers.interpreter("gateways")
        sdk = [str(python), str(WORKERS / "server_sdk.py")]
        fastmcp = [str(python), str(WORKERS / "server_fastmcp.py")]
        self._start(SDK, lambda port: [*sdk, "http", str(port)])
        self.upstream = self._start(SDK_JSON, lambda port: [*sdk, "json", str(port)]).url
        self._start(FASTMCP, lambda port: [*fastmcp, str(port)])
        self._start_toolgate(OURS, "add", None)
        self._start_toolgate(OUR_GATEWAY, "mcp_up_add", self.upstream)
        self._start(FASTMCP_PROXY, lambda port: [*fastmcp, str(port), self.upstream])
        proxy = [str(gateways.with_name("mcp-proxy")), "--log-level", "CRITICAL", "--port"]
        self._start(MCP_PROXY, lambda port: [*proxy, str(port), "--", *sdk, "stdio"], sessions=True)
        for name, sessions in ((CONTEXTFORGE, False), (CONTEXTFORGE_SESSIONS, True)):
            self._bench.said(f"starting {name}")
            forge = ContextForge(gateways, self._folder / name.replace(" ", "-"), self._ending, sessions=sessions)
            tool = forge.register(self.upstream)
            self._open(name, forge.running, tool, {**LEGACY, "Authorization": f"Bearer {forge.token}"}, sessions=sessions)

    def ask(self, name: str, calls: int, connections: int) -> dict[str, float]:
        return self._load.ask("run", name=name, calls=calls, connections=connections)

    def _start(self, name: str, command: Callable[[int], list[str]], *, sessions: bool = False) -> Running:
        self._bench.said(f"starting {name}")
        port = free_port()
        running = start(command(port), f"http://127.0.0.1:{port}/mcp", self._folder, self._ending)
        self._open(name, running, "add", LEGACY if sessions else {**MODERN, "Mcp-Name": "add"}, sessions=sessions)
        return running

    def _start_toolgate(self, name: str, tool: str, upstream: str | None) -> None:
        """With a key and an audit log in SQLite, as anybody would run it."""
        self._bench.said(f"starting {name}")
        script, folder = str(Path(sys.executable).with_name("toolgate")), self._folder / name.replace(" ", "-")
        (folder / ".toolgate" / "tools").mkdir(parents=True)
        (folder / ".toolgate" / "tools" / "bench.py").write_text(TOOLS, encoding="utf-8")
        if upstream is not None:
            settings = f"servers: {{up: {{url: '{upstream}', trust_first_seen: true, tier: read_only}}}}\n"
            (folder / "toolgate.yaml").write_text(settings, encoding="utf-8")
            told([script, "servers", "refresh", "up"], folder)
        key = told([script, "keys", "create", "bench"], folder)
        port = free_port()
        command = [script, "serve", "--port", str(port)]
        running = start(command, f"http://127.0.0.1:{port}/mcp", folder, self._ending)
        headers = {**MODERN, "Mcp-Name": tool, "Authorization": f"Bearer {key}"}
        self._open(name, running, tool, headers)

    def _open(self, name: str, running: Running, tool: str, headers: dict[str, str], *, sessions: bool = False) -> None:
        params: dict[str, Any] = {"name": tool, "arguments": {"a": 1, "b": 2}}
        if headers["MCP-Protocol-Version"] != LEGACY["MCP-Protocol-Version"]:
            params["_meta"] = META
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        self._load.ask("open", name=name, url=running.url, headers=headers, body=body, pid=running.pid, sessions=sessions)
        self.names.append(name)


def over_http(bench: Bench) -> None:
    """Both rows."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        field = Field(bench, Path(folder), ending)
        field.start_all()
        alone, busy = _take_turns(field, bench)
        for name in field.names:
            bench.figures[f"over HTTP: {name}"] = {
                **{f"{key} µs": vars(figure(alone, name, key)) for key in ("p50", "p95")},
                "CPU µs": vars(figure(busy, name, "cpu")),
                "calls/s": vars(figure(busy, name, "per_second")),
            }
        _judge_server(bench, alone, busy)
        _judge_gateway(bench, alone, busy)


def _take_turns(field: Field, bench: Bench) -> tuple[Rounds, Rounds]:
    """One connection at a time, and several at once; a first round, in which all become warm, is not counted."""
    alone: Rounds = {name: [] for name in field.names}
    busy: Rounds = {name: [] for name in field.names}
    seconds = SECONDS * bench.turn / 0.2
    calls = {name: _fitting(field, name, seconds) for name in field.names}
    for number in range(bench.rounds):
        for name in field.names:
            bench.said(f"round {number + 1} of {bench.rounds}: {name}")
            alone[name].append(field.ask(name, calls[name], 1))
            busy[name].append(field.ask(name, calls[name], CONNECTIONS))
    return alone, busy


def _fitting(field: Field, name: str, seconds: float) -> int:
    mean = field.ask(name, 24, CONNECTIONS)["mean"]
    mean = min(mean, field.ask(name, 24, 1)["mean"])
    return min(20_000, max(24, int(seconds * 1e6 / mean) // CONNECTIONS * CONNECTIONS))


def _judge_server(bench: Bench, alone: Rounds, busy: Rounds) -> None:
    cpu, rate = figure(busy, OURS, "cpu").median, figure(busy, OURS, "per_second").median
    bench.found(4, "governed tools/call over HTTP: server CPU", f"{cpu:.0f} µs, {rate:,.0f} calls/s, {_p50(alone, OURS)}")
    for peer, least in ((SDK, 3), (SDK_JSON, None), (FASTMCP, None)):
        less = ratio(busy, peer, OURS, "cpu")
        met = None if least is None else less.median >= least
        goal = "" if least is None else f"at least {least}"
        bench.found(4, f"{peer} / Toolgate, server CPU a call", _times(less), goal, met)
        more = ratio(busy, OURS, peer, "per_second")
        met = None if least is None else more.median >= least
        bench.found(4, f"Toolgate / {peer}, calls/s on {CONNECTIONS} connections", _times(more), goal, met)


def _judge_gateway(bench: Bench, alone: Rounds, busy: Rounds) -> None:
    for name in GATEWAYS:
        added = Spread.of(
            (one["p50"] - direct["p50"]) / 1e3 for one, direct in zip(alone[name], alone[SDK_JSON], strict=True)
        )
        rate, cpu = figure(busy, name, "per_second").median, figure(busy, name, "cpu").median
        measured = f"{_times(added)} ms; {rate:,.0f} calls/s, {cpu:,.0f} µs CPU"
        ours = name == OUR_GATEWAY
        bench.found(5, f"{name}: added p50", measured, "at most 1 ms" if ours else "", added.median <= 1 if ours else None)
    for name in GATEWAYS[1:]:
        more = ratio(busy, OUR_GATEWAY, name, "per_second")
        least = 10 if name in (CONTEXTFORGE, CONTEXTFORGE_SESSIONS) else None
        goal, met = ("", None) if least is None else (f"at least {least}", more.median >= least)
        bench.found(5, f"{OUR_GATEWAY} / {name}, calls/s", _times(more), goal, met)


def _p50(rounds: Rounds, name: str) -> str:
    return f"p50 {figure(rounds, name, 'p50').median / 1e3:.2f} ms"


def _times(times: Spread) -> str:
    return f"{times.median:.2f} ({times.low:.2f} to {times.high:.2f})"
