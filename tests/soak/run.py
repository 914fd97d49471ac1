"""Mixed load on a server for minutes, with clients that go away: `python -m tests.soak.run [--seconds 300]`.

Some clients call tools over /v1 and /mcp, some queue jobs, ask for approvals and answer them, follow events, page through
lists; one in ten requests is cut off in the middle. At the end: no answer that its sender did not cause, nothing that grows
(memory, file descriptors) once the server is warm, and an audit log that verifies. All of it stays on loopback.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

import aiohttp

from tests.serving import ACCEPT, META, VERSION

CLIENTS = 12
PAUSE_SECONDS = 0.05
"""The mean time between an answer and the next request of a client: the load is bounded, so that it says something about
errors and growth, not about how busy the machine is."""
CUT_OFF = 0.1
"""The share of requests whose client goes away before the answer."""
CLEAR_SECONDS = 5.0
REJECTED = {"verdict": "reject"}
WARM_SHARE = 0.3
"""The share of the time after which nothing may grow."""
MAX_GROWTH = 1.10
MAX_GROWTH_BYTES = 24_000_000
MAX_GROWN_FILES = 20
GOOD = {"invoke": {200}, "write": {200}, "mcp": {200}, "list": {200}, "job": {202}, "ask": {202}, "answer": {200, 409}}
SETTINGS = "approvals: {questions_per_hour: 100000, tenant_questions_per_hour: 1000000}\n"
TOOLGATE = str(Path(sys.executable).with_name("toolgate"))
TOOLS = '''from toolgate import tool


@tool(tier="write")
async def note(text: str) -> str:
    """Note something."""
    return text


@tool(tier="external_api")
async def pay(amount: int) -> int:
    """Pay somebody."""
    return amount
'''


class Soak:
    """The clients of one server, and what they were answered."""

    def __init__(self, url: str, caller: str, approver: str, seed: int) -> None:
        self._url = url
        self._caller = {"Authorization": f"Bearer {caller}"}
        self._approver = {"Authorization": f"Bearer {approver}"}
        self._random = random.Random(seed)
        self.answers: Counter[str] = Counter()
        self.faults: list[str] = []

    async def client(self, until: float) -> None:
        async with aiohttp.ClientSession(self._url, timeout=aiohttp.ClientTimeout(60)) as http:
            while monotonic() < until:
                kind = self._random.choice([*GOOD, "events"])
                try:
                    await getattr(self, f"_{kind}")(http)
                except (TimeoutError, aiohttp.ClientError) as error:
                    self.faults.append(f"{kind}: {type(error).__name__}: {error}"[:200])
                await asyncio.sleep(self._random.random() * 2 * PAUSE_SECONDS)

    async def _send(
        self, http: aiohttp.ClientSession, kind: str, method: str, path: str, body: Any = None, **headers: str
    ) -> Any:
        sent = {**self._caller, **headers}
        if self._random.random() < CUT_OFF:
            task = asyncio.ensure_future(self._received(http, None, method, path, body, sent))
            await asyncio.sleep(self._random.random() * 0.02)
            task.cancel()
            with suppress(asyncio.CancelledError, aiohttp.ClientError):
                await task
            self.answers["cut off"] += 1
            return None
        return await self._received(http, kind, method, path, body, sent)

    async def _received(
        self, http: aiohttp.ClientSession, kind: str | None, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> Any:
        async with http.request(method, path, json=body, headers=headers) as answer:
            found = await answer.read()
            if kind is None:
                return None
            self.answers[f"{kind} {answer.status}"] += 1
            if answer.status not in GOOD[kind]:
                self.faults.append(f"{kind}: {answer.status} {found[:150]!r}")
                return None
            return json.loads(found)

    async def _invoke(self, http: aiohttp.ClientSession) -> None:
        await self._send(http, "invoke", "POST", "/v1/tools/echo/invoke", {"arguments": {"text": "x" * 100}})

    async def _write(self, http: aiohttp.ClientSession) -> None:
        key = f"k{self._random.randrange(10**9)}"
        await self._send(
            http, "write", "POST", "/v1/tools/note/invoke", {"arguments": {"text": "y"}}, **{"Idempotency-Key": key}
        )

    async def _mcp(self, http: aiohttp.ClientSession) -> None:
        params = {"name": "echo", "arguments": {"text": "z"}, "_meta": META}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        named = {"Accept": ACCEPT, "MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
        await self._send(http, "mcp", "POST", "/mcp", body, **named)

    async def _list(self, http: aiohttp.ClientSession) -> None:
        page = await self._send(http, "list", "GET", f"/v1/tools?limit={self._random.randrange(1, 40)}")
        if page is not None and page["next"] is not None:
            size = len(page["items"])
            await self._send(http, "list", "GET", f"/v1/tools?limit={size}&cursor={page['next']}")

    async def _job(self, http: aiohttp.ClientSession) -> None:
        await self._send(http, "job", "POST", "/v1/tools/note/invoke", {"arguments": {"text": "j"}, "mode": "async"})

    async def _ask(self, http: aiohttp.ClientSession) -> None:
        asked = await self._send(
            http, "ask", "POST", "/v1/tools/pay/invoke", {"arguments": {"amount": self._random.randrange(10**9)}}
        )
        if asked is None:
            return
        verdict = self._random.choice(["approve", "reject"])
        body = {"verdict": verdict, "run": True} if verdict == "approve" else {"verdict": verdict}
        path = f"/v1/approvals/{asked['pending']['id']}"
        await self._received(http, "answer", "POST", path, body, self._approver)

    async def _answer(self, http: aiohttp.ClientSession) -> None:
        await self._ask(http)

    async def clear(self, until: float) -> None:
        """Rejects what waits for too long: the questions of clients that went away before they knew of them. Without that
        the bound on questions that wait is reached, and the next ones are refused."""
        async with aiohttp.ClientSession(self._url, timeout=aiohttp.ClientTimeout(60)) as http:
            while monotonic() < until:
                await asyncio.sleep(CLEAR_SECONDS)
                async with http.get("/v1/approvals?state=waiting&limit=500", headers=self._approver) as answer:
                    found = (await answer.json())["items"]
                for one in found:
                    await self._received(http, "answer", "POST", f"/v1/approvals/{one['id']}", REJECTED, self._approver)

    async def _events(self, http: aiohttp.ClientSession) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._random.random() * 2), http.get("/v1/events", headers=self._caller) as stream:
                self.answers[f"events {stream.status}"] += 1
                if stream.status != 200:
                    self.faults.append(f"events: {stream.status}")
                async for _ in stream.content:
                    pass


class Vitals:
    """Memory and open files of the server's processes, now and then."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.memory: list[float] = []
        self.files: list[int] = []

    async def sample(self, until: float, every: float) -> None:
        while monotonic() < until:
            await asyncio.sleep(every)
            folders = [Path("/proc") / str(pid) for pid in self._processes()]
            sizes = [(folder / "statm").read_text().split()[1] for folder in folders]
            self.memory.append(sum(map(int, sizes)) * os.sysconf("SC_PAGE_SIZE"))
            self.files.append(sum(len(list((folder / "fd").iterdir())) for folder in folders))

    def _processes(self) -> list[int]:
        children = (Path("/proc") / str(self._pid) / "task" / str(self._pid) / "children").read_text().split()
        return [self._pid, *map(int, children)]

    def faults(self) -> list[str]:
        """What has grown since the server was warm: the mean of the last quarter beside that of the first after it."""
        begin = int(len(self.memory) * WARM_SHARE)
        quarter = max(1, (len(self.memory) - begin) // 4)
        first, last = fmean(self.memory[begin : begin + quarter]), fmean(self.memory[-quarter:])
        found = []
        if last > first * MAX_GROWTH and last - first > MAX_GROWTH_BYTES:
            found.append(f"memory grew from {first / 1e6:.0f} to {last / 1e6:.0f} MB")
        if self.files[-1] > max(self.files[begin : begin + quarter]) + MAX_GROWN_FILES:
            found.append(f"open files grew from {self.files[begin]} to {self.files[-1]}")
        print(f"memory {first / 1e6:.0f} → {last / 1e6:.0f} MB, open files {self.files[begin]} → {self.files[-1]}")
        return found


def said(command: list[str], folder: Path) -> str:
    done = subprocess.run([TOOLGATE, *command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"toolgate {' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout.strip().splitlines()[-1]


async def soak(folder: Path, seconds: float, workers: int, seed: int) -> list[str]:
    tools = folder / ".toolgate" / "tools"
    tools.mkdir(parents=True)
    (tools / "soak.py").write_text(TOOLS, encoding="utf-8")
    (folder / "toolgate.yaml").write_text(SETTINGS, encoding="utf-8")
    caller = said(["keys", "create", "agent"], folder)
    approver = said(["keys", "create", "person", "--role", "approver"], folder)
    command = [TOOLGATE, "serve", "--port", "0", "--workers", str(workers), "--json"]
    log = (folder / "server.log").open("w")
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        url = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))["url"]
        until = monotonic() + seconds
        load, vitals = Soak(url, caller, approver, seed), Vitals(process.pid)
        await asyncio.gather(
            *(load.client(until) for _ in range(CLIENTS)), load.clear(until), vitals.sample(until, seconds / 60)
        )
        faults = [*load.faults[:20], *vitals.faults()]
        print(f"{sum(load.answers.values()):,} requests: {dict(sorted(load.answers.items()))}")
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), 60)
        log.close()
    if code:
        faults.append(f"the server ended with {code}")
    if "Traceback" in (text := (folder / "server.log").read_text(encoding="utf-8")):
        faults.append(f"the server's log has a traceback: {text[text.index('Traceback') :][:2000]}")
    print(said(["audit", "verify"], folder))
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description="Mixed load on a server for minutes.")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TOOLGATE_TRUST": folder, "XDG_CONFIG_HOME": f"{folder}/config"}  # nothing of the person who runs it
        faults = asyncio.run(soak(Path(folder), given.seconds, given.workers, given.seed))
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    print(f"{1 - bool(faults)} passed, {int(bool(faults))} failed")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
