"""What tests of MCP servers share: engines that are closed, callers that note what they are told, and who is alive."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.patience import SOON as SOON
from tests.patience import until as until
from toolgate.errors import CallError
from toolgate.mcp.client.model import ConnectionStatus
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import ServerSettings

BAD = Path(__file__).parent / "mcp_bad_servers" / "server.py"


def bad(how: str = "well", **settings: Any) -> ServerSettings:
    """A server that starts or lives in some bad way; not in a jail unless said."""
    command = (sys.executable, "-I", "-S", str(BAD), how)
    return ServerSettings(**{"command": command, "isolation": "none", "start_seconds": 30, **settings})


@contextmanager
def web(how: str = "well") -> Iterator[str]:
    """The address of a server of the old protocol, which asks back."""
    command = [sys.executable, "-I", "-S", str(BAD.with_name("web.py")), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@asynccontextmanager
async def engine(home: Path | None = None, **servers: ServerSettings) -> AsyncIterator[UpstreamServers]:
    """Servers that are gone afterwards."""
    sandbox = Sandbox()
    made = UpstreamServers(secrets={"KEY": "sesame"}.get, sandbox=sandbox, home=home)
    for name, settings in servers.items():
        made.set(name, settings)
    try:
        yield made
    finally:
        assert await made.close() == []
        await sandbox.close()


async def call(servers: UpstreamServers, server: str, tool: str, caller: Any = None, **arguments: Any) -> str:
    """The text that a tool answers with."""
    result = await servers[server].request("tools/call", {"name": tool, "arguments": arguments}, caller=caller)
    return str(result["content"][0]["text"])


async def has_come(servers: UpstreamServers, server: str, tool: str) -> None:
    """Wait until a call of a tool has come to a bad server, which is after it counts as under way."""
    async with asyncio.timeout(SOON):
        while tool not in json.loads(await call(servers, server, "called")):
            await asyncio.sleep(0.01)


def standing(servers: UpstreamServers, name: str) -> ConnectionStatus:
    """How one of them stands."""
    return next(one for one in servers.statuses() if one.name == name)


class Noting:
    """A caller that notes what it is told, and answers what it is asked."""

    def __init__(self, answer: Mapping[str, Any] | None = None, *, capabilities: Mapping[str, Any] | None = None) -> None:
        self.capabilities: Mapping[str, Any] = {"elicitation": {}, "sampling": {}} if capabilities is None else capabilities
        self.input_responses: Mapping[str, Any] | None = None
        self.request_state: str | None = None
        self.log_level: str | None = "info"
        self.can_come_again = False
        self.steps: list[tuple[float, float | None, str | None]] = []
        self.logs: list[tuple[str, Any, str | None]] = []
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self._answer = answer

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Noted."""
        self.steps.append((progress, total, message))

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Noted."""
        self.logs.append((level, data, logger))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Noted, and answered; or left open."""
        self.asked.append((method, params))
        if self._answer is None:
            await asyncio.sleep(SOON)
            raise CallError("USER_CANCELLED")
        return self._answer

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        """Of no use here."""

    def goes_on(self) -> None:
        """Of no use here."""


def alive(pid: int) -> bool:
    """Whether there is such a process, other than a dead one that nobody buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
