"""A call that waits for a person, through every door: its process is killed, a person approves it in another process, and
the caller's repeat, or the approval's id, has it run: once."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.behaviour.test_mcp_tasks_processes import Servers
from tests.serving import META
from tests.terminal import SECONDS, Done, Terminal

pytestmark = pytest.mark.requirement("TIER-6", "TIER-9")

BY = pytest.mark.parametrize("by", ["repeat", "approval"])


@pytest.fixture
def servers(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Servers:
    return Servers(Terminal(tmp_path, monkeypatch, capsys), database)


def at_once(*works: Any) -> list[Any]:
    """What functions give that are called side by side."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [one.result(SECONDS) for one in [pool.submit(work) for work in works]]


@BY
@pytest.mark.matrix("starts three servers, while the same holds from the terminal")
async def test_over_mcp_without_tasks(servers: Servers, by: str) -> None:
    key = servers.key("a")
    params = {"name": "risky", "arguments": {"text": "one"}}
    async with servers.one() as (process, site):
        told = (await site.mcp("tools/call", params, key=key)).json["result"]["structuredContent"]
        assert told["status"] == "pending"
        process.send_signal(signal.SIGKILL)
    servers.answer("approve", told["approval"])
    meta = {**META, "toolgate/approval": told["approval"]} if by == "approval" else META
    async with servers.one() as (_, first), servers.one() as (_, second):
        calls = [site.mcp("tools/call", params, key=key, meta=meta) for site in (first, second, first)]
        results = [answer.json["result"] for answer in await asyncio.gather(*calls)]
        [done] = [result for result in results if not result.get("isError")]
        assert done["content"][0]["text"] == "did one"
        others = str([result for result in results if result is not done])
        assert ("used already" if by == "approval" else "APPROVAL_REQUIRED") in others
    assert servers.did == ["risky one"]


CALLING = """
import asyncio, os, sys
from toolgate import App
from toolgate.model import Actor

async def main():
    async def nobody(request):
        print("asked", request.id, flush=True)
        await asyncio.sleep(3600)

    async with App.open() as app:
        approval = sys.argv[2] or None
        if sys.argv[1] == "ask":
            app.approvals.add_approver(nobody)
        outcome = await app.invoke("risky", {"text": "one"}, actor=Actor("acme", None, "ada"), approval=approval)
        print(outcome.to_json().decode(), flush=True)

asyncio.run(main())
"""


def calling(servers: Servers, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CALLING, *words]
    return subprocess.Popen(command, cwd=servers.terminal.folder, stdout=subprocess.PIPE, text=True)


@BY
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_in_python_while_an_approver_is_asked(servers: Servers, by: str) -> None:
    asking = calling(servers, "ask", "")
    try:
        assert asking.stdout is not None
        word, id = asking.stdout.readline().split()
        assert word == "asked"
    finally:
        asking.kill()
        asking.communicate(timeout=SECONDS)
    assert servers.did == [] and servers.waiting() == [id]
    servers.answer("approve", id)

    def call() -> Any:
        out, _ = calling(servers, "call", id if by == "approval" else "").communicate(timeout=SECONDS)
        return json.loads(out)

    outcomes = at_once(call, call, call)
    assert [one["output"] for one in outcomes if one["status"] == "success"] == ["did one"], outcomes
    assert {one["status"] for one in outcomes} == {"success", "denied" if by == "approval" else "pending"}
    assert servers.did == ["risky one"]


@BY
def test_from_the_terminal(servers: Servers, by: str) -> None:
    terminal, who = servers.terminal, ("--tenant", "acme", "--user", "ada")
    asked = terminal.run("call", "risky", "text=one", *who, "--json")
    assert asked.code == 3, asked.err
    id = asked.json["pending"]["id"]
    servers.answer("approve", id)

    def call() -> Done:
        return terminal.run("call", "risky", "text=one", *who, *(("--approval", id) if by == "approval" else ()), "--json")

    codes = [done.code for done in at_once(call, call, call)]
    assert sorted(codes) == ([0, 1, 1] if by == "approval" else [0, 3, 3])
    assert servers.did == ["risky one"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_call_that_is_killed_after_it_began_is_not_made_again(servers: Servers, keyed: bool) -> None:
    """Its approval is used; with an idempotency key the caller is told that nobody knows how it ended."""
    terminal, who = servers.terminal, ("--tenant", "acme", "--user", "ada", *(("--idempotency-key", "k") if keyed else ()))
    words = ("call", "risky", "text=slow", *who, "--json")
    id = terminal.run(*words).json["pending"]["id"]
    servers.answer("approve", id)
    deadline = time.monotonic() + SECONDS
    with forked.reading(*words, folder=terminal.folder) as (running, _):
        while not servers.did:
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    servers.let()
    while (again := terminal.run(*words)).code == 1 and "still runs" in again.out:  # until its process counts as dead
        assert time.monotonic() < deadline
    assert again.json["error"]["code"] == ("OUTCOME_UNKNOWN" if keyed else "APPROVAL_REQUIRED")
    used = terminal.run(*words, "--approval", id)
    assert used.code == 1 and used.json["error"]["code"] in ("OUTCOME_UNKNOWN", "PERMISSION_DENIED")
    assert servers.did == ["risky slow"]
