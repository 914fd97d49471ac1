"""What the conformance suite is run against: `toolgate serve` in front of the fixture, each a process of its own."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
TOOLGATE = Path(sys.executable).with_name("toolgate")
MODERN = "2026-07-28"
SECONDS = 120


@contextlib.contextmanager
def fixture_server(*options: str, log: Path) -> Iterator[str]:
    """The fixture; its URL."""
    command = [sys.executable, "-m", "tests.conformance.upstream", "--port", "0", *options]
    with _started(command, REPOSITORY, log) as said:
        yield said


@contextlib.contextmanager
def gateway(
    folder: Path, servers: Mapping[str, Any], *, wait_for: str | None = None, database: str | None = None, processes: int = 1
) -> Iterator[tuple[list[str], str]]:
    """`toolgate serve` in front of servers, with a home in `folder`: the MCP URL of each process, once all offer the tool
    `wait_for`, and a key whose holder may approve. Several processes share `database`."""
    settings = {"servers": dict(servers), **({} if database is None else {"database_url": database})}
    (folder / "toolgate.yaml").write_text(yaml.safe_dump(settings))
    made = subprocess.run(
        [str(TOOLGATE), "keys", "create", "suite", "--may-approve", "--json"],
        cwd=folder, env=_environment(folder), capture_output=True, text=True, check=True,
    )  # fmt: skip
    key: str = json.loads(made.stdout)["key"]
    with contextlib.ExitStack() as stack:
        urls: list[str] = []
        for number in range(processes):
            log = folder / f"toolgate-{number}.log"
            said = stack.enter_context(_started([str(TOOLGATE), "serve", "--port", "0", "--json"], folder, log))
            urls.append(json.loads(said)["mcp"])
            if wait_for is not None:
                try:
                    _wait_for(urls[-1], key, wait_for)
                except (RuntimeError, TimeoutError) as error:
                    error.add_note(log.read_text()[-4_000:])
                    raise
        yield urls, key


def fixture_settings(url: str) -> dict[str, Any]:
    """The fixture as an upstream server: its tools keep their names, and are free to use."""
    return {"url": url, "prefix": "", "trust_first_seen": True, "tier": "read_only"}


@contextlib.contextmanager
def _started(command: Sequence[str], folder: Path, log: Path) -> Iterator[str]:
    """A process; the first line that it writes. It is ended at the end."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline().strip()
        if not said:
            raise RuntimeError(f"{' '.join(command)} did not start:\n{log.read_text()[-4_000:]}")
        yield said
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _environment(folder: Path) -> dict[str, str]:
    """Without settings of ours; those in the folder are the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    return {**kept, "TOOLGATE_TRUST": str(folder.resolve())}


def _wait_for(url: str, key: str, tool: str) -> None:
    """Until a tool is offered: servers are asked for their tools in the background."""
    deadline = time.monotonic() + SECONDS
    names: list[str] = []
    while time.monotonic() < deadline:
        names = [one["name"] for one in ask(url, "tools/list", {}, {"Authorization": f"Bearer {key}"}).get("tools", [])]
        if tool in names:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{tool} is not offered at {url} after {SECONDS} s; these are: {', '.join(names) or 'none'}")


def ask(url: str, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The result of one request without a handshake."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    named = params.get("name", params.get("uri"))
    request = urllib.request.Request(
        url,
        json.dumps(body).encode(),
        {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
            **({"Mcp-Name": named} if named else {}),
            **(headers or {}),
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            text = response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeError(f"{method}: HTTP {error.code}: {error.read(2_000).decode(errors='replace')}") from None
    lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")] or [text]
    answer = json.loads(lines[-1])
    if "error" in answer:
        raise RuntimeError(f"{method}: {answer['error']}")
    result: dict[str, Any] = answer["result"]
    return result
