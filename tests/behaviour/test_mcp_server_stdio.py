"""`toolgate mcp`: one client on a pipe, in either protocol era, and nothing left when it goes."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.mcp_pipe import SCRIPT, SECONDS, piped
from tests.mcp_servers import SOON
from tests.serving import META

pytestmark = pytest.mark.requirement("MCP-4", "DOOR-1", "MCP-3")

TOOLS = '''
    import subprocess, sys, time, asyncio
    from toolgate import tool

    @tool(tier="read_only")
    async def chatty() -> str:
        """Print where it should not."""
        print("out of place")
        subprocess.run(["echo", "and another"])
        return sys.stdin.read() or "said"

    @tool(tier="read_only")
    async def slow(seconds: float) -> str:
        """Take a while."""
        await asyncio.sleep(seconds)
        return "at last"

    @tool(tier="read_only", requires_permission="tool:guarded")
    async def guarded() -> str:
        """For who has the scope."""
        return "let in"

    @tool(tier="execute")
    async def risky() -> str:
        """Ask first."""
        return "done"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = tmp_path / ".toolgate" / "tools"
    tools.mkdir(parents=True)
    (tools / "mine.py").write_text(dedent(TOOLS), "utf-8")
    return tmp_path


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_both_eras_are_spoken_and_stdout_is_the_protocol_s_alone(folder: Path) -> None:
    async with piped(folder) as pipe:
        await pipe.hello()
        names = [one["name"] for one in (await pipe.ask("tools/list"))["result"]["tools"]]
        assert "chatty" in names and names == sorted(names)
        assert (await pipe.ask("ping"))["result"] == {}
        told = await pipe.ask("tools/call", {"name": "chatty", "arguments": {}})
        assert told["result"]["content"][0]["text"] == "said"
        assert await pipe.end() == 0
    async with piped(folder) as pipe:
        found = await pipe.modern("server/discover")
        assert "2026-07-28" in found["result"]["supportedVersions"]
        told = await pipe.modern("tools/call", name="chatty", arguments={})
        assert told["result"]["content"][0]["text"] == "said"
        assert await pipe.end() == 0
    said = (folder / "stderr").read_text()
    assert "out of place" in said and "and another" in said and "Traceback" not in said


@pytest.mark.matrix("starts the program")
async def test_calls_that_run_when_the_client_closes_its_end_are_still_answered(folder: Path) -> None:
    async with piped(folder) as pipe:
        params = {"name": "slow", "arguments": {"seconds": 0.5}, "_meta": META}
        await pipe.write(json.dumps({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}).encode())
        assert await pipe.end() == 0
        answer = await pipe.read()
        assert answer["id"] == "x" and answer["result"]["content"][0]["text"] == "at last"


@pytest.mark.matrix("starts the program")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_the_client_gave_up_is_not_waited_for(folder: Path, era: str) -> None:
    (folder / "toolgate.yaml").write_text("shutdown_seconds: 100\n")
    async with piped(folder) as pipe:
        if era == "legacy":
            await pipe.hello()
        params: dict[str, Any] = {"name": "slow", "arguments": {"seconds": 50}}
        params |= {"_meta": META} if era == "modern" else {}
        await pipe.write(json.dumps({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}).encode())
        await pipe.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}')
        assert await pipe.end() == 0  # sooner than it would wait for a call that may still be answered


@pytest.mark.matrix("starts the program and its servers")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, None])
async def test_it_ends_when_it_is_told_to_and_leaves_no_server_alive(folder: Path, how: signal.Signals | None) -> None:
    mark = folder / "pid"
    program = f"import os, sys; open({str(mark)!r}, 'w').write(str(os.getpid())); sys.stdin.read()"
    settings = {"servers": {"idle": {"command": [sys.executable, "-c", program], "isolation": "none", "start_seconds": 60}}}
    (folder / "toolgate.yaml").write_text(json.dumps(settings))
    async with piped(folder) as pipe:
        await pipe.hello()
        async with asyncio.timeout(SOON):
            while not (mark.exists() and mark.read_text()):
                await asyncio.sleep(0.05)
        child = int(mark.read_text())
        if how is None:
            assert await pipe.end() == 0
        else:
            pipe.process.send_signal(how)
            async with asyncio.timeout(SOON):
                assert await pipe.process.wait() == 0
        async with asyncio.timeout(SOON):
            while _is_alive(child):
                await asyncio.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_the_actor_is_who_the_options_say_and_may_approve(folder: Path) -> None:
    able: dict[str, Any] = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with piped(folder, "--tenant", "acme", "--persona", "analyst", "--user", "ada") as pipe:
        asked = (await pipe.ask("tools/call", {"name": "risky", "arguments": {}, "_meta": able}))["result"]
        [(name, question)] = asked["inputRequests"].items()
        assert "acme/analyst/ada" in question["params"]["message"]
        answers = {"inputResponses": {name: {"action": "accept", "content": {"approve": True}}}}
        again = {"name": "risky", "arguments": {}, **answers, "requestState": asked["requestState"], "_meta": able}
        assert (await pipe.ask("tools/call", again))["result"]["content"][0]["text"] == "done"
        assert await pipe.end() == 0


@pytest.mark.matrix("starts the program")
@pytest.mark.parametrize("scopes", [(), ("--scope", "other", "--scope", "tool:guarded")])
async def test_the_actor_has_the_scopes_that_the_options_give(folder: Path, scopes: tuple[str, ...]) -> None:
    async with piped(folder, *scopes) as pipe:
        told = (await pipe.ask("tools/call", {"name": "guarded", "arguments": {}, "_meta": META}))["result"]
        assert told.get("isError", False) is not bool(scopes)
        assert told["content"][0]["text"].startswith("let in" if scopes else "PERMISSION_DENIED")
        assert await pipe.end() == 0


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_wrong_option_is_said_on_stderr_and_nothing_on_stdout(folder: Path) -> None:
    async with piped(folder, "--tenant", "") as pipe:
        assert await pipe.process.wait() == 2
        assert pipe.process.stdout is not None and await pipe.process.stdout.read() == b""
    assert "--tenant" in (folder / "stderr").read_text()


@pytest.mark.requirement("TIER-6")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_task_goes_on_when_the_server_was_killed_and_is_started_again(folder: Path) -> None:
    (folder / "toolgate.yaml").write_text("limits: {lease_seconds: 1}\n", "utf-8")
    has = {**META, "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    async with piped(folder) as pipe:
        begun = (await pipe.ask("tools/call", {"name": "risky", "arguments": {}, "_meta": has}))["result"]
        assert begun["resultType"] == "task", begun
        pipe.process.kill()
    async with piped(folder) as pipe:
        named = {"taskId": begun["taskId"], "_meta": has}
        assert (await pipe.ask("tasks/get", named))["result"]["status"] == "working"
        [waiting] = json.loads(await run(folder, "approvals", "list", "--json"))["approvals"]
        await run(folder, "approvals", "approve", waiting["id"])
        async with asyncio.timeout(SECONDS):
            while (shown := (await pipe.ask("tasks/get", named))["result"])["status"] == "working":
                await asyncio.sleep(0.05)
        assert shown["status"] == "completed" and shown["result"]["content"][0]["text"] == "done", shown


async def run(folder: Path, *words: str) -> bytes:
    """What a command in another process prints."""
    process = await asyncio.create_subprocess_exec(SCRIPT, *words, cwd=folder, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0
    return out
