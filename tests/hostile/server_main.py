"""A host of its own for servers' programs: it starts each as Toolgate does, and says what came of it.

    python -m tests.hostile.server_main PLAN.json

It is a process of its own so that it can be another user's, and so that it can be killed. Beside the programs it keeps
what they try to get at: a web server that some may reach, one that none may, a socket of the machine's, and names that lead
where they should not.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from toolgate.errors import CallError
from toolgate.mcp.client.launch import ServerProcess, launch_server
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jails.process_tree import descendants
from toolgate.settings import SandboxSettings, ServerSettings

SECONDS = 120.0
MOST = 200_000


class Web:
    """A web server on the host's loopback, and how often it was asked."""

    def __init__(self, word: str) -> None:
        self.word, self.asked = word, 0

    async def open(self) -> int:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.word)}\r\n\r\n{self.word}".encode())
        await writer.drain()
        writer.close()


async def resolve(host: str, port: int) -> list[str]:  # noqa: ARG001 - as all that look names up
    """Whoever owns a name decides where it leads: here always to this machine."""
    return ["::1", "127.0.0.1"] if host.startswith("both.") else ["127.0.0.1"]


async def hear(read: Callable[[int], Awaitable[bytes]]) -> str:
    heard = b""
    while piece := await read(65_536):
        heard = (heard + piece)[:MOST]
    return heard.decode(errors="replace")


async def run(name: str, case: dict[str, Any], sandbox: Sandbox, home: Path) -> dict[str, Any]:
    settings = ServerSettings.model_validate(case["settings"])
    try:
        program = await launch_server(name, settings, {"TOKEN": "the-token"}.get, sandbox, home, resolve=resolve)
    except CallError as error:
        return {"refused": str(error), "code": error.code}
    return await listen(program)


async def listen(program: ServerProcess) -> dict[str, Any]:
    late = False
    try:
        await program.box.close_stdin()
        said = asyncio.gather(hear(program.box.read), hear(program.box.read_errors), program.box.wait())
        try:
            async with asyncio.timeout(SECONDS):
                out, errors, code = await said
        except TimeoutError:
            late, out, errors, code = True, "", "it took too long", 0
        refusals = program.proxy.refusals if program.proxy else 0
    finally:
        await program.close()
    return {
        "out": out, "errors": errors, "code": code, "stopped": program.box.stopped, "jail": program.jail,
        "network": program.network, "refusals": refusals, "late": late,
    }  # fmt: skip


async def main(plan: dict[str, Any]) -> None:
    home = Path(plan["home"])
    os.environ["TOOLGATE_TEST_SECRET"] = plan["marker"]
    open_web, closed_web = Web("open"), Web("closed")
    ports = {"OPEN_PORT": str(await open_web.open()), "CLOSED_PORT": str(await closed_web.open())}
    nameless = socket.socket(socket.AF_UNIX)
    nameless.bind(f"\0toolgate-{os.getpid()}")
    nameless.listen()
    words = {**ports, "HOST_PID": str(os.getpid()), "NAMELESS": f"toolgate-{os.getpid()}"}
    sandbox = Sandbox(SandboxSettings(backend=plan["jail"]))
    room = asyncio.Semaphore(3)

    async def limited(name: str) -> tuple[str, dict[str, Any]]:
        async with room:
            text = json.dumps(plan["cases"][name])
            for word, value in words.items():
                text = text.replace(word, value)
            case = json.loads(text)
            for path, content in case["files"].items():
                Path(path).write_text(content)
            return name, await run(name, case, sandbox, home)

    if plan.get("hold"):
        program = await launch_server("held", ServerSettings.model_validate(plan["hold"]), lambda _: None, sandbox, home)
        assert await program.box.read(2) == b"up", await hear(program.box.read_errors)
        say({"processes": descendants(os.getpid())})
        await asyncio.sleep(300)
    results = dict(await asyncio.gather(*map(limited, plan["cases"])))
    await sandbox.close()
    left = descendants(os.getpid())
    say({"results": results, "left": left, "open": open_web.asked, "closed": closed_web.asked})


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
